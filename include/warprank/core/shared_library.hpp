// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A shared library that a program uses where the machine has it, and does without where not.

#include <dlfcn.h>

#include <string>
#include <vector>

namespace warprank { inline namespace v0 { namespace detail {

/// Stays loaded until the process ends, as what it gave may be in use until then.
class SharedLibrary {
 public:
  /// The first of the names that the loader finds, as it finds what a program is linked with; or nothing.
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

  /// Whether it is there with all that was looked for in it.
  bool is_whole() const { return handle_ != nullptr && !lacks_some_; }
  const std::string& name() const { return name_; }
  /// Why it is not there, or which functions it has not.
  const std::string& problem() const { return problem_; }

  /// Sets `function`; to null where the library has none of this name, or is not there.
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
