// SPDX-License-Identifier: Apache-2.0

HWY_BEFORE_NAMESPACE();
namespace warprank::host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// to[c, f] = fields[f, c]; `fields` [count, dim], rows of `to` are `stride` apart.
inline void transpose_fields(const float* fields, int64_t count, int64_t dim, float* to, int64_t stride) {
  int64_t f = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d;
  for (; f + 4 <= count; f += 4) {
    const float* from = fields + f * dim;
    int64_t c = 0;
    for (; c + 4 <= dim; c += 4, from += 4) {
      const auto r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + dim);
      const auto r2 = hn::LoadU(d, from + 2 * dim), r3 = hn::LoadU(d, from + 3 * dim);
      const auto low01 = hn::InterleaveLower(d, r0, r1), low23 = hn::InterleaveLower(d, r2, r3);
      const auto high01 = hn::InterleaveUpper(d, r0, r1), high23 = hn::InterleaveUpper(d, r2, r3);
      float* at = to + c * stride + f;
      hn::StoreU(hn::ConcatLowerLower(d, low23, low01), d, at);
      hn::StoreU(hn::ConcatUpperUpper(d, low23, low01), d, at + stride);
      hn::StoreU(hn::ConcatLowerLower(d, high23, high01), d, at + 2 * stride);
      hn::StoreU(hn::ConcatUpperUpper(d, high23, high01), d, at + 3 * stride);
    }
    for (; c < dim; ++c)
      for (int64_t i = 0; i < 4; ++i) to[c * stride + f + i] = fields[(f + i) * dim + c];
  }
#endif
  for (; f < count; ++f)
    for (int64_t c = 0; c < dim; ++c) to[c * stride + f] = fields[f * dim + c];
}

/// Computes row after row in a scratch where the fields of ancestors come first, and then picks the pairs that are
/// asked for. What only depends on ancestors stays in the scratch from one row to the next.
class DotRun {
 public:
  DotRun(Span<const SegmentedInput> inputs, int64_t dim, DotOrder order, bool self, Matrix<float> y,
         Span<float> workspace)
      : inputs_(inputs), dim_(dim), y_(y) {
    for (const SegmentedInput& input : inputs) {
      num_fields_ += input.values.cols / dim;
      if (input.on_ancestor()) num_ancestor_fields_ += input.values.cols / dim;
    }
    assert(y.cols == num_dot_pairs(num_fields_, order, self));
    assert(workspace.size() >= dot_workspace(num_fields_, dim, order, self));
    padded_fields_ = (num_fields_ + 15) / 16 * 16;
    columns_ = workspace.data();
    products_ = columns_ + dim * padded_fields_;
    std::fill_n(columns_, dim * padded_fields_, 0.0f);
    positions_ = reinterpret_cast<int32_t*>(products_ + padded_fields_ * padded_fields_);
    pairs_ = positions_ + num_fields_;
    find_positions();
    find_pairs(order, self);
  }

  void run() {
    for (int64_t n = 0; n < y_.rows;) {
      load_fields(true, n, 0);
      multiply(0, num_ancestor_fields_);
      for (const int64_t end = n + run_of_rows(inputs_, n, y_.rows); n < end; ++n) {
        load_fields(false, n, num_ancestor_fields_);
        multiply(num_ancestor_fields_, num_fields_);
        float* y = y_.row(n);
        for (int64_t p = 0; p < num_pairs_; ++p) y[p] = products_[pairs_[p]];
        if (num_pairs_ < y_.cols) y[num_pairs_] = 0.0f;
      }
    }
  }

 private:
  static constexpr int64_t tile = 8;

  /// Where each field stands in the scratch.
  void find_positions() {
    int32_t next_ancestor = 0, next = static_cast<int32_t>(num_ancestor_fields_);
    int32_t* position = positions_;
    for (const SegmentedInput& input : inputs_)
      for (int64_t i = 0; i < input.values.cols / dim_; ++i)
        *position++ = input.on_ancestor() ? next_ancestor++ : next++;
  }

  /// Where the product of each output stands in the scratch: only its lower triangle is computed.
  void find_pairs(DotOrder order, bool self) {
    for (int64_t f = 0; f < num_fields_; ++f) {
      const int64_t diagonal = self ? f + 1 : f;
      const int64_t first = order == DotOrder::upper ? (self ? f : f + 1) : 0;
      const int64_t last = order == DotOrder::upper ? num_fields_ : diagonal;
      for (int64_t g = first; g < last; ++g) {
        const auto [low, high] = std::minmax(positions_[f], positions_[g]);
        pairs_[num_pairs_++] = static_cast<int32_t>(high * padded_fields_ + low);
      }
    }
  }

  void load_fields(bool on_ancestor, int64_t n, int64_t position) const {
    for (const SegmentedInput& input : inputs_) {
      if (input.on_ancestor() != on_ancestor) continue;
      const int64_t count = input.values.cols / dim_;
      transpose_fields(input.values.row(input.row_serving(n)), count, dim_, columns_ + position, padded_fields_);
      position += count;
    }
  }

  /// Products of the fields [first, last) with all fields up to themselves; up to whole tiles some that are not needed.
  void multiply(int64_t first, int64_t last) const {
    const hn::CappedTag<float, 16> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t f = first / tile * tile; f < last; f += tile)
      for (int64_t g = 0; g < f + tile; g += lanes) {
        const float *x = columns_ + f, *others = columns_ + g;
        hn::Vec<decltype(d)> sums[tile];
        WARPRANK_UNROLL
        for (int64_t i = 0; i < tile; ++i) sums[i] = hn::Zero(d);
        for (int64_t c = 0; c < dim_; ++c, x += padded_fields_, others += padded_fields_) {
          const auto v = hn::LoadU(d, others);
          WARPRANK_UNROLL
          for (int64_t i = 0; i < tile; ++i) sums[i] = hn::MulAdd(hn::Set(d, x[i]), v, sums[i]);
        }
        WARPRANK_UNROLL
        for (int64_t i = 0; i < tile; ++i) hn::StoreU(sums[i], d, products_ + (f + i) * padded_fields_ + g);
      }
  }

  const Span<const SegmentedInput> inputs_;
  const int64_t dim_;
  const Matrix<float> y_;
  int64_t num_fields_ = 0, num_ancestor_fields_ = 0, padded_fields_ = 0, num_pairs_ = 0;
  float* columns_ = nullptr;      // [dim, padded_fields] the fields, transposed
  float* products_ = nullptr;     // [padded_fields, padded_fields]
  int32_t* positions_ = nullptr;  // [num_fields]
  int32_t* pairs_ = nullptr;      // [num_pairs]
};

inline void dot(Span<const SegmentedInput> inputs, int64_t dim, DotOrder order, bool self, Matrix<float> y,
                Span<float> workspace) {
  if (y.rows == 0) return;
  DotRun(inputs, dim, order, self, y, workspace).run();
}

}  // namespace warprank::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
