// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Rows of FP16 from global memory straight into the fragments of tensor cores, for rows of `Dim` elements that are
/// aligned to 16 bytes. Loads are made ahead (device/memory.hpp).
///
/// A product of two rows does not care for the order of their elements, as long as both have the same. So lanes 4 r to
/// 4 r + 3 load row r in pieces that lie together, 16 bytes where the row is long enough, and take its k-th word for
/// what a fragment wants of step k / 2: of the left factor's rows and of the right factor's columns alike.

#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// The `Count` words that begin at `first`, aligned to all of them or to 16 bytes.
template <int Count>
WARPRANK_DEVICE void load_words_ahead(const float16* first, uint32_t (&words)[Count]) {
  constexpr int at_once = Count < 4 ? Count : 4;
  WARPRANK_UNROLL
  for (int w = 0; w < Count; w += at_once) {
    const auto loaded = device::load_vector_ahead<at_once>(reinterpret_cast<const uint32_t*>(first) + w);
    WARPRANK_UNROLL
    for (int i = 0; i < at_once; ++i) words[w + i] = loaded[i];
  }
}

/// The words of a row, of 8 elements or more, that the lane multiplies.
template <int Words>
WARPRANK_DEVICE void load_factor_ahead(const float16* row, uint32_t (&words)[Words]) {
  constexpr int at_once = Words < 4 ? Words : 4;
  const auto* const first = reinterpret_cast<const uint32_t*>(row) + device::lane_index() % 4 * at_once;
  WARPRANK_UNROLL
  for (int w = 0; w < Words; w += at_once) {
    const auto loaded = device::load_vector_ahead<at_once>(first + 4 * w);
    WARPRANK_UNROLL
    for (int i = 0; i < at_once; ++i) words[w + i] = loaded[i];
  }
}

}}}  // namespace warprank::v0::detail
