// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A file that is written whole or not at all.

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string>
#include <system_error>
#include <utility>

#include "warprank/core/error.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// Writes beside `path`, under a name that no other writer has, and renames it over `path` at the end. No reader sees
/// half a file, not even after a power loss; readers that have the old file open or mapped keep it; of several writers
/// the last one wins. A link is replaced, not followed. If something fails, throws invalid_argument, leaves nothing
/// behind, and leaves the old file unchanged.
class FileWriter {
 public:
  explicit FileWriter(std::string path) : path_(std::move(path)) {
    struct stat old;
    if (::stat(path_.c_str(), &old) == 0 && !S_ISREG(old.st_mode))
      fail(S_ISDIR(old.st_mode) ? reason(EISDIR) : "a pipe or device");  // which a rename would replace
    static std::atomic<uint64_t> num_files{0};
    do {  // a name may be that of a process that ended, or of one of another machine or container
      beside_ = path_ + ".partial." + std::to_string(::getpid()) + "." + std::to_string(num_files++);
      file_ = std::fopen(beside_.c_str(), "wbxe");
    } while (file_ == nullptr && errno == EEXIST);
    if (file_ == nullptr) fail(reason(errno));
  }
  ~FileWriter() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    std::remove(beside_.c_str());
  }
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* bytes, int64_t size) {
    if (std::fwrite(bytes, 1, static_cast<size_t>(size), file_) != static_cast<size_t>(size)) fail(reason(errno));
  }

  /// Call once, after the last write.
  void commit() {
    if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0 || std::rename(beside_.c_str(), path_.c_str()) != 0)
      fail(reason(errno));
    std::fclose(std::exchange(file_, nullptr));
  }

 private:
  static std::string reason(int error) { return std::generic_category().message(error); }
  [[noreturn]] void fail(std::string reason) const {
    throw invalid_argument(path_, "a file that can be written", std::move(reason));
  }

  const std::string path_;
  std::string beside_;
  std::FILE* file_ = nullptr;
};

}}}  // namespace warprank::v0::detail
