// SPDX-License-Identifier: Apache-2.0

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline double fma_flops(int64_t rounds) {
  const hn::ScalableTag<float> d;
  // Enough chains to hide the latency of two units, few enough for the registers of every instruction set.
  constexpr int chains = 10;
  hn::Vec<decltype(d)> acc[chains];
  WARPRANK_UNROLL
  for (int i = 0; i < chains; ++i) acc[i] = hn::Set(d, static_cast<float>(i));
  const auto factor = hn::Set(d, 0.999f), addend = hn::Set(d, 0.01f);
  for (int64_t round = 0; round < rounds; ++round) {
    WARPRANK_UNROLL
    for (int i = 0; i < chains; ++i) acc[i] = hn::MulAdd(acc[i], factor, addend);
  }
  auto sum = acc[0];
  for (int i = 1; i < chains; ++i) sum = hn::Add(sum, acc[i]);
  benchmark::DoNotOptimize(hn::GetLane(sum));
  return 2.0 * chains * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
