// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Linear layers on the host: `groups` independent layers side by side, each
///
///     y = f(x W^T + b + row_bias[segment of the row]) * multiply + residual
///     y = f(x W^T + b + row_bias[segment of the row] + residual) * multiply          with residual_first
///
/// | Array    | Shape                   |                                                                 |
/// |----------|-------------------------|-----------------------------------------------------------------|
/// | W        | [groups, out, in]       | packed once, as b and the vectors of f                          |
/// | b        | [groups * out]          | optional                                                        |
/// | x        | [M, groups * in]        | group g reads columns [g in, (g + 1) in)                        |
/// | y        | [M, groups * out]       | group g writes columns [g out, (g + 1) out)                     |
/// | row_bias | [segments, groups * out]| optional, added to every row of the segment                     |
/// | multiply | [M, groups * out]       | optional; with residual it makes DCN-v2's x0 * (W x + b) + x    |
/// | residual | [M, groups * out]       | optional                                                        |
///
/// FP32, and products as `Precision` says (ops/host/products.hpp). An output is one chain of multiply-adds in the order
/// of k, started from b + row_bias; in layers of up to max_dot_outputs outputs it is as many chains as a vector has
/// lanes, added in a fixed order. So a row has the same bits whatever M, its position and the other rows; other
/// instruction sets may give other bits. Before f, with u = 2^-24:
///
///     |y - exact| <= (in + 2) u (|b| + |row_bias| + sum_k |x_k W_k|)
///
/// and u |y| more if a residual is added first. In BF16 a chain takes two k at a time, by AMX there is one of even k
/// and one of odd k in each 32, and with v = 2^-8
///
///     |y - exact| <= (in + 2) u (|b| + |row_bias| + (1 + v)^2 sum_k |x_k W_k|) + v (2 + v) sum_k |x_k W_k|
///                    + 2^-126 (2 in + sum_k |x_k| + |W_k|)
///
/// where the last term is for values that count as 0 (ops/host/products.hpp); f is that behind products in BF16
/// (ops/host/activation.hpp). With weights in INT8, W' of ops/int8_weights.hpp stands for W, bit by bit: s_o / 2 sum_k
/// |x_k| more. They are widened to the elements of products once for a block of rows. Layers of up to max_dot_outputs
/// outputs stay in FP32: they are scores and gates, and take as long as reading their inputs.
///
/// Rows may be strided and need no alignment. y may be `multiply` or `residual` but must not overlap x or row_bias.
/// Packing allocates and throws invalid_argument; running does neither.

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "warprank/core/buffer.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/prefetch.hpp"
#include "warprank/core/round_up.hpp"
#include "warprank/core/view.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/host/activation.hpp"
#include "warprank/ops/host/amx.hpp"
#include "warprank/ops/host/products.hpp"
#include "warprank/ops/host/simd.hpp"
#include "warprank/ops/int8_weights.hpp"

