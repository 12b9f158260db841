// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The checksum of hash-table images: finds damage, not forgery.
///
///     mix(h, w)     = rotl(h ^ w, 29) * 0x9e3779b97f4a7c15
///     block         = 8 lanes, lane j = j; for each 64-byte line lane j = mix(lane j, word j of the line); then
///                     h = length of the block in bytes, h = mix(h, lane j) for j = 0..7; h ^ h >> 32
///     bytes         = the block of the little-endian blocks of its pieces of 1 MiB, of which the last may be shorter
///
/// Words are 8 bytes, little-endian; the last line of a block is filled up with zeros. About 20 GB/s on one core.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "warprank/core/view.hpp"
#include "warprank/hash_table/detail/parallel.hpp"

namespace warprank { inline namespace v0 { namespace detail {

inline constexpr int64_t checksum_piece = int64_t{1} << 20;

inline uint64_t checksum_mix(uint64_t hash, uint64_t word) {
  hash ^= word;
  return (hash << 29 | hash >> 35) * 0x9e3779b97f4a7c15u;
}

inline uint64_t checksum_of_block(const unsigned char* bytes, int64_t size) {
  constexpr int64_t lanes = 8, line = lanes * 8;
  uint64_t lane[lanes], words[lanes];
  for (int64_t j = 0; j < lanes; ++j) lane[j] = static_cast<uint64_t>(j);
  const auto add = [&] {
    for (int64_t j = 0; j < lanes; ++j) lane[j] = checksum_mix(lane[j], words[j]);
  };
  int64_t done = 0;
  for (; done + line <= size; done += line) {
    std::memcpy(words, bytes + done, line);
    add();
  }
  if (done < size) {
    std::memset(words, 0, line);
    std::memcpy(words, bytes + done, static_cast<size_t>(size - done));
    add();
  }
  auto hash = static_cast<uint64_t>(size);
  for (const uint64_t l : lane) hash = checksum_mix(hash, l);
  return hash ^ hash >> 32;
}

/// The checksum of `bytes`; calls prepare(begin, size) before each piece is read, from any thread.
template <class Prepare>
uint64_t checksum_of(Span<const unsigned char> bytes, int threads, const Prepare& prepare) {
  const int64_t pieces = (bytes.size() + checksum_piece - 1) / checksum_piece;
  std::vector<uint64_t> blocks(static_cast<size_t>(pieces));
  parallel_for(pieces, threads, [&](int64_t i) {
    const int64_t begin = i * checksum_piece, size = std::min(checksum_piece, bytes.size() - begin);
    prepare(begin, size);
    blocks[static_cast<size_t>(i)] = checksum_of_block(bytes.data() + begin, size);
  });
  return checksum_of_block(reinterpret_cast<const unsigned char*>(blocks.data()), pieces * 8);
}
inline uint64_t checksum_of(Span<const unsigned char> bytes, int threads) {
  return checksum_of(bytes, threads, [](int64_t, int64_t) {});
}

}}}  // namespace warprank::v0::detail
