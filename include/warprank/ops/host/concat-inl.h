// SPDX-License-Identifier: Apache-2.0

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Copies kBytes <= count * 4 <= 2 kBytes bytes as two pieces that may overlap: no loop and no byte beyond the row.
template <size_t kBytes>
HWY_INLINE void copy_two_pieces(const float* from, int64_t count, float* to) {
  const size_t second = static_cast<size_t>(count) * sizeof(float) - kBytes;
  unsigned char first_piece[kBytes], second_piece[kBytes];
  std::memcpy(first_piece, from, kBytes);
  std::memcpy(second_piece, reinterpret_cast<const unsigned char*>(from) + second, kBytes);
  std::memcpy(to, first_piece, kBytes);
  std::memcpy(reinterpret_cast<unsigned char*>(to) + second, second_piece, kBytes);
}

/// One row; short ones cost a few instructions, where a call of memcpy costs more than the copy.
HWY_INLINE void copy_row(const float* from, int64_t count, float* to) {
  if (count >= 16) {
    const hn::CappedTag<float, 16> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = 0;
    for (; i + lanes <= count; i += lanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
    if (i < count) hn::StoreU(hn::LoadU(d, from + count - lanes), d, to + count - lanes);
  } else if (count >= 8) {
    copy_two_pieces<32>(from, count, to);
  } else if (count >= 4) {
    copy_two_pieces<16>(from, count, to);
  } else if (count >= 2) {
    copy_two_pieces<8>(from, count, to);
  } else if (count == 1) {
    *to = *from;
  }
}

/// Rows [first, first + to.rows) of the output, from the rows that serve them.
HWY_INLINE void copy_rows(const SegmentedInput& input, int64_t first, Matrix<float> to) {
  if (!input.on_ancestor()) {
    if (to.cols == 1)
      for (int64_t r = 0; r < to.rows; ++r) *to.row(r) = *input.values.row(first + r);
    else
      for (int64_t r = 0; r < to.rows; ++r) copy_row(input.values.row(first + r), to.cols, to.row(r));
    return;
  }
  const int64_t last = first + to.rows;
  int64_t n = first;
  for (int64_t s = input.row_serving(first); n < last; ++s)
    for (const int64_t end = std::min(input.segments.end(s), last); n < end; ++n)
      copy_row(input.values.row(s), to.cols, to.row(n - first));
}

/// The same single column for each of `to`.
HWY_INLINE void repeat_column(const SegmentedInput& input, int64_t first, Matrix<float> to) {
  if (to.cols == 1) return copy_rows(input, first, to);
  const int64_t last = first + to.rows;
  int64_t n = first;
  for (int64_t s = input.row_serving(first); n < last; ++s)
    for (const int64_t end = input.on_ancestor() ? std::min(input.segments.end(s), last) : n + 1; n < end; ++n)
      std::fill_n(to.row(n - first), to.cols, *input.values.row(s));
}

/// The number of parts from the first on that are the same single column: 1 for others.
inline int64_t count_repeats(Span<const SegmentedInput> parts) {
  const SegmentedInput& first = parts[0];
  int64_t count = 1;
  const auto is_same = [&](const SegmentedInput& part) {
    return part.values.cols == 1 && part.values.data == first.values.data &&
           part.values.stride == first.values.stride && part.segments.offsets == first.segments.offsets;
  };
  while (count < parts.size() && is_same(first) && is_same(parts[count])) ++count;
  return count;
}

inline void concat(Span<const SegmentedInput> parts, Matrix<float> y) {
  if (y.rows == 0 || y.cols == 0) return;
  // All parts of some rows before the next rows: every line of y is completed while it is in the first-level cache.
  constexpr int64_t floats_at_once = 4096;
  const int64_t rows_at_once = std::max<int64_t>(floats_at_once / y.cols, 4);
  for (int64_t first = 0; first < y.rows; first += rows_at_once) {
    const Matrix<float> rows = y.row_range(first, std::min(rows_at_once, y.rows - first));
    int64_t column = 0;
    for (int64_t i = 0; i < parts.size();) {
      const int64_t repeats = count_repeats({parts.data() + i, parts.size() - i});
      const Matrix<float> to = rows.columns(column, repeats * parts[i].values.cols);
      if (to.cols == repeats)
        repeat_column(parts[i], first, to);
      else
        copy_rows(parts[i], first, to);
      column += to.cols;
      i += repeats;
    }
    assert(column == y.cols);
  }
}

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
