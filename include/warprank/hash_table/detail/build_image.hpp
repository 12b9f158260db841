// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/buffer.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/pages.hpp"
#include "warprank/core/prefetch.hpp"
#include "warprank/hash_table/build_options.hpp"
#include "warprank/hash_table/detail/parallel.hpp"
#include "warprank/hash_table/detail/place_keys.hpp"
#include "warprank/hash_table/detail/sorted_keys.hpp"
#include "warprank/hash_table/hash_table.hpp"
#include "warprank/hash_table/image.hpp"
#include "warprank/hash_table/stream.hpp"
#include "warprank/weights/tensor.hpp"

namespace warprank { inline namespace v0 { namespace detail {

class ImageBuilder {
 public:
  ImageBuilder(const HashTableRows& rows, const HashTableOptions& options)
      : rows_(rows), options_(options), threads_(threads_for(options.threads)) {
    Problems problems;
    const auto expect = [&](bool holds, const char* what, const char* expected, const std::string& got) {
      if (!holds) problems.add(std::string("hash table: ") + what, expected, got);
    };
    expect(rows.type != DType::i64, "row type", "F32, F16, BF16 or I8", name_of(rows.type));
    expect(rows.dim >= 1, "dim", "at least 1", std::to_string(rows.dim));
    const bool is_short = rows.dim <= hash_table::max_row_bytes &&
                          hash_table::row_bytes(rows.type, rows.dim) <= hash_table::max_row_bytes;
    expect(is_short, "row", "at most 1024 bytes", name_of(rows.type) + (" x " + std::to_string(rows.dim)));
    expect(options.load_factor > 0 && options.load_factor <= 1, "load factor", "above 0, at most 1",
           std::to_string(options.load_factor));
    expect(options.capacity >= 0, "capacity", "at least 0", std::to_string(options.capacity));
    expect(options.threads >= 0, "threads", "at least 0", std::to_string(options.threads));
    problems.throw_if_any();
    view_.type = rows.type;
    view_.dim = rows.dim;
    view_.is_mutable = rows.is_mutable;
    view_.row_bytes = hash_table::row_bytes(rows.type, rows.dim);
    view_.shape = hash_table::shape_of(view_.row_bytes, rows.is_mutable);
  }

  HashTable build(const HashTableStream& stream) {
    read_keys(stream);
    const auto size = static_cast<int64_t>(keys_.size());
    set_buckets(size);
    report("buckets", 0, size);
    for (view_.placement.seed = 0; !fill(view_.placement.seed == 0);) ++view_.placement.seed;
    report("buckets", size, size);
    write_rows(stream);
    return HashTable(std::move(image_));
  }

  /// Builds nothing; returns the bytes of the image, of overflow buckets with those alone that updates may need.
  int64_t check(const HashTableStream& stream) {
    read_keys(stream);
    set_buckets(static_cast<int64_t>(keys_.size()));
    refuse_duplicates(SortedKeys(keys_, view_.placement.seed, threads_));
    if (view_.is_mutable) view_.placement.num_overflow = least_overflow();
    return hash_table::header_bytes + buckets_bytes();
  }

 private:
  static constexpr int overflow_probes = 6;

  /// Where there are any.
  uint64_t least_overflow() const {
    return std::max(uint64_t{2 * overflow_probes}, view_.is_mutable ? view_.placement.num_buckets / 64 : 0);
  }

  void report(const char* step, int64_t done, int64_t total) const {
    if (options_.progress) options_.progress({step, done, total});
  }

  static uint64_t key_at(const HashTableChunk& chunk, int64_t i) {
    return warprank::load_element<uint64_t>(static_cast<const std::byte*>(chunk.keys), i);
  }

