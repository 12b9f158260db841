// SPDX-License-Identifier: Apache-2.0

// Look-ups in hash tables: the keys of a bucket are compared as vectors.

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Bit w: word w of the line is `key`.
HWY_INLINE uint32_t equal_words(const uint64_t* line, uint64_t key) {
  const hn::CappedTag<uint64_t, 8> d;
  const auto wanted = hn::Set(d, key);
  uint32_t equal = 0;
  WARPRANK_UNROLL
  for (size_t w = 0; w < hash_table::line_words; w += hn::Lanes(d)) {
    uint8_t bits[8] = {};
    hn::StoreMaskBits(d, hn::Eq(hn::Load(d, line + w), wanted), bits);
    equal |= static_cast<uint32_t>(bits[0]) << w;
  }
  return equal;
}

/// The few keys that are not in their first bucket: kept out of the way of the others.
HWY_NOINLINE inline const unsigned char* row_in_later_buckets(const HashTableView& table, uint64_t key,
                                                              uint64_t first_map) {
  for (hash_table::ProbeSequence probes(table.placement, key); probes.next(first_map);) {
    const uint64_t* line = table.line(probes.bucket());
    const uint32_t equal = equal_words(line, key);
    if (const unsigned char* row = hash_table::row_of(table, probes.bucket(), line, equal)) return row;
  }
  return nullptr;
}

/// find_row of hash_table/find.hpp.
HWY_INLINE const unsigned char* row_of_key(const HashTableView& table, int64_t id) {
  const auto key = static_cast<uint64_t>(id);
  const uint64_t bucket = table.placement.first_bucket(table.placement.hash(key));
  const uint64_t* line = table.line(bucket);
  const unsigned char* row = hash_table::row_of(table, bucket, line, equal_words(line, key));
  if (HWY_LIKELY(row != nullptr)) return row;
  const uint64_t map = hash_table::map_of(table.shape, line);
  const bool is_displaced =
      hash_table::has(map, hash_table::Displaced::spilled) || hash_table::has(map, hash_table::Displaced::overflowed);
  return is_displaced ? row_in_later_buckets(table, key, map) : nullptr;
}

/// Fetches the line that row_of_key reads first, two cache lines, as far as the second level: more are on their way at
/// once than the first has buffers for.
HWY_INLINE void prefetch_key(const HashTableView& table, int64_t id) {
  const hash_table::Placement& placement = table.placement;
  const uint64_t* line = table.line(placement.first_bucket(placement.hash(static_cast<uint64_t>(id))));
  prefetch_second_level(line, hash_table::line_bytes);
}

inline void find_rows(const HashTableView& found_in, Span<const int64_t> keys, const unsigned char** rows) {
  constexpr int64_t distance = 32;
  const HashTableView table = found_in;  // in registers: no store to `rows` changes it
  for (int64_t i = 0; i < std::min(keys.size(), distance); ++i) prefetch_key(table, keys[i]);
  for (int64_t i = 0; i < keys.size(); ++i) {
    if (i + distance < keys.size()) prefetch_key(table, keys[i + distance]);
    rows[i] = row_of_key(table, keys[i]);
    if (rows[i] != nullptr) prefetch_second_level(rows[i], table.row_bytes);
  }
}

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
