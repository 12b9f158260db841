// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace warprank::test_support {

/// An empty folder, removed with all that is in it.
class Folder {
 public:
  explicit Folder(const std::string& name) : path_(testing::TempDir() + name + "_" + std::to_string(getpid()) + "/") {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directory(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace warprank::test_support
