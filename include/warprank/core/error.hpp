// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The one error contract of the library: whatever a caller can get wrong is reported as
/// *what* was being done, what was *expected* and what was *got*; problems that can be found together are thrown
/// together.

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/compiled.hpp"

namespace warprank {

/// A place in the user's source, captured by a default argument (std::source_location needs C++20).
struct SourceLine {
  const char* file = "";
  int line = 0;

  static constexpr SourceLine current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

/// One thing that is wrong.
struct Problem {
  std::string where;     ///< "model.cpp:12" when it was found at a call of the user's, else empty
  std::string what;      ///< the op, tensor, file or field concerned
  std::string expected;  ///< what would have been right
  std::string got;       ///< what was found

  WARPRANK_HOST_INLINE std::string to_string() const;
};

/// Thrown at the host boundary for every misuse; carries each problem separately.
class invalid_argument : public std::invalid_argument {
 public:
  WARPRANK_HOST_INLINE explicit invalid_argument(std::vector<Problem> problems);
  WARPRANK_HOST_INLINE invalid_argument(std::string what, std::string expected, std::string got);

  const std::vector<Problem>& problems() const { return problems_; }

 private:
  std::vector<Problem> problems_;
};

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

}  // namespace warprank

#if !defined(WARPRANK_HOST_COMPILED)
#include "warprank/core/error_definitions.hpp"
#endif
