// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Linear layers, each by the kernel that was chosen for it, and all that these need beside one another.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "warprank/engine/cuda/bindings.hpp"
#include "warprank/engine/cuda/launch.cuh"
#include "warprank/engine/cuda/linear_choice.hpp"
#include "warprank/engine/tuning.hpp"
#include "warprank/ops/detail/gemm/cublaslt.cuh"
#include "warprank/ops/detail/gemm/finish.cuh"
#include "warprank/ops/linear.cuh"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// Weights for cuBLASLt, behind which is their bias as FP16. All at addresses that stay when the model is exchanged.
struct ProductWeights {
  RowMajorWeights row_major;
  const float* float_bias = nullptr;
};

/// A layer as ops/linear.cuh takes it, and as cuBLASLt does.
struct ChosenLayer {
  LinearLayer layer;
  ProductWeights weights;
  LinearKernel kernel = LinearKernel::tiles;
  std::string variant;  ///< LinearChoice::variants

  /// A layer above all capacities may have no weights for cuBLASLt, and then stays with ours.
  void choose(LinearKernel chosen, const std::string& its_variant, const ProductWeights& its_weights) {
    weights = its_weights;
    const bool is_ours = chosen == LinearKernel::cublaslt && weights.row_major.data == nullptr;
    kernel = is_ours ? LinearKernel::tiles : chosen;
    variant = is_ours ? "" : its_variant;
  }
  int algorithm() const { return algorithm_named(variant).value_or(0); }
  /// The bias in y's type.
  const void* bias() const {
    if (layer.y.type != DType::f16) return weights.float_bias;
    return weights.row_major.data + layer.y.cols * weights.row_major.stride;
  }
  bool is_bare() const {
    return layer.row_bias.values.data == nullptr && layer.multiply.data == nullptr && layer.residual.data == nullptr &&
           detail::gemm::cublaslt_fuses(layer.activation.kind);
  }
};

/// Layers that do not depend on one another: those of ops/linear.cuh in one launch, or two if weights of some are in
/// INT8, each of cuBLASLt's in its own, and what is behind those in one more.
class WARPRANK_HIDDEN LinearLevel {
 public:
  LinearLevel(const std::vector<ChosenLayer>& layers, StepMemory& memory) {
    std::vector<LinearLayer> halves, int8;
    std::vector<detail::gemm::FinishedLayer> finished;
    std::optional<LinearTiling> tiling;
    for (const ChosenLayer& chosen : layers) {
      if (chosen.kernel != LinearKernel::cublaslt) {
        (chosen.layer.weight_type == DType::i8 ? int8 : halves).push_back(chosen.layer);
        if (!tiling) tiling = tiling_named(chosen.variant);
      } else {
        const LinearLayer layer = chosen.is_bare() ? chosen.layer : sums_of(chosen, memory, finished);
        const void* const bias = chosen.is_bare() ? chosen.bias() : nullptr;
        products_.emplace_back(layer, chosen.weights.row_major, bias, chosen.algorithm());
        if (products_.back().cuts_sums()) cut_sums_.push_back(Bindings::as_const(layer.y));
      }
    }
    const bool are_heads = std::all_of(halves.begin(), halves.end(), [](const auto& l) { return l.y.cols == 1; });
    if (!int8.empty() && are_heads) int8.insert(int8.end(), halves.begin(), halves.end()), halves.clear();
    for (const std::vector<LinearLayer>& tiles : {halves, int8}) {
      if (tiles.empty()) continue;
      LinearLaunch launch(tiles);
      // Elsewhere layers like these were plain, and are not in this model.
      const bool fits = tiling && (launch.is_plain() || detail::linear::tile_shape(tiling->tile).is_general);
      if (fits) launch = LinearLaunch(tiles, device::target(), *tiling);
      const LaunchMemory of_launch = memory.of(launch);
      tiles_.emplace_back(std::move(launch), of_launch);
    }
    finish_ = detail::gemm::FinishLaunch(finished);
    finish_memory_ = memory.of(finish_);
    for (const CublasLinear& product : products_)
      workspace_bytes_ = std::max(workspace_bytes_, product.workspace_bytes());
  }

  bool has_products() const { return !products_.empty(); }
  /// PreparedStep::cut_sums.
  const std::vector<FloatMatrix<const void>>& cut_sums() const { return cut_sums_; }
  /// That its products take in turns.
  int64_t workspace_bytes() const { return workspace_bytes_; }
  /// Without what cuBLASLt may add.
  int num_launches() const { return static_cast<int>(tiles_.size() + products_.size()) + finish_.num_launches(); }

  void queue(void* workspace, device::Stream stream) const {
    for (const auto& [launch, of_launch] : tiles_) launch.launch(of_launch, stream);
    for (const CublasLinear& product : products_) product.launch({nullptr, workspace}, stream);
    finish_.launch(finish_memory_, stream);
  }

 private:
  /// The layer with nothing behind its products, which go to memory of their own and are finished from there.
  static LinearLayer sums_of(const ChosenLayer& chosen, StepMemory& memory,
                             std::vector<detail::gemm::FinishedLayer>& finished) {
    const LinearLayer& layer = chosen.layer;
    const int64_t rows = layer.x.rows, stride = round_up(layer.y.cols, 4);
    auto* const sums = static_cast<float*>(memory.unwritten(rows * stride * 4));
    LinearLayer bare;
    bare.x = layer.x;
    bare.y = Matrix<float>(sums, rows, layer.y.cols, stride);
    finished.push_back({Bindings::as_const(bare.y), detail::linear::describe(layer).epilogue, layer.num_rows});
    return bare;
  }

  std::vector<std::pair<LinearLaunch, LaunchMemory>> tiles_;
  std::vector<CublasLinear> products_;
  std::vector<FloatMatrix<const void>> cut_sums_;
  detail::gemm::FinishLaunch finish_{Span<const detail::gemm::FinishedLayer>()};
  LaunchMemory finish_memory_;
  int64_t workspace_bytes_ = 0;
};

/// Levels one after another.
WARPRANK_HIDDEN inline PreparedStep prepare_levels(const std::vector<std::vector<ChosenLayer>>& levels,
                                                   StepMemory& memory) {
  struct Prepared {
    std::vector<LinearLevel> levels;
    void* workspace = nullptr;
  };
  auto prepared = std::make_shared<Prepared>();
  PreparedStep step;
  step.num_launches = 0;
  int64_t workspace_bytes = 0;
  bool has_products = false;
  for (const std::vector<ChosenLayer>& layers : levels) {
    const LinearLevel& level = prepared->levels.emplace_back(layers, memory);
    step.num_launches += level.num_launches();
    has_products |= level.has_products();
    step.cut_sums.insert(step.cut_sums.end(), level.cut_sums().begin(), level.cut_sums().end());
    workspace_bytes = std::max(workspace_bytes, level.workspace_bytes());
  }
  prepared->workspace = memory.in_turns(workspace_bytes);
  step.reads_unused_rows = has_products;
  step.kernel = has_products ? "linear, cublaslt" : "linear";
  step.queue = [prepared = std::shared_ptr<const Prepared>(std::move(prepared))](device::Stream to) {
    for (const LinearLevel& level : prepared->levels) level.queue(prepared->workspace, to);
  };
  return step;
}

}}}  // namespace warprank::v0::cuda_backend
