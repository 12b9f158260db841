// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace warprank { inline namespace v0 { namespace detail {

/// FNV-1a, 64 bits (Fowler, Noll, Vo): per byte hash = (hash ^ byte) * 0x100000001b3. Numbers enter little-endian,
/// texts as their length in 4 bytes and their bytes.
class Fnv1a {
 public:
  void add_byte(uint8_t byte) { hash_ = (hash_ ^ byte) * 0x100000001b3; }
  void add_32(uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) add_byte(static_cast<uint8_t>(value >> shift));
  }
  void add_64(uint64_t value) {
    add_32(static_cast<uint32_t>(value));
    add_32(static_cast<uint32_t>(value >> 32));
  }
  void add_text(const std::string& text) {
    add_32(static_cast<uint32_t>(text.size()));
    for (const char c : text) add_byte(static_cast<uint8_t>(c));
  }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

}}}  // namespace warprank::v0::detail
