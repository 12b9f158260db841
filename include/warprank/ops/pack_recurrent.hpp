// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Packs the weights of a recurrent layer (ops/recurrent.cuh) for tensor cores, once on the host.
///
/// A warp has 8 columns of the state, and of each gate the weights of these columns: fragments B of products with 16
/// columns of the state before. They lie in the order in which a lane keeps them in registers: for each warp, each 16
/// columns and each gate two words of each lane. Behind them are the biases of each gate. Columns that do not exist are
/// 0.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "warprank/core/buffer.hpp"
#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 {

/// Of a weight [3 * hidden, hidden] and a bias [3 * hidden]: rows of r, of z and of n.
struct RecurrentShape {
  int64_t hidden = 1;

  static constexpr int64_t gates = 3, tile = 8, step = 16;
  constexpr int64_t tiles() const { return (hidden + tile - 1) / tile; }  ///< of columns of the result
  constexpr int64_t steps() const { return (hidden + step - 1) / step; }  ///< of columns of the state before
  /// Where the weight of a gate from column k to column n is, in elements.
  constexpr int64_t index(int64_t gate, int64_t n, int64_t k) const {
    const int64_t lane = n % tile * 4 + k % tile / 2;
    return ((((n / tile * steps() + k / step) * gates + gate) * 32 + lane) * 2 + k % step / tile) * 2 + k % 2;
  }
  constexpr int64_t bias_offset() const { return tiles() * steps() * gates * 32 * 8; }  ///< in bytes
  constexpr int64_t bytes() const { return bias_offset() + gates * tiles() * tile * int64_t{sizeof(float)}; }
};

/// The weight, row-major, as FP16, and the bias as FP32. Throws invalid_argument for wrong sizes and for weights that
/// are not finite in FP16.
inline Buffer<unsigned char> pack_recurrent(const RecurrentShape& shape, Span<const float> weight,
                                            Span<const float> bias) {
  const auto text = [](int64_t number) { return std::to_string(number); };
  if (shape.hidden < 1 || shape.hidden > int64_t{1} << 30)
    raise(invalid_argument("recurrent layer", "1 to 2^30 columns", text(shape.hidden)));
  const int64_t rows = RecurrentShape::gates * shape.hidden;
  Problems problems;
  if (weight.size() != rows * shape.hidden)
    problems.add("weight of a recurrent layer", text(rows * shape.hidden) + " values", text(weight.size()));
  if (bias.size() != rows) problems.add("bias of a recurrent layer", text(rows) + " values", text(bias.size()));
  problems.throw_if_any();
  Buffer<unsigned char> packed(shape.bytes());
  std::memset(packed.data(), 0, static_cast<size_t>(packed.size()));
  auto* const halves = reinterpret_cast<float16*>(packed.data());
  auto* const biases = reinterpret_cast<float*>(packed.data() + shape.bias_offset());
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t gate = row / shape.hidden, n = row % shape.hidden;
    biases[gate * shape.tiles() * RecurrentShape::tile + n] = bias[row];
    for (int64_t k = 0; k < shape.hidden; ++k) {
      const float value = weight[row * shape.hidden + k];
      const float16 half = to_float16(value);
      if (!(std::fabs(to_float(half)) <= max_float16)) {
        raise(invalid_argument("weight [" + text(row) + ", " + text(k) + "] of a recurrent layer",
                               "a number whose magnitude is at most " + std::to_string(max_float16),
                               std::to_string(value)));
      }
      halves[shape.index(gate, n, k)] = half;
    }
  }
  return packed;
}

}}  // namespace warprank::v0
