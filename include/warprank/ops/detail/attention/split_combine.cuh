// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The parts of a block's warps, combined, of the kernel that divides events (split.cuh).

#include <cmath>
#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/detail/attention/descriptor.cuh"
#include "warprank/ops/detail/attention/split_unit.cuh"
#include "warprank/ops/detail/common/row_lanes.cuh"

namespace warprank { inline namespace v0 { namespace detail::attention {

/// The parts of all warps, in shared memory: of each, some neighbouring columns of each lane at a time, as many as are
/// stored at once.
template <int Warps, int Dim, AttentionWeights Weights>
struct SplitParts {
  static constexpr bool is_softmax = Weights == AttentionWeights::softmax;
  static constexpr int columns = Dim < 32 ? Dim / 8 : 4;  ///< of a slot
  static constexpr int slots_of_row = Dim / 8 / columns;  ///< of a lane, in each of its two rows and groups of columns
  static constexpr int slots = 4 * slots_of_row;
  using Columns = device::Vector<float, columns>;
  struct alignas(8) Softmax {
    float top, total;
  };

  Columns sums[Warps][slots][device::warp_size];
  Softmax rows[Warps][split_items];

  template <class Part>
  WARPRANK_DEVICE void put(const Part& part) {
    const int warp = device::warp_index(), lane = device::lane_index();
    WARPRANK_UNROLL
    for (int slot = 0; slot < slots; ++slot) {
      Columns some;
      WARPRANK_UNROLL
      for (int i = 0; i < columns; ++i) some[i] = part.sums[slot % slots_of_row * columns + i][slot / slots_of_row];
      sums[warp][slot][lane] = some;
    }
    if (!is_softmax || lane % 4 != 0) return;
    rows[warp][lane / 4] = {part.tops[0], part.totals[0]};
    rows[warp][lane / 4 + 8] = {part.tops[1], part.totals[2]};
  }

  /// y of the unit's items, in columns from `first_column` on. Each warp of the block stores some slots. `spoilt_v`:
  /// where values were taken out, those of the parent's events; they make the rows that see them NaN. Rare.
  WARPRANK_DEVICE void store(const SplitDescriptorOf<Weights>& d, const SplitUnit& unit, int first_column,
                             const float16* spoilt_v) const {
    const int lane = device::lane_index();
    for (int slot = device::warp_index(); slot < slots; slot += Warps) {
      const int c = slot / slots_of_row, row = lane / 4 + c / 2 * 8;
      float y[columns] = {}, inverse;  // of what the sums are to be divided by
      if constexpr (is_softmax) {
        inverse = add_corrected(row, slot, lane, y);
      } else {
        inverse = d.share;
        WARPRANK_UNROLL
        for (int w = 0; w < Warps; ++w) {
          const Columns some = sums[w][slot][lane];
          WARPRANK_UNROLL
          for (int i = 0; i < columns; ++i) y[i] += some[i];
        }
      }
      if (row >= unit.num_items) continue;
      const int column = (lane % 4 * 2 + c % 2) * (Dim / 8) + slot % slots_of_row * columns;
      if (spoilt_v != nullptr) take_in_spoilt(spoilt_v + column, d, unit, row, y);
      const int64_t place = (unit.first_item + row) * d.y_stride + first_column + column;
      WARPRANK_UNROLL
      for (float& value : y) value *= inverse;
      if (d.is_half != 0) {
        store_values(static_cast<float16*>(d.y) + place, y);
      } else {
        store_values(static_cast<float*>(d.y) + place, y);
      }
    }
  }

 private:
  /// NaN where a value that `row` sees is not finite. Without a window only those of the unit's own rows were taken
  /// out.
  static WARPRANK_DEVICE void take_in_spoilt(const float16* values, const SplitDescriptorOf<Weights>& d,
                                             const SplitUnit& unit, int row, float (&y)[columns]) {
    const bool is_causal = d.is_causal != 0;
    const int end = is_causal ? unit.rank + row + 1 : unit.num_events;
    int first = unit.rank;
    if constexpr (!is_softmax) {
      if (d.window.events > 0) first = first_event_seen(d.window, is_causal, unit.rank + row, unit.parent_events);
    }
    WARPRANK_ROLLED
    for (int i = first; i < end; ++i) {
      WARPRANK_UNROLL
      for (int c = 0; c < columns; ++c) {
        const float value = device::widen(device::load(&values[int64_t{i} * d.v_stride + c])), nothing = value - value;
        if (nothing != 0) y[c] = nothing;
      }
    }
  }

  /// Adds the warps' sums, each as if it had seen the largest score of all; returns 1 / the total of the weights.
  WARPRANK_DEVICE float add_corrected(int row, int slot, int lane, float (&y)[columns]) const {
    Softmax parts[Warps];
    float top = -largest_score, total = 0;
    WARPRANK_UNROLL
    for (int w = 0; w < Warps; ++w) parts[w] = rows[w][row], top = std::fmax(top, parts[w].top);
    WARPRANK_UNROLL
    for (int w = 0; w < Warps; ++w) {
      const float share = std::exp2(parts[w].top - top);
      const Columns some = sums[w][slot][lane];
      total += share * parts[w].total;
      WARPRANK_UNROLL
      for (int i = 0; i < columns; ++i) y[i] += share * some[i];
    }
    return total == 0 ? 0 : 1 / total;
  }
};

}}}  // namespace warprank::v0::detail::attention
