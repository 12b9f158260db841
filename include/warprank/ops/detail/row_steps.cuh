// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What follows the elementwise part of a row: nothing, softmax, layer normalisation or a reduction. The lanes of a row
/// compute its values again in every pass, which costs no memory; a lane always has the same columns.

#include <cmath>
#include <cstdint>

#include "warprank/device/half.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/detail/row_lanes.cuh"

namespace warprank {

/// The values as they are.
struct EachElement {};
struct SoftmaxOfRow {};
struct LayerNormOfRow {
  float eps = 1e-5f;
  const float* gamma = nullptr;  ///< [C] in device memory; null: 1
  const float* beta = nullptr;   ///< [C] in device memory; null: 0
};
struct ReduceRow {
  Pooling pooling = Pooling::sum;  ///< sum, mean, sqrtn or max
};

namespace detail::elementwise {

// `evaluate(column, values)` gives the row's values from a column on, `y` is where the row goes.

template <int VecSize, class Evaluate, class Out>
WARPRANK_DEVICE void finish_row(EachElement, const RowLanes<VecSize>& row, Evaluate evaluate, Out* y) {
  row.for_each([&](int64_t column) {
    float values[VecSize];
    evaluate(column, values);
    store_values(y + column, values);
  });
}

/// f(sum, v) over the values of the caller's columns, from `start`.
template <int VecSize, class Evaluate, class Fold>
WARPRANK_DEVICE float fold(const RowLanes<VecSize>& row, Evaluate evaluate, float start, Fold f) {
  row.for_each([&](int64_t column) {
    float values[VecSize];
    evaluate(column, values);
    WARPRANK_UNROLL
    for (int j = 0; j < VecSize; ++j) start = f(start, values[j]);
  });
  return start;
}

template <int VecSize, class Evaluate, class Out>
WARPRANK_DEVICE void finish_row(SoftmaxOfRow, const RowLanes<VecSize>& row, Evaluate evaluate, Out* y) {
  const float top = row.combine(fold(row, evaluate, minus_infinity, max_or_nan), max_or_nan);
  const float total = row.sum(fold(row, evaluate, 0, [&](float sum, float v) { return sum + std::exp(v - top); }));
  row.for_each([&](int64_t column) {
    float values[VecSize];
    evaluate(column, values);
    WARPRANK_UNROLL
    for (int j = 0; j < VecSize; ++j) values[j] = std::exp(values[j] - top) / total;
    store_values(y + column, values);
  });
}

template <int VecSize, class Evaluate, class Out>
WARPRANK_DEVICE void finish_row(const LayerNormOfRow& step, const RowLanes<VecSize>& row, Evaluate evaluate, Out* y) {
  const auto cols = static_cast<float>(row.cols);
  const float mean = row.sum(fold(row, evaluate, 0, [](float sum, float v) { return sum + v; })) / cols;
  const float squares =
      row.sum(fold(row, evaluate, 0, [&](float sum, float v) { return sum + (v - mean) * (v - mean); }));
  const float scale = 1 / std::sqrt(squares / cols + step.eps);
  row.for_each([&](int64_t column) {
    float values[VecSize];
    evaluate(column, values);
    WARPRANK_UNROLL
    for (int j = 0; j < VecSize; ++j) {
      values[j] = (values[j] - mean) * scale;
      if (step.gamma != nullptr) values[j] *= device::load_read_only(step.gamma + column + j);
      if (step.beta != nullptr) values[j] += device::load_read_only(step.beta + column + j);
    }
    store_values(y + column, values);
  });
}

template <int VecSize, class Evaluate, class Out>
WARPRANK_DEVICE void finish_row(ReduceRow step, const RowLanes<VecSize>& row, Evaluate evaluate, Out* y) {
  float result = 0;
  if (step.pooling == Pooling::max) {
    result = row.combine(fold(row, evaluate, minus_infinity, max_or_nan), max_or_nan);
    if (row.cols == 0) result = 0;
  } else {
    result = row.sum(fold(row, evaluate, 0, [](float sum, float v) { return sum + v; }));
    const auto cols = static_cast<float>(row.cols);
    if (step.pooling == Pooling::mean && row.cols > 0) result /= cols;
    if (step.pooling == Pooling::sqrtn && row.cols > 0) result /= std::sqrt(cols);
  }
  if (row.exists && row.rank == 0) device::store(y, device::narrow<Out>(result));
}

}  // namespace detail::elementwise
}  // namespace warprank
