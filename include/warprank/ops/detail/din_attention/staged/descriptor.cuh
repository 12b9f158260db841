// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the parts of the DIN kernel share.

#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/detail/common/activation.cuh"
#include "warprank/ops/detail/common/item_units.cuh"
#include "warprank/ops/detail/din_attention/rows.hpp"
#include "warprank/ops/detail/din_attention/staged/partition.hpp"
#include "warprank/ops/detail/gemm/epilogue.cuh"

namespace warprank { inline namespace v0 { namespace detail::din {

/// Tiles of a warp's product: 16 outputs x 8 events each.
struct Policy {
  int output_tiles;
  int event_tiles;
};
template <int Target>
inline constexpr Policy policy = Target >= 80 ? Policy{2, 4} : Policy{4, 2};

struct HiddenLayer {
  const unsigned char* weights = nullptr;  ///< layers behind the first: see ops/pack_linear.hpp
  const float* bias = nullptr;             ///< [width]
  int width = 0;
  int padded = 0;  ///< to 16
  DeviceActivation activation;
};

/// A history as it lies in device memory.
struct alignas(16) Descriptor {
  Rows q, k;
  Rows added;  ///< to k; no data: nothing
  gemm::Operand<void> y;
  ItemsAndEvents axes;
  const float* event_weights = nullptr;   ///< Wk - Wd [hidden 0, dim], padded
  const float16* pair_weights = nullptr;  ///< Wp and Wq + Wd, see weights.hpp
  const float* head = nullptr;            ///< [last hidden]
  const float* head_bias = nullptr;       ///< [1]
  float factor = 1;                       ///< of scores
  Normalization normalization = Normalization::none;
  int dim = 0, padded_dim = 0;
  int num_hidden = 0;
  HiddenLayer hidden[max_hidden_layers];
  Partition partition;
};

struct Header {
  Descriptor descriptor;
  ItemWork work;
};
static_assert(sizeof(Header) <= header_bytes);

/// Items whose first layers are folded together: their place in the unit.
struct Group {
  int first, size;
};
/// The part of the history that is in shared memory.
struct Chunk {
  int size;
  bool is_first, is_last;
};

/// What the parts of the kernel have in common; all of it is in shared memory.
struct Block {
  Header& header;
  const Descriptor& d;
  const Partition& p;
  const ItemUnit& unit;

  explicit WARPRANK_DEVICE Block(Header& header)
      : header(header), d(header.descriptor), p(header.descriptor.partition), unit(header.work.unit) {}

  /// What lies at a place of the partition.
  template <class Value>
  WARPRANK_DEVICE Value* at(int place) const {
    return reinterpret_cast<Value*>(reinterpret_cast<unsigned char*>(&header) + place);
  }
  /// Halves between rows of the history, and of folded weights.
  WARPRANK_DEVICE int row_stride() const { return d.padded_dim + row_padding; }
};

}}}  // namespace warprank::v0::detail::din
