// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Recurrent layers over ragged histories on CUDA, all steps in one launch: a GRU, and the GRUs of DIEN (Zhou et al.
/// 2019) that follow the shares of an attention. For the events t of a history, with gates g of 3 H columns that a
/// linear layer made of them, the state h, 0 ahead of the first event, and p = U h + c,
///
///     r = sigmoid(g_r + p_r),  z = sigmoid(g_z + p_z),  n = tanh(g_n + r p_n)      (as PyTorch's nn.GRU)
///     gru:    h' = (1 - z) n + z h                      y[t] = h'
///     augru:  h' = (1 - a_t z) h + a_t z n              y[i] = the last h', a = softmax over t of scale <q_i, k_t>
///     agru:   h' = (1 - a_t) h + a_t n                  y[i] as for augru
///
/// | Array  | Shape             | Type       |                                                                      |
/// |--------|-------------------|------------|----------------------------------------------------------------------|
/// | gates  | [T, 3 H]          | FP16       | r, z and n side by side; rows grouped by event_offsets [parents + 1] |
/// | packed | bytes             |            | U [3 H, H] as FP16 and c [3 H] as FP32, by pack_recurrent            |
/// | q      | [N, K]            | FP16       | rows grouped by row_offsets [parents + 1]; not for a GRU             |
/// | k      | [T, K]            | FP16       | not for a GRU                                                        |
/// | y      | [T, H], or [N, H] | FP16, FP32 | of a GRU the states behind all events; else 0 where there are none   |
///
/// H is 1 to `max_hidden`; histories have any length. States are FP32, and rounded to FP16 where they are multiplied,
/// where those beyond its range count as the largest; scores, sums and the softmax are FP32. Infinite scores count as
/// the largest finite ones. With u = 2^-24, a step from a state h that is off by e(h) has products off by at most
///
///     e(p) = sum_c |U_c| (e(h_c) + 2^-11 |h_c| + 2^-24) + u (H + 3) (|c| + sum_c |U_c h_c|)
///
/// and sigmoid and tanh are off by 8 u of themselves. A row of y has the same bits whatever the other rows are; NaN
/// stays within its history, and there behind its event. Rows may be strided and misaligned; where gates and H are
/// multiples of two elements, q, k and K of four, and y of two, as many are loaded and stored at a time. y overlaps no
/// input. T, N and the number of parents are read from device memory, up to the capacities; all may be 0.
///
/// A block has 16 rows (of a GRU: 16 histories), and runs to the end of the longest.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "warprank/core/device_count.hpp"
#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/target.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/contract.hpp"
#include "warprank/ops/detail/common/check_float_matrix.hpp"
#include "warprank/ops/detail/recurrent/launch.cuh"
#include "warprank/ops/pack_recurrent.hpp"

namespace warprank { inline namespace v0 {

struct RecurrentLayer {
  RecurrentCell cell = RecurrentCell::gru;
  RecurrentShape shape;
  const unsigned char* packed = nullptr;  ///< in device memory, aligned to 16
  float scale = 1;                        ///< of scores

  bool attends() const { return cell != RecurrentCell::gru; }
};

/// In device memory; counts and offsets are read when the kernel runs.
struct RecurrentInputs {
  Matrix<const float16> gates;             ///< [event capacity, 3 H]
  const int64_t* event_offsets = nullptr;  ///< [parents + 1], from 0, never decreasing
  DeviceCount parents;
  Matrix<const float16> q, k;            ///< [row capacity, K], [event capacity, K]; not for a GRU
  const int64_t* row_offsets = nullptr;  ///< [parents + 1], from 0, never decreasing; not for a GRU
};

/// Used as contract.hpp says: one kernel, without workspace. The address of the packed weights is in descriptors.
template <class Out>
class Recurrent : public Primitive {
 public:
  static constexpr int64_t max_hidden = detail::recurrent::max_hidden;
  static constexpr int64_t max_rows = int64_t{1} << 30, max_keys = int64_t{1} << 24;

  /// Throws invalid_argument for arguments that do not fit together.
  Recurrent(const RecurrentLayer& layer, const RecurrentInputs& in, Matrix<Out> y)
      : Primitive("recurrent layer"), arguments_(checked(layer, in, y)), target_(device::target()) {
    set_launches(y.rows > 0 && in.parents.capacity > 0);
    set_descriptors(detail::bytes_of(std::vector<detail::recurrent::Weights>{{layer.packed}}));
  }