  /// The next chunk, or one of no rows at the end.
  HashTableChunk next(const HashTableStream& stream) const {
    const HashTableChunk chunk = stream();
    if (chunk.count == 0) return chunk;
    Problems problems;
    const auto expect = [&](bool holds, const char* what, const char* expected, const std::string& got) {
      if (!holds) problems.add(std::string("hash table: ") + what, expected, got);
    };
    const bool scaled = rows_.type == DType::i8;
    expect(chunk.count > 0, "rows of a chunk", "0 or more", std::to_string(chunk.count));
    expect(chunk.keys != nullptr && chunk.rows != nullptr, "chunk", "keys and rows", "a null pointer");
    expect((chunk.scale != nullptr) == scaled && (chunk.offset != nullptr) == scaled, "scale and offset",
           "both of I8 rows, none of others", scaled ? "a null pointer" : "some");
    problems.throw_if_any();
    return chunk;
  }

  void read_keys(const HashTableStream& stream) {
    for (HashTableChunk chunk; (chunk = next(stream)).count > 0;) {
      const size_t before = keys_.size();
      keys_.resize(before + static_cast<size_t>(chunk.count));
      std::memcpy(keys_.data() + before, chunk.keys, static_cast<size_t>(chunk.count) * sizeof(uint64_t));
      report("keys", static_cast<int64_t>(keys_.size()), options_.capacity);
    }
  }

  void set_buckets(int64_t size) {
    if (options_.capacity > 0 && size > options_.capacity)
      throw invalid_argument("hash table: capacity", "at least the " + std::to_string(size) + " keys",
                             std::to_string(options_.capacity));
    const auto capacity = static_cast<double>(std::max(size, options_.capacity));
    const double buckets = std::ceil(capacity / (options_.load_factor * view_.shape.num_keys()));
    if (buckets > 0x1p62)
      throw invalid_argument("hash table: capacity", "less than 2^62 buckets", std::to_string(buckets) + " buckets");
    view_.placement.num_buckets = std::max(hash_table::min_buckets, static_cast<uint64_t>(buckets));
    buckets_bytes();
  }

  /// Throws invalid_argument when there is no such memory.
  int64_t buckets_bytes() const {
    const hash_table::Placement& placement = view_.placement;
    int64_t bytes = 0;
    if (!hash_table::buckets_bytes(placement.num_buckets, placement.num_overflow, view_.shape.bucket_bytes, bytes))
      throw invalid_argument(
          "hash table: capacity", "less than 2^63 bytes",
          std::to_string(placement.num_buckets) + " buckets of " + std::to_string(view_.shape.bucket_bytes) + " bytes");
    return bytes;
  }

  /// Writes all but the rows; false when keys find no room, which takes keys chosen for this seed.
  bool fill(bool first) {
    SortedKeys keys(keys_, view_.placement.seed, threads_);
    if (first) refuse_duplicates(keys);
    hash_table::Placement& placement = view_.placement;
    placement.num_overflow = 0;
    placement.max_probes = 2;
    KeyPlacer placer(keys, placement, view_.shape.num_keys(), threads_);
    const int64_t overflowed = placer.place();
    if (overflowed > 0 || view_.is_mutable) {  // updates may need it later
      const auto needed = 2 * static_cast<uint64_t>(overflowed) / static_cast<uint64_t>(view_.shape.num_keys());
      placement.max_probes += overflow_probes;
      placement.num_overflow = std::max(needed, least_overflow());
      for (int tries = 0; !placer.place_overflow(); ++tries) {
        if (tries == 3) return false;
        placement.num_overflow *= 2;
      }
    }
    allocate();
    write_buckets(keys, placer.displaced());
    return true;
  }

  void allocate() {
    image_ = Pages::zeroed(hash_table::header_bytes + buckets_bytes(), options_.pages);
    const HashTableHeader header = make_hash_table_header(view_, keys_.size());
    std::memcpy(image_.data(), &header, sizeof header);
    view_.buckets = image_.data() + hash_table::header_bytes;
    places_ = Buffer<uint64_t>(static_cast<int64_t>(keys_.size()));
  }

