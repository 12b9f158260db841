// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The parts of a warp's work in field_attention/kernel.cuh.

#include <cmath>
#include <cstdint>
#include <limits>

#include "warprank/core/dtype.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/ops/detail/field_attention/arguments.cuh"
#include "warprank/ops/detail/gemm/tile.cuh"

namespace warprank { inline namespace v0 { namespace detail::field_attention {

/// 16 bytes of a lane: of 16 by 16 halves.
using Fragment = device::Vector<uint32_t, 4>;
inline constexpr int fragment_words = 4 * device::warp_size;

inline constexpr float largest_score = std::numeric_limits<float>::max();
inline constexpr float unseen = -std::numeric_limits<float>::infinity();

/// Columns [column, column + 4) of a field: 0 behind the last, and of a field that is not there.
WARPRANK_DEVICE device::Vector<uint32_t, 2> request_columns(const float16* field, bool is_there, int column, int dim,
                                                            bool is_aligned) {
  device::Vector<uint32_t, 2> words{};
  if (!is_there || column >= dim) return words;
  if (is_aligned) return device::load_vector<2>(reinterpret_cast<const uint32_t*>(field + column));
  float16 values[4] = {};
  WARPRANK_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (column + i < dim) values[i] = device::load(field + column + i);
  }
  words[0] = device::pack_halves(values[0], values[1]);
  words[1] = device::pack_halves(values[2], values[3]);
  return words;
}

/// Brings the warp's fields of a row as fragments A, a tile of columns after the other; each lane reads only its own.
template <class Out>
WARPRANK_DEVICE void bring_fields(const Arguments<Out>& arguments, int64_t row, int first_field, Fragment* to) {
  constexpr int at_once = 4;
  const int first = first_field + device::lane_index() / 4, column = device::lane_index() % 4 * 4;
  const float16* const fields = arguments.x.data + row * arguments.x.stride + int64_t{first} * arguments.dim;
  for (int s = 0; s < arguments.input_tiles; s += at_once) {
    device::Vector<uint32_t, 2> words[at_once][2];
    WARPRANK_UNROLL
    for (int u = 0; u < at_once; ++u) {
      WARPRANK_UNROLL
      for (int lower = 0; lower < 2; ++lower) {
        words[u][lower] = request_columns(fields + lower * 8 * arguments.dim, first + lower * 8 < arguments.fields,
                                          (s + u) * tile + column, arguments.dim, arguments.x_is_aligned);
      }
    }
    WARPRANK_UNROLL
    for (int u = 0; u < at_once; ++u) {
      if (s + u >= arguments.input_tiles) break;
      to[(s + u) * device::warp_size] = {{words[u][0][0], words[u][1][0], words[u][0][1], words[u][1][1]}};
    }
  }
}

/// sums[0], sums[1] = two products of the fields and the weights of 16 columns, of which the first may be transposed
/// and the second left out. Each is of two tiles of 8 columns, or transposed of 8 fields. `weights` then point to those
/// of the next products.
template <int Target, bool FirstIsTransposed>
WARPRANK_DEVICE void project(const Fragment* fields, int input_tiles, const uint32_t*& weights, bool has_second,
                             float (&sums)[2][2][4]) {
  using gemm::multiply_step;
  WARPRANK_UNROLL_BY(2)
  for (int s = 0; s < input_tiles; ++s) {
    const Fragment first = device::load_vector_constant<4>(weights);
    const Fragment second = device::load_vector_constant<4>(weights + fragment_words);
    weights = device::in_register(weights + 2 * fragment_words);
    const Fragment f = fields[s * device::warp_size];
    const uint32_t x[4] = {f[0], f[1], f[2], f[3]};
    if constexpr (FirstIsTransposed) {
      const uint32_t w[4] = {first[0], first[2], first[1], first[3]};
      multiply_step<Target>(sums[0][0], w, x[0], x[2], true);
      multiply_step<Target>(sums[0][1], w, x[1], x[3], true);
    } else {
      multiply_step<Target>(sums[0][0], x, first[0], first[1], true);
      multiply_step<Target>(sums[0][1], x, first[2], first[3], true);
    }
    if (!has_second) continue;
    multiply_step<Target>(sums[1][0], x, second[0], second[1], true);
    multiply_step<Target>(sums[1][1], x, second[2], second[3], true);
  }
}

/// What two tiles of sums [16][8] are as a fragment A, and what their transpose is as B of both halves of 16 rows.
WARPRANK_DEVICE void narrow_as_left(const float (&sums)[2][4], uint32_t (&a)[4]) {
  WARPRANK_UNROLL
  for (int i = 0; i < 4; ++i) a[i] = device::narrow_pair(sums[i / 2][i % 2 * 2], sums[i / 2][i % 2 * 2 + 1]);
}
WARPRANK_DEVICE Fragment narrow_as_right(const float (&sums)[2][4]) {
  Fragment b;
  WARPRANK_UNROLL
  for (int i = 0; i < 4; ++i) b[i] = device::narrow_pair(sums[i % 2][i / 2 * 2], sums[i % 2][i / 2 * 2 + 1]);
  return b;
}

/// The weights of the scores as fragments A, times 2^15: they are normal FP16 down to 2^-29 of the largest. Infinite
/// scores count as the largest finite ones; NaN stays. Only the first `blocks` are there.
template <int Blocks>
WARPRANK_DEVICE void weigh(float factor, int fields, int blocks, float (&scores)[Blocks][2][4],
                           uint32_t (&weights)[Blocks][4]) {
  constexpr float log2_of_weight_scale = 15;
  float zeros[2] = {-largest_score, -largest_score};
  WARPRANK_UNROLL
  for (int b = 0; b < Blocks; ++b) {
    if (b >= blocks) break;
    WARPRANK_UNROLL
    for (int i = 0; i < 8; ++i) {
      float& score = scores[b][i / 4][i % 4];
      const bool is_there = b * tile + i / 4 * 8 + device::lane_index() % 4 * 2 + i % 2 < fields;
      const float scaled = score * factor;
      score = !is_there ? unseen : scaled < -largest_score ? -largest_score : scaled;
      zeros[i % 4 / 2] = std::fmax(zeros[i % 4 / 2], score);
    }
  }
  WARPRANK_UNROLL
  for (int lower = 0; lower < 2; ++lower)
    zeros[lower] = std::fmin(device::Tile<4>::max(zeros[lower]), largest_score) - log2_of_weight_scale;
  WARPRANK_UNROLL
  for (int b = 0; b < Blocks; ++b) {
    if (b >= blocks) break;
    WARPRANK_UNROLL
    for (int i = 0; i < 8; ++i) scores[b][i / 4][i % 4] = std::exp2(scores[b][i / 4][i % 4] - zeros[i % 4 / 2]);
    narrow_as_left(scores[b], weights[b]);
  }
}

/// Stores four columns of a field, of which `count` exist.
template <class Out>
WARPRANK_DEVICE void store_columns(Out* to, const float (&values)[4], int count, bool is_aligned) {
  device::Vector<Out, 4> narrowed;
  device::narrow_all<Out>(values, narrowed);
  if (is_aligned) {
    if (count > 0) device::store_vector(to, narrowed);
    return;
  }
  WARPRANK_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (i < count) device::store(to + i, narrowed[i]);
  }
}

}}}  // namespace warprank::v0::detail::field_attention
