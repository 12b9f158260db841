// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/fm.cuh for the shapes that models have, summed over the dim: a warp for each row, and no barrier.
///
/// The 16-byte vectors of a row, field after field, are dealt to the lanes, which have the same columns of every vector
/// they get. A lane sums its columns, and the products of their pairs over all of them. Then lanes with the same
/// columns are combined by
///
///     pairs of both = pairs of one + pairs of the other + sum of one * sum of the other
///
/// where each gives half of its columns away; at last the pairs of all lanes are added. Nothing cancels, and the order
/// depends on the shapes only. Fields on ancestors come first: what a lane has of them stays for the rows of one
/// segment.
///
/// From launch to store: one trip to memory for 4 vectors of each lane, from ancestors and from the row at the same
/// time, one more for each 4 more, and one more where segments are searched, in offsets of up to 64, as nothing else
/// says which row of an ancestor it is. The prototype of this kernel takes 1.9 us for 100 rows of 24 + 36 fields
/// of 16, on an H100.

#include <cstdint>

#include "warprank/core/view.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/ops/axis_input.hpp"
#include "warprank/ops/detail/axis_input.cuh"
#include "warprank/ops/detail/fm/general.cuh"

namespace warprank::detail::fm {

inline constexpr int warps_of_block = 4, blocks_of_rows = 6;
inline constexpr int in_flight = 4;  ///< vectors of a lane; with 8 the prototype is slower everywhere

template <class Value>
inline constexpr int row_vector = 16 / static_cast<int>(sizeof(Value));  ///< elements

/// What the kernel is given, by value. Vectors are counted through the inputs on ancestors, and through the others.
template <class Value, class Out>
struct RowArguments {
  AxisInput<Value> inputs[max_inputs];  ///< those on ancestors first
  int first_vector[max_inputs];
  int num_inputs, num_inputs_on_ancestors;
  int ancestor_vectors, own_vectors;
  uint32_t repeated;   ///< repeated_segments of the inputs
  int lanes_of_field;  ///< a power of two
  int rows_per_warp;
  Matrix<Out> y;
  const int64_t* num_rows;
};

/// Some vectors of a lane, `warp_size` apart.
template <class Value>
struct RowVectors {
  static constexpr int size = row_vector<Value>;

  device::Vector<Value, size> of[in_flight];

  /// Requests those from number `begin` plus the lane on, of the inputs [first, last), which have `count`. Others are
  /// 0: to add nothing is faster than to branch.
  template <class Out>
  WARPRANK_DEVICE void request(const RowArguments<Value, Out>& arguments, int first, int last, int begin, int count,
                               int64_t n, int64_t segment) {
    using namespace device;  // NOLINT: the vocabulary of kernels
    const int vector = begin + lane_index();
    const Value* from[in_flight];
    for (int i = first; i < last; ++i) {
      const AxisInput<Value>& input = arguments.inputs[i];
      const int64_t row = input.offsets != nullptr ? shuffle(full_warp, segment, i) : n;
      const Value* const values = input.values.data + row * input.values.stride;
      WARPRANK_UNROLL
      for (int j = 0; j < in_flight; ++j) {
        const int place = vector + j * warp_size - arguments.first_vector[i];
        if (place >= 0) from[j] = values + place * size;
      }
    }
    WARPRANK_UNROLL
    for (int j = 0; j < in_flight; ++j) {
      of[j] = {};
      if (vector + j * warp_size < count) of[j] = load_vector_ahead<size>(from[j]);
    }
  }
};

/// What a lane has of the fields so far: the sums of its columns, and the products of all pairs in them.
template <class Value>
struct LaneSums {
  static constexpr int size = row_vector<Value>;

  float sums[size] = {};
  float pairs[2] = {};

  WARPRANK_DEVICE void add(const RowVectors<Value>& vectors) {
    WARPRANK_UNROLL
    for (int j = 0; j < in_flight; ++j) {
      WARPRANK_UNROLL
      for (int c = 0; c < size; ++c) {
        const float e = device::widen(vectors.of[j][c]);
        pairs[c % 2] += e * sums[c];
        sums[c] += e;
      }
    }
  }

