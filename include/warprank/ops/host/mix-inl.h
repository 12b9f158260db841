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

/// One row: what it reads, from a column on, and `multiply` and `residual` null where there are none.
struct MixRow {
  const float *experts, *weights, *multiply, *residual;
  float* y;
  int64_t num_experts, dim;
};

/// `kVectors` vectors of columns of one row, from column c on, `count` columns in each.
template <size_t kVectors, class D>
HWY_INLINE void mix_columns(D d, const MixRow& row, int64_t c, size_t count) {
  const size_t lanes = hn::Lanes(d);
  hn::Vec<D> sums[kVectors];
  WARPRANK_UNROLL
  for (size_t v = 0; v < kVectors; ++v) sums[v] = hn::Zero(d);
  const float* experts = row.experts + c;
  for (int64_t e = 0; e < row.num_experts; ++e, experts += row.dim) {
    const auto weight = hn::Set(d, row.weights[e]);
    WARPRANK_UNROLL
    for (size_t v = 0; v < kVectors; ++v)
      sums[v] = hn::MulAdd(weight, load_first(d, experts + v * lanes, count), sums[v]);
  }
  WARPRANK_UNROLL
  for (size_t v = 0; v < kVectors; ++v) {
    const int64_t at = c + static_cast<int64_t>(v * lanes);
    if (row.multiply != nullptr) sums[v] = hn::Mul(sums[v], load_first(d, row.multiply + at, count));
    if (row.residual != nullptr) sums[v] = hn::Add(sums[v], load_first(d, row.residual + at, count));
    store_first(sums[v], d, row.y + at, count);
  }
}

HWY_INLINE void mix_row(const MixRow& row) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + 4 * lanes <= row.dim; c += 4 * lanes) mix_columns<4>(d, row, c, hn::Lanes(d));
  for (; c < row.dim; c += lanes) mix_columns<1>(d, row, c, static_cast<size_t>(std::min(lanes, row.dim - c)));
}

inline void mix(const SegmentedInput& experts, const SegmentedInput& gate, Normalization normalization, Matrix<float> y,
                Span<float> workspace, const MixEnd& ends) {
  const int64_t num_experts = gate.values.cols;
  assert(experts.values.cols == num_experts * y.cols && workspace.size() >= mix_workspace(num_experts));
  const auto row_of = [](Matrix<const float> matrix, int64_t n) {
    return matrix.data == nullptr ? nullptr : matrix.row(n);
  };
  for (int64_t n = 0; n < y.rows;) {
    const float* weights =
        gate_weights(gate.values.row(gate.row_serving(n)), num_experts, normalization, workspace.data());
    for (const int64_t end = gate.on_ancestor() ? n + run_of_rows({&gate, 1}, n, y.rows) : n + 1; n < end; ++n)
      mix_row({experts.values.row(experts.row_serving(n)), weights, row_of(ends.multiply, n), row_of(ends.residual, n),
               y.row(n), num_experts, y.cols});
  }
}

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
