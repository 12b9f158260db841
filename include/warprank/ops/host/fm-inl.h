// SPDX-License-Identifier: Apache-2.0

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Of some columns of the dim: the fields added so far, and the products of all their pairs.
template <class V>
struct FmSums {
  V sum, pairs;
};

/// Adds columns [column, column + count) of every field of the inputs on the same axis, or of those on ancestors.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void add_fields(D d, Span<const SegmentedInput> inputs, bool on_ancestor, int64_t dim, int64_t n,
                           int64_t column, size_t count, FmSums<V>& sums) {
  V sum = sums.sum, pairs = sums.pairs;
  for (const SegmentedInput& input : inputs) {
    if (input.on_ancestor() != on_ancestor) continue;
    const float* field = input.values.row(input.row_serving(n)) + column;
    for (const float* end = field + input.values.cols; field != end; field += dim) {
      const V e = load_first(d, field, count);
      pairs = hn::MulAdd(e, sum, pairs);
      sum = hn::Add(sum, e);
    }
  }
  sums = {sum, pairs};
}

inline void fm(Span<const SegmentedInput> inputs, int64_t dim, bool reduce, Matrix<float> y, Span<float> workspace) {
  assert(dim >= 1 && y.cols == (reduce ? 1 : dim) && workspace.size() >= fm_workspace(dim));
  for ([[maybe_unused]] const SegmentedInput& input : inputs)
    assert(input.values.cols % dim == 0 && (input.on_ancestor() || input.values.rows >= y.rows));
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  float* const ancestor_sum = workspace.data();
  float* const ancestor_pairs = ancestor_sum + dim;

  for (int64_t n = 0; n < y.rows;) {
    for (int64_t column = 0; column < dim; column += lanes) {
      const size_t count = static_cast<size_t>(std::min(lanes, dim - column));
      FmSums<V> sums{hn::Zero(d), hn::Zero(d)};
      add_fields(d, inputs, true, dim, n, column, count, sums);
      store_first(sums.sum, d, ancestor_sum + column, count);
      store_first(sums.pairs, d, ancestor_pairs + column, count);
    }
    for (const int64_t end = n + run_of_rows(inputs, n, y.rows); n < end; ++n) {
      V total = hn::Zero(d);
      for (int64_t column = 0; column < dim; column += lanes) {
        const size_t count = static_cast<size_t>(std::min(lanes, dim - column));
        FmSums<V> sums{load_first(d, ancestor_sum + column, count), load_first(d, ancestor_pairs + column, count)};
        add_fields(d, inputs, false, dim, n, column, count, sums);
        if (reduce)
          total = hn::Add(total, sums.pairs);
        else
          store_first(sums.pairs, d, y.row(n) + column, count);
      }
      if (reduce) *y.row(n) = hn::GetLane(hn::SumOfLanes(d, total));
    }
  }
}

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
