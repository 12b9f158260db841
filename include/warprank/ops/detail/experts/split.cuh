// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host's part of ops/experts.cuh.

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "warprank/core/buffer.hpp"
#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/ops/mlp.cuh"
#include "warprank/ops/pack_int8_linear.hpp"

namespace warprank { inline namespace v0 { namespace detail::experts {

inline void check_stacked(int64_t weights, int64_t biases, int64_t in, int64_t out, int64_t num_experts) {
  Problems problems;
  constexpr int64_t most_experts = int64_t{1} << 30, most_weights = int64_t{1} << 60;
  if (num_experts < 1 || num_experts > most_experts)
    problems.add("experts", "1 to 2^30 of them", std::to_string(num_experts));
  if (in < 1 || out < 1 || in > gemm::max_layer_width || out > gemm::max_layer_width)
    problems.add("experts", "in and out of 1 to 2^30", std::to_string(in) + " and " + std::to_string(out));
  problems.throw_if_any();
  if (num_experts > most_weights / (out * in))
    raise(invalid_argument("weight of experts", "up to 2^60 values",
                           std::to_string(num_experts) + " x " + std::to_string(out) + " x " + std::to_string(in)));
  if (weights != num_experts * out * in)
    problems.add("weight of experts", std::to_string(num_experts * out * in) + " values", std::to_string(weights));
  if (biases != 0 && biases != num_experts * out)
    problems.add("bias of experts", std::to_string(num_experts * out) + " values", std::to_string(biases));
  problems.throw_if_any();
}

/// Experts one after another, each by pack_one(weight, bias).
template <class Value, class PackOne>
Buffer<unsigned char> pack(Span<const Value> weight, Span<const float> bias, int64_t in, int64_t out,
                           int64_t num_experts, const PackOne& pack_one) {
  check_stacked(weight.size(), bias.size(), in, out, num_experts);
  Buffer<unsigned char> packed;
  for (int64_t e = 0; e < num_experts; ++e) {
    const Span<const float> own_bias = bias.empty() ? bias : bias.subspan(e * out, out);
    const Buffer<unsigned char> own = pack_one(weight.subspan(e * out * in, out * in), own_bias);
    if (e == 0) packed = Buffer<unsigned char>(num_experts * own.size());
    std::memcpy(packed.data() + e * own.size(), own.data(), static_cast<size_t>(own.size()));
  }
  return packed;
}

/// Cuts what experts share into what each has.
class Cut {
 public:
  explicit Cut(int64_t num_experts) : num_experts_(num_experts) {
    if (num_experts < 1) problems_.add("experts", "at least one", std::to_string(num_experts));
    problems_.throw_if_any();
  }
  void check(const char* what, int64_t columns) {
    if (columns % num_experts_ != 0)
      problems_.add(std::string("experts' ") + what, "a multiple of " + std::to_string(num_experts_) + " columns",
                    std::to_string(columns));
  }
  template <class Inputs>
  void check_inputs(const Inputs& all) {
    check("row bias", all.row_bias.values.cols);
    check("multiply", all.multiply.cols);
    check("residual", all.residual.cols);
    check("y", all.y.cols);
  }
  void add(const std::string& what, const std::string& expected, const std::string& got) {
    problems_.add(what, expected, got);
  }
  void throw_if_any() { problems_.throw_if_any(); }

  template <class View>
  View columns(const View& all, int64_t expert) const {
    return all.columns(all.cols / num_experts_ * expert, all.cols / num_experts_);
  }
  AxisInput<void> columns(const AxisInput<void>& all, int64_t expert) const {
    return {columns(all.values, expert), all.offsets, all.num_segments};
  }
  /// What is added and multiplied, and y, of an expert.
  template <class Inputs>
  void inputs(Inputs& to, int64_t expert) const {
    to.row_bias = columns(to.row_bias, expert);
    to.multiply = columns(to.multiply, expert);
    to.residual = columns(to.residual, expert);
    to.y = columns(to.y, expert);
  }

 private:
  int64_t num_experts_;
  Problems problems_;
};

inline const void* weights_of(const void* packed, DType type, int64_t in, int64_t out, int64_t expert) {
  return static_cast<const char*>(packed) + packed_linear_bytes(type, in, out) * expert;
}
inline DeviceActivation activation_of(DeviceActivation activation, int64_t out, int64_t expert) {
  for (const float** vector : {&activation.alphas, &activation.scales, &activation.shifts})
    if (*vector != nullptr) *vector += out * expert;
  return activation;
}

inline std::vector<LinearLayer> split(const LinearLayer& all, int64_t num_experts) {
  Cut cut(num_experts);
  cut.check("x", all.x.cols);
  cut.check_inputs(all);
  cut.throw_if_any();
  std::vector<LinearLayer> layers;
  for (int64_t e = 0; e < num_experts; ++e) {
    LinearLayer& own = layers.emplace_back(all);
    own.x = cut.columns(all.x, e);
    cut.inputs(own, e);
    own.weights = weights_of(all.weights, all.weight_type, own.x.cols, own.y.cols, e);
    own.activation = activation_of(all.activation, own.y.cols, e);
  }
  return layers;
}

inline void split(const Mlp& all, int64_t num_experts, bool shared_input, std::vector<MlpLayer>& layers,
                  std::vector<Mlp>& stacks) {
  Cut cut(num_experts);
  const bool is_mixed = all.mix.gate.values.data != nullptr;
  if (!shared_input && is_mixed) cut.add("experts that mix", "an input that they share", "columns of their own");
  if (shared_input && all.first_is_done)
    cut.add("experts whose first layer is done", "sums of their own", "a shared x");
  if (!shared_input) cut.check("x", all.x.cols);
  cut.check_inputs(all);
  cut.throw_if_any();
  const int64_t depth = all.layers.size();
  layers.reserve(static_cast<size_t>(num_experts * depth));
  for (int64_t e = 0; e < num_experts; ++e) {
    Mlp& own = stacks.emplace_back(all);
    if (!shared_input) own.x = cut.columns(all.x, e);
    cut.inputs(own, e);
    own.layers = {layers.data() + layers.size(), depth};
    int64_t in = is_mixed || all.first_is_done ? all.in : own.x.cols;
    for (const MlpLayer& layer : all.layers) {
      layers.push_back({weights_of(layer.weights, DType::f16, in, layer.out, e), layer.out,
                        activation_of(layer.activation, layer.out, e)});
      in = layer.out;
    }
  }
}

}}}  // namespace warprank::v0::detail::experts
