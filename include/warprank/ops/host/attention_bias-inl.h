// SPDX-License-Identifier: Apache-2.0

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The bias by time of the lanes' differences: of the bucket that their bits tell, or of the one behind it.
template <class D>
HWY_INLINE hn::Vec<D> time_bias(D d, const AttentionBiasTables& tables, const float* of_head, hn::Vec<D> difference) {
  const hn::RebindToSigned<D> di;
  const auto one = hn::Set(d, 1.0f), size = hn::Abs(difference);
  const auto least = hn::IfThenElse(hn::Gt(size, one), size, one);  // of NaN, too
  const auto bits = hn::Sub(hn::BitCast(di, least), hn::Set(di, bits_of_one));
  const auto told = hn::ConvertTo(di, hn::Mul(hn::ConvertTo(d, bits), hn::Set(d, tables.buckets_per_bit)));
  const auto bucket = hn::Min(told, hn::Set(di, static_cast<int32_t>(tables.num_buckets)));
  const auto limit = hn::GatherIndex(d, tables.limits.data(), bucket);
  const auto is_later = hn::And(hn::Ge(least, limit), hn::Lt(limit, hn::Inf(d)));
  const auto later = hn::IfThenElseZero(hn::RebindMask(di, is_later), hn::Set(di, 1));
  return hn::GatherIndex(d, of_head, hn::Add(bucket, later));
}

/// scores[i] = scale * scores[i] + bias, of a query at `place` of a segment and its keys [seen.begin, seen.end).
inline void add_bias(float scale, const AttentionBias& bias, int64_t head, float query_time,
                     Matrix<const float> key_times, int64_t place, const SeenKeys& seen, float* scores) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const AttentionBiasTables& tables = *bias.tables;
  const float* const positions = tables.positions_of(bias.first_head + head);
  const float* const times = tables.times_of(bias.first_head + head);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), count = seen.end - seen.begin;
  const auto last_position = hn::Set(di, static_cast<int32_t>(tables.num_positions - 1));
  const auto last_key = hn::Set(di, static_cast<int32_t>(seen.end - 1));
  const auto now = hn::Set(d, query_time), factor = hn::Set(d, scale);
  for (int64_t t = 0; t < count; t += lanes) {
    const auto key = hn::Min(hn::Iota(di, static_cast<int32_t>(seen.begin + t)), last_key);
    auto sum = hn::Zero(d);
    if (positions != nullptr) {
      const auto distance = hn::Sub(hn::Set(di, static_cast<int32_t>(place)), key);
      sum = hn::GatherIndex(d, positions, hn::Min(distance, last_position));
    }
    if (times != nullptr) {
      const auto at = hn::Mul(key, hn::Set(di, static_cast<int32_t>(key_times.stride)));
      const auto difference = hn::Sub(now, hn::GatherIndex(d, key_times.data, at));
      sum = hn::Add(sum, time_bias(d, tables, times, difference));
    }
    const size_t used = static_cast<size_t>(std::min(lanes, count - t));
    store_first(hn::MulAdd(factor, load_first(d, scores + t, used), sum), d, scores + t, used);
  }
}

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
