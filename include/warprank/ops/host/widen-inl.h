// SPDX-License-Identifier: Apache-2.0

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline void widen(Span<const float16> from, float* to) {
  int64_t i = 0;
#if HWY_TARGET == HWY_AVX2 || (HWY_ARCH_X86 && HWY_MAX_BYTES == 64)  // others make it of arithmetic, without NaN
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> halves;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto* bits = reinterpret_cast<const hwy::float16_t*>(from.data());
  for (; i + lanes <= from.size(); i += lanes) hn::StoreU(hn::PromoteTo(d, hn::LoadU(halves, bits + i)), d, to + i);
#endif
  for (; i < from.size(); ++i) to[i] = to_float(from[i]);
}

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
