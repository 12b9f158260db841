// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A linear layer over fields on CUDA, the same for each of their D columns; with factors, over the products of two
/// rows' fields: a layer of xDeepFM's CIN (Lian et al. 2018), whose maps it can also sum over their columns.
///
///     m[n, h, d] = f(sum_k W[h, k] v[n, k, d] + b[h])
///     v[n, k, d] = fields[n, k, d]                            or   factors[n, i, d] fields[n, j, d], k = i G + j
///     y[n]       = m[n, 0 .. kept - 1, :] as fields, then sum_d m[n, h, d] for h = H - summed .. H - 1
///
/// | Array   | Shape                           |                                                                 |
/// |---------|---------------------------------|-----------------------------------------------------------------|
/// | factors | [N, F * D]                      | FP16; of no columns: none                                       |
/// | fields  | [N, G * D]                      | FP16                                                            |
/// | packed  | bytes                           | W and b by pack_field_linear, aligned to 16                     |
/// | y       | [N, kept * D + summed]          | FP16 or FP32                                                    |
///
/// Products of two values are rounded to FP16 and must be in its range: larger ones become infinite. Products with
/// weights are FP16 with FP32 sums, in an order that depends on shapes alone; the bias, the activation, of any kind
/// without learned vectors, and sums over columns follow in FP32, and y is rounded to its type. A row has the same bits
/// whatever its position and neighbours; NaN and infinity stay within the column d of their row. Rows may be strided
/// and misaligned; fields are brought 8 columns at a time where D is a multiple of 8 and rows are aligned to 16 bytes.
/// y overlaps no input.
///
/// The products are made in registers and are in no memory. Factors, and fields padded to a multiple of 8, are at most
/// `max_operands` together: 1500, and where fields are summed of more than 16 columns 750, of more than 32 columns 375.
/// Fields that are summed have at most `max_summed_columns`.

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
#include "warprank/ops/detail/field_linear/launch.cuh"

namespace warprank { inline namespace v0 {

struct FieldLinearLayer {
  int64_t dim = 1;  ///< columns of a field
  int64_t out = 1;
  const unsigned char* packed = nullptr;  ///< in device memory
  DeviceActivation activation;
  int64_t kept = -1;   ///< so many results, the first, are stored as fields; -1: all
  int64_t summed = 0;  ///< so many, the last, are summed over their columns
};

/// Used as contract.hpp says: one kernel, without workspace. The address of the packed weights is in descriptors.
template <class Out>
class FieldLinear : public Primitive {
 public:
  static constexpr int64_t max_summed_columns = 64, max_columns = int64_t{1} << 30;
  static constexpr int64_t max_outputs = int64_t{65535} * detail::field_linear::tile_outputs;

  /// Of one column in shared memory, where a tile has whole rows if columns are summed.
  static constexpr int64_t max_operands(int64_t dim, bool has_sums) {
    return !has_sums || dim <= 16 ? 1500 : dim <= 32 ? 750 : 375;
  }

  /// `num_rows` is the number of rows at the time of a launch, in device memory; null: y.rows. A larger number counts
  /// as y.rows. Throws invalid_argument for arguments that do not fit together.
  FieldLinear(Matrix<const float16> factors, Matrix<const float16> fields, const FieldLinearLayer& layer, Matrix<Out> y,
              const int64_t* num_rows = nullptr)
      : Primitive("field linear layer"),
        plan_(detail::field_linear::plan_field_linear(checked(factors, fields, layer, y, num_rows), device::target(),
                                                      device::num_multiprocessors())) {
    set_launches(y.rows > 0);
    set_descriptors(detail::bytes_of(std::vector<detail::field_linear::Weights>{{layer.packed}}));
  }

  WARPRANK_HIDDEN void launch(const LaunchMemory& memory, device::Stream stream = {}) const {
    check(memory);
    detail::field_linear::launch(plan_, static_cast<const detail::field_linear::Weights*>(memory.descriptors), stream);
  }

 private:
  static detail::field_linear::Arguments<Out> checked(Matrix<const float16> factors, Matrix<const float16> fields,
                                                      const FieldLinearLayer& layer, Matrix<Out> y,
                                                      const int64_t* num_rows);

