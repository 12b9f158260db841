// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The slot of a key among the 16384 slots of a Redis Cluster, by its specification.

#include <cstdint>
#include <string_view>

namespace warprank { inline namespace v0 { namespace redis {

inline constexpr int num_slots = 16384;

/// CRC-16/XMODEM: polynomial 0x1021, from 0, no reflection.
constexpr uint16_t crc16(std::string_view bytes) {
  unsigned crc = 0;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned>(static_cast<unsigned char>(byte)) << 8;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 0x8000u) != 0 ? (crc << 1 ^ 0x1021u) & 0xffffu : crc << 1;
  }
  return static_cast<uint16_t>(crc);
}

/// The slot of a key: from the part between the first { and the next }, if that is not empty, else from the whole key.
constexpr int slot_of(std::string_view key) {
  const size_t open = key.find('{');
  if (open != std::string_view::npos) {
    const size_t close = key.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1) key = key.substr(open + 1, close - open - 1);
  }
  return crc16(key) % num_slots;
}

}}}  // namespace warprank::v0::redis
