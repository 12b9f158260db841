// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/field_linear.cuh. A column of a row's fields is a row of the product, and a block has 8 `Strips`
/// of them: it brings their factors and fields into shared memory, with the fields of a column side by side. A lane
/// then has 8 inputs of a step of the packed weights by one load of fields and one of a factor, and the products of
/// both are made in registers: they are in no memory. Each warp takes a part of all steps, so that weights are read
/// once by a block; then the block adds the sums of its warps.

#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/device/target.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/ops/detail/field_linear/arguments.cuh"
#include "warprank/ops/detail/linear/fragments.cuh"

namespace warprank { inline namespace v0 { namespace detail::field_linear {

using linear::Fragment;

/// The first column of a tile, and how many there are from there on; a row's fields have `dim` columns.
struct TileColumns {
  int64_t first;
  int count, dim;

  struct Place {
    int64_t row;
    int column;
  };
  /// Of the first of `size` columns; of those behind the last, the last.
  WARPRANK_DEVICE Place place(int i, int size = 1) const {
    const int64_t at = first + (i < count ? i : count - size), row = at / dim;
    return {row, static_cast<int>(at - row * dim)};
  }
};

/// Brings `num` fields of the tile's columns: to[column][field], 8 or 1 columns by a load. Lanes side by side have the
/// columns of a sector, and then those of the next fields, which are side by side in shared memory.
template <int Strips, int Size>
WARPRANK_DEVICE void bring(const Matrix<const float16>& x, int num, const TileColumns& columns, float16* to,
                           int stride) {
  constexpr int places = 8 * Strips / Size, apart = threads / places, at_once = 4;
  constexpr int beside = Size == 1 ? (places < 32 ? places : 32) : 2, groups = places / beside;
  const int place = (device::lane_index() % beside + device::warp_index() % groups * beside) * Size;
  const int own = device::warp_index() / groups * (32 / beside) + device::lane_index() / beside;
  const auto [row, column] = columns.place(place, Size);
  const float16* const from = x.data + row * x.stride + column;
  for (int first = own; first < num; first += apart * at_once) {
    device::Vector<float16, Size> values[at_once];
    WARPRANK_UNROLL
    for (int u = 0; u < at_once; ++u) {
      const int field = first + u * apart;
      values[u] = device::load_vector<Size>(from + int64_t{field < num ? field : first} * columns.dim);
    }
    WARPRANK_UNROLL
    for (int u = 0; u < at_once; ++u) {
      const int field = first + u * apart;
      if (field >= num) break;
      WARPRANK_UNROLL
      for (int c = 0; c < Size; ++c) to[(place + c) * stride + field] = values[u][c];
    }
  }
}
template <int Strips>
WARPRANK_DEVICE void bring(bool are_aligned, const Matrix<const float16>& x, int num, const TileColumns& columns,
                           float16* to, int stride) {
  if (are_aligned)
    bring<Strips, vector_size>(x, num, columns, to, stride);
  else
    bring<Strips, 1>(x, num, columns, to, stride);
}
/// to[column][i] = value for i in [begin, end)
template <int Strips>
WARPRANK_DEVICE void fill(float16* to, int stride, int begin, int end, float16 value) {
  for (int i = device::thread_rank(); i < 8 * Strips * (end - begin); i += threads)
    to[i / (end - begin) * stride + begin + i % (end - begin)] = value;
}

/// The weights of 32 outputs and one step: two pairs of tiles, each in halves.
struct StepWeights {
  Fragment halves[2][2];

