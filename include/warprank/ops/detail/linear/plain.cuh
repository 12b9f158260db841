// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What plain layers (is_plain) have behind their products: y = f(sum + bias + row_bias) * multiply + residual,
/// in the order of gemm/epilogue.cuh. All is read and written by whole vectors. Layers that have a bias alone and FP16
/// outputs look nothing up for the rest.

#include <cstdint>
#include <type_traits>

#include "warprank/device/half.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/ops/detail/gemm/epilogue.cuh"
#include "warprank/ops/detail/linear/descriptor.cuh"

namespace warprank { inline namespace v0 { namespace detail::linear {

/// Scales of a tile's outputs, where there are some.
template <int Columns, bool HasScales>
struct TileScales {
  WARPRANK_DEVICE float scaled(float sum, int) const { return sum; }
};
template <int Columns>
struct TileScales<Columns, true> {
  float scale[Columns];

  WARPRANK_DEVICE float scaled(float sum, int column) const { return sum * scale[column]; }
};

/// Staged tiles need their registers for products until then.
template <int Rows, int Columns, bool HasScales>
struct PlainStorage : TileScales<Columns, HasScales> {
  struct alignas(16) Padded {
    gemm::Epilogue epilogue;
  };
  Padded operands;          ///< has_operands: the layer's
  int64_t bias_rows[Rows];  ///< and with a row bias, what bias_row_of gives for the rows
  float bias[Columns];
  float16* y;  ///< of the tile
  int64_t y_stride, first_row;
  int first_column, num_rows, num_columns;  ///< that exist
  bool is_relu, is_last, has_operands, has_switches;

  WARPRANK_DEVICE float activated(float value) const { return is_relu && value < 0 ? 0.0f : value; }
  WARPRANK_DEVICE float16 finished(float sum, float own_bias) const {
    return device::narrow<float16>(activated(sum + own_bias));
  }

  /// Both are for all behind a barrier.
  template <int Threads>
  WARPRANK_DEVICE void find_operands(const Descriptor& layer) {
    using Piece = device::Vector<uint32_t, 4>;
    static_assert(Rows <= Threads && sizeof(Padded) / sizeof(Piece) <= Threads);
    const int rank = device::thread_rank();
    if (rank < static_cast<int>(sizeof(Padded) / sizeof(Piece))) {
      const auto* const from = reinterpret_cast<const uint32_t*>(&layer.epilogue);
      device::store(reinterpret_cast<Piece*>(&operands) + rank, device::load_vector_read_only<4>(from + rank * 4));
    }
  }
  /// `rows` are neighbours.
  WARPRANK_DEVICE void find_bias_rows(const Descriptor& layer, const BlockRows& rows) {
    const int rank = device::thread_rank();
    if (rank < rows.count && device::load_read_only(&layer.epilogue.row_bias.data) != nullptr)
      bias_rows[rank] = gemm::segment_of(device::load_read_only(&layer.epilogue.offsets),
                                         device::load_read_only(&layer.epilogue.num_segments),
                                         device::load_read_only(&layer.epilogue.max_segments), rows.first + rank);
  }

  /// Stores y of four columns of a row, of the tile both, of which `values` are the sums with their bias.
  WARPRANK_DEVICE void finish_with_operands(int row_of_tile, int column_of_tile, float (&values)[4]) const {
    const gemm::Epilogue& epilogue = operands.epilogue;
    const int64_t row = first_row + row_of_tile;
    const int column = first_column + column_of_tile;
    const auto load = [&](const gemm::Operand<const void>& from, int64_t from_row, auto zero) {
      using Value = decltype(zero);
      device::Vector<Value, 4> four{};
      if (from.data != nullptr)
        four = device::load_vector<4>(static_cast<const Value*>(from.data) + from_row * from.stride + column);
      return four;
    };
    const bool has_row_bias = epilogue.row_bias.data != nullptr, has_factor = epilogue.multiply.data != nullptr,
               has_residual = epilogue.residual.data != nullptr;
    const auto row_bias = load(epilogue.row_bias, has_row_bias ? bias_rows[row_of_tile] : 0, 0.0f);
    const auto factor = load(epilogue.multiply, row, float16{});
    const auto residual = load(epilogue.residual, row, float16{});
    WARPRANK_UNROLL
    for (int c = 0; c < 4; ++c) {
      if (has_row_bias) values[c] += row_bias[c];
      values[c] = activated(values[c]);
      if (has_factor) values[c] *= device::widen(factor[c]);
      if (has_residual) values[c] += device::widen(residual[c]);
    }
    store_columns(row, column, values);
  }

  /// The same of a layer with any activation, and with operands of either type (has_switches).
  WARPRANK_DEVICE void finish_by_switches(int row_of_tile, int column_of_tile, float (&values)[4]) const {
    const gemm::Epilogue& epilogue = operands.epilogue;
    const int64_t row = first_row + row_of_tile;
    const int column = first_column + column_of_tile;
    const auto load = [&](const gemm::Operand<const void>& from, int64_t from_row) {
      device::Vector<float, 4> four{};
      if (from.data == nullptr) return four;
      const int64_t at = from_row * from.stride + column;
      if (!from.is_half) return device::load_vector<4>(static_cast<const float*>(from.data) + at);
      const auto halves = device::load_vector<4>(static_cast<const float16*>(from.data) + at);
      WARPRANK_UNROLL
      for (int c = 0; c < 4; ++c) four[c] = device::widen(halves[c]);
      return four;
    };
    const bool has_row_bias = epilogue.row_bias.data != nullptr, has_factor = epilogue.multiply.data != nullptr,
               has_residual = epilogue.residual.data != nullptr;
    const auto row_bias = load(epilogue.row_bias, has_row_bias ? bias_rows[row_of_tile] : 0);
    const auto factor = load(epilogue.multiply, row), residual = load(epilogue.residual, row);
    WARPRANK_UNROLL
    for (int c = 0; c < 4; ++c) {
      if (has_row_bias) values[c] += row_bias[c];
    }
    activate(epilogue.activation, values, column, epilogue.width);
    WARPRANK_UNROLL
    for (int c = 0; c < 4; ++c) {
      if (has_factor) values[c] *= factor[c];
      if (has_residual) values[c] += residual[c];
    }
    store_columns(row, column, values);
  }

 private:
  WARPRANK_DEVICE void store_columns(int64_t row, int column, const float (&values)[4]) const {
    const gemm::Epilogue& epilogue = operands.epilogue;
    const auto store = [&](auto* to) {
      using Value = std::remove_reference_t<decltype(*to)>;
      device::Vector<Value, 4> four;
      WARPRANK_UNROLL
      for (int c = 0; c < 4; ++c) four[c] = device::narrow<Value>(values[c]);
      device::store_vector(to + row * epilogue.y.stride + column, four);
    };
    if (epilogue.y.is_half)
      store(static_cast<float16*>(epilogue.y.data));
    else
      store(static_cast<float*>(epilogue.y.data));
  }
};

}}}  // namespace warprank::v0::detail::linear
