// SPDX-License-Identifier: Apache-2.0

// Loads and stores of vectors that may be the last, incomplete one of a row; extremes with one meaning on all targets;
// the product of two rows.

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The first `count` (0 <= count <= lanes) floats at `from`, zeros in the other lanes; reads nothing beyond them.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V load_first(D d, const float* from, size_t count) {
  if (count == hn::Lanes(d)) return hn::LoadU(d, from);
#if HWY_TARGET == HWY_SCALAR  // whose MaskedLoad reads what it masks
  return hn::Zero(d);
#elif !HWY_MEM_OPS_MIGHT_FAULT
  return hn::MaskedLoad(hn::FirstN(d, count), d, from);
#else
  HWY_ALIGN float lanes[hn::MaxLanes(D())] = {};
  for (size_t i = 0; i < count; ++i) lanes[i] = from[i];
  return hn::Load(d, lanes);
#endif
}

/// Writes the first `count` (0 <= count <= lanes) lanes to `to` and nothing beyond them.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void store_first(V v, D d, float* to, size_t count) {
  if (count == hn::Lanes(d)) return hn::StoreU(v, d, to);
#if !HWY_MEM_OPS_MIGHT_FAULT
  hn::BlendedStore(v, hn::FirstN(d, count), d, to);
#else
  HWY_ALIGN float lanes[hn::MaxLanes(D())];
  hn::Store(v, d, lanes);
  for (size_t i = 0; i < count; ++i) to[i] = lanes[i];
#endif
}

/// The larger of a and b; NaN when either is (Highway's Max returns one or the other, by target).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V max_or_nan(D, V a, V b) {
  return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::Not(hn::Eq(a, a))), a, b);
}

/// The smaller of a and b; NaN when either is.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V min_or_nan(D, V a, V b) {
  return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::Not(hn::Eq(a, a))), a, b);
}

/// <a, b> of `dim` columns, in as many chains as a vector has lanes.
inline float dot_product(const float* a, const float* b, int64_t dim) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), whole = dim / lanes * lanes;
  const size_t rest = static_cast<size_t>(dim - whole);
  auto sums = hn::Mul(load_first(d, a + whole, rest), load_first(d, b + whole, rest));
  for (int64_t c = 0; c < whole; c += lanes) sums = hn::MulAdd(hn::LoadU(d, a + c), hn::LoadU(d, b + c), sums);
  return hn::GetLane(hn::SumOfLanes(d, sums));
}

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
