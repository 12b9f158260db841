// SPDX-License-Identifier: Apache-2.0

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// sum_c x[c], in as many chains as two vectors have lanes.
HWY_INLINE float sum_of_row(const float* x, int64_t cols) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto even = hn::Zero(d), odd = even;
  int64_t c = 0;
  for (; c + 2 * lanes <= cols; c += 2 * lanes) {
    even = hn::Add(even, hn::LoadU(d, x + c));
    odd = hn::Add(odd, hn::LoadU(d, x + c + lanes));
  }
  if (c + lanes <= cols) {
    even = hn::Add(even, hn::LoadU(d, x + c));
    c += lanes;
  }
  odd = hn::Add(odd, load_first(d, x + c, static_cast<size_t>(cols - c)));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
}

HWY_INLINE float max_of_row(const float* x, int64_t cols) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), whole = cols / lanes * lanes;
  const size_t rest = static_cast<size_t>(cols - whole);
  const auto nothing = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto top = hn::IfThenElse(hn::FirstN(d, rest), load_first(d, x + whole, rest), nothing);
  for (int64_t c = 0; c < whole; c += lanes) top = max_or_nan(d, top, hn::LoadU(d, x + c));
  // Not MaxOfLanes, which may lose NaN and on some targets -inf.
  HWY_ALIGN float lane[hn::MaxLanes(d)];
  hn::Store(top, d, lane);
  float result = lane[0];
  for (int64_t i = 1; i < lanes; ++i)
    if (lane[i] > result || std::isnan(lane[i])) result = lane[i];
  return result;
}

inline void reduce(Matrix<const float> x, Pooling pooling, Matrix<float> y) {
  assert(x.rows == y.rows && y.cols == 1 && pooling != Pooling::none);
  const float cols = static_cast<float>(x.cols);
  const float divisor = pooling == Pooling::mean ? cols : pooling == Pooling::sqrtn ? std::sqrt(cols) : 1.0f;
  for (int64_t n = 0; n < x.rows; ++n) {
    if (x.cols == 0)
      *y.row(n) = 0.0f;
    else
      *y.row(n) = pooling == Pooling::max ? max_of_row(x.row(n), x.cols) : sum_of_row(x.row(n), x.cols) / divisor;
  }
}

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
