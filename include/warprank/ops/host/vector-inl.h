// SPDX-License-Identifier: Apache-2.0

// Loads and stores of the last, incomplete vector of a row.

HWY_BEFORE_NAMESPACE();
namespace warprank::host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The first `count` (0 <= count < lanes) floats at `from`, zeros in the other lanes; reads nothing beyond them.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V load_first(D d, const float* from, size_t count) {
#if !HWY_MEM_OPS_MIGHT_FAULT
  return hn::MaskedLoad(hn::FirstN(d, count), d, from);
#else
  HWY_ALIGN float lanes[hn::MaxLanes(D())] = {};
  for (size_t i = 0; i < count; ++i) lanes[i] = from[i];
  return hn::Load(d, lanes);
#endif
}

/// Writes the first `count` (0 <= count < lanes) lanes to `to` and nothing beyond them.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void store_first(V v, D d, float* to, size_t count) {
#if !HWY_MEM_OPS_MIGHT_FAULT
  hn::BlendedStore(v, hn::FirstN(d, count), d, to);
#else
  HWY_ALIGN float lanes[hn::MaxLanes(D())];
  hn::Store(v, d, lanes);
  for (size_t i = 0; i < count; ++i) to[i] = lanes[i];
#endif
}

}  // namespace warprank::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
