// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Several problems in one launch, each with a descriptor in device memory and a range of the blocks.

#include <cstdint>
#include <cstring>

#include "warprank/device/collectives.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/sync.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// The problem that a block works on: the last whose `first_block` is not behind it. Whole warps call.
template <class Descriptor>
WARPRANK_DEVICE int problem_of_block(const Descriptor* problems, int num_problems, int64_t block) {
  int begun = 0;
  for (int first = 0; first < num_problems; first += device::warp_size) {
    const int i = first + device::lane_index();
    const bool has_begun = i < num_problems && device::load_read_only(&problems[i].first_block) <= block;
    begun += device::count_bits(device::ballot(device::full_warp, has_begun));
  }
  return begun - 1;
}

/// Copies descriptors to shared memory, where they cost no registers. Ends with a barrier.
template <class Descriptor>
WARPRANK_DEVICE void read_descriptors(const Descriptor* from, int count, Descriptor* to) {
  using Piece = device::Vector<uint32_t, 4>;
  static_assert(sizeof(Descriptor) % sizeof(Piece) == 0);
  const int num_pieces = count * static_cast<int>(sizeof(Descriptor) / sizeof(Piece));
  for (int i = device::thread_rank(); i < num_pieces; i += static_cast<int>(device::block_dim().x)) {
    const auto piece = device::load_vector_read_only<4>(reinterpret_cast<const uint32_t*>(from) + i * 4);
    device::store(reinterpret_cast<Piece*>(to) + i, piece);
  }
  device::sync_block();
}

/// A descriptor, or a part of one, in registers.
template <class Descriptor>
WARPRANK_DEVICE Descriptor read_descriptor(const Descriptor* from) {
  constexpr int num_pieces = static_cast<int>(sizeof(Descriptor) / 16);
  static_assert(sizeof(Descriptor) % 16 == 0);
  device::Vector<uint32_t, 4> pieces[num_pieces];
  WARPRANK_UNROLL
  for (int i = 0; i < num_pieces; ++i) {
    pieces[i] = device::load_vector_read_only<4>(reinterpret_cast<const uint32_t*>(from) + i * 4);
  }
  Descriptor to;
  memcpy(static_cast<void*>(&to), pieces, sizeof to);
  return to;
}

}}}  // namespace warprank::v0::detail
