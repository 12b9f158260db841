// SPDX-License-Identifier: Apache-2.0

HWY_BEFORE_NAMESPACE();
namespace warprank::host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The weights of one row of logits: in `buffer`, or the logits themselves.
HWY_INLINE const float* gate_weights(const float* logits, int64_t count, Normalization normalization, float* buffer) {
  if (normalization == Normalization::none) return logits;
  if (normalization == Normalization::softmax) {
    softmax_row(logits, count, buffer);
  } else {
    const Activation gate = warprank::sigmoid;
    activate({gate, {}, {}, {}}, {logits, 1, count}, {buffer, 1, count});
  }
  return buffer;
}

HWY_INLINE void mix_row(const float* experts, const float* weights, int64_t num_experts, int64_t dim, float* y) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t c = 0; c < dim; c += lanes) {
    const size_t count = static_cast<size_t>(std::min(lanes, dim - c));
    auto sum = hn::Zero(d);
    for (int64_t e = 0; e < num_experts; ++e)
      sum = hn::MulAdd(hn::Set(d, weights[e]), load_first(d, experts + e * dim + c, count), sum);
    store_first(sum, d, y + c, count);
  }
}

inline void mix(const SegmentedInput& experts, const SegmentedInput& gate, Normalization normalization, Matrix<float> y,
                Span<float> workspace) {
  const int64_t num_experts = gate.values.cols;
  assert(experts.values.cols == num_experts * y.cols && workspace.size() >= mix_workspace(num_experts));
  for (int64_t n = 0; n < y.rows;) {
    const float* weights =
        gate_weights(gate.values.row(gate.row_serving(n)), num_experts, normalization, workspace.data());
    for (const int64_t end = gate.on_ancestor() ? n + run_of_rows({&gate, 1}, n, y.rows) : n + 1; n < end; ++n)
      mix_row(experts.values.row(experts.row_serving(n)), weights, num_experts, y.cols, y.row(n));
  }
}

}  // namespace warprank::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