  /// Keys of equal hash are the same key; they are neighbours, ordered by row.
  void refuse_duplicates(const SortedKeys& keys) const {
    struct Duplicate {
      int64_t row, first_row;
    };
    const Parts parts(keys.size(), 1 << 16, 256);
    std::vector<std::vector<Duplicate>> found(static_cast<size_t>(parts.size()));
    parallel_for(parts.size(), threads_, [&](int64_t part) {
      for (int64_t i = std::max<int64_t>(1, parts.begin(part)); i < parts.end(part); ++i) {
        if (keys[i].hash != keys[i - 1].hash) continue;
        int64_t first = i - 1;
        if (!found[static_cast<size_t>(part)].empty() && first >= 1 && keys[first].hash == keys[first - 1].hash)
          found[static_cast<size_t>(part)].push_back(
              {static_cast<int64_t>(keys[i].row), found[static_cast<size_t>(part)].back().first_row});
        else {
          while (first >= 1 && keys[first - 1].hash == keys[i].hash) --first;
          found[static_cast<size_t>(part)].push_back(
              {static_cast<int64_t>(keys[i].row), static_cast<int64_t>(keys[first].row)});
        }
      }
    });
    std::vector<Duplicate> all;
    for (const auto& some : found) all.insert(all.end(), some.begin(), some.end());
    if (all.empty()) return;
    const size_t named = std::min<size_t>(all.size(), 16);
    std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(named), all.end(),
                      [](const Duplicate& a, const Duplicate& b) { return a.row < b.row; });
    Problems problems;
    for (size_t i = 0; i < named; ++i)
      problems.add(
          "key " + std::to_string(static_cast<int64_t>(keys_[static_cast<size_t>(all[i].row)])) + " of a hash table",
          "one row", "rows " + std::to_string(all[i].first_row) + " and " + std::to_string(all[i].row));
    if (all.size() > named)
      problems.add("keys of a hash table", "one row each", std::to_string(all.size()) + " rows too many");
    problems.throw_if_any();
  }

  void write_buckets(const SortedKeys& keys, const std::vector<DisplacedKey>& displaced) {
    const uint64_t end = view_.num_buckets();
    const Parts parts(static_cast<int64_t>(end), 1024, 4096);
    parallel_for(parts.size(), threads_, [&](int64_t part) {
      const auto begin = static_cast<uint64_t>(parts.begin(part)), last = static_cast<uint64_t>(parts.end(part));
      int64_t home = keys.lower_bound(view_.placement, begin);
      auto guest = std::lower_bound(displaced.begin(), displaced.end(), begin,
                                    [](const DisplacedKey& key, uint64_t b) { return key.bucket < b; });
      const auto next_home = [&] { return home < keys.size() ? view_.placement.first_bucket(keys[home].hash) : end; };
      const auto next_guest = [&] { return guest != displaced.end() ? guest->bucket : end; };
      // Zeros are what an inline bucket of no keys consists of: huge tables of few keys touch few pages.
      const auto next_from = [&](uint64_t bucket) {
        return view_.shape.layout == hash_table::Layout::header ? bucket : std::min(next_home(), next_guest());
      };
      for (uint64_t bucket = next_from(begin); bucket < last; bucket = next_from(bucket + 1)) {
        BucketWriter writer(*this, bucket);
        for (; next_home() == bucket; ++home) writer.add_home(keys[home]);
        for (; next_guest() == bucket; ++guest) writer.add(keys[guest->entry]);
        writer.finish();
      }
    });
  }

  /// The line of one bucket.
  class BucketWriter {
   public:
    BucketWriter(ImageBuilder& builder, uint64_t bucket)
        : builder_(builder),
          bucket_(bucket),
          line_(builder.view_.line(bucket)),
          is_inline_(builder.view_.shape.layout == hash_table::Layout::in_line),
          map_(is_inline_ ? 0 : hash_table::empty_map) {}

    /// A key whose first bucket this is.
    void add_home(const KeyEntry& key) {
      using hash_table::Displaced;
      if (key.home() == Home::first) return add(key);
      map_ = with_one_more(map_, key.home() == Home::second ? Displaced::spilled : Displaced::overflowed);
    }

