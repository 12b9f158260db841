// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Token mixing of RankMixer (Zhu et al. 2025) on CUDA. A row is T tokens of D columns, and a token has T parts:
///
///     y[n, t] = norm(x'[n, t] + (part t of x'[n, 0], part t of x'[n, 1], .., part t of x'[n, T - 1]))
///     norm(v) = (v - mean) / sqrt(variance + eps) gamma + beta, over the D columns of a token
///
/// x' is x, or with an input norm x whose tokens are normed likewise and rounded to FP16.
///
/// | Array       | Shape                                                  |
/// |-------------|--------------------------------------------------------|
/// | x, y        | [N, T * D], D a multiple of T                          |
/// | gamma, beta | [D], the same for all tokens; null: 1 and 0            |
///
/// x is FP16 and y FP16 or FP32. Sums, mean and variance are FP32; an input norm is rounded to FP16 once, and y to its
/// type. A row has the same bits whatever its position and neighbours, and one with NaN or infinity gives NaN where it
/// is read. Rows may be strided. y does not overlap x. An input norm takes the row into shared memory, and so has at
/// most `max_normed_columns`.
///
/// FP16 results have a kernel of their own where rows are aligned to 8 bytes and vectors, all given, to 16, tokens have
/// 4 2^k or 12 2^k columns, up to 1,024, and parts have a multiple of 4. All else uses a kernel for any shape, which
/// takes about three times as long.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/target.hpp"
#include "warprank/ops/contract.hpp"
#include "warprank/ops/detail/common/check_float_matrix.hpp"
#include "warprank/ops/detail/common/row_steps.cuh"
#include "warprank/ops/detail/mix_tokens/launch.cuh"

namespace warprank { inline namespace v0 {

struct MixTokensOptions {
  LayerNormOfRow norm;
  std::optional<LayerNormOfRow> input_norm;  ///< of x, before it is mixed
};

/// Used as contract.hpp says: one kernel, without workspace. Addresses of gammas and betas are in descriptors.
template <class Out>
class MixTokens : public Primitive {
 public:
  static constexpr int64_t max_columns = int64_t{1} << 30;
  static constexpr int64_t max_normed_columns = 24 << 10;

  /// `num_rows` is the number of rows at the time of a launch, in device memory; null: y.rows. A larger number counts
  /// as y.rows. Throws invalid_argument for arguments that do not fit together.
  MixTokens(Matrix<const float16> x, int64_t tokens, Matrix<Out> y, const int64_t* num_rows = nullptr,
            const MixTokensOptions& options = {})
      : Primitive("token mixing") {
    const LayerNormOfRow& norm = options.norm;
    const LayerNormOfRow input_norm = options.input_norm.value_or(LayerNormOfRow{});
    const detail::mix_tokens::Vectors vectors{{input_norm.gamma, input_norm.beta}, {norm.gamma, norm.beta}};
    plan_ = detail::mix_tokens::plan_mix_tokens(checked(x, tokens, y, num_rows, options), vectors,
                                                device::num_multiprocessors());
    set_launches(y.rows > 0);
    set_descriptors(detail::bytes_of(std::vector<detail::mix_tokens::Vectors>{vectors}));
  }

  WARPRANK_HIDDEN void launch(const LaunchMemory& memory, device::Stream stream = {}) const {
    check(memory);
    detail::mix_tokens::launch(plan_, static_cast<const detail::mix_tokens::Vectors*>(memory.descriptors), stream);
  }

 private:
  static detail::mix_tokens::Arguments<Out> checked(Matrix<const float16> x, int64_t tokens, Matrix<Out> y,
                                                    const int64_t* num_rows, const MixTokensOptions& options);

  detail::mix_tokens::Plan<Out> plan_;
};

template <class Out>
detail::mix_tokens::Arguments<Out> MixTokens<Out>::checked(Matrix<const float16> x, int64_t tokens, Matrix<Out> y,
                                                           const int64_t* num_rows, const MixTokensOptions& options) {
  Problems problems;
  detail::check_matrix("mix_tokens: x", x, problems);
  detail::check_matrix("mix_tokens: y", y, problems);
  detail::check_apart("mix_tokens: y", y, "x", x, problems);
  if (x.rows != y.rows || x.cols != y.cols) {
    problems.add("mix_tokens: x", "the shape of y, [" + std::to_string(y.rows) + ", " + std::to_string(y.cols) + "]",
                 "[" + std::to_string(x.rows) + ", " + std::to_string(x.cols) + "]");
  }
  if (tokens < 1 || tokens > x.cols || x.cols % tokens != 0 || x.cols / tokens % tokens != 0) {
    problems.add("mix_tokens: x", "columns that divide into " + std::to_string(tokens) + " tokens of as many parts",
                 std::to_string(x.cols));
  }
  if (x.cols > max_columns) {
    problems.add("mix_tokens: x", "at most " + std::to_string(max_columns) + " columns", std::to_string(x.cols));
  }
  detail::check_row_step(RowStep(options.norm), "mix_tokens: norm", problems);
  if (options.input_norm) {
    detail::check_row_step(RowStep(*options.input_norm), "mix_tokens: input norm", problems);
    if (x.cols > max_normed_columns) {
      problems.add("mix_tokens: x with an input norm", "at most " + std::to_string(max_normed_columns) + " columns",
                   std::to_string(x.cols));
    }
  }
  problems.throw_if_any();
  const int64_t columns = x.cols / tokens;
  return {x,
          y,
          static_cast<int>(tokens),
          static_cast<int>(columns),
          static_cast<int>(columns / tokens),
          options.input_norm.has_value(),
          options.input_norm.value_or(LayerNormOfRow{}).eps,
          options.norm.eps,
          num_rows};
}

}}  // namespace warprank::v0