  /// The products of all pairs of all lanes, whose columns repeat every `lanes_of_field`.
  WARPRANK_DEVICE float total(int lanes_of_field) const {
    using namespace device;  // NOLINT: the vocabulary of kernels
    const int lane = lane_index();
    float rest[size], sum = pairs[0] + pairs[1];
    WARPRANK_UNROLL
    for (int c = 0; c < size; ++c) rest[c] = sums[c];
    combine<1>(rest, sum, lane, lanes_of_field);
    return Warp::sum(sum);
  }

 private:
  /// From this step on; each known when it is compiled, so that `rest` stays in registers.
  template <int Step>
  static WARPRANK_DEVICE void combine(float (&rest)[size], float& sum, int lane, int lanes_of_field) {
    using namespace device;  // NOLINT: the vocabulary of kernels
    constexpr int distance = warp_size >> Step, kept = size >> Step;
    if (distance < lanes_of_field) return;
    const bool is_upper = (lane & distance) != 0;
    WARPRANK_UNROLL
    for (int c = 0; c < kept; ++c) {
      const float low = rest[c], high = rest[c + kept];
      const float keep = is_upper ? high : low, give = is_upper ? low : high;
      const float got = shuffle_xor(full_warp, give, distance);
      sum += keep * got;
      rest[c] = keep + got;
    }
    if constexpr (kept == 0) {  // one column is left, and several lanes have it: one of them counts
      constexpr int lanes_of_column = warp_size / size;
      const float got = shuffle_xor(full_warp, rest[0], distance);
      if ((lane & (lanes_of_column - distance)) == 0) sum += rest[0] * got;
      rest[0] += got;
    }
    if constexpr (distance > 1) combine<Step + 1>(rest, sum, lane, lanes_of_field);
  }
};

template <class Value, class Out>
WARPRANK_KERNEL(warps_of_block* device::warp_size, blocks_of_rows)
fm_rows_kernel(RowArguments<Value, Out> arguments) {
  using namespace device;  // NOLINT: the vocabulary of kernels
  wait_for_previous_launch();
  const int64_t first = global_thread_rank() / warp_size * arguments.rows_per_warp;
  if (first >= arguments.y.rows) return;
  int64_t num_rows = arguments.num_rows == nullptr ? arguments.y.rows : load_ahead(arguments.num_rows);
  const int64_t wanted = first + arguments.rows_per_warp;
  const int64_t last = wanted < arguments.y.rows ? wanted : arguments.y.rows;
  // Several rows for each warp are more than one wave: those without rows end before they request any.
  if (arguments.rows_per_warp > 1 && first >= num_rows) return;

  constexpr int at_once = in_flight * warp_size;
  const int num_on_ancestors = arguments.num_inputs_on_ancestors;
  LaneSums<Value> of_ancestors;
  int64_t segment = 0, end_of_run = first;
  for (int64_t n = first; n < last; ++n) {
    RowVectors<Value> own;
    const auto request_own = [&](int begin) {
      own.request(arguments, num_on_ancestors, arguments.num_inputs, begin, arguments.own_vectors, n, segment);
    };
    request_own(0);
    if (n >= end_of_run) {
      end_of_run = find_rows_serving(arguments.inputs, num_on_ancestors, arguments.repeated, n, last, segment);
      of_ancestors = {};
      for (int begin = 0; begin < arguments.ancestor_vectors; begin += at_once) {
        RowVectors<Value> some;
        some.request(arguments, 0, num_on_ancestors, begin, arguments.ancestor_vectors, n, segment);
        of_ancestors.add(some);
      }
    }
    use_from_here(num_rows);
    if (n >= num_rows) return;
    LaneSums<Value> all = of_ancestors;
    for (int begin = 0;;) {
      all.add(own);
      begin += at_once;
      if (begin >= arguments.own_vectors) break;
      request_own(begin);
    }
    const float total = all.total(arguments.lanes_of_field);
    if (lane_index() == 0) store(arguments.y.data + n * arguments.y.stride, narrow<Out>(total));
  }
}

}  // namespace warprank::detail::fm
