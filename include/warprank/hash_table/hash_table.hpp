// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "warprank/core/pages.hpp"
#include "warprank/core/view.hpp"
#include "warprank/hash_table/find.hpp"
#include "warprank/hash_table/image.hpp"
#include "warprank/hash_table/view.hpp"

namespace warprank { inline namespace v0 {

/// A hash table in host memory: 64-bit keys, each with a row beside it. build.hpp builds one, file.hpp saves and loads
/// it, ops/host/hash_table.hpp looks many keys up, and its image is what a device needs. Any number of threads may look
/// up. The table is immutable, except that a table built mutable may be changed while no thread looks up (change.hpp).
/// A default-constructed table has no image and may only be assigned to.
class HashTable {
 public:
  HashTable() = default;
  /// Takes an image whose header is valid, except that its checksums may be wrong.
  explicit HashTable(Pages image) : image_(std::move(image)) {
    HashTableHeader header;
    std::memcpy(&header, image_.data(), sizeof header);
    view_ = view_hash_table(header, image_.data());
  }

  /// The row of `key`, or null: as many elements of view().type as its dim says; I8 rows are followed, from the next
  /// multiple of 4 bytes on, by float scale and offset.
  const unsigned char* find(int64_t key) const { return find_row(view_, key); }

  const HashTableView& view() const { return view_; }
  int64_t size() const { return static_cast<int64_t>(*view_.size); }
  /// The whole image, as on a device or in a file. Only files have the checksums of the header.
  Span<const unsigned char> image() const { return {image_.data(), image_.size()}; }
  int64_t bytes() const { return image_.size(); }

 private:
  Pages image_;
  HashTableView view_;
};

}}  // namespace warprank::v0
