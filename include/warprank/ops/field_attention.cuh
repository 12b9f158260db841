// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The interacting layer of AutoInt (Song et al. 2019) on CUDA: each field of a row attends to all fields of the row.
/// For the fields x_f of D columns of a row, and each head of C columns,
///
///     q_f, k_f, v_f = Wq x_f, Wk x_f, Wv x_f,   w_f = softmax over g of scale <q_f, k_g>
///     y_f = act(sum_g w_fg v_g + Wr x_f)
///
/// | Array  | Shape                | |
/// |--------|----------------------|---------------------------------------------------------------------------------|
/// | x      | [N, F * D]           | FP16                                                                            |
/// | packed | bytes                | Wq, Wk, Wv and, with `has_residual`, Wr [H * C, D] by pack_field_attention      |
/// | y      | [N, F * H * C]       | FP16 or FP32; the H heads of a field side by side                               |
///
/// Sums are FP32, in an order that depends on shapes alone. q, k and v are rounded to FP16, where larger ones become
/// the largest; so are weights, times a power of two: those below 2^-29 of the largest of a softmax to multiples of
/// 2^-39. They and the products with them are in no memory. With u = 2^-24, e(W x) = u (D + 2) sum_d |W_d x_d| + 2^-11
/// |W x| + 2^-24 for q, k and v, and of a score s_g = scale <q, k_g> e_g = u (max(s) - s_g) + |scale| sum_c (u (C + 2)
/// |q k| + e(q) |k| + (|q| + e(q)) e(k)), the error of y before the activation is, to the first order, at most twice
///
///     sum_g w_g |v_g| (u (2 F + 16) + 2^-10 + e_g + sum_g' w_g' e_g') + 2^-39 sum_g |v_g| + sum_g w_g e(v_g)
///     + u ((D + 2) sum_d |Wr_d x_d| + |y|)
///
/// Infinite scores count as the largest finite ones. A row has the same bits whatever its position and neighbours; NaN
/// stays within its row. Rows may be strided and misaligned; where x and D are multiples of four elements, and y and C,
/// four are loaded and stored at a time. y does not overlap x. There are at most `max_fields` fields, and they have at
/// most `max_columns(F)` columns, which shared memory holds: 160 of 128 fields, 480 of 39. Heads may have any.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/target.hpp"
#include "warprank/ops/contract.hpp"
#include "warprank/ops/detail/common/check_float_matrix.hpp"
#include "warprank/ops/detail/field_attention/launch.cuh"
#include "warprank/ops/pack_field_attention.hpp"

namespace warprank { inline namespace v0 {

struct FieldAttentionLayer {
  FieldAttentionShape shape;
  const unsigned char* packed = nullptr;  ///< in device memory, aligned to 16
  float scale = 1;                        ///< of scores
  bool has_residual = true;
  DeviceActivation activation;  ///< one without learned vectors
};

/// Used as contract.hpp says: one kernel, without workspace. The address of the packed weights is in descriptors.
template <class Out>
class FieldAttention : public Primitive {
 public:
  static constexpr int64_t max_fields =
      int64_t{detail::field_attention::fields_of_warp} * detail::field_attention::most_warps;
  static constexpr int64_t max_heads = 65535, max_rows = int64_t{1} << 30, max_row_columns = int64_t{1} << 30;

  /// Of a field, where a row has so many.
  static constexpr int64_t max_columns(int64_t fields) {
    using namespace detail::field_attention;  // NOLINT
    const int warps = static_cast<int>((fields + fields_of_warp - 1) / fields_of_warp);
    return (most_shared_bytes / fragment_bytes / (warps * rows_of_block_for(warps)) - 2) * tile;
  }

  /// `num_rows` is the number of rows at the time of a launch, in device memory; null: y.rows. A larger number counts
  /// as y.rows. Throws invalid_argument for arguments that do not fit together.
  FieldAttention(Matrix<const float16> x, const FieldAttentionLayer& layer, Matrix<Out> y,
                 const int64_t* num_rows = nullptr)
      : Primitive("field attention"), arguments_(checked(x, layer, y, num_rows)), target_(device::target()) {
    set_launches(y.rows > 0);
    set_descriptors(detail::bytes_of(std::vector<detail::field_attention::Weights>{{layer.packed}}));
  }

