// SPDX-License-Identifier: Apache-2.0
#pragma once

/// FarmHash's Fingerprint64, written from the definition in docs/IDS.md, whose names are used here.

#include <cstdint>
#include <type_traits>

#include "warprank/core/host_device.hpp"
#include "warprank/core/unroll.hpp"

namespace warprank { inline namespace v0 { namespace ids::detail {

inline constexpr uint64_t k0 = 0xc3a5c85c97cb3127;
inline constexpr uint64_t k1 = 0xb492b66fbe98f273;
inline constexpr uint64_t k2 = 0x9ae16a3b2f90404f;

// Unrolled, it becomes one load.
template <int NumBytes>
WARPRANK_HOST_DEVICE constexpr uint64_t little_endian(const char* bytes) {
  uint64_t word = 0;
  WARPRANK_UNROLL
  for (int i = 0; i < NumBytes; ++i) word |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << 8 * i;
  return word;
}
WARPRANK_HOST_DEVICE constexpr uint64_t word(const char* bytes) { return little_endian<8>(bytes); }
WARPRANK_HOST_DEVICE constexpr uint64_t rotate(uint64_t x, int right) { return x >> right | x << (64 - right); }
WARPRANK_HOST_DEVICE constexpr uint64_t fold(uint64_t x) { return x ^ x >> 47; }

WARPRANK_HOST_DEVICE constexpr uint64_t join(uint64_t u, uint64_t v, uint64_t m) {
  return fold((fold((u ^ v) * m) ^ v) * m) * m;
}
WARPRANK_HOST_DEVICE constexpr uint64_t mix(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  return rotate(a + b, 43) + rotate(c, 30) + d;
}
WARPRANK_HOST_DEVICE constexpr uint64_t join_four(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t k,
                                                  uint64_t m) {
  return join(mix(a, b, c, d), a + rotate(b + k, 18) + c, m);
}

WARPRANK_HOST_DEVICE constexpr uint64_t fingerprint_up_to_16(const char* s, uint64_t n) {
  const uint64_t m = k2 + 2 * n;
  if (n >= 8) {
    const uint64_t a = word(s) + k2, b = word(s + n - 8);
    return join(rotate(b, 37) * m + a, (rotate(a, 25) + b) * m, m);
  }
  if (n >= 4) return join(n + (little_endian<4>(s) << 3), little_endian<4>(s + n - 4), m);
  if (n == 0) return k2;
  const uint64_t y = little_endian<1>(s) + (little_endian<1>(s + n / 2) << 8);
  const uint64_t z = n + (little_endian<1>(s + n - 1) << 2);
  return fold(y * k2 ^ z * k0) * k2;
}

WARPRANK_HOST_DEVICE constexpr uint64_t fingerprint_up_to_32(const char* s, uint64_t n) {
  const uint64_t m = k2 + 2 * n;
  return join_four(word(s) * k1, word(s + 8), word(s + n - 8) * m, word(s + n - 16) * k2, k2, m);
}

WARPRANK_HOST_DEVICE constexpr uint64_t fingerprint_up_to_64(const char* s, uint64_t n) {
  const uint64_t m = k2 + 2 * n;
  const uint64_t a = word(s) * k2, b = word(s + 8), c = word(s + n - 8) * m, d = word(s + n - 16) * k2;
  const uint64_t g = (mix(a, b, c, d) + word(s + n - 32)) * m;
  const uint64_t h = (join_four(a, b, c, d, k2, m) + word(s + n - 24)) * m;
  return join_four(word(s + 16) * m, word(s + 24), g, h, a, m);
}

struct Pair {
  uint64_t first, second;
};

WARPRANK_HOST_DEVICE constexpr Pair absorb_32(const char* s, uint64_t a, uint64_t b) {
  const uint64_t last = word(s + 24);
  a += word(s);
  const uint64_t sum = a + word(s + 8) + word(s + 16);
  return {sum + last, rotate(b + a + last, 21) + rotate(sum, 44) + a};
}

// What has been read of a text of more than 64 bytes.
struct LongState {
  uint64_t x, y, z;
  Pair v, w;

