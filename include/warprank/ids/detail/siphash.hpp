// SPDX-License-Identifier: Apache-2.0
#pragma once

/// SipHash-2-4 (Aumasson and Bernstein 2012), the hash that TensorFlow has for buckets with a key of one's own.

#include <cstdint>
#include <string_view>

#include "warprank/ids/detail/fingerprint64.hpp"

namespace warprank { inline namespace v0 { namespace ids::detail {

struct SipKey {
  uint64_t k0, k1;
};

class SipState {
 public:
  explicit SipState(SipKey key)
      : v0_(key.k0 ^ 0x736f6d6570736575),
        v1_(key.k1 ^ 0x646f72616e646f6d),
        v2_(key.k0 ^ 0x6c7967656e657261),
        v3_(key.k1 ^ 0x7465646279746573) {}

  void absorb(uint64_t word) {
    v3_ ^= word;
    rounds(2);
    v0_ ^= word;
  }
  uint64_t finish() {
    v2_ ^= 0xff;
    rounds(4);
    return v0_ ^ v1_ ^ v2_ ^ v3_;
  }

 private:
  static uint64_t left(uint64_t x, int bits) { return rotate(x, 64 - bits); }
  void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0_ += v1_;
      v2_ += v3_;
      v1_ = left(v1_, 13) ^ v0_;
      v3_ = left(v3_, 16) ^ v2_;
      v0_ = left(v0_, 32);
      v2_ += v1_;
      v0_ += v3_;
      v1_ = left(v1_, 17) ^ v2_;
      v3_ = left(v3_, 21) ^ v0_;
      v2_ = left(v2_, 32);
    }
  }

  uint64_t v0_, v1_, v2_, v3_;
};

inline uint64_t siphash(SipKey key, std::string_view text) {
  SipState state(key);
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) state.absorb(word(text.data() + i));
  uint64_t last = static_cast<uint64_t>(text.size()) << 56;
  for (size_t j = i; j < text.size(); ++j)
    last |= static_cast<uint64_t>(static_cast<unsigned char>(text[j])) << 8 * (j - i);
  state.absorb(last);
  return state.finish();
}

}}}  // namespace warprank::v0::ids::detail