  WARPRANK_HIDDEN void launch(const LaunchMemory& memory, device::Stream stream = {}) const {
    check(memory);
    detail::field_attention::launch(arguments_, target_,
                                    static_cast<const detail::field_attention::Weights*>(memory.descriptors), stream);
  }

 private:
  static detail::field_attention::Arguments<Out> checked(Matrix<const float16> x, const FieldAttentionLayer& layer,
                                                         Matrix<Out> y, const int64_t* num_rows);

  detail::field_attention::Arguments<Out> arguments_;
  int target_;
};

template <class Out>
detail::field_attention::Arguments<Out> FieldAttention<Out>::checked(Matrix<const float16> x,
                                                                     const FieldAttentionLayer& layer, Matrix<Out> y,
                                                                     const int64_t* num_rows) {
  using namespace detail::field_attention;  // NOLINT
  const std::string what = "field_attention: ";
  const auto text = [](int64_t value) { return std::to_string(value); };
  const FieldAttentionShape& shape = layer.shape;
  Problems problems;
  if (shape.dim < 1 || shape.heads < 1 || shape.head_dim < 1 || shape.heads > max_heads ||
      shape.head_dim > max_row_columns / shape.heads) {
    raise(invalid_argument(what + "heads", "1 to " + text(max_heads) + " of 1 or more columns, and fields of as many",
                           text(shape.heads) + " of " + text(shape.head_dim) + ", fields of " + text(shape.dim)));
  }
  detail::check_matrix(what + "x", x, problems);
  detail::check_matrix(what + "y", y, problems);
  detail::check_apart(what + "y", y, "x", x, problems);
  const int64_t fields = x.cols / shape.dim;
  if (fields < 1 || x.cols % shape.dim != 0) {
    raise(invalid_argument(what + "x", "fields of " + text(shape.dim) + " columns", text(x.cols) + " columns"));
  }
  if (fields > max_fields) {
    problems.add(what + "fields", "at most " + text(max_fields), text(fields));
  } else if (shape.dim > max_columns(fields)) {
    problems.add(what + "columns of " + text(fields) + " fields", "at most " + text(max_columns(fields)),
                 text(shape.dim));
  }
  const int64_t columns = shape.heads * shape.head_dim;
  if (y.cols % columns != 0 || y.cols / columns != fields)
    problems.add(what + "y", text(fields) + " fields of " + text(columns) + " columns", text(y.cols) + " columns");
  if (x.rows != y.rows) problems.add(what + "x", text(y.rows) + " rows", text(x.rows));
  if (y.rows > max_rows) problems.add(what + "rows", "at most " + text(max_rows), text(y.rows));
  detail::check_pointer(what + "packed", layer.packed, 16, problems);
  if (!std::isfinite(layer.scale)) problems.add(what + "scale", "a finite number", std::to_string(layer.scale));
  if (layer.activation.kind == ActivationKind::prelu || layer.activation.kind == ActivationKind::dice)
    problems.add(what + "activation", "one without learned vectors", name_of_enum(layer.activation.kind));
  problems.throw_if_any();

  const auto is_aligned = [](const auto& matrix, int64_t width) {
    constexpr uintptr_t four = 4 * sizeof(*matrix.data);
    return reinterpret_cast<uintptr_t>(matrix.data) % four == 0 && matrix.stride % 4 == 0 && width % 4 == 0;
  };
  Arguments<Out> made{};
  made.x = x;
  made.y = y;
  made.fields = static_cast<int>(fields);
  made.dim = static_cast<int>(shape.dim);
  made.heads = static_cast<int>(shape.heads);
  made.head_dim = static_cast<int>(shape.head_dim);
  made.warps_of_row = (made.fields + fields_of_warp - 1) / fields_of_warp;
  made.rows_of_block = rows_of_block_for(made.warps_of_row);
  made.input_tiles = static_cast<int>(shape.input_tiles());
  made.output_tiles = static_cast<int>(shape.output_tiles());
  made.factor = layer.scale * 1.44269504f;
  made.has_residual = layer.has_residual;
  made.x_is_aligned = is_aligned(x, shape.dim);
  made.y_is_aligned = is_aligned(y, shape.head_dim);
  made.activation = layer.activation;
  made.num_rows = num_rows;
  return made;
}

}}  // namespace warprank::v0
