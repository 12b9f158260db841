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
/// says which row of an ancestor it is. 100 rows of 24 + 36 fields of 16 take 1.6 us on an H100, of which a launch is
/// 0.9.

#include <cstdint>
#include <type_traits>

#include "warprank/core/unroll.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/ops/axis_input.hpp"
#include "warprank/ops/detail/common/axis_input.cuh"
#include "warprank/ops/detail/fm/general.cuh"

namespace warprank { inline namespace v0 { namespace detail::fm {

inline constexpr int warps_of_block = 4, blocks_of_rows = 6;
inline constexpr int in_flight = 4;  ///< vectors of a lane; with 8 the prototype is slower everywhere

template <class Value>
inline constexpr int row_vector = 16 / static_cast<int>(sizeof(Value));  ///< elements

/// What the kernel is given, by value. Vectors are counted through the inputs on ancestors, and through the others.
template <class Value, class Out>
struct RowArguments {
  /// Those on ancestors first. Where none is on the rows' own axis, the one behind the last is read and not used.
  AxisInput<Value> inputs[max_inputs + 1];
  int first_vector[max_inputs + 1];
  int num_inputs, num_inputs_on_ancestors;
  int ancestor_vectors, own_vectors;
  InputRows rows_of_inputs;
  int lanes_of_field;  ///< a power of two
  int rows_per_warp;
  Matrix<Out> y;
  const int64_t* num_rows;
};

/// Some vectors of a lane, `warp_size` apart, as words: values that are cut out of words one by one take an instruction
/// each.
template <class Value>
struct RowVectors {
  static constexpr int size = row_vector<Value>;

  device::Vector<uint32_t, 4> of[in_flight];

  /// Requests those from number `begin` plus the lane on, of the inputs [first, last), which have `count`. Others are
  /// 0: to add nothing is faster than to branch. Of inputs on ancestors, lane i gives the row of input i.
  template <bool OnAncestors, class Out>
  WARPRANK_DEVICE void request(const RowArguments<Value, Out>& arguments, int first, int last, int begin, int count,
                               int row) {
    using namespace device;                 // NOLINT: the vocabulary of kernels
    constexpr int step = warp_size * size;  // elements between two vectors of a lane
    const int vector = begin + lane_index();
    const auto start_of = [&](int i) {
      const Matrix<const Value>& values = arguments.inputs[i].values;
      const int stride = static_cast<int>(values.stride), place = (vector - arguments.first_vector[i]) * size;
      const int64_t row_of_input = OnAncestors ? shuffle(full_warp, row, i) : row;
      return values.data + (row_of_input * stride + place);
    };
    const Value* from[in_flight];  // less j steps
    const Value* start = start_of(first);
    WARPRANK_UNROLL
    for (int j = 0; j < in_flight; ++j) from[j] = start;
    WARPRANK_ROLLED
    for (int i = first + 1; i < last; ++i) {
      start = start_of(i);
      WARPRANK_UNROLL
      for (int j = 0; j < in_flight; ++j) {
        if (vector + j * warp_size >= arguments.first_vector[i]) from[j] = start;
      }
    }
    WARPRANK_UNROLL
    for (int j = 0; j < in_flight; ++j) {
      of[j] = {};
      if (vector + j * warp_size < count)
        of[j] = load_vector_ahead<4>(reinterpret_cast<const uint32_t*>(from[j] + j * step));
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
      for (int w = 0; w < 4; ++w) {
        const uint32_t word = vectors.of[j][w];
        if constexpr (std::is_same_v<Value, float16>) {
          add(2 * w, device::widen_low(word));
          add(2 * w + 1, device::widen_high(word));
        } else {
          add(w, device::float_of_bits(word));
        }
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
  WARPRANK_DEVICE void add(int c, float e) {
    pairs[c % 2] += e * sums[c];
    sums[c] += e;
  }

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

/// Of a pair of inputs, number 0 is on an ancestor, or has no vectors, and number 1 is not: where they lie is known
/// when the kernel is compiled. That is how plans ask for it.
template <bool IsPair, class Value, class Out>
WARPRANK_KERNEL(warps_of_block* device::warp_size, blocks_of_rows)
fm_rows_kernel(RowArguments<Value, Out> arguments) {
  using namespace device;  // NOLINT: the vocabulary of kernels
  wait_for_previous_launch();
  const int max_rows = static_cast<int>(arguments.y.rows);
  const int first = (static_cast<int>(block_index().x) * warps_of_block + warp_index()) * arguments.rows_per_warp;
  if (first >= max_rows) return;
  int64_t num_rows = arguments.num_rows == nullptr ? arguments.y.rows : load_ahead(arguments.num_rows);
  const int wanted = first + arguments.rows_per_warp, last = wanted < max_rows ? wanted : max_rows;
  // Several rows for each warp are more than one wave: those without rows end before they request any.
  if (arguments.rows_per_warp > 1) {
    use_from_here(num_rows);  // a branch of its own: as a condition it would be waited for in any case
    if (first >= num_rows) return;
  }

  constexpr int at_once = in_flight * warp_size;
  const int num_on_ancestors = IsPair ? 1 : arguments.num_inputs_on_ancestors;
  const int num_inputs = IsPair ? 2 : arguments.num_inputs;
  LaneSums<Value> of_ancestors;
  int end_of_run = first, segment = 0;
  for (int n = first; n < last; ++n) {
    RowVectors<Value> own;
    const auto request_own = [&](int begin) {
      own.template request<false>(arguments, num_on_ancestors, num_inputs, begin, arguments.own_vectors, n);
    };
    request_own(0);
    if (n >= end_of_run) {
      end_of_run = find_rows_serving(arguments.inputs, arguments.rows_of_inputs, n, last, segment);
      of_ancestors = {};
      WARPRANK_ROLLED
      for (int begin = 0; begin < arguments.ancestor_vectors; begin += at_once) {
        RowVectors<Value> some;
        some.template request<true>(arguments, 0, num_on_ancestors, begin, arguments.ancestor_vectors, segment);
        of_ancestors.add(some);
      }
    }
    use_from_here(num_rows);
    if (n >= num_rows) return;
    LaneSums<Value> all = of_ancestors;
    WARPRANK_ROLLED
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

}}}  // namespace warprank::v0::detail::fm
