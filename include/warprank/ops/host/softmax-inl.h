// SPDX-License-Identifier: Apache-2.0

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// One row; y may be x.
inline void softmax_row(const float* x, int64_t cols, float* y) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), whole = cols / lanes * lanes;
  const size_t rest = static_cast<size_t>(cols - whole);
  // Lanes beyond the row are -inf: they are never the maximum and their exponential is 0.
  const V nothing = hn::Set(d, -std::numeric_limits<float>::infinity());
  const V last = hn::IfThenElse(hn::FirstN(d, rest), load_first(d, x + whole, rest), nothing);

  V top = last;
  for (int64_t c = 0; c < whole; c += lanes) top = hn::Max(top, hn::LoadU(d, x + c));
  top = hn::MaxOfLanes(d, top);

  V total = hn::Zero(d);
  for (int64_t c = 0; c < whole; c += lanes) {
    const V e = exp_of_nonpositive(d, hn::Sub(hn::LoadU(d, x + c), top));
    hn::StoreU(e, d, y + c);
    total = hn::Add(total, e);
  }
  const V last_e = exp_of_nonpositive(d, hn::Sub(last, top));
  total = hn::SumOfLanes(d, hn::Add(total, last_e));

  for (int64_t c = 0; c < whole; c += lanes) hn::StoreU(hn::Div(hn::LoadU(d, y + c), total), d, y + c);
  store_first(hn::Div(last_e, total), d, y + whole, rest);
}

inline void softmax(Matrix<const float> x, Matrix<float> y) {
  assert(x.rows == y.rows && x.cols == y.cols);
  for (int64_t n = 0; n < x.rows; ++n) softmax_row(x.row(n), x.cols, y.row(n));
}

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
