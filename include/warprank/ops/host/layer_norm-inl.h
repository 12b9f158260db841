// SPDX-License-Identifier: Apache-2.0

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// sum_c (x[c] - mean)^2
HWY_INLINE float squared_deviations_of_row(const float* x, int64_t cols, float mean) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto means = hn::Set(d, mean);
  auto even = hn::Zero(d), odd = even;
  int64_t c = 0;
  for (; c + 2 * lanes <= cols; c += 2 * lanes) {
    const auto a = hn::Sub(hn::LoadU(d, x + c), means), b = hn::Sub(hn::LoadU(d, x + c + lanes), means);
    even = hn::MulAdd(a, a, even);
    odd = hn::MulAdd(b, b, odd);
  }
  for (; c < cols; c += lanes) {
    const size_t count = static_cast<size_t>(std::min(lanes, cols - c));
    const auto a = hn::IfThenElseZero(hn::FirstN(d, count), hn::Sub(load_first(d, x + c, count), means));
    even = hn::MulAdd(a, a, even);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
}

inline void layer_norm(Matrix<const float> x, float eps, Span<const float> gamma, Span<const float> beta,
                       Matrix<const float> factor, Matrix<float> y) {
  assert(x.rows == y.rows && x.cols == y.cols);
  assert((gamma.empty() || gamma.size() == x.cols) && (beta.empty() || beta.size() == x.cols));
  assert(factor.rows == 0 || (factor.rows == x.rows && factor.cols == x.cols));
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float cols = static_cast<float>(x.cols);
  for (int64_t n = 0; n < x.rows; ++n) {
    const float* from = x.row(n);
    const float mean = sum_of_row(from, x.cols) / cols;
    const float variance = squared_deviations_of_row(from, x.cols, mean) / cols;
    const auto means = hn::Set(d, mean), scale = hn::Set(d, 1.0f / std::sqrt(variance + eps));
    for (int64_t c = 0; c < x.cols; c += lanes) {
      const size_t count = static_cast<size_t>(std::min(lanes, x.cols - c));
      auto v = hn::Mul(hn::Sub(load_first(d, from + c, count), means), scale);
      if (!gamma.empty()) v = hn::Mul(v, load_first(d, gamma.data() + c, count));
      if (!beta.empty()) v = hn::Add(v, load_first(d, beta.data() + c, count));
      if (factor.rows > 0) v = hn::Mul(v, load_first(d, factor.row(n) + c, count));
      store_first(v, d, y.row(n) + c, count);
    }
  }
}

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
