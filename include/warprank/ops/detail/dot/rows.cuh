// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/dot.cuh for the shapes that models have: a warp for each row, and no barrier.
///
/// Fields go from global memory straight into the fragments of tensor cores (common/direct_rows.cuh); as the product is
/// E E^T, the same registers are its left and its right factor. Only tiles on and below the diagonal are computed;
/// where a product stands in y is a number of its row and one of its column, added. Products between two sets of fields
/// are a rectangle below the diagonal, of the rows of the second set and the columns of the first. The row of y is put
/// together in shared memory, at the place within 16 bytes that it has in global memory, and written by whole 16 bytes.
///
/// From launch to store: one trip to memory where every ancestor has one segment (the count and all fields are
/// requested together), two where segments are searched, in offsets of up to 64: nothing else says which row of an
/// ancestor it is, and to guess it would take the registers of its fields once more. In flight: the whole row. 100
/// rows of 27 fields of 16 take 1.8 us on an H100 or H200, of which a launch is 0.9; 6,400 rows of 27 fields of 128
/// 11.5 us on an H200.

#include <cstdint>
#include <type_traits>

#include "warprank/core/dtype.hpp"
#include "warprank/core/unroll.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/mma.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/axis_input.hpp"
#include "warprank/ops/detail/common/axis_input.cuh"
#include "warprank/ops/detail/common/direct_rows.cuh"
#include "warprank/ops/detail/dot/general.cuh"
#include "warprank/ops/detail/gemm/tile.cuh"

namespace warprank { inline namespace v0 { namespace detail::dot {

inline constexpr int fields_of_group = 8;  ///< columns of a tensor core's tile
inline constexpr int max_groups = 8;
/// Whose fields fit in registers.
constexpr int max_groups_of(int dim) { return dim <= 64 ? max_groups : 6; }
inline constexpr int warps_of_block = 4;

/// Blocks on a multiprocessor: as many as have room for the fields of their rows in registers. With 4, 64 fields of 16
/// spill.
template <int Dim, int Groups>
inline constexpr int blocks_of_rows = Dim == 16 && Groups == max_groups ? 3
                                      : Dim <= 16                       ? 4
                                      : Groups <= 4                     ? (Dim <= 64 ? 4 : 3)
                                      : Dim <= 64                       ? 2
                                                                        : 1;

/// Where the product of fields f and g <= f stands in a row of y: at first + direction (f (f + with_self) / 2 + g). The
/// upper order is the lower one of the fields from the last to the first, from its end to its begin.
struct Places {
  int first, direction;  // 1; -1: fields count from the last
  int with_self;         // 1 or -1
};
inline Places places_for(DotOrder order, bool self, int num_fields) {
  const int with_self = self ? 1 : -1, num_pairs = num_fields * (num_fields + with_self) / 2;
  return order == DotOrder::upper ? Places{num_pairs - 1, -1, with_self} : Places{0, 1, with_self};
}

/// What the kernel is given, by value.
template <class Out>
struct RowArguments {
  AxisInput<float16> inputs[max_inputs];
  int first_field[max_inputs];
  int num_inputs, num_fields;
  InputRows rows_of_inputs;
  uint32_t shared_groups;  ///< bit j: all fields of group j are on ancestors
  Places places;
  bool padded;  ///< a zero behind the products
  Matrix<Out> y;
  const int64_t* num_rows;
  int rows_per_warp;
  int row_bytes;  ///< of shared memory, for each warp
  int num_left;   ///< 0: all pairs
};

/// What a lane has of the fields of a row: lane (g, t) those of field 8 j + g that it needs in a tile's row and in its
/// column.
template <int Dim, int Groups>
struct RowFields {
  static constexpr int words = Dim / 8;  ///< of two elements, of a lane

  uint32_t of[Groups][words];

  /// Requests what serves a row; of groups that are shared only when they are not here yet. Lane i has the row of
  /// input i.
  template <class Out>
  WARPRANK_DEVICE void request(const RowArguments<Out>& arguments, int row_of_lane, bool all) {
    using namespace device;  // NOLINT: the vocabulary of kernels
    const int last = arguments.num_fields - 1, lane = lane_index();
    const float16* of_input = nullptr;  // where the input would have field 0
    const float16* from[Groups];
    WARPRANK_ROLLED
    for (int i = 0; i < arguments.num_inputs; ++i) {
      const Matrix<const float16>& values = arguments.inputs[i].values;
      const int64_t row = shuffle(full_warp, row_of_lane, i);
      const int first = arguments.first_field[i];
      of_input = values.data + (row * static_cast<int>(values.stride) - first * Dim);
      WARPRANK_UNROLL
      for (int j = 0; j < Groups; ++j) {
        if (i == 0 || number(arguments, j, lane, last) >= first) from[j] = of_input;
      }
    }
    WARPRANK_UNROLL
    for (int j = 0; j < Groups; ++j) {
      if (!all && (arguments.shared_groups >> j & 1) != 0) continue;
      load_factor_ahead(from[j] + number(arguments, j, lane, last) * Dim, of[j]);
    }
  }

