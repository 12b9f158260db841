// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What follows the elementwise part of a row: nothing, softmax, layer normalisation or a reduction. The lanes of a row
/// compute its values again in every pass, which costs no memory; a lane always has the same columns.

#include <cmath>
#include <cstdint>
#include <string>

#include "warprank/core/error.hpp"
#include "warprank/core/host_device.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/detail/common/row_lanes.cuh"

namespace warprank { inline namespace v0 {

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

/// Any of them, known when a program runs.
struct RowStep {
  enum class Kind : uint8_t { each_element, softmax, layer_norm, reduce };
  Kind kind = Kind::each_element;
  Pooling pooling = Pooling::sum;
  LayerNormOfRow layer_norm;

  RowStep() = default;
  constexpr WARPRANK_HOST_DEVICE RowStep(EachElement) {}                         // NOLINT: the same step
  constexpr WARPRANK_HOST_DEVICE RowStep(SoftmaxOfRow) : kind(Kind::softmax) {}  // NOLINT
  constexpr WARPRANK_HOST_DEVICE RowStep(const LayerNormOfRow& step)             // NOLINT
      : kind(Kind::layer_norm), layer_norm(step) {}
  constexpr WARPRANK_HOST_DEVICE RowStep(ReduceRow step)  // NOLINT
      : kind(Kind::reduce), pooling(step.pooling) {}
};

namespace detail {

inline void check_row_step(const RowStep& step, const std::string& what, Problems& problems) {
  if (step.kind == RowStep::Kind::layer_norm && !(step.layer_norm.eps >= 0)) {
    problems.add(what + ": eps", "0 or more", std::to_string(step.layer_norm.eps));
  }
  if (step.kind == RowStep::Kind::reduce && step.pooling == Pooling::none) {
    problems.add(what + ": pooling", "sum, mean, sqrtn or max", "none");
  }
}

/// What the passes before the last have found: of softmax the largest value and the sum of the exponentials, of layer
/// normalisation the mean and what deviations are multiplied by, of a reduction the sum or the maximum.
struct RowFacts {
  float first = 0, second = 0;
};

/// A value in pass 0 or 1, added to those before it.
WARPRANK_DEVICE float fold_value(const RowStep& step, int pass, const RowFacts& facts, bool is_max, float folded,
                                 float v) {
  if (is_max) return max_or_nan(folded, v);
  if (pass == 0) return folded + v;
  if (step.kind == RowStep::Kind::softmax) return folded + std::exp(v - facts.first);
  return folded + (v - facts.first) * (v - facts.first);
}

/// A value as it is stored.
WARPRANK_DEVICE float finish_value(const RowStep& step, const RowFacts& facts, int64_t column, float v) {
  if (step.kind == RowStep::Kind::softmax) return std::exp(v - facts.first) / facts.second;
  if (step.kind != RowStep::Kind::layer_norm) return v;
  v = (v - facts.first) * facts.second;
  if (step.layer_norm.gamma != nullptr) v *= device::load_read_only(step.layer_norm.gamma + column);
  if (step.layer_norm.beta != nullptr) v += device::load_read_only(step.layer_norm.beta + column);
  return v;
}

/// The sum or maximum of `cols` values, pooled.
WARPRANK_DEVICE float pooled_value(Pooling pooling, float folded, int64_t cols) {
  if (cols == 0) return 0;
  if (pooling == Pooling::mean) return folded / static_cast<float>(cols);
  if (pooling == Pooling::sqrtn) return folded / std::sqrt(static_cast<float>(cols));
  return folded;
}

/// `evaluate(column, values)` gives values of the row for the lane's columns from one on, `store(column, values)` takes
/// the results, and `store_one(value)` what the row was reduced to. All lanes of the warp call.
template <class Lanes, class Evaluate, class Store, class StoreOne>
WARPRANK_DEVICE void finish_row(const RowStep& step, const Lanes& row, Evaluate evaluate, Store store,
                                StoreOne store_one) {
  using Kind = RowStep::Kind;
  const int last = step.kind == Kind::each_element ? 0 : step.kind == Kind::reduce ? 1 : 2;
  const bool begins_with_max =
      (step.kind == Kind::softmax) | ((step.kind == Kind::reduce) & (step.pooling == Pooling::max));
  RowFacts facts;
  // One loop over all passes: what evaluates is large.
  for (int pass = 0;; ++pass) {
    const bool is_last = pass == last, is_max = (pass == 0) & begins_with_max;
    float folded = is_max ? minus_infinity : 0;
    row.for_each([&](auto column) {
      float values[Lanes::size];
      evaluate(column, values);
      if (step.kind == Kind::each_element) return store(column, values);
      WARPRANK_UNROLL
      for (int j = 0; j < Lanes::size; ++j) {
        if (!row.has(column, j)) continue;
        if (is_last) {
          values[j] = finish_value(step, facts, row.column_of(column, j), values[j]);
        } else {
          folded = fold_value(step, pass, facts, is_max, folded, values[j]);
        }
      }
      if (is_last) store(column, values);
    });
    if (is_last) return;
    folded = combine_lanes(row.lanes, folded, [&](float a, float b) { return is_max ? max_or_nan(a, b) : a + b; });
    const auto cols = static_cast<float>(row.cols);
    const bool normalises = step.kind == Kind::layer_norm;
    if (pass == 1) {
      facts.second = normalises ? 1 / std::sqrt(folded / cols + step.layer_norm.eps) : folded;
      continue;
    }
    facts.first = normalises ? folded / cols : folded;
    if (step.kind == Kind::reduce) break;
  }
  if (row.exists && row.rank == 0) store_one(pooled_value(step.pooling, facts.first, row.cols));
}

}  // namespace detail
}}  // namespace warprank::v0
