// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A shared library that a program uses if the machine has it.

#include <dlfcn.h>

#include <string>
#include <vector>

namespace warprank { inline namespace v0 { namespace detail {

/// Stays loaded until the process ends, since its functions may be in use until then.
class SharedLibrary {
 public:
  /// Opens the first of the names that the loader finds, in its usual folders; or nothing.
  explicit SharedLibrary(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) {
        name_ = name;
        problem_.clear();
        return;
      }
      const char* const error = ::dlerror();
      problem_ += (problem_.empty() ? "" : "; ") + std::string(error == nullptr ? name : error);
    }
  }

  /// Whether the library is there with all functions that were looked for.
  bool is_whole() const { return handle_ != nullptr && !lacks_some_; }
  const std::string& name() const { return name_; }
  /// Why the library is not there, or which functions it lacks.
  const std::string& problem() const { return problem_; }

  /// Sets `function`; to null if the library has no function of this name, or is not there.
  template <class Function>
  void find(const char* name, Function*& function) {
    function = handle_ == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(handle_, name));
    if (handle_ == nullptr || function != nullptr) return;
    problem_ += (lacks_some_ ? ", " : name_ + " has no ") + name;
    lacks_some_ = true;
  }

 private:
  void* handle_ = nullptr;
  bool lacks_some_ = false;
  std::string name_, problem_;
};

}}}  // namespace warprank::v0::detail
