// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Mixtures of experts, made of linear layers and stacks: MMoE (Ma et al. 2018), PLE (Tang et al. 2020), and experts by
/// scene, where each row goes through one expert.
///
/// Weights of experts are stored stacked, [experts, out, in]. If all experts read the same x, they are one layer of
/// experts * out outputs, packed as one by pack_linear: then no tile of 64 outputs is half empty between experts. If
/// expert e reads columns [e * in, (e + 1) * in) of x, pack_experts packs them, and split_experts makes a layer of
/// each. For example two tasks with four experts of 512 and 256, gates and towers, [M, width] -> ctr, ctr * conversion:
///
///     LinearLayer experts0, gate_ctr, gate_cvr;      // x -> [M, 4 * 512], [M, 4], [M, 4]
///     std::vector<LinearLayer> of_x{experts0, gate_ctr, gate_cvr};
///     LinearLaunch first(of_x);
///     LinearLaunch second(split_experts(experts1, 4));               // [M, 4 * 512] -> [M, 4 * 256]
///     Mlp ctr, cvr;                                                  // x = the experts, mix.gate = the task's gate
///     std::vector<Mlp> of_tasks{ctr, cvr};
///     MlpLaunch towers(of_tasks);                                    // mixes on load, 256 -> 128 -> 1 with a sigmoid
///
/// The product of both scores, as in ESMM (Ma et al. 2018), is a HeadProduct of the towers (mlp.cuh).
///
/// In PLE, a task's tower or next level reads the task's own experts as x, and the experts of all tasks as mix.shared.
///
/// Scenes: SceneRows (scene_rows.cuh) lists the rows of each expert. A LinearLayer with this list as `groups`, and with
/// weights from pack_experts or pack_int8_experts, computes each row with the weights of its own scene,
///
///     y[n] = f_s(W_s x[n] + b_s), s the scene of row n;      y[n] = 0 where there is none
///
/// in tiles of rows of one scene, with at most num_scenes tiles more than a plain layer. Several such layers are
/// launched one by one, and share the list.

#include <cstdint>
#include <vector>

#include "warprank/core/buffer.hpp"
#include "warprank/ops/detail/experts/split.cuh"
#include "warprank/ops/mlp.cuh"
#include "warprank/ops/pack_int8_linear.hpp"
#include "warprank/ops/scene_rows.cuh"

namespace warprank { inline namespace v0 {

/// Packs experts, or scenes, one after another, for split_experts and `groups`: `weight` [experts, out, in] and `bias`
/// [experts, out] or empty, each expert as pack_linear does. Throws the same errors.
template <class Value>
Buffer<unsigned char> pack_experts(Span<const Value> weight, Span<const float> bias, int64_t in, int64_t out,
                                   int64_t num_experts) {
  return detail::experts::pack(weight, bias, in, out, num_experts,
                               [&](auto own, auto own_bias) { return pack_linear(own, own_bias, in, out); });
}
/// The same for INT8 weights, each expert as pack_int8_linear does.
inline Buffer<unsigned char> pack_int8_experts(Span<const float> weight, Span<const float> bias, int64_t in,
                                               int64_t out, int64_t num_experts) {
  return detail::experts::pack(weight, bias, in, out, num_experts,
                               [&](auto own, auto own_bias) { return pack_int8_linear(own, own_bias, in, out); });
}

/// The layers of experts that read columns of their own. `all` describes them together: x [M, experts * in], y and the
/// matrices to add or multiply [M, experts * out], vectors of the activation [experts * out]. Fast if `in` is a
/// multiple of 8 and `out` a multiple of 4. Throws invalid_argument if the columns are no multiple of the experts.
inline std::vector<LinearLayer> split_experts(const LinearLayer& all, int64_t num_experts) {
  return detail::experts::split(all, num_experts);
}

/// Stacks of experts, and their layers.
struct ExpertStacks {
  std::vector<MlpLayer> layers;  ///< layers of the first expert, of the second, ...
  std::vector<Mlp> stacks;       ///< refer to `layers`
};

/// The same for experts of several layers, each packed by pack_experts. `all.layers` have the outputs of one expert.
/// With `shared_input` every expert reads all of x, or the same mix; experts with columns of their own take no mix.
inline ExpertStacks split_experts(const Mlp& all, int64_t num_experts, bool shared_input) {
  ExpertStacks to;
  detail::experts::split(all, num_experts, shared_input, to.layers, to.stacks);
  return to;
}

}}  // namespace warprank::v0