  /// Of the step where `pairs` point to, which then point to the next.
  WARPRANK_DEVICE void request(const uint32_t* (&pairs)[2]) {
    WARPRANK_UNROLL
    for (int half = 0; half < 2; ++half) {
      WARPRANK_UNROLL
      for (int j = 0; j < 2; ++j)
        halves[half][j] = device::load_vector_constant<4>(pairs[j] + half * linear::half_step_words);
    }
    WARPRANK_UNROLL
    for (int j = 0; j < 2; ++j) pairs[j] = device::in_register(pairs[j] + linear::step_words);
  }
};

/// Stores the sums over the columns of fields, of 16 outputs whose values are in shared memory [16][columns of a tile].
template <class Out>
WARPRANK_DEVICE void store_column_sums(const Arguments<Out>& arguments, const TileColumns& columns, int first_output,
                                       const float* values, int stride) {
  device::sync_block();
  const int dim = arguments.dim;
  for (int i = device::thread_rank(); i < columns.count / dim * 16; i += threads) {
    const int output = first_output + i % 16;
    if (output < arguments.first_summed || output >= arguments.num_outputs) continue;
    const float* const of_field = values + i % 16 * stride + i / 16 * dim;
    float sum = 0;
    for (int d = 0; d < dim; ++d) sum += of_field[d];
    const int64_t row = columns.first / dim + i / 16;
    Out* const y = arguments.y.data + row * arguments.y.stride + int64_t{arguments.num_kept} * dim;
    device::store(y + output - arguments.first_summed, device::narrow<Out>(sum));
  }
}

template <int Target, int Strips, class Out>
WARPRANK_KERNEL(threads, 2)
field_linear_kernel(const WARPRANK_GRID_CONSTANT Arguments<Out> arguments, const Weights* weights) {
  using namespace device;  // NOLINT: the vocabulary of kernels
  const int num_factors = arguments.num_factors, num_fields = arguments.num_fields, num_steps = arguments.num_steps;
  const int field_stride = arguments.field_stride, factor_stride = arguments.factor_stride;
  const int chunks = field_stride / vector_size, num_outputs = arguments.num_outputs;
  const int first_output = static_cast<int>(block_index().y) * tile_outputs;
  const int begin = warp_index() * num_steps / warps, end = (warp_index() + 1) * num_steps / warps;

  // Weights are no launch's results. A pair that is not there has those of the last: nobody asks for its sums.
  const unsigned char* const packed = load(&weights->packed);
  const uint32_t* pairs[2];
  WARPRANK_UNROLL
  for (int j = 0; j < 2; ++j) {
    const int pair = first_output / 16 + j, last = arguments.num_pairs - 1;
    pairs[j] = global(reinterpret_cast<const uint32_t*>(packed)) + lane_index() * 4 +
               (int64_t{pair < last ? pair : last} * num_steps + begin) * linear::step_words;
  }
  StepWeights w;
  if (begin < end) w.request(pairs);

  wait_for_previous_launch();
  const int64_t count = true_count(arguments.num_rows, arguments.y.rows) * arguments.dim;
  const int64_t first = int64_t{block_index().x} * arguments.tile_columns;
  if (first >= count) return;
  const int64_t rest = count - first;
  const TileColumns columns{first, rest < arguments.tile_columns ? static_cast<int>(rest) : arguments.tile_columns,
                            arguments.dim};

  auto* const fields = dynamic_shared<float16>();
  float16* const factors = fields + 8 * Strips * field_stride;
  bring<Strips>(arguments.are_aligned, arguments.fields, num_fields, columns, fields, field_stride);
  if (num_fields < field_stride) fill<Strips>(fields, field_stride, num_fields, field_stride, float16{0});
  if (arguments.factors.data != nullptr)
    bring<Strips>(arguments.are_aligned, arguments.factors, num_factors, columns, factors, factor_stride);
  else
    fill<Strips>(factors, factor_stride, 0, 1, float16{0x3c00});  // 1
  fill<Strips>(factors, factor_stride, num_factors, num_factors + 3, float16{0});
  sync_block();

  float sums[2][Strips][4] = {};
  const int g = lane_index() / 4, t = lane_index() % 4;
  int factor = (begin * 4 + t) / chunks, chunk = (begin * 4 + t) % chunks;
  const int factors_of_step = 4 / chunks, chunks_of_step = 4 % chunks;
  for (int step = begin; step < end; ++step) {
    const StepWeights now = w;
    if (step + 1 < end) w.request(pairs);
    Fragment x[Strips];
    WARPRANK_UNROLL
    for (int r = 0; r < Strips; ++r) {
      x[r] = *reinterpret_cast<const Fragment*>(fields + (r * 8 + g) * field_stride + chunk * vector_size);
      const float16 own = factors[(r * 8 + g) * factor_stride + factor];
      WARPRANK_UNROLL
      for (int i = 0; i < 4; ++i) x[r][i] = fma_halves(x[r][i], pack_halves(own, own), 0);
    }
    linear::multiply_half_steps<Target, 0>(sums, now.halves[0], x);
    linear::multiply_half_steps<Target, 1>(sums, now.halves[1], x);
    factor += factors_of_step;
    chunk += chunks_of_step;
    if (chunk >= chunks) {
      chunk -= chunks;
      ++factor;
    }
  }

  // Sums of one pair at a time: less shared memory, and so more blocks on a multiprocessor.
  constexpr int stride = sum_stride<Strips>, apart = threads / (8 * Strips);
  constexpr int at_once = 16 / apart < 4 ? 16 / apart : 4;
  auto* const all_sums = dynamic_shared<float>();
  const int of_tile = thread_rank() % (8 * Strips);
  const auto [row, column] = columns.place(of_tile);
  Out* const y = arguments.y.data + row * arguments.y.stride + column;
  const auto* const bias = global(
      reinterpret_cast<const float*>(packed + int64_t{arguments.num_pairs} * num_steps * linear::step_words * 4));
  WARPRANK_UNROLL
  for (int j = 0; j < 2; ++j) {
    const int first_of_pair = first_output + j * 16;
    if (first_of_pair >= num_outputs) return;
    sync_block();  // all have read what was there
    WARPRANK_UNROLL
    for (int r = 0; r < Strips; ++r) {
      WARPRANK_UNROLL
      for (int c = 0; c < 2; ++c) {
        float* const to = all_sums + (warp_index() * 16 + c * 8 + g) * stride + r * 8 + t * 2;
        *reinterpret_cast<Vector<float, 2>*>(to) = {{sums[j][r][2 * c], sums[j][r][2 * c + 1]}};
      }
    }
    sync_block();
    for (int own = thread_rank() / (8 * Strips); own < 16; own += apart * at_once) {
      float values[at_once];
      WARPRANK_UNROLL
      for (int u = 0; u < at_once; ++u) {
        const int output = own + u * apart;
        values[u] = load_read_only(bias + first_of_pair + output);
        float sum = 0;
        WARPRANK_UNROLL
        for (int w = 0; w < warps; ++w) sum += all_sums[(w * 16 + output) * stride + of_tile];
        values[u] += sum;
      }
      activate<at_once, 0>(arguments.activation, values, 0, 1);
      WARPRANK_UNROLL
      for (int u = 0; u < at_once; ++u) {
        const int of_pair = own + u * apart, output = first_of_pair + of_pair;
        if (output < arguments.num_kept && of_tile < columns.count)
          store(y + int64_t{output} * arguments.dim, narrow<Out>(values[u]));
        all_sums[of_pair * stride + of_tile] = values[u];  // where this thread alone has read
      }
    }
    if (arguments.first_summed < num_outputs) store_column_sums(arguments, columns, first_of_pair, all_sums, stride);
  }
}

}}}  // namespace warprank::v0::detail::field_linear