namespace warprank { inline namespace v0 { namespace host_ops {

/// The inputs of a layer beside x; a matrix without data is absent.
struct LinearInputs {
  Matrix<const float> row_bias;  ///< [row_bias_segments.count, groups * out]
  Segments row_bias_segments;    ///< over the rows of x
  Matrix<const float> multiply;  ///< [M, groups * out]
  Matrix<const float> residual;  ///< [M, groups * out]
  bool residual_first = false;   ///< the residual is added before f
};

/// Layers of at most this many outputs (heads, small gates) are computed as dot products.
inline constexpr int64_t max_dot_outputs = 8;

/// Vectors of outputs of the panel before which `rest` vectors are left to be computed: 4, as a tile takes at most, but
/// none is alone where others are, as its chains are too few. 13 of them are 4, 4, 3 and 2: 80 outputs take 0.94 of
/// what they took with a last panel of one vector, 0.89 in BF16 (Zen 5), 40 outputs 0.91 on AVX2.
constexpr int64_t vectors_of_panel(int64_t rest) { return rest == 5 || rest == 6 ? 3 : std::min<int64_t>(rest, 4); }

/// One packed group, as kernels see it. Its outputs are in panels of vectors_of_panel. The panel that starts at output
/// o is weight + o * in, [in, width]; weights and vectors of outputs that do not exist are 0. Up to max_dot_outputs
/// there are no panels: weight is [out, padded_in]. In BF16 panels are of pairs, [(in + 1) / 2, width], and the panel
/// that starts at output o is pairs + o * ((in + 1) / 2). In INT8 a vector of elements is as many vectors of INT8 as an
/// element has values, one for each.
struct LinearGroup {
  int64_t in, out;
  int64_t padded_in, padded_out;  ///< rounded up to whole vectors
  const float* weight;
  const float* bias;                  ///< [padded_out]
  ChannelActivation activation;       ///< vectors of [padded_out], or empty
  const Bf16Pair* pairs = nullptr;    ///< in the place of weight in BF16
  const int8_t* int8 = nullptr;       ///< in the place of weight, or of pairs, in INT8
  const float* int8_scale = nullptr;  ///< [padded_out], with int8
  Precision precision = Precision::fp32;
};

/// The kernels for which a layer was packed.
struct LinearTarget {
  const char* name;     ///< Highway's name of the instruction set
  int64_t lanes;        ///< floats in a vector
  int64_t tile_rows;    ///< rows of x computed together
  int64_t panel_width;  ///< outputs computed together, at most
  int64_t block_rows;   ///< rows of x that are rounded to BF16 together
  int64_t max_depth;    ///< elements of a panel that are widened from INT8 together
  bool has_bf16;        ///< else layers are FP32, whatever precision is asked for
  void (*run)(const LinearGroup&, Matrix<const float> x, Matrix<float> y, const LinearInputs&, Span<float> workspace);

  std::string to_string() const {
    return std::string(name) + ", tiles of " + std::to_string(tile_rows) + " x " + std::to_string(panel_width);
  }
};

}}}  // namespace warprank::v0::host_ops

#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/linear-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"

namespace warprank { inline namespace v0 { namespace host_ops {

HWY_EXPORT(linear_kernels);

/// The kernels for the best instruction set of this machine.
inline LinearTarget linear_target() { return HWY_DYNAMIC_DISPATCH(linear_kernels)(); }

/// The weights of a layer, laid out for this machine; immutable. It always uses the kernels for which it was packed.
class PackedLinear {
 public:
  PackedLinear() = default;

  /// Copies its arguments. Throws invalid_argument for wrong sizes, all problems together, and for a weight that BF16
  /// or INT8 cannot hold. `weight` [groups, out, in]; `bias` [groups * out] or empty; the vectors of `activation`
  /// [groups * out].
  PackedLinear(Span<const float> weight, Span<const float> bias, int64_t in, int64_t out, int64_t groups = 1,
               const ChannelActivation& activation = {}, Precision precision = Precision::fp32,
               WeightStorage storage = WeightStorage::as_multiplied)
      : target_(linear_target()),
        in_(in),
        out_(out),
        groups_(groups),
        padded_in_(round_up(in, target_.lanes)),
        padded_out_(round_up(out, target_.lanes)),
        precision_(target_.has_bf16 && out > max_dot_outputs ? precision : Precision::fp32),
        storage_(out > max_dot_outputs ? storage : WeightStorage::as_multiplied),
        activation_(activation.spec) {
    check(weight, bias, activation);
    if (precision_ == Precision::bf16) check_bf16("weight of a linear layer", weight);
    if (storage_ == WeightStorage::int8)
      pack_int8(weight);
    else if (precision_ == Precision::bf16)
      pack_pairs(weight);
    else
      pack(weight);
    bias_ = padded(bias);
    alpha_ = padded(activation.alpha);
    scale_ = padded(activation.scale);
    shift_ = padded(activation.shift);
  }

  int64_t in() const { return in_; }
  int64_t out() const { return out_; }
  int64_t groups() const { return groups_; }
  const LinearTarget& target() const { return target_; }
  Precision precision() const { return precision_; }
  WeightStorage storage() const { return storage_; }
  int64_t bytes() const {
    return weight_.bytes() + pairs_.bytes() + int8_.bytes() + int8_scale_.bytes() + bias_.bytes() + alpha_.bytes() +
           scale_.bytes() + shift_.bytes();
  }