  detail::field_linear::Plan<Out> plan_;
};

template <class Out>
detail::field_linear::Arguments<Out> FieldLinear<Out>::checked(Matrix<const float16> factors,
                                                               Matrix<const float16> fields,
                                                               const FieldLinearLayer& layer, Matrix<Out> y,
                                                               const int64_t* num_rows) {
  const std::string what = "field_linear: ";
  const int64_t dim = layer.dim, kept = layer.kept < 0 ? layer.out : layer.kept;
  const auto text = [](int64_t value) { return std::to_string(value); };
  Problems problems;
  if (dim < 1 || layer.out < 1 || dim > max_columns || layer.out > max_columns / dim) {
    raise(invalid_argument(what + "layer", "1 or more outputs of 1 or more columns, " + text(max_columns) + " at most",
                           text(layer.out) + " of " + text(dim)));
  }
  if (kept > layer.out || layer.summed < 0 || layer.summed > layer.out || kept + layer.summed == 0) {
    raise(invalid_argument(what + "layer", "results among " + text(layer.out) + " outputs",
                           text(kept) + " kept and " + text(layer.summed) + " summed"));
  }
  const auto check_fields = [&](const std::string& name, const Matrix<const float16>& matrix, int64_t least) {
    detail::check_matrix(what + name, matrix, problems);
    if (matrix.cols < least * dim || matrix.cols % dim != 0 || matrix.cols > max_columns) {
      problems.add(what + name, "fields of " + text(dim) + " columns, at most " + text(max_columns),
                   text(matrix.cols) + " columns");
    }
    if (matrix.cols > 0 && matrix.rows != y.rows) problems.add(what + name, text(y.rows) + " rows", text(matrix.rows));
  };
  check_fields("factors", factors, 0);
  check_fields("fields", fields, 1);
  detail::check_matrix(what + "y", y, problems);
  detail::check_apart(what + "y", y, "factors", factors, problems);
  detail::check_apart(what + "y", y, "fields", fields, problems);
  if (const int64_t columns = kept * dim + layer.summed; y.cols != columns)
    problems.add(what + "y", text(columns) + " columns", text(y.cols));
  if (layer.summed > 0 && dim > max_summed_columns) {
    problems.add(what + "fields that are summed", "at most " + text(max_summed_columns) + " columns", text(dim));
  }
  detail::check_pointer(what + "packed", layer.packed, 16, problems);
  if (layer.activation.kind == ActivationKind::prelu || layer.activation.kind == ActivationKind::dice)
    problems.add(what + "activation", "one without learned vectors", name_of_enum(layer.activation.kind));
  const FieldLinearShape shape{factors.cols / dim, fields.cols / dim, layer.out};
  const int64_t operands = shape.factors() + shape.padded_fields(), most = max_operands(dim, layer.summed > 0);
  if (operands > most) problems.add(what + "factors and padded fields", "at most " + text(most), text(operands));
  if (layer.out > max_outputs) problems.add(what + "outputs", "at most " + text(max_outputs), text(layer.out));
  if (y.rows > max_columns * 8 / dim)
    problems.add(what + "rows", "at most " + text(max_columns * 8 / dim), text(y.rows));
  problems.throw_if_any();

  const auto is_aligned = [](const Matrix<const float16>& x) {
    return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride % detail::field_linear::vector_size == 0;
  };
  if (factors.cols == 0) factors.data = nullptr;
  const PackedLinearLayout layout = shape.layout();
  detail::field_linear::Arguments<Out> made{};
  made.factors = factors;
  made.fields = fields;
  made.y = y;
  made.dim = static_cast<int>(dim);
  made.num_factors = static_cast<int>(shape.factors());
  made.num_fields = static_cast<int>(shape.fields);
  made.num_outputs = static_cast<int>(layer.out);
  made.num_kept = static_cast<int>(kept);
  made.first_summed = static_cast<int>(layer.out - layer.summed);
  made.num_steps = static_cast<int>(layout.num_steps());
  made.num_pairs = static_cast<int>(layout.num_pairs());
  made.field_stride = static_cast<int>(shape.padded_fields());
  made.factor_stride = detail::field_linear::factor_stride_for(shape.factors());
  made.are_aligned =
      dim % detail::field_linear::vector_size == 0 && is_aligned(fields) && (factors.cols == 0 || is_aligned(factors));
  made.activation = layer.activation;
  made.num_rows = num_rows;
  return made;
}

}}  // namespace warprank::v0
