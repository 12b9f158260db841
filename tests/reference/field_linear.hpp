// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/bounded.hpp"
#include "reference/linear.hpp"
#include "warprank/core/dtype.hpp"
#include "warprank/core/view.hpp"

namespace warprank::reference {

/// m[n, h, d] = f(sum_k W[h, k] v[n, k, d] + b[h]): v are the fields, or with factors factors[n, i, d] fields[n, j, d],
/// with `halves` rounded to FP16. Of each row the first `kept` fields of m, then sum_d m[n, h, d] from h =
/// first_summed.
inline Bounded field_linear(const Linear& layer, int64_t dim, Matrix<const float> factors, Matrix<const float> fields,
                            int64_t kept, int64_t summed, bool halves) {
  LinearInputs inputs;
  for (int64_t n = 0; n < fields.rows; ++n)
    for (int64_t d = 0; d < dim; ++d)
      for (int64_t i = 0; i < (factors.cols == 0 ? 1 : factors.cols / dim); ++i)
        for (int64_t j = 0; j < fields.cols / dim; ++j) {
          const float field = fields.row(n)[j * dim + d];
          const float product = factors.cols == 0 ? field : factors.row(n)[i * dim + d] * field;
          inputs.x.push_back(halves ? to_float(to_float16(product)) : product);
        }
  const Bounded of_columns = linear(layer, fields.rows * dim, inputs);
  const auto at = [&](int64_t n, int64_t h, int64_t d) { return static_cast<size_t>((n * dim + d) * layer.out + h); };
  Bounded y;
  for (int64_t n = 0; n < fields.rows; ++n) {
    for (int64_t h = 0; h < kept; ++h)
      for (int64_t d = 0; d < dim; ++d) {
        y.value.push_back(of_columns.value[at(n, h, d)]);
        y.bound.push_back(of_columns.bound[at(n, h, d)]);
      }
    for (int64_t h = layer.out - summed; h < layer.out; ++h) {
      double sum = 0, bound = 0, magnitude = 0;
      for (int64_t d = 0; d < dim; ++d) {
        sum += of_columns.value[at(n, h, d)];
        bound += of_columns.bound[at(n, h, d)];
        magnitude += std::fabs(of_columns.value[at(n, h, d)]);
      }
      y.value.push_back(sum);
      y.bound.push_back(bound + static_cast<double>(dim) * magnitude);
    }
  }
  return y;
}

}  // namespace warprank::reference
