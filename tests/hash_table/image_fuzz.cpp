// SPDX-License-Identifier: Apache-2.0

/// No bytes may crash the reader; a table that it accepts finds each of its keys, in its own bytes, and survives being
/// built again.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "warprank/hash_table/build.hpp"
#include "warprank/hash_table/file.hpp"

namespace {

using namespace warprank;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_table(const HashTable& table) {
  const HashTableView& view = table.view();
  const bool scaled = view.type == DType::i8;
  const int64_t bytes = view.dim * size_of(view.type);
  std::vector<int64_t> keys;
  std::vector<unsigned char> rows;
  std::vector<float> scale, offset;
  for (uint64_t b = 0; b < view.num_buckets(); ++b)
    for (int place = 0; place < view.shape.num_keys(); ++place) {
      const auto key = static_cast<int64_t>(view.line(b)[hash_table::key_word(view.shape, place)]);
      const unsigned char* row = table.find(key);
      if (row < view.bucket(b) || row >= view.bucket(b + 1)) continue;  // holds none here
      require(row + view.row_bytes <= view.bucket(b + 1));
      if (!keys.empty() && keys.back() == key) continue;
      keys.push_back(key);
      rows.insert(rows.end(), row, row + bytes);
      if (!scaled) continue;
      float numbers[2];
      std::memcpy(numbers, row + view.row_bytes - 8, sizeof numbers);
      scale.push_back(numbers[0]);
      offset.push_back(numbers[1]);
    }
  if (static_cast<int64_t>(keys.size()) != table.size()) return;  // a key lies in empty places as well
  HashTableOptions options;
  options.threads = 1;
  const HashTable again =
      build_hash_table({view.type, view.dim},
                       HashTableChunk{table.size(), keys.data(), rows.data(), scale.data(), offset.data()}, options);
  require(again.size() == table.size());
  for (size_t r = 0; r < keys.size(); ++r)
    require(std::memcmp(again.find(keys[r]), rows.data() + r * static_cast<size_t>(bytes),
                        static_cast<size_t>(bytes)) == 0);
}

void check(const uint8_t* data, size_t size) {
  const std::unique_ptr<unsigned char[]> exact(new unsigned char[size]);  // ends where the image ends
  if (size > 0) std::memcpy(exact.get(), data, size);
  try {
    check_table(read_hash_table("fuzz", {exact.get(), static_cast<int64_t>(size)}, 1));
  } catch (const invalid_argument& error) {
    require(std::strlen(error.what()) < 1000 && error.problems().size() == 1);
  }
}

}  // namespace

/// Tries the input as an image, and again with its sizes and checksums put right, which few mutations keep.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  check(data, size);
  if (size < sizeof(HashTableHeader)) return 0;
  std::vector<uint8_t> image(data, data + size);
  HashTableHeader header;
  std::memcpy(&header, data, sizeof header);
  header.image_bytes = size;
  header.buckets_checksum = detail::checksum_of({data + sizeof header, static_cast<int64_t>(size - sizeof header)}, 1);
  header.header_checksum = hash_table::checksum_of_header(header);
  std::memcpy(image.data(), &header, sizeof header);
  check(image.data(), image.size());
  return 0;
}
