// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The one error contract of the library: a caller's mistake is reported with *what* (the operation), *expected* and
/// *got*; problems that can be found together are thrown together. Every class of errors is an `error` and one of the
/// standard library's classes; either can be caught.
///
/// Primitives of the GPU compile without exceptions, too (-fno-exceptions): then `raise` calls the program's failure
/// handler and ends the process. Either all units of a program have exceptions, or none has.

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/compiled.hpp"

namespace warprank { inline namespace v0 {

/// A place in the user's source, captured by a default argument (std::source_location needs C++20).
struct SourceLine {
  const char* file = "";
  int line = 0;

  static constexpr SourceLine current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

/// One error.
struct Problem {
  std::string where;     ///< "model.cpp:12" if it was found at a call in user code, else empty
  std::string what;      ///< the op, tensor, file or field concerned
  std::string expected;  ///< the correct value
  std::string got;       ///< the actual value

  WARPRANK_HOST_INLINE std::string to_string() const;
};

/// The base of all errors of the library. User functions that the library calls may throw anything, and a lack of host
/// memory is a std::bad_alloc.
class error {
 public:
  virtual ~error() = default;
  virtual const char* what() const noexcept = 0;

 protected:
  error() = default;
  error(const error&) = default;
  error& operator=(const error&) = default;
};

namespace detail {

/// An error that is also a class of the standard library.
template <class Standard>
class error_of : public Standard, public error {
 public:
  using Standard::Standard;
  const char* what() const noexcept override { return Standard::what(); }
};

}  // namespace detail

/// A description, a shape, an option, a file or a tensor is wrong; carries each problem separately.
class invalid_argument : public detail::error_of<std::invalid_argument> {
 public:
  WARPRANK_HOST_INLINE explicit invalid_argument(std::vector<Problem> problems);
  WARPRANK_HOST_INLINE invalid_argument(std::string what, std::string expected, std::string got);

  const std::vector<Problem>& problems() const { return problems_; }

 private:
  std::vector<Problem> problems_;
};

/// A call came at a time when it is not permitted, such as a second batch on a context that has one under way.
class usage_error : public detail::error_of<std::logic_error> {
 public:
  using error_of::error_of;
};

/// The library itself is at fault.
class internal_error : public detail::error_of<std::logic_error> {
 public:
  using error_of::error_of;
};

#if !defined(__cpp_exceptions)
/// The function that `raise` calls in a program without exceptions, with the text of the error. It need not return; if
/// it does, the process is aborted.
using FailureHandler = void (*)(const char* what);

namespace detail {
inline void print_failure(const char* what) { std::fprintf(stderr, "%s\n", what); }
inline std::atomic<FailureHandler> failure_handler{print_failure};
}  // namespace detail

/// Sets another handler, from any thread, and returns the one before; the default handler prints the text to standard
/// error.
inline FailureHandler set_failure_handler(FailureHandler handler) { return detail::failure_handler.exchange(handler); }
#endif

/// Headers that need no exceptions report an error by this function: it throws if there are exceptions.
template <class Error>
[[noreturn]] void raise(const Error& error) {
#if defined(__cpp_exceptions)
  throw error;
#else
  detail::failure_handler.load()(error.what());
  std::abort();
#endif
}

/// Collects problems so that they can be thrown together.
class Problems {
 public:
  WARPRANK_HOST_INLINE void add(Problem problem);
  WARPRANK_HOST_INLINE void add(std::string what, std::string expected, std::string got);
  bool empty() const { return list_.empty(); }
  const std::vector<Problem>& list() const { return list_; }
  /// Throws invalid_argument with all that was collected; does nothing when there is nothing.
  WARPRANK_HOST_INLINE void throw_if_any() const;

 private:
  std::vector<Problem> list_;
};

}}  // namespace warprank::v0

#if !defined(WARPRANK_HOST_COMPILED)
#include "warprank/core/error_definitions.hpp"
#endif
