// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Hash tables in files. A file is the image itself, so that a cold start is one read and one copy.

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "warprank/core/error.hpp"
#include "warprank/core/file_writer.hpp"
#include "warprank/core/mapped_file.hpp"
#include "warprank/core/pace.hpp"
#include "warprank/core/pages.hpp"
#include "warprank/core/view.hpp"
#include "warprank/hash_table/detail/checksum.hpp"
#include "warprank/hash_table/detail/parallel.hpp"
#include "warprank/hash_table/detail/verify.hpp"
#include "warprank/hash_table/hash_table.hpp"
#include "warprank/hash_table/image.hpp"

namespace warprank { inline namespace v0 {

namespace detail {

/// Throws unless the buckets of an image have their checksum and keys are where look-ups find them. Calls
/// prepare(begin, size) before those bytes of the buckets are read, from any thread.
template <class Prepare>
void check_buckets(const std::string& where, const HashTableHeader& header, unsigned char* image, int threads,
                   const Prepare& prepare) {
  const Span<const unsigned char> buckets{image + hash_table::header_bytes,
                                          static_cast<int64_t>(header.image_bytes) - hash_table::header_bytes};
  if (checksum_of(buckets, threads, prepare) != header.buckets_checksum)
    throw invalid_argument(where + ": buckets", "bytes that agree with their checksum", "others: the image is damaged");
  verify(where, view_hash_table(header, image), threads);
}

}  // namespace detail

/// A table from an image in any memory. Checks the header as read_hash_table_header does, copies the image, and checks
/// the copy: its checksum; every key once, where look-ups find it; as many keys as the header says; no update under
/// way. Throws invalid_argument, about `where`, for the first error. `threads`: 0 for all of the machine. `pages`: the
/// memory of the copy; null: its own.
inline HashTable read_hash_table(const std::string& where, Span<const unsigned char> image, int threads = 0,
                                 Pace* pace = nullptr, std::shared_ptr<PagePool> pages = nullptr) {
  const HashTableHeader header = read_hash_table_header(where, image);
  Pages memory(image.size(), std::move(pages));
  std::memcpy(memory.data(), &header, sizeof header);
  detail::check_buckets(where, header, memory.data(), detail::threads_for(threads), [&](int64_t begin, int64_t size) {
    std::memcpy(memory.data() + hash_table::header_bytes + begin, image.data() + hash_table::header_bytes + begin,
                static_cast<size_t>(size));
    if (pace != nullptr) pace->moved(size);
  });
  return HashTable(std::move(memory));
}

/// Checks an image in place, aligned to 8 bytes, as read_hash_table does. It must not change meanwhile.
inline void check_hash_table_image(const std::string& where, Span<const unsigned char> image, int threads = 0,
                                   Pace* pace = nullptr) {
  const HashTableHeader header = read_hash_table_header(where, image);
  auto* bytes = const_cast<unsigned char*>(image.data());  // only read
  detail::check_buckets(where, header, bytes, detail::threads_for(threads), [pace](int64_t, int64_t size) {
    if (pace != nullptr) pace->moved(size);
  });
}

/// The file of one table, mapped read-only; see MappedFile on replacing files.
class HashTableFile {
 public:
  /// Reads no more than the header. Throws invalid_argument when the file cannot be opened or its header is refused.
  explicit HashTableFile(const std::string& path)
      : path_(path), file_(path), header_(read_hash_table_header(path, image())) {}

  const std::string& path() const { return path_; }
  const HashTableHeader& header() const { return header_; }
  Span<const unsigned char> image() const {
    return {reinterpret_cast<const unsigned char*>(file_.bytes().data()), file_.bytes().size()};
  }
  /// The table in memory. Throws as read_hash_table does.
  HashTable read(int threads = 0, Pace* pace = nullptr, std::shared_ptr<PagePool> pages = nullptr) const {
    return read_hash_table(path_, image(), threads, pace, std::move(pages));
  }
  /// Checks the table as it is mapped. Throws as read_hash_table does.
  void check(int threads = 0, Pace* pace = nullptr) const { check_hash_table_image(path_, image(), threads, pace); }

 private:
  std::string path_;
  MappedFile file_;
  HashTableHeader header_;
};

/// The table of a file, in memory. Throws as HashTableFile and read_hash_table do.
inline HashTable load_hash_table(const std::string& path, int threads = 0) { return HashTableFile(path).read(threads); }

/// Writes an image, with its checksums, beside `path` and renames it over `path`, so that no reader sees half a file,
/// and a mapping of the old file stays valid. Throws invalid_argument for an image without a valid header, and when
/// writing fails. No update may be under way.
inline void save_hash_table(const std::string& path, Span<const unsigned char> image, int threads = 0) {
  using hash_table::header_bytes;
  if (image.size() < header_bytes)
    throw invalid_argument(path + ": size of the image", "128 bytes or more", std::to_string(image.size()));
  HashTableHeader header;
  std::memcpy(&header, image.data(), sizeof header);
  const auto buckets = image.subspan(header_bytes, image.size() - header_bytes);
  header.buckets_checksum = detail::checksum_of(buckets, detail::threads_for(threads));
  header.header_checksum = hash_table::checksum_of_header(header);
  check_hash_table_header(path, header, image.size());

  detail::FileWriter file(path);
  file.write(&header, sizeof header);
  file.write(buckets.data(), buckets.size());
  file.commit();
}
inline void save_hash_table(const std::string& path, const HashTable& table, int threads = 0) {
  save_hash_table(path, table.image(), threads);
}

}}  // namespace warprank::v0
