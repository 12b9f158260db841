// SPDX-License-Identifier: Apache-2.0

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// scores = softmax(factor * scores) over `count` > 0 of them. An infinite score counts as the largest finite one, so
/// that only NaN gives NaN. `IsRounded`: for weights that are rounded to BF16, within 2^-12 of themselves.
template <bool IsRounded = false>
void finite_softmax(float factor, float* scores, int64_t count) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), whole = count / lanes * lanes;
  const size_t rest = static_cast<size_t>(count - whole);
  const auto scale = hn::Set(d, factor), zero = hn::Zero(d);
  const auto largest = hn::Set(d, std::numeric_limits<float>::max()), least = hn::Neg(largest);

  const auto last = hn::Mul(scale, load_first(d, scores + whole, rest));
  auto top = hn::IfThenElse(hn::FirstN(d, rest), last, least);
  for (int64_t t = 0; t < whole; t += lanes) top = hn::Max(top, hn::Mul(scale, hn::LoadU(d, scores + t)));
  top = hn::Min(hn::Max(hn::MaxOfLanes(d, top), least), largest);

  // Above the top is only infinity. Compare and choose, since Min may lose NaN.
  const auto exp_of = [&](auto score) HWY_ATTR {
    auto distance = hn::Sub(score, top);
    distance = hn::IfThenElse(hn::Gt(distance, zero), zero, distance);
    if constexpr (!IsRounded) return exp_of_nonpositive(d, distance);
    const auto low = hn::Set(d, -87.3365f);
    const auto vanishes = hn::Lt(distance, low);
    return hn::IfThenZeroElse(vanishes, rough_exp(d, hn::IfThenElse(vanishes, low, distance)));
  };
  auto sums = zero;
  for (int64_t t = 0; t < whole; t += lanes) {
    const auto e = exp_of(hn::Mul(scale, hn::LoadU(d, scores + t)));
    hn::StoreU(e, d, scores + t);
    sums = hn::Add(sums, e);
  }
  const auto last_e = hn::IfThenElseZero(hn::FirstN(d, rest), exp_of(last));
  const float total = hn::GetLane(hn::SumOfLanes(d, hn::Add(sums, last_e)));
  if (total == 0) {  // each score is -infinity
    std::fill_n(scores, count, 1 / static_cast<float>(count));
    return;
  }
  const auto share = hn::Set(d, 1 / total);
  for (int64_t t = 0; t < whole; t += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, scores + t), share), d, scores + t);
  store_first(hn::Mul(last_e, share), d, scores + whole, rest);
}

/// scores = share * silu(factor * scores). An infinite score counts as the largest finite one. `IsRounded` as above.
template <bool IsRounded = false>
void finite_silu(float factor, float share, float* scores, int64_t count) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), whole = count / lanes * lanes;
  const auto scale = hn::Set(d, factor), shares = hn::Set(d, share);
  const auto largest = hn::Set(d, std::numeric_limits<float>::max());
  const auto weight_of = [&](auto score) HWY_ATTR {
    score = hn::Mul(scale, score);  // compare and choose, since Min may lose NaN; silu itself has the least
    score = hn::IfThenElse(hn::Gt(score, largest), largest, score);
    if constexpr (IsRounded) return hn::Mul(shares, rough_silu(d, score));
    return hn::Mul(shares, silu(d, score));
  };
  for (int64_t t = 0; t < whole; t += lanes) hn::StoreU(weight_of(hn::LoadU(d, scores + t)), d, scores + t);
  const size_t rest = static_cast<size_t>(count - whole);
  store_first(weight_of(load_first(d, scores + whole, rest)), d, scores + whole, rest);
}

/// Rows [0, kRows) of weighted_sums, in kVectors vectors of columns of which the last has `used`.
template <int kRows, int kVectors, class D>
HWY_INLINE void weighted_sums_tile(D d, Matrix<const float> weights, Matrix<const float> x, bool add, size_t used,
                                   Matrix<float> y) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<D> sum[kRows][kVectors];
  WARPRANK_UNROLL
  for (int r = 0; r < kRows; ++r) {
    WARPRANK_UNROLL
    for (int v = 0; v < kVectors; ++v) sum[r][v] = add ? load_first(d, y.row(r) + v * lanes, used) : hn::Zero(d);
  }
  for (int64_t t = 0; t < weights.cols; ++t) {
    hn::Vec<D> values[kVectors];
    WARPRANK_UNROLL
    for (int v = 0; v < kVectors; ++v) values[v] = load_first(d, x.row(t) + v * lanes, used);
    WARPRANK_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const auto weight = hn::Set(d, weights.row(r)[t]);
      WARPRANK_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(weight, values[v], sum[r][v]);
    }
  }
  WARPRANK_UNROLL
  for (int r = 0; r < kRows; ++r) {
    WARPRANK_UNROLL
    for (int v = 0; v < kVectors; ++v) store_first(sum[r][v], d, y.row(r) + v * lanes, used);
  }
}

/// Rows [0, kRows) of weighted_sums.
template <int kRows>
void weighted_sums_of(Matrix<const float> weights, Matrix<const float> x, bool add, Matrix<float> y) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + 4 * lanes <= y.cols; c += 4 * lanes)
    weighted_sums_tile<kRows, 4>(d, weights, x.columns(c, 4 * lanes), add, hn::Lanes(d), y.columns(c, 4 * lanes));
  for (; c + 2 * lanes <= y.cols; c += 2 * lanes)
    weighted_sums_tile<kRows, 2>(d, weights, x.columns(c, 2 * lanes), add, hn::Lanes(d), y.columns(c, 2 * lanes));
  for (; c < y.cols; c += lanes) {
    const int64_t used = std::min(lanes, y.cols - c);
    weighted_sums_tile<kRows, 1>(d, weights, x.columns(c, used), add, static_cast<size_t>(used), y.columns(c, used));
  }
}

/// y[r] = sum_t weights[r][t] x[t], added to y[r] when `add`; one chain of multiply-adds in the order of t.
/// weights [rows, T], x [T, C], y [rows, C].
inline void weighted_sums(Matrix<const float> weights, Matrix<const float> x, bool add, Matrix<float> y) {
  assert(weights.rows == y.rows && weights.cols == x.rows && x.cols == y.cols);
  int64_t r = 0;
  for (; r + tile_rows <= y.rows; r += tile_rows)
    weighted_sums_of<tile_rows>(weights.row_range(r, tile_rows), x, add, y.row_range(r, tile_rows));
  for (; r + 2 <= y.rows; r += 2) weighted_sums_of<2>(weights.row_range(r, 2), x, add, y.row_range(r, 2));
  for (; r < y.rows; ++r) weighted_sums_of<1>(weights.row_range(r, 1), x, add, y.row_range(r, 1));
}

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
