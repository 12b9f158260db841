// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A whole file as read-only memory.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

#include "warprank/core/error.hpp"
#include "warprank/core/release_pages.hpp"
#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 {

/// Maps `path`, a regular file of any size, 0 included. Throws invalid_argument if it cannot be opened. Replace a file
/// that may be mapped by renaming a new one over it: reading pages of a file that was cut short is a bus error, and
/// bytes written in place show through.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not wait for its writer
    if (file < 0) fail(path, errno);
    struct stat status;
    const bool known = ::fstat(file, &status) == 0;
    const int stat_error = errno;
    if (known && S_ISREG(status.st_mode) && status.st_size > 0) {
      size_ = status.st_size;
      data_ = ::mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_PRIVATE, file, 0);
    }
    const int map_error = errno;
    ::close(file);
    if (!known) fail(path, stat_error);
    if (!S_ISREG(status.st_mode)) throw invalid_argument(path, "a regular file", "a directory, pipe or device");
    if (data_ == MAP_FAILED) fail(path, map_error);
  }
  ~MappedFile() {
    if (data_ == nullptr) return;
    release_pages(data_, size_);
    ::munmap(data_, static_cast<size_t>(size_));
  }
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  Span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  [[noreturn]] static void fail(const std::string& path, int error) {
    throw invalid_argument(path, "a readable file", std::generic_category().message(error));
  }

  void* data_ = nullptr;
  int64_t size_ = 0;
};

}}  // namespace warprank::v0
