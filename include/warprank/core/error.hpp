// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The one error contract of the library: whatever a caller can get wrong is reported as
/// *what* was being done, what was *expected* and what was *got*; problems that can be found together are thrown
/// together.

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

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

  std::string to_string() const {
    return (where.empty() ? "" : where + ": ") + what + ": expected " + expected + ", got " + got;
  }
};

/// Thrown at the host boundary for every misuse; carries each problem separately.
class invalid_argument : public std::invalid_argument {
 public:
  explicit invalid_argument(std::vector<Problem> problems)
      : std::invalid_argument(join(problems)), problems_(std::move(problems)) {}
  invalid_argument(std::string what, std::string expected, std::string got)
      : invalid_argument(std::vector<Problem>{{"", std::move(what), std::move(expected), std::move(got)}}) {}

  const std::vector<Problem>& problems() const { return problems_; }

 private:
  static std::string join(const std::vector<Problem>& problems) {
    if (problems.size() == 1) return problems[0].to_string();
    std::string text = std::to_string(problems.size()) + " problems:";
    for (const Problem& problem : problems) text += "\n  " + problem.to_string();
    return text;
  }

  std::vector<Problem> problems_;
};

/// Collects problems so that they can be thrown together.
class Problems {
 public:
  void add(Problem problem) { list_.push_back(std::move(problem)); }
  void add(std::string what, std::string expected, std::string got) {
    add({"", std::move(what), std::move(expected), std::move(got)});
  }
  bool empty() const { return list_.empty(); }
  const std::vector<Problem>& list() const { return list_; }
  /// Throws invalid_argument with all that was collected; does nothing when there is nothing.
  void throw_if_any() const {
    if (!list_.empty()) throw invalid_argument(list_);
  }

 private:
  std::vector<Problem> list_;
};

}  // namespace warprank
