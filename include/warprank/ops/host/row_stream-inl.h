// SPDX-License-Identifier: Apache-2.0

// The rows of ids, one after the other.

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {

/// The ids of all features, one after the other, as rows: found, counted and on the way into the cache well before they
/// are used, across the borders of bags and features.
///
/// A consumer asks for the next rows with require(), reads them at [0], [1], ... and leaves them with pop().
class RowStream {
 public:
  static constexpr int64_t max_run = 32;  ///< rows that can be required at once

  explicit RowStream(Span<const BagFeature> features)
      : end_(features.end()), hashing_{features.begin(), 0}, finding_{features.begin(), 0} {
    advance(hashing_, distance, fetch_keys);
  }

  /// Makes the next `count` <= max_run rows readable.
  void require(int64_t count) {
    const int64_t missing = count + distance - (found_ - used_);
    if (missing > 0) find(std::max(missing, block));
  }
  const FoundRow& operator[](int64_t k) const { return ring_[(used_ + k) % ring_size]; }
  void pop(int64_t count) { used_ += count; }

 private:
  static constexpr int64_t distance = 64;  // ids between the prefetch of a row and its use; of a key and of its row
  static constexpr int64_t block = 16;
  static constexpr uint64_t ring_size = 256;
  static_assert(max_run + distance + block <= static_cast<int64_t>(ring_size));

  struct Cursor {
    const BagFeature* feature;
    int64_t next;  // id
  };

  /// Moves the cursor over `count` ids, or to the end, and gives them to `visit` feature by feature.
  template <class Visit>
  void advance(Cursor& cursor, int64_t count, Visit visit) {
    while (cursor.feature != end_) {
      const Span<const int64_t> ids = cursor.feature->ids;
      const int64_t some = std::min(count, ids.size() - cursor.next);
      visit(*cursor.feature, ids.subspan(cursor.next, some));
      cursor.next += some;
      count -= some;
      if (cursor.next < ids.size()) return;
      cursor = {cursor.feature + 1, 0};
    }
  }

  static void fetch_keys(const BagFeature& feature, Span<const int64_t> ids) {
    if (feature.hashed == nullptr) return;
    for (const int64_t id : ids) prefetch_key(*feature.hashed, id);
  }

  void find(int64_t count) {
    advance(hashing_, count, fetch_keys);
    advance(finding_, count, [this](const BagFeature& feature, Span<const int64_t> ids) {
      LookupCounters seen;
      if (feature.hashed != nullptr) {
        for (const int64_t id : ids)
          if (feature.padding == id)
            add(FoundRow::padding(), seen.padding);
          else if (const unsigned char* row = row_of_key(*feature.hashed, id))
            add(FoundRow::in_bucket(*feature.hashed, row));
          else
            miss(feature, id, seen);
      } else if (feature.table.type == DType::i8) {
        find_rows<true>(feature, ids, seen);
      } else {
        find_rows<false>(feature, ids, seen);
      }
      if (feature.counters == nullptr) return;
      feature.counters->ids += ids.size();
      feature.counters->unknown += seen.unknown;
      feature.counters->out_of_range += seen.out_of_range;
      feature.counters->padding += seen.padding;
    });
  }

  /// Of a direct table, without branches over ids, of which some may be random.
  template <bool has_scale>
  void find_rows(const BagFeature& feature, Span<const int64_t> ids, LookupCounters& seen) {
    const TableView table = feature.table;
    const int64_t padding_id = feature.padding.value_or(-1), row_bytes = table.row_bytes();
    int64_t found = found_, padding = 0, out_of_range = 0;
    for (const int64_t id : ids) {
      const bool is_padding = id == padding_id, is_row = !is_padding && 0 <= id && id < table.num_rows;
      const int64_t r = is_row ? id : 0;
      FoundRow& row = ring_[static_cast<uint64_t>(found++) % ring_size];
      row.address = is_row ? reinterpret_cast<uintptr_t>(table.row(r)) : static_cast<uintptr_t>(is_padding);
      prefetch_second_level(table.row(r), row_bytes);
      if constexpr (has_scale) {
        prefetch_second_level(row.scale = table.scale_of(r));
        prefetch_second_level(row.offset = table.offset_of(r));
      }
      padding += is_padding;
      out_of_range += !is_padding && !is_row;
    }
    found_ = found;
    seen.padding += padding;
    seen.out_of_range += out_of_range;
  }

  void add(const FoundRow& row) { ring_[found_++ % ring_size] = row; }
  void add(const FoundRow& row, int64_t& counter) {
    add(row);
    ++counter;
  }
  void miss(const BagFeature& feature, int64_t id, LookupCounters& seen) {
    add(FoundRow::default_row(), seen.unknown);
    if (feature.missed != nullptr) feature.missed->add(id);
  }

  const BagFeature* end_;
  Cursor hashing_;  // `distance` ids before finding_
  Cursor finding_;
  int64_t found_ = 0;
  int64_t used_ = 0;
  FoundRow ring_[ring_size];
};

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
