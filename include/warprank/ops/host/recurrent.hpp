// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Recurrent layers over ragged histories on the host: a GRU, and the GRUs of DIEN (Zhou et al. 2019) that follow the
/// shares of an attention. For the events t of a history, with gates g of 3 H columns that a linear layer made of them,
/// the state h, 0 ahead of the first event, and p = U h + c,
///
///     r = sigmoid(g_r + p_r),  z = sigmoid(g_z + p_z),  n = tanh(g_n + r p_n)      (as PyTorch's nn.GRU)
///     gru:    h' = (1 - z) n + z h                      y[t] = h'
///     augru:  h' = (1 - a_t z) h + a_t z n              y[i] = the last h', a = softmax over t of scale <q_i, k_t>
///     agru:   h' = (1 - a_t) h + a_t n                  y[i] as for augru
///
/// | Array | Shape              |                                                                          |
/// |-------|--------------------|--------------------------------------------------------------------------|
/// | gates | [T, 3 H]           | r, z and n side by side; rows grouped by `events`                        |
/// | U, c  | [3 H, H], [3 H]    | packed by ops/host/linear.hpp                                            |
/// | q     | [N, K]             | rows grouped by `rows`, with as many segments as `events`; not for a GRU |
/// | k     | [T, K]             | not for a GRU                                                            |
/// | y     | [T, H], or [N, H]  | of a GRU the states behind all events; else 0 where there are no events  |
///
/// Some rows (of a GRU: histories) take a step together, and their product is that of a linear layer, with the bounds
/// of ops/host/linear.hpp; sums, softmax and states are FP32, and sigmoid and tanh as ops/host/activation.hpp says.
/// Infinite scores count as the largest finite ones. A row has the same bits whatever its position and neighbours.
/// Matrices may be strided and need no alignment; y overlaps no input; nothing is allocated.

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "warprank/core/view.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/host/activation.hpp"
#include "warprank/ops/host/attention_weights.hpp"
#include "warprank/ops/host/linear.hpp"
#include "warprank/ops/host/simd.hpp"

#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/recurrent-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"

namespace warprank { inline namespace v0 { namespace host_ops {

HWY_EXPORT(recurrent_step);
HWY_EXPORT(recurrent_shares);

struct RecurrentLayer {
  RecurrentCell cell = RecurrentCell::gru;
  PackedLinear product;  ///< U and c
  float scale = 1;       ///< of the scores

  bool attends() const { return cell != RecurrentCell::gru; }
  int64_t hidden() const { return product.in(); }
};

struct RecurrentInputs {
  Matrix<const float> gates;  ///< [T, 3 H]
  Segments events;            ///< over T
  Matrix<const float> q, k;   ///< [N, K], [T, K]; not for a GRU
  Segments rows;              ///< over N; not for a GRU
};

/// Rows that take a step together.
inline constexpr int64_t recurrent_rows = 64;

/// Floats of workspace for histories of at most `longest` events.
inline int64_t recurrent_workspace(const RecurrentLayer& layer, int64_t longest) {
  const int64_t shares = layer.attends() ? longest : 0;
  return recurrent_rows * (4 * layer.hidden() + shares) + layer.product.workspace_size(recurrent_rows);
}

namespace recurrent_detail {

/// A row of states: its events [first, first + count), and of y where it ends, or where the first event's state goes.
struct Row {
  int64_t first, count, to;
  const float* shares;
};

/// Takes `rows` through all of their events; those that have ended are taken out.
inline void run(const RecurrentLayer& layer, Matrix<const float> gates, Span<Row> rows, Matrix<float> y,
                Span<float> workspace) {
  const int64_t hidden = layer.hidden();
  const Matrix<float> states(workspace.data(), rows.size(), hidden);
  const Matrix<float> products(states.row(rows.size()), rows.size(), 3 * hidden);
  const int64_t used = rows.size() * 4 * hidden;
  const Span<float> rest = workspace.subspan(used, workspace.size() - used);
  std::fill_n(states.data, rows.size() * hidden, 0.0f);
  int64_t num = rows.size();
  for (int64_t t = 0; num > 0; ++t) {
    linear(layer.product, states.row_range(0, num), products.row_range(0, num), {}, rest);
    int64_t left = 0;
    for (int64_t r = 0; r < num; ++r) {
      const Row row = rows[r];
      float* const state = states.row(r);
      HWY_DYNAMIC_DISPATCH(recurrent_step)
      (layer.cell, gates.row(row.first + t), products.row(r), row.shares == nullptr ? 1.0f : row.shares[t], hidden,
       state);
      const bool ends = t + 1 == row.count;
      if (!layer.attends() || ends) std::copy_n(state, hidden, y.row(layer.attends() ? row.to : row.to + t));
      if (ends) continue;
      if (left < r) std::copy_n(state, hidden, states.row(left));
      rows[left++] = row;
    }
    num = left;
  }
}

}  // namespace recurrent_detail

/// `workspace`: recurrent_workspace(layer, longest segment of in.events) floats.
inline void recurrent(const RecurrentLayer& layer, const RecurrentInputs& in, Matrix<float> y, Span<float> workspace) {
  const int64_t hidden = layer.hidden();
  assert(layer.product.out() == 3 * hidden && in.gates.cols == 3 * hidden && y.cols == hidden);
  assert(!layer.attends() || (in.q.cols == in.k.cols && in.rows.count == in.events.count));
  recurrent_detail::Row rows[recurrent_rows];
  int64_t num = 0, num_shares = 0;
  // Shares are behind what the largest number of rows needs.
  const int64_t of_states = recurrent_rows * 4 * hidden + layer.product.workspace_size(recurrent_rows);
  const auto flush = [&] {
    recurrent_detail::run(layer, in.gates, {rows, num}, y, {workspace.data(), of_states});
    num = num_shares = 0;
  };
  for (int64_t s = 0; s < in.events.count; ++s) {
    const int64_t first = in.events.begin(s), count = in.events.size(s);
    if (!layer.attends()) {
      if (count == 0) continue;
      rows[num++] = {first, count, first, nullptr};
      if (num == recurrent_rows) flush();
      continue;
    }
    for (int64_t i = in.rows.begin(s); i < in.rows.end(s); ++i) {
      if (count == 0) {
        std::fill_n(y.row(i), hidden, 0.0f);
        continue;
      }
      float* const shares = workspace.data() + of_states + num_shares;
      assert(shares + count <= workspace.end());
      HWY_DYNAMIC_DISPATCH(recurrent_shares)
      (in.q.row(i), in.k.row_range(first, count), layer.scale, shares);
      num_shares += count;
      rows[num++] = {first, count, i, shares};
      if (num == recurrent_rows) flush();
    }
  }
  flush();
}

}}}  // namespace warprank::v0::host_ops