  /// sums[j] += the products of the fields of groups 2m and 2m + 1 with those of group j, j <= 2m + 1.
  template <int Target>
  WARPRANK_DEVICE void multiply(int m, float (&sums)[Groups][4]) const {
    if constexpr (words == 1) {
      const uint32_t a[2] = {of[2 * m][0], of[2 * m + 1][0]};
      WARPRANK_UNROLL
      for (int j = 0; j < 2 * m + 2; ++j) device::mma_m16n8k8(sums[j], a, of[j], sums[j]);
    } else {
      WARPRANK_UNROLL
      for (int w = 0; w < words; w += 2) {
        const uint32_t a[4] = {of[2 * m][w], of[2 * m + 1][w], of[2 * m][w + 1], of[2 * m + 1][w + 1]};
        WARPRANK_UNROLL
        for (int j = 0; j < 2 * m + 2; ++j) gemm::multiply_step<Target>(sums[j], a, of[j][w], of[j][w + 1], true);
      }
    }
  }

 private:
  /// Of the lane's field in group j. Fields beyond the last are the last again; their products are not written.
  template <class Out>
  static WARPRANK_DEVICE int number(const RowArguments<Out>& arguments, int j, int lane, int last) {
    const int wanted = fields_of_group * j + lane / 4, counted = wanted < last ? wanted : last;
    return arguments.places.direction > 0 ? counted : last - counted;
  }
};

template <class Out>
WARPRANK_DEVICE void narrow_two(float low, float high, Out (&to)[2]) {
  if constexpr (std::is_same_v<Out, float16>) {
    const uint32_t pair = device::narrow_pair(low, high);
    to[0] = device::low_half(pair), to[1] = device::high_half(pair);
  } else {
    to[0] = device::narrow<Out>(low), to[1] = device::narrow<Out>(high);
  }
}

/// Puts the products of the fields of groups 2m and 2m + 1 with those before them where they stand in a row of y, and
/// what has no place there behind it, where each lane has a place: that takes no branch. The direction stays a factor:
/// a branch for each keeps the products of the next groups from being computed meanwhile.
template <int Groups, class Out>
WARPRANK_DEVICE void put_products(Out* row, int columns, int lane, const Places& places, int num_fields, int m,
                                  const float (&sums)[Groups][4]) {
  const int g = lane / 4, t = lane % 4;
  // Within a tile on the diagonal: whether the lane's columns are to be written in its row.
  const int diagonal = g + (places.with_self > 0 ? 1 : 0);
  const bool is_below[2] = {2 * t < diagonal, 2 * t + 1 < diagonal};
  WARPRANK_UNROLL
  for (int lower = 0; lower < 2; ++lower) {
    const int f = fields_of_group * (2 * m + lower) + g;
    const bool is_field = m < Groups / 2 - 1 || f < num_fields;
    const int of_field = places.first + places.direction * ((f * (f + places.with_self) >> 1) + 2 * t);
    WARPRANK_UNROLL
    for (int j = 0; j <= 2 * m + lower; ++j) {
      const bool on_diagonal = j == 2 * m + lower;
      Out pair[2];
      narrow_two(sums[j][2 * lower], sums[j][2 * lower + 1], pair);
      WARPRANK_UNROLL
      for (int c = 0; c < 2; ++c) {
        const bool is_written = is_field && (!on_diagonal || is_below[c]);
        row[is_written ? of_field + places.direction * (fields_of_group * j + c) : columns + lane] = pair[c];
      }
    }
  }
}

/// The same for products between two sets of fields: that of field `left` of the first with field `right` of the second
/// stands at left * num_right + right.
template <int Groups, class Out>
WARPRANK_DEVICE void put_products_between(Out* row, int columns, int lane, int num_left, int num_right, int m,
                                          const float (&sums)[Groups][4]) {
  const int g = lane / 4, t = lane % 4;
  WARPRANK_UNROLL
  for (int lower = 0; lower < 2; ++lower) {
    const int right = fields_of_group * (2 * m + lower) + g - num_left;
    const bool is_right = right >= 0 && right < num_right;
    WARPRANK_UNROLL
    for (int j = 0; j <= 2 * m + lower; ++j) {
      Out pair[2];
      narrow_two(sums[j][2 * lower], sums[j][2 * lower + 1], pair);
      WARPRANK_UNROLL
      for (int c = 0; c < 2; ++c) {
        const int left = fields_of_group * j + 2 * t + c;
        row[is_right && left < num_left ? left * num_right + right : columns + lane] = pair[c];
      }
    }
  }
}

/// Writes the bytes [skew, end) of shared memory to the same places behind an address that is aligned to 16: whole 16
/// bytes, and what hangs over at both ends by elements, one for each lane. All lanes of the warp call.
template <class Out>
WARPRANK_DEVICE void store_row(const unsigned char* from, unsigned char* aligned, int skew, int end) {
  using Sixteen = device::Vector<uint32_t, 4>;
  constexpr auto size = static_cast<int>(sizeof(Out));
  const int lane = device::lane_index(), upwards = (skew + 15) / 16 * 16, downwards = end / 16 * 16;
  const int head = upwards < end ? upwards : end, tail = downwards > head ? downwards : head;
  WARPRANK_ROLLED
  for (int at = head + lane * 16; at < tail; at += device::warp_size * 16) {
    device::store(reinterpret_cast<Sixteen*>(aligned + at), *reinterpret_cast<const Sixteen*>(from + at));
  }
  const bool is_tail = lane >= 8;
  const int at = (is_tail ? tail : skew) + lane % 8 * size;
  if (lane < 16 && at < (is_tail ? end : head))
    device::store(reinterpret_cast<Out*>(aligned + at), *reinterpret_cast<const Out*>(from + at));
}

/// `Between`: for products between two sets of fields.
template <int Target, int Dim, int Groups, bool Between, class Out>
WARPRANK_KERNEL(warps_of_block* device::warp_size, (blocks_of_rows<Dim, Groups>))
dot_rows_kernel(RowArguments<Out> arguments) {
  using namespace device;  // NOLINT: the vocabulary of kernels
  wait_for_previous_launch();
  const int lane = lane_index(), max_rows = static_cast<int>(arguments.y.rows);
  const int warp = static_cast<int>(block_index().x * (block_dim().x / warp_size)) + warp_index();
  const int first = warp * arguments.rows_per_warp;
  if (first >= max_rows) return;
  int64_t num_rows = arguments.num_rows == nullptr ? arguments.y.rows : load_ahead(arguments.num_rows);
  const int wanted = first + arguments.rows_per_warp, last = wanted < max_rows ? wanted : max_rows;
  // Several rows for each warp are more than one wave: those without rows end before they request any.
  if (arguments.rows_per_warp > 1) {
    use_from_here(num_rows);  // a branch of its own: as a condition it would be waited for in any case
    if (first >= num_rows) return;
  }

  auto* const staging = dynamic_shared<unsigned char>() + warp_index() * arguments.row_bytes;
  const int columns = static_cast<int>(arguments.y.cols), row_bytes = columns * static_cast<int>(sizeof(Out));

  RowFields<Dim, Groups> fields;
  int end_of_run = first, row_of_lane = 0;
  WARPRANK_ROLLED
  for (int n = first; n < last; ++n) {
    const bool changes = n >= end_of_run;
    if (changes) end_of_run = find_rows_serving(arguments.inputs, arguments.rows_of_inputs, n, last, row_of_lane);
    fields.request(arguments, (arguments.rows_of_inputs.own >> lane & 1) != 0 ? n : row_of_lane, changes);
    use_from_here(num_rows);
    if (n >= num_rows) return;

    Out* const row = arguments.y.data + n * arguments.y.stride;
    const int skew = static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16);
    auto* const staged = reinterpret_cast<Out*>(staging + skew);
    const int writer = fresh_thread_rank() % warp_size;  // or all places are kept in registers from row to row
    sync_warp();                                         // the row before has been written
    WARPRANK_UNROLL
    for (int m = 0; m < Groups / 2; ++m) {
      if (Between && 2 * fields_of_group * (m + 1) <= arguments.num_left) continue;
      float sums[Groups][4] = {};
      fields.template multiply<Target>(m, sums);
      if constexpr (Between) {
        const int num_right = arguments.num_fields - arguments.num_left;
        put_products_between(staged, columns, writer, arguments.num_left, num_right, m, sums);
      } else {
        put_products(staged, columns, writer, arguments.places, arguments.num_fields, m, sums);
      }
    }
    if (!Between && arguments.padded && lane == 0) staged[columns - 1] = narrow<Out>(0);
    sync_warp();
    store_row<Out>(staging, reinterpret_cast<unsigned char*>(row) - skew, skew, skew + row_bytes);
  }
}

}}}  // namespace warprank::v0::detail::dot
