// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A stack of layers for benchmarks on a GPU: its data, what comes of them, and what it takes.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dense.cuh"
#include "warprank/ops/mlp.cuh"

namespace warprank::bench {

/// Of random weights and inputs; lives as long as the benchmark that made it.
class StackData {
 public:
  StackData(Run& run, const std::vector<int64_t>& widths, int64_t rows)
      : run_(run), layers_(random_stack(widths)), rows_(rows), in_(widths.front()), out_(widths.back()) {
    const std::vector<float16> values = random_halves(rows * in_, 3);
    x_ = {run.upload(values), rows, in_};
    work_.bytes = 2.0 * static_cast<double>(rows * in_) + 4.0 * static_cast<double>(rows * out_);
    for (const DenseLayer& layer : layers_) {
      packed_.push_back({upload_packed(run, layer), layer.out, {layer.activation().kind}});
      work_.bytes += layer.weight_bytes(), work_.flops += layer.flops(rows);
    }
    some_ = some_rows(rows);
    expected_ = propagate(layers_, {static_cast<int64_t>(some_.size()), in_, select_rows(values, in_, some_)});
  }

  const std::vector<DenseLayer>& layers() const { return layers_; }
  Matrix<const float16> x() const { return x_; }
  const Work& work() const { return work_; }
  Matrix<float> make_result() { return {run_.allocate<float>(rows_ * out_), rows_, out_}; }
  std::function<void()> check(Matrix<float> y) const {
    return [this, y] {
      expect_within<float>("mlp", expected_.of, select_rows(run_.read(y.data, rows_ * out_), out_, some_), 1);
    };
  }

  /// What MlpLaunch takes.
  Mlp stack(Matrix<float> y) const {
    Mlp stack;
    stack.x = x_, stack.layers = packed_, stack.y = y;
    return stack;
  }
  /// By the policy, or by rule.
  Call fused(const ChainPolicy* policy = nullptr) {
    const Matrix<float> y = make_result();
    const std::vector<Mlp> stacks{stack(y)};
    return {queue_launch(run_, MlpLaunch(stacks, device::target(), true, {}, policy)), check(y)};
  }
  /// A launch for each layer, by `queue_layer`.
  template <class QueueLayer>
  Call one_by_one(QueueLayer queue_layer) {
    const Matrix<float> y = make_result();
    return {queue_chain(run_, layers_, x_, y, queue_layer), check(y)};
  }

 private:
  Run& run_;
  std::vector<DenseLayer> layers_;
  int64_t rows_, in_, out_;
  Matrix<const float16> x_;
  std::vector<MlpLayer> packed_;
  Work work_;
  std::vector<int64_t> some_;
  Activations expected_;
};

/// The library's own layer, as queue_product is cuBLASLt's.
inline Queue queue_own_layer(Memory& memory, const DenseLayer& layer, Matrix<const float16> x, FloatMatrix<void> y) {
  return queue_linear(memory, {make_linear(memory, layer, x, y)});
}

inline const std::vector<std::vector<int64_t>> stacks_to_measure = {
    {600, 256, 256, 256, 1}, {1024, 1024, 512, 256, 1}, {256, 128, 64, 1}};

/// "mlp/600_256_256_256_1/rows:100"
inline std::string name_of_stack(const std::vector<int64_t>& widths, int64_t rows) {
  std::string name = "mlp/" + std::to_string(widths[0]);
  for (size_t i = 1; i < widths.size(); ++i) name += "_" + std::to_string(widths[i]);
  return name + "/rows:" + std::to_string(rows);
}

}  // namespace warprank::bench
