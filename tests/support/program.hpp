// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace warprank::test_support {

/// A program that a test runs, with its output and errors in a file. Killed with its object.
class Program {
 public:
  struct Ended {
    int status;  ///< -1: by a signal
    std::string text;
  };

  Program(std::vector<std::string> words, std::string output) : output_(std::move(output)) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    process_ = fork();
    if (process_ != 0) return;
    const int file = open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (dup2(file, 1) < 0 || dup2(file, 2) < 0) _exit(99);
    execv(arguments[0], arguments.data());
    _exit(99);
  }
  ~Program() {
    signal(SIGKILL);
    if (process_ > 0) waitpid(process_, nullptr, 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void signal(int number) const {
    if (process_ > 0) kill(process_, number);
  }
  /// What it has written.
  std::string text() const {
    std::ifstream file(output_);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  bool is_running() {
    if (process_ > 0 && waitpid(process_, &status_, WNOHANG) == process_) process_ = -1;
    return process_ > 0;
  }
  /// Waits for its end.
  Ended end() {
    if (process_ > 0) waitpid(std::exchange(process_, -1), &status_, 0);
    return {WIFEXITED(status_) ? WEXITSTATUS(status_) : -1, text()};
  }

 private:
  const std::string output_;
  pid_t process_ = -1;
  int status_ = 0;
};

}  // namespace warprank::test_support
