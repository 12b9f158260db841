// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Products of heads of stacks that run side by side. Blocks of any two stacks may come to a row in any order, and none
/// waits: who is first leaves its factor in a word of the row, who is second takes it from there, multiplies, and
/// clears the word for the next launch. Which of the two it is changes no bit. A product of more factors is a factor of
/// the next: ((a b) c) d.
///
/// Behind the head's store: one load of 32 bytes, one exchange in the second-level cache.

#include <cstdint>
#include <type_traits>

#include "warprank/device/half.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/ops/detail/common/descriptors.cuh"

namespace warprank { inline namespace v0 { namespace detail::mlp {

/// A factor of a product, as it lies in device memory.
struct HeadFactor {
  uint32_t* words;   ///< [rows]: the bits of the factor that is there, inverted; 0: neither is
  void* y;           ///< of the product; null: it is a factor of the next
  int64_t y_stride;  ///< elements
  int y_is_half;
  int next;  ///< the factor that the product is; -1: of nothing
};
static_assert(std::has_unique_object_representations_v<HeadFactor> && sizeof(HeadFactor) == 32);

/// `value` of a row becomes each of the factors [first, first + count).
WARPRANK_DEVICE void multiply_head(const HeadFactor* factors, int first, int count, int64_t row, float value) {
  for (int i = first; i < first + count; ++i) {
    float product = value;
    for (int at = i; at >= 0;) {
      const HeadFactor factor = read_descriptor(factors + at);
      const uint32_t bits = product != product ? 0x7fffffff : device::bits_of_float(product);  // never all ones
      const uint32_t other =
          device::atomic_exchange<device::Order::relaxed, device::Scope::device>(factor.words + row, ~bits);
      if (other == 0) break;
      device::store<device::Order::relaxed, device::Scope::device>(factor.words + row, uint32_t{0});
      product *= device::float_of_bits(~other);
      if (factor.y != nullptr && factor.y_is_half != 0)
        device::store(static_cast<float16*>(factor.y) + row * factor.y_stride, device::narrow<float16>(product));
      else if (factor.y != nullptr)
        device::store(static_cast<float*>(factor.y) + row * factor.y_stride, product);
      at = factor.next;
    }
  }
}

}}}  // namespace warprank::v0::detail::mlp