  WARPRANK_HIDDEN void launch(const LaunchMemory& memory, device::Stream stream = {}) const {
    check(memory);
    if (num_launches() == 0) return;
    detail::recurrent::launch(arguments_, target_, static_cast<const detail::recurrent::Weights*>(memory.descriptors),
                              stream);
  }

 private:
  static detail::recurrent::Arguments<Out> checked(const RecurrentLayer& layer, const RecurrentInputs& in,
                                                   Matrix<Out> y);

  detail::recurrent::Arguments<Out> arguments_;
  int target_;
};

template <class Out>
detail::recurrent::Arguments<Out> Recurrent<Out>::checked(const RecurrentLayer& layer, const RecurrentInputs& in,
                                                          Matrix<Out> y) {
  const std::string what = "recurrent: ";
  const auto text = [](int64_t value) { return std::to_string(value); };
  const int64_t hidden = layer.shape.hidden;
  if (hidden < 1 || hidden > max_hidden)
    raise(invalid_argument(what + "hidden", "1 to " + text(max_hidden) + " columns", text(hidden)));
  Problems problems;
  const auto expect_columns = [&](const char* name, int64_t expected, int64_t got) {
    if (expected != got) problems.add(what + name, text(expected) + " columns", text(got));
  };
  const auto expect_rows = [&](const char* name, int64_t expected, int64_t got) {
    if (expected != got) problems.add(what + name, text(expected) + " rows", text(got));
  };
  detail::check_matrix(what + "gates", in.gates, problems);
  detail::check_matrix(what + "y", y, problems);
  detail::check_apart(what + "y", y, "gates", in.gates, problems);
  detail::check_apart(what + "y", y, "q", in.q, problems);
  detail::check_apart(what + "y", y, "k", in.k, problems);
  expect_columns("gates", 3 * hidden, in.gates.cols);
  expect_columns("y", hidden, y.cols);
  if (layer.attends()) {
    detail::check_matrix(what + "q", in.q, problems);
    detail::check_matrix(what + "k", in.k, problems);
    if (in.q.cols < 1 || in.q.cols > max_keys)
      problems.add(what + "q", "1 to " + text(max_keys) + " columns", text(in.q.cols));
    expect_columns("k", in.q.cols, in.k.cols);
    expect_rows("k", in.gates.rows, in.k.rows);
    expect_rows("q", y.rows, in.q.rows);
    if (in.parents.capacity > 0) detail::check_pointer(what + "row_offsets", in.row_offsets, 8, problems);
  } else {
    expect_rows("y", in.gates.rows, y.rows);
  }
  if (in.gates.rows > max_rows || y.rows > max_rows || in.parents.capacity < 0 || in.parents.capacity > max_rows)
    problems.add(what + "events, rows and parents", "0 to " + text(max_rows) + " of each",
                 text(in.gates.rows) + ", " + text(y.rows) + " and " + text(in.parents.capacity));
  if (in.parents.capacity > 0) detail::check_pointer(what + "event_offsets", in.event_offsets, 8, problems);
  detail::check_pointer(what + "packed", layer.packed, 16, problems);
  constexpr float log2_e = 1.44269504f;
  if (!std::isfinite(layer.scale * log2_e))
    problems.add(what + "scale", "a number that is finite times log2(e)", std::to_string(layer.scale));
  problems.throw_if_any();

  const auto is_aligned = [](const auto& matrix, int64_t width, int64_t elements) {
    const auto bytes = static_cast<uintptr_t>(elements) * sizeof(*matrix.data);
    return reinterpret_cast<uintptr_t>(matrix.data) % bytes == 0 && matrix.stride % elements == 0 &&
           width % elements == 0;
  };
  detail::recurrent::Arguments<Out> made{};
  made.gates = in.gates;
  made.q = in.q;
  made.k = in.k;
  made.y = y;
  made.event_offsets = in.event_offsets;
  made.row_offsets = in.row_offsets;
  made.max_parents = in.parents.capacity;
  made.num_parents = in.parents.actual;
  made.hidden = static_cast<int>(hidden);
  made.keys = static_cast<int>(in.q.cols);
  made.tiles = static_cast<int>(layer.shape.tiles());
  made.steps = static_cast<int>(layer.shape.steps());
  made.factor = layer.scale * log2_e;
  made.attends = layer.attends();
  made.has_update_gate = layer.cell != RecurrentCell::agru;
  made.gates_are_aligned = is_aligned(in.gates, hidden, 2);
  made.keys_are_aligned = is_aligned(in.q, in.q.cols, 4) && is_aligned(in.k, in.k.cols, 4);
  made.y_is_aligned = is_aligned(y, hidden, 2);
  return made;
}

}}  // namespace warprank::v0
