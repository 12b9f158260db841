// SPDX-License-Identifier: Apache-2.0

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
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

/// `kVectors` vectors of columns of one row, `count` columns in each.
template <size_t kVectors, class D>
HWY_INLINE void mix_columns(D d, const float* experts, const float* weights, int64_t num_experts, int64_t dim,
                            size_t count, float* y) {
  const size_t lanes = hn::Lanes(d);
  hn::Vec<D> sums[kVectors];
  WARPRANK_UNROLL
  for (size_t v = 0; v < kVectors; ++v) sums[v] = hn::Zero(d);
  for (int64_t e = 0; e < num_experts; ++e, experts += dim) {
    const auto weight = hn::Set(d, weights[e]);
    WARPRANK_UNROLL
    for (size_t v = 0; v < kVectors; ++v)
      sums[v] = hn::MulAdd(weight, load_first(d, experts + v * lanes, count), sums[v]);
  }
  WARPRANK_UNROLL
  for (size_t v = 0; v < kVectors; ++v) store_first(sums[v], d, y + v * lanes, count);
}

HWY_INLINE void mix_row(const float* experts, const float* weights, int64_t num_experts, int64_t dim, float* y) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + 4 * lanes <= dim; c += 4 * lanes)
    mix_columns<4>(d, experts + c, weights, num_experts, dim, hn::Lanes(d), y + c);
  for (; c < dim; c += lanes)
    mix_columns<1>(d, experts + c, weights, num_experts, dim, static_cast<size_t>(std::min(lanes, dim - c)), y + c);
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

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