    void add(const KeyEntry& key) {
      const HashTableView& view = builder_.view_;
      // From the last inline slot on: its row is beside the keys, where both may come by one access of 64 bytes. Of a
      // table of 32-byte rows at load 0.8 these are 41 % of the keys, 24 % from the first on.
      const int place = is_inline_ ? view.shape.num_slots - 1 - place_ : place_;
      line_[key_word(view.shape, place)] = unmix64(key.hash) ^ view.placement.seed;
      map_ =
          is_inline_ ? map_ | uint64_t{1} << place : hash_table::with_slot(map_, place, static_cast<uint64_t>(place));
      builder_.places_[static_cast<int64_t>(key.row)] = static_cast<uint64_t>(view.row(bucket_, place) - view.buckets);
      ++place_;
    }

    void finish() {
      if (!is_inline_) {
        const uint64_t foreign = builder_.view_.placement.foreign_key(bucket_);
        for (; place_ < hash_table::header_positions; ++place_) line_[place_] = foreign;
      }
      line_[is_inline_ ? hash_table::inline_map_word : hash_table::map_word] = map_;
    }

   private:
    ImageBuilder& builder_;
    uint64_t bucket_;
    uint64_t* line_;
    bool is_inline_;
    uint64_t map_;
    int place_ = 0;
  };

  void write_rows(const HashTableStream& stream) {
    constexpr int64_t block = 1 << 20, piece = 1 << 12;  // rows between reports, of one thread at a time
    const auto size = static_cast<int64_t>(keys_.size());
    int64_t done = 0;
    report("rows", 0, size);
    for (HashTableChunk chunk; (chunk = next(stream)).count > 0;) {
      if (chunk.count > size - done) throw_other_keys(std::to_string(done + chunk.count) + " or more");
      for (int64_t begin = 0; begin < chunk.count; begin += block) {
        const int64_t count = std::min(block, chunk.count - begin);
        parallel_for((count + piece - 1) / piece, threads_, [&](int64_t i) {
          write_rows(chunk, begin + i * piece, begin + std::min(count, (i + 1) * piece), done);
        });
        report("rows", done + begin + count, size);
      }
      done += chunk.count;
    }
    if (done < size) throw_other_keys(std::to_string(done));
  }

  /// Copies rows [begin, end) of a chunk, of which row 0 is row `first` of the stream.
  void write_rows(const HashTableChunk& chunk, int64_t begin, int64_t end, int64_t first) {
    constexpr int64_t distance = 24;
    const bool scaled = view_.type == DType::i8;
    const int64_t bytes = view_.dim * size_of(view_.type);
    const auto* rows = static_cast<const unsigned char*>(chunk.rows);
    const auto place_of = [&](int64_t i) { return view_.buckets + places_[first + i]; };
    for (int64_t i = begin; i < end; ++i) {
      if (i + distance < end) prefetch(place_of(i + distance), view_.row_bytes);
      if (key_at(chunk, i) != keys_[static_cast<size_t>(first + i)])
        throw_other_keys("another key in row " + std::to_string(first + i));
      unsigned char* to = place_of(i);
      std::memcpy(to, rows + i * bytes, static_cast<size_t>(bytes));
      if (!scaled) continue;
      to += view_.row_bytes - 2 * sizeof(float);
      std::memcpy(to, static_cast<const float*>(chunk.scale) + i, sizeof(float));
      std::memcpy(to + sizeof(float), static_cast<const float*>(chunk.offset) + i, sizeof(float));
    }
  }

  [[noreturn]] void throw_other_keys(const std::string& got) const {
    throw invalid_argument("hash table: the second pass of its stream",
                           "the " + std::to_string(keys_.size()) + " keys of the first", got);
  }

  const HashTableRows& rows_;
  const HashTableOptions& options_;
  const int threads_;
  HashTableView view_;
  std::vector<uint64_t> keys_;  // by row
  Pages image_;
  Buffer<uint64_t> places_;  // by row, bytes from the first bucket
};

}}}  // namespace warprank::v0::detail
