// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Cross layers of DCN-v2 (Wang et al. 2021) as layers of ops/linear.cuh, to be launched with others:
///
///     full        y = x0 * (W x + b) + x               one layer
///     low rank    y = x0 * (W (V x) + b) + x           two layers, one after the other
///
/// | Array | Shape     | Type       |                                                            |
/// |-------|-----------|------------|------------------------------------------------------------|
/// | x0, x | [M, D]    | FP16       | the first layer's x is x0                                  |
/// | W     | [D, D], low rank [D, rank] | packed | with b, by pack_linear                         |
/// | V     | [rank, D] | packed     | by pack_linear without a bias                              |
/// | v     | [M, rank] | FP16       | between the two layers                                     |
/// | y     | [M, D]    | FP16, FP32 | may not be x: every output reads a whole row of it         |
///
/// If users have columns [0, Du) of x0 and items the rest, the first layer may be split (late broadcast): then W has
/// only the items' columns, [D, D - Du], x is these columns, and row_bias [segments, D] holds W x of the users'
/// columns.
///
/// Throws invalid_argument for an x that is wider than x0. Other errors, bounds, alignment and what may vary between
/// runs: as in ops/linear.cuh.

#include <array>
#include <cstdint>
#include <string>

#include "warprank/core/error.hpp"
#include "warprank/ops/linear.cuh"

namespace warprank { inline namespace v0 {

namespace detail {

inline LinearLayer cross_of(const void* weights, Matrix<const float16> x0, Matrix<const float16> x,
                            Matrix<const float16> residual, FloatMatrix<void> y, const int64_t* num_rows) {
  LinearLayer layer;
  layer.weights = weights;
  layer.x = x;
  layer.num_rows = num_rows;
  layer.multiply = x0;
  layer.residual = residual;
  layer.y = y;
  return layer;
}

}  // namespace detail

/// A cross layer whose product is over all columns of x. Its row bias may be set for a split first layer; then `x` has
/// only the items' columns, and the residual is still all of x0.
inline LinearLayer cross_layer(const void* weights, Matrix<const float16> x0, Matrix<const float16> x,
                               FloatMatrix<void> y, const int64_t* num_rows = nullptr) {
  if (x.cols > x0.cols)
    raise(invalid_argument("x of a cross layer", "at most x0's " + std::to_string(x0.cols) + " columns",
                           std::to_string(x.cols)));
  return detail::cross_of(weights, x0, x, x.cols == x0.cols ? x : x0, y, num_rows);
}

/// The two layers of a low-rank cross layer, in the order of their launches.
inline std::array<LinearLayer, 2> low_rank_cross_layers(const void* v_weights, const void* w_weights,
                                                        Matrix<const float16> x0, Matrix<const float16> x,
                                                        Matrix<float16> v, FloatMatrix<void> y,
                                                        const int64_t* num_rows = nullptr) {
  LinearLayer down;
  down.weights = v_weights;
  down.x = x;
  down.num_rows = num_rows;
  down.y = v;
  return {down, detail::cross_of(w_weights, x0, v, x, y, num_rows)};
}

}}  // namespace warprank::v0
