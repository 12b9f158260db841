// SPDX-License-Identifier: Apache-2.0

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// `kVectors` vectors of columns of one segment that has rows.
template <size_t kVectors, class D>
HWY_INLINE void reduce_segment_columns(D d, Matrix<const float> rows, bool is_max, float divisor, size_t count,
                                       float* y) {
  const size_t lanes = hn::Lanes(d);
  const auto load = [&](int64_t r, size_t v) HWY_ATTR { return load_first(d, rows.row(r) + v * lanes, count); };
  hn::Vec<D> pooled[kVectors];
  WARPRANK_UNROLL
  for (size_t v = 0; v < kVectors; ++v) pooled[v] = load(0, v);
  for (int64_t r = 1; r < rows.rows; ++r) {
    WARPRANK_UNROLL
    for (size_t v = 0; v < kVectors; ++v)
      pooled[v] = is_max ? max_or_nan(d, pooled[v], load(r, v)) : hn::Add(pooled[v], load(r, v));
  }
  WARPRANK_UNROLL
  for (size_t v = 0; v < kVectors; ++v) store_first(hn::Div(pooled[v], hn::Set(d, divisor)), d, y + v * lanes, count);
}

inline void segment_reduce(Matrix<const float> x, Segments segments, Pooling pooling, Matrix<float> y) {
  assert(x.rows == segments.rows() && y.rows == segments.count && x.cols == y.cols && pooling != Pooling::none);
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const bool is_max = pooling == Pooling::max;
  for (int64_t s = 0; s < segments.count; ++s) {
    if (segments.size(s) == 0) {
      std::fill_n(y.row(s), y.cols, 0.0f);
      continue;
    }
    const Matrix<const float> rows = x.row_range(segments.begin(s), segments.size(s));
    const float length = static_cast<float>(rows.rows);
    const float divisor = pooling == Pooling::mean ? length : pooling == Pooling::sqrtn ? std::sqrt(length) : 1.0f;
    int64_t c = 0;
    for (; c + 4 * lanes <= x.cols; c += 4 * lanes)
      reduce_segment_columns<4>(d, rows.columns(c, 4 * lanes), is_max, divisor, hn::Lanes(d), y.row(s) + c);
    for (; c < x.cols; c += lanes) {
      const int64_t count = std::min(lanes, x.cols - c);
      reduce_segment_columns<1>(d, rows.columns(c, count), is_max, divisor, static_cast<size_t>(count), y.row(s) + c);
    }
  }
}

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