  WARPRANK_HOST_DEVICE constexpr void absorb_64(const char* s, uint64_t m, uint64_t weight) {
    const uint64_t next_x = rotate(x + y + v.first + word(s + 8), 37) * m ^ w.second * weight;
    y = rotate(y + v.second + word(s + 48), 42) * m + v.first * weight + word(s + 40);
    const uint64_t next_z = rotate(z + w.first, 33) * m;
    v = absorb_32(s, v.second * m, next_x + w.first);
    w = absorb_32(s + 32, next_z + w.second, y + word(s + 16));
    x = next_z;
    z = next_x;
  }
};

WARPRANK_HOST_DEVICE constexpr uint64_t fingerprint_above_64(const char* s, uint64_t n) {
  constexpr uint64_t seed = 81;
  LongState state{seed * k2 + word(s), seed * k1 + 113, 0, {0, 0}, {0, 0}};
  state.z = fold(state.y * k2 + 113) * k2;
  const uint64_t rest = (n - 1) % 64;  // 1 less than the number of bytes behind the last full block
  for (uint64_t i = 0; i + 64 < n; i += 64) state.absorb_64(s + i, k1, 1);

  const uint64_t m = k1 + 2 * (state.z & 0xff);
  state.w.first += rest;
  state.v.first += state.w.first;
  state.w.first += state.v.first;
  state.absorb_64(s + n - 64, m, 9);
  const Pair v = state.v, w = state.w;
  return join(join(v.first, w.first, m) + fold(state.y) * k0 + state.z, join(v.second, w.second, m) + state.x, m);
}

WARPRANK_HOST_DEVICE constexpr uint64_t fingerprint64(const char* bytes, int64_t size) {
  const auto n = static_cast<uint64_t>(size);
  if (n <= 16) return fingerprint_up_to_16(bytes, n);
  if (n <= 32) return fingerprint_up_to_32(bytes, n);
  if (n <= 64) return fingerprint_up_to_64(bytes, n);
  return fingerprint_above_64(bytes, n);
}

/// The fingerprint of what two fingerprints stand for, in this order.
WARPRANK_HOST_DEVICE constexpr uint64_t concatenate(uint64_t first, uint64_t second) {
  constexpr uint64_t m = 0xc6a4a7935bd1e995;
  return fold(fold(((first ^ m) ^ fold(second * m) * m) * m) * m);
}

template <class T>
inline constexpr bool is_number = std::is_integral_v<T> && sizeof(T) <= 8 && !std::is_same_v<T, bool> &&
                                  !std::is_same_v<T, char> && !std::is_same_v<T, wchar_t> &&
                                  !std::is_same_v<T, char16_t> && !std::is_same_v<T, char32_t>;

/// An integer's decimal text, right-aligned.
class Decimal {
 public:
  template <class Integer>
  WARPRANK_HOST_DEVICE constexpr explicit Decimal(Integer integer) {
    bool is_negative = false;
    if constexpr (std::is_signed_v<Integer>) is_negative = integer < 0;
    auto magnitude = static_cast<uint64_t>(integer);
    if (is_negative) magnitude = 0 - magnitude;
    do {
      text_[--begin_] = static_cast<char>('0' + magnitude % 10);
      magnitude /= 10;
    } while (magnitude != 0);
    if (is_negative) text_[--begin_] = '-';
  }
  WARPRANK_HOST_DEVICE constexpr uint64_t fingerprint() const {
    const uint64_t size = max_size - begin_;
    return size <= 16 ? fingerprint_up_to_16(text_ + begin_, size) : fingerprint_up_to_32(text_ + begin_, size);
  }

 private:
  static constexpr uint64_t max_size = 20;  // of -2^63, and of 2^64 - 1
  char text_[max_size] = {};
  uint64_t begin_ = max_size;
};

}}}  // namespace warprank::v0::ids::detail
