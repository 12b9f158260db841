// SPDX-License-Identifier: Apache-2.0

#include "warprank/hash_table/file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "hash_table/table_testing.hpp"

namespace warprank { namespace {

using test::bytes_of;
using test::Folder;
using test::MadeUpRows;
using test::message_of;
using test::random_keys;
using testing::HasSubstr;

/// An image as a file has it.
using Image = std::vector<unsigned char>;

Image image_of(const HashTable& table) {
  const Folder folder("image_of");
  const std::string path = folder.path() + "table";
  save_hash_table(path, table);
  const HashTableFile file(path);
  return {file.image().begin(), file.image().end()};
}

std::string message_of_reading(const Image& image) {
  return message_of([&] { read_hash_table("image", {image.data(), static_cast<int64_t>(image.size())}, 1); });
}

template <class Value>
void put(Image& image, size_t at, Value value) {
  std::memcpy(image.data() + at, &value, sizeof value);
}

/// Puts the checksums right.
Image sealed(Image image) {
  HashTableHeader header;
  std::memcpy(&header, image.data(), sizeof header);
  header.buckets_checksum =
      detail::checksum_of({image.data() + sizeof header, static_cast<int64_t>(image.size() - sizeof header)}, 1);
  header.header_checksum = hash_table::checksum_of_header(header);
  std::memcpy(image.data(), &header, sizeof header);
  return image;
}

/// A small table in the header layout, and one inline.
Image header_image() {
  const MadeUpRows made_up(DType::f32, 16, random_keys(50, 1));
  return image_of(build_hash_table(made_up.format, made_up.all()));
}
Image inline_image() {
  const MadeUpRows made_up(DType::f16, 8, random_keys(18, 1));
  return image_of(build_hash_table(made_up.format, made_up.all()));
}

TEST(HashTableFiles, ComeBackAsTheyWere) {
  for (const MadeUpRows& made_up :
       {MadeUpRows(DType::f32, 16, random_keys(100000, 1)), MadeUpRows(DType::i8, 7, random_keys(5000, 2)),
        MadeUpRows(DType::bf16, 3, {}), MadeUpRows(DType::f32, 256, {42})}) {
    const HashTable table = build_hash_table(made_up.format, made_up.all());
    const Folder folder("table");
    const std::string path = folder.path() + "table";
    save_hash_table(path, table);
    for (const int threads : {1, 3}) {
      const HashTable loaded = load_hash_table(path, threads);
      EXPECT_EQ(loaded.size(), table.size());
      EXPECT_EQ(loaded.view().type, made_up.format.type);
      EXPECT_EQ(loaded.view().dim, made_up.format.dim);
      EXPECT_EQ(made_up.wrong(loaded), 0);
      EXPECT_TRUE(bytes_of(loaded).substr(128) == bytes_of(table).substr(128));
    }
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  }
}

TEST(HashTableFiles, ThatAreReplacedStayWholeForTheirReaders) {
  const MadeUpRows first(DType::f32, 16, random_keys(1000, 1)), second(DType::f32, 16, random_keys(10, 2));
  const Folder folder("replaced");
  const std::string path = folder.path() + "table";
  save_hash_table(path, build_hash_table(first.format, first.all()));
  const HashTableFile file(path);
  save_hash_table(path, build_hash_table(second.format, second.all()));
  EXPECT_EQ(first.wrong(file.read()), 0);
  EXPECT_EQ(second.wrong(load_hash_table(path)), 0);
}

TEST(HashTableFiles, AreRefusedWhenTheyCannotBeOpenedOrWritten) {
  EXPECT_THAT(message_of([] { load_hash_table("/nowhere/table"); }), HasSubstr("/nowhere/table"));
  const HashTable table = build_hash_table({DType::f32, 4}, HashTableChunk{});
  EXPECT_THAT(message_of([&] { save_hash_table("/nowhere/table", table); }), HasSubstr("a file that can be written"));
  EXPECT_THAT(message_of([&] { save_hash_table("x", Span<const unsigned char>()); }), HasSubstr("128 bytes or more"));
  const Image zeros(256);
  EXPECT_THAT(message_of([&] { save_hash_table("x", {zeros.data(), 256}); }), HasSubstr("'wr-table'"));
}

TEST(HashTableImages, OfAnyOtherLengthAreRefused) {
  for (const Image& image : {header_image(), inline_image()}) {
    EXPECT_EQ(message_of_reading(image), "");
    for (size_t size = 0; size < image.size(); size += size < 300 ? 1 : 97)
      ASSERT_THAT(message_of_reading({image.begin(), image.begin() + static_cast<int64_t>(size)}),
                  HasSubstr("image: size: expected "))
          << size;
    Image longer = image;
    longer.resize(image.size() + 128);
    EXPECT_THAT(message_of_reading(longer), HasSubstr("image: size: expected " + std::to_string(image.size())));
  }
}

TEST(HashTableImages, WithAnyByteChangedAreRefused) {
  for (Image image : {header_image(), inline_image()})
    for (size_t i = 0; i < image.size(); i += i < 128 ? 1 : 5) {
      image[i] ^= static_cast<unsigned char>(1 << i % 8);
      ASSERT_THAT(message_of_reading(image), HasSubstr("expected")) << i;
      image[i] ^= static_cast<unsigned char>(1 << i % 8);
    }
}

TEST(HashTableImages, OfOtherKindsAreRefusedByName) {
  const Image image = header_image();
  const auto message = [&](size_t at, auto value, bool seal = true) {
    Image other = image;
    put(other, at, value);
    return message_of_reading(seal ? sealed(other) : other);
  };
  EXPECT_EQ(message(0, 'W'), "image: first bytes: expected those of a hash table, 'wr-table', got others");
  EXPECT_EQ(message(8, uint32_t{0x04030201}), "image: byte order: expected little-endian, got big-endian");
  EXPECT_THAT(message(8, uint32_t{7}), HasSubstr("byte order: expected little-endian, got neither"));
  EXPECT_EQ(message(12, uint32_t{2}), "image: version: expected 1, got 2");
  EXPECT_EQ(message(16, uint32_t{2}), "image: layout: expected 1 for its rows, got 2");
  EXPECT_EQ(message(16, uint32_t{3}), "image: layout: expected 1 (header) or 2 (inline), got 3");
  EXPECT_THAT(message(20, uint32_t{4}), HasSubstr("row type: expected 0 (F32), 1 (F16), 2 (BF16) or 3 (I8), got 4"));
  EXPECT_THAT(message(20, uint32_t{1}), HasSubstr("bytes of a row: expected 32, got 64"));
  EXPECT_THAT(message(24, uint32_t{2}), HasSubstr("mutability: expected 0 or 1, got 2"));
  EXPECT_THAT(message(28, uint32_t{3}), HasSubstr("overflow buckets: expected 0 with 2 probes"));
  EXPECT_THAT(message(28, ~uint32_t{0}), HasSubstr("bound of probes: expected 2 to 64"));
  EXPECT_THAT(message(32, uint64_t{128}), HasSubstr("bytes of the image: expected " + std::to_string(image.size())));
  EXPECT_THAT(message(40, uint64_t{17}), HasSubstr("bytes of a row: expected 68, got 64"));
  EXPECT_THAT(message(40, uint64_t{0}), HasSubstr("dim: expected 1 to 1024, got 0"));
  EXPECT_THAT(message(40, uint64_t{512}), HasSubstr("bytes of a row: expected at most 1024, got 2048"));
  EXPECT_THAT(message(56, uint64_t{14}), HasSubstr("slots of a bucket: expected 15, got 14"));
  EXPECT_THAT(message(64, uint64_t{80}), HasSubstr("bytes between rows: expected 64, got 80"));
  EXPECT_THAT(message(72, uint64_t{1}), HasSubstr("bytes of a bucket: expected 1152, got 1"));
  EXPECT_THAT(message(88, uint64_t{3}), HasSubstr("buckets: expected 4 or more, got 3"));
  for (const uint64_t buckets : {uint64_t{1} << 54, uint64_t{1} << 62, ~uint64_t{0}})
    EXPECT_THAT(message(88, buckets), HasSubstr("buckets: expected less than 2^63 bytes"));
  EXPECT_THAT(message(96, ~uint64_t{0}), HasSubstr("buckets: expected less than 2^63 bytes"));
  EXPECT_THAT(message(104, uint64_t{1} << 40), HasSubstr("keys: expected no more than fit"));
  EXPECT_THAT(message(104, uint64_t{49}), HasSubstr("keys: expected 49, as its header says, got 50"));
  EXPECT_THAT(message(40, uint64_t{17}, false), HasSubstr("header: expected bytes that agree with their checksum"));
  EXPECT_THAT(message(500, uint64_t{17}, false), HasSubstr("buckets: expected bytes that agree with their checksum"));
}

TEST(HashTableImages, WhoseBucketsMakeNoSenseAreRefused) {
  const Image image = header_image();
  constexpr size_t line = 128, map = line + 8 * hash_table::map_word, state = line + 8 * hash_table::state_word;
  const auto changed = [&](size_t at, auto change) {
    Image other = image;
    uint64_t word;
    std::memcpy(&word, other.data() + at, sizeof word);
    put(other, at, static_cast<uint64_t>(change(word)));
    return message_of_reading(sealed(other));
  };
  EXPECT_THAT(changed(map, [](uint64_t m) { return (m & ~uint64_t{15} << 4 & ~uint64_t{15}); }),
              HasSubstr("bucket 0: expected a map that gives each key a row of its own"));
  EXPECT_THAT(changed(map, [](uint64_t m) { return m | 15; }), HasSubstr("bucket 0: expected keys of other buckets"));
  EXPECT_THAT(changed(state, [](uint64_t) { return 1; }), HasSubstr("a table that nobody was changing, got state 1"));
  EXPECT_THAT(changed(line, [](uint64_t key) { return key + 1; }), HasSubstr("keys where look-ups find them"));
  // A key twice in one bucket.
  uint64_t second;
  std::memcpy(&second, image.data() + line + 8, sizeof second);
  EXPECT_THAT(changed(line, [&](uint64_t) { return second; }), HasSubstr("keys where look-ups find them"));

  Image other = inline_image();
  uint64_t held;
  std::memcpy(&held, other.data() + line + 8 * hash_table::inline_map_word, sizeof held);
  put(other, line + 8 * hash_table::inline_map_word, held | uint64_t{1} << 20);
  EXPECT_THAT(message_of_reading(sealed(other)), HasSubstr("a map that gives each key a row of its own"));
}

TEST(HashTableImages, HaveTheirChecksumWhateverTheThreads) {
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{3} << 20, (size_t{3} << 20) + 7}) {
    std::vector<unsigned char> bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(i * 7 >> 3);
    const auto checksum = [&](int threads) {
      return detail::checksum_of({bytes.data(), static_cast<int64_t>(size)}, threads);
    };
    const uint64_t expected = checksum(1);
    EXPECT_EQ(checksum(4), expected);
    bytes.push_back(0);  // a zero more is another content
    EXPECT_NE(detail::checksum_of({bytes.data(), static_cast<int64_t>(size) + 1}, 1), expected);
    bytes.pop_back();
    if (size >= 128) {
      std::swap_ranges(bytes.begin(), bytes.begin() + 64, bytes.begin() + 64);
      EXPECT_NE(checksum(1), expected);
    }
  }
}

}}  // namespace warprank