  /// Floats of workspace for `rows` rows of x.
  int64_t workspace_size(int64_t rows) const {
    const int64_t rounded_rows = round_up(std::min(rows, target_.block_rows), amx_rows);
    const int64_t rounded = precision_ == Precision::fp32 ? 0 : rounded_rows * pairs_stride(in_);
    if (storage_ == WeightStorage::as_multiplied || rows == 0) return rounded;
    return rounded + std::min(round_up(depth(), amx_pairs), target_.max_depth) * target_.panel_width + target_.lanes;
  }

  LinearGroup group(int64_t g) const {
    assert(0 <= g && g < groups_);
    const auto learned = [&](const Buffer<float>& values, bool used) {
      return used ? Span<const float>(values.data() + g * padded_out_, padded_out_) : Span<const float>();
    };
    const bool is_dice = activation_.kind == ActivationKind::dice;
    return {in_,
            out_,
            padded_in_,
            padded_out_,
            weight_.size() == 0 ? nullptr : weight_.data() + g * group_size(),
            bias_.data() + g * padded_out_,
            {activation_, learned(alpha_, is_dice || activation_.kind == ActivationKind::prelu),
             learned(scale_, is_dice), learned(shift_, is_dice)},
            pairs_.size() == 0 ? nullptr : pairs_.data() + g * padded_out_ * depth(),
            storage_ == WeightStorage::int8 ? int8_.data() + g * padded_out_ * depth() * values() : nullptr,
            storage_ == WeightStorage::int8 ? int8_scale_.data() + g * padded_out_ : nullptr,
            precision_};
  }

 private:
  int64_t group_size() const { return out_ <= max_dot_outputs ? out_ * padded_in_ : padded_out_ * in_; }
  int64_t values() const { return precision_ == Precision::fp32 ? 1 : 2; }  // of an element
  int64_t depth() const { return (in_ + values() - 1) / values(); }         // in elements

  void check(Span<const float> weight, Span<const float> bias, const ChannelActivation& activation) const {
    Problems problems;
    if (in_ < 1 || out_ < 1 || groups_ < 1) {
      problems.add("linear layer", "in, out and groups of at least 1",
                   std::to_string(in_) + ", " + std::to_string(out_) + " and " + std::to_string(groups_));
      problems.throw_if_any();
    }
    const auto expect = [&](const char* what, int64_t expected, int64_t got) {
      if (expected != got) problems.add(what, std::to_string(expected) + " values", std::to_string(got));
    };
    const int64_t width = groups_ * out_;
    const bool is_dice = activation_.kind == ActivationKind::dice;
    const bool has_alpha = is_dice || activation_.kind == ActivationKind::prelu;
    expect("weight of a linear layer", width * in_, weight.size());
    if (!bias.empty()) expect("bias of a linear layer", width, bias.size());
    expect("alpha of a linear layer's activation", has_alpha ? width : 0, activation.alpha.size());
    expect("scale of a linear layer's activation", is_dice ? width : 0, activation.scale.size());
    expect("shift of a linear layer's activation", is_dice ? width : 0, activation.shift.size());
    problems.throw_if_any();
  }

  /// `pack(g, o, first, width)` for each output o of each group g, in the panel [first, first + width).
  template <class Pack>
  void for_each_output(const Pack& pack) {
    for (int64_t g = 0; g < groups_; ++g)
      for (int64_t first = 0, width = 0; first < out_; first += width) {
        width = vectors_of_panel((padded_out_ - first) / target_.lanes) * target_.lanes;
        for (int64_t o = first; o < std::min(first + width, out_); ++o) pack(g, o, first, width);
      }
  }

  void pack(Span<const float> weight) {
    weight_ = Buffer<float>(groups_ * group_size());
    std::fill_n(weight_.data(), weight_.size(), 0.0f);
    if (out_ <= max_dot_outputs) {
      for (int64_t o = 0; o < groups_ * out_; ++o) std::copy_n(&weight[o * in_], in_, weight_.data() + o * padded_in_);
      return;
    }
    for_each_output([&](int64_t g, int64_t o, int64_t first, int64_t width) {
      const float* from = weight.data() + (g * out_ + o) * in_;
      float* to = weight_.data() + g * group_size() + first * in_ + (o - first);
      for (int64_t k = 0; k < in_; ++k) to[k * width] = from[k];
    });
  }

  void pack_pairs(Span<const float> weight) {
    const int64_t behind = has_amx_products() ? (amx_pairs - 1) * target_.panel_width : 0;  // whole tiles are read
    pairs_ = Buffer<Bf16Pair>(groups_ * padded_out_ * depth() + behind);
    std::fill_n(pairs_.data(), pairs_.size(), Bf16Pair{});
    for_each_output([&](int64_t g, int64_t o, int64_t first, int64_t width) {
      const float* from = weight.data() + (g * out_ + o) * in_;
      Bf16Pair* to = pairs_.data() + (g * padded_out_ + first) * depth() + (o - first);
      for (int64_t k = 0; k < in_; ++k)
        (k % 2 == 0 ? to[k / 2 * width].even : to[k / 2 * width].odd) = to_bfloat16(from[k]);
    });
  }

  void pack_int8(Span<const float> weight) {
    check_int8("weight of a linear layer", weight);
    int8_ = Buffer<int8_t>(groups_ * padded_out_ * depth() * values());
    std::fill_n(int8_.data(), int8_.size(), int8_t{0});
    int8_scale_ = Buffer<float>(groups_ * padded_out_);
    std::fill_n(int8_scale_.data(), int8_scale_.size(), 0.0f);
    for_each_output([&](int64_t g, int64_t o, int64_t first, int64_t width) {
      const Span<const float> from(weight.data() + (g * out_ + o) * in_, in_);
      const float scale = int8_scale_.data()[g * padded_out_ + o] = int8_scale(from);
      const int64_t vector = (o - first) / target_.lanes, lane = (o - first) % target_.lanes;
      int8_t* to = int8_.data() + (g * padded_out_ + first) * depth() * values() + lane;
      for (int64_t k = 0; k < in_; ++k)
        to[k / values() * width * values() + (vector * values() + k % values()) * target_.lanes] =
            to_int8(from[k], scale);
    });
  }

  /// [groups, padded_out] with zeros between.
  Buffer<float> padded(Span<const float> values) const {
    Buffer<float> to(groups_ * padded_out_);
    std::fill_n(to.data(), to.size(), 0.0f);
    if (!values.empty())
      for (int64_t g = 0; g < groups_; ++g) std::copy_n(values.data() + g * out_, out_, to.data() + g * padded_out_);
    return to;
  }

  LinearTarget target_{};
  int64_t in_ = 0, out_ = 0, groups_ = 0, padded_in_ = 0, padded_out_ = 0;
  Precision precision_ = Precision::fp32;
  WeightStorage storage_ = WeightStorage::as_multiplied;
  Activation activation_;
  Buffer<float> weight_, bias_, alpha_, scale_, shift_;
  Buffer<Bf16Pair> pairs_;
  Buffer<int8_t> int8_;
  Buffer<float> int8_scale_;
};

/// Runs one group on the rows of x: x [M, in], y and the matrices of `inputs` [., out], only of this group.
/// `workspace`: packed.workspace_size(M) floats.
inline void linear(const PackedLinear& packed, int64_t group, Matrix<const float> x, Matrix<float> y,
                   const LinearInputs& inputs = {}, Span<float> workspace = {}) {
  assert(x.rows == y.rows && x.cols == packed.in() && y.cols == packed.out());
  assert(workspace.size() >= packed.workspace_size(x.rows));
  packed.target().run(packed.group(group), x, y, inputs, workspace);
}

/// Runs all groups: x [M, groups * in], y [M, groups * out]. `workspace`: packed.workspace_size(M) floats.
inline void linear(const PackedLinear& packed, Matrix<const float> x, Matrix<float> y, const LinearInputs& inputs = {},
                   Span<float> workspace = {}) {
  assert(x.cols == packed.groups() * packed.in() && y.cols == packed.groups() * packed.out());
  for (int64_t g = 0; g < packed.groups(); ++g) {
    const auto columns = [&](Matrix<const float> m) {
      return m.data == nullptr ? m : m.columns(g * packed.out(), packed.out());
    };
    linear(packed, g, x.columns(g * packed.in(), packed.in()), y.columns(g * packed.out(), packed.out()),
           {columns(inputs.row_bias), inputs.row_bias_segments, columns(inputs.multiply), columns(inputs.residual),
            inputs.residual_first},
           workspace);
  }
}

}}}  // namespace warprank::v0::host_ops
