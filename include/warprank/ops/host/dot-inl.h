// SPDX-License-Identifier: Apache-2.0

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// to[c, f] = fields[f, c], of elements of 32 bits; `fields` [count, dim], rows of `to` are `stride` apart.
inline void transpose_fields(const float* fields, int64_t count, int64_t dim, float* to, int64_t stride) {
  int64_t first_slow = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d;
  if (count >= 4) {
    first_slow = count;
    for (int64_t block = 0; block < count; block += 4) {
      const int64_t f = std::min(block, count - 4);  // the last four again, rather than a rest
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
  }
#endif
  for (int64_t f = first_slow; f < count; ++f)
    for (int64_t c = 0; c < dim; ++c) to[c * stride + f] = fields[f * dim + c];
}

/// Computes row after row in a scratch: one triangle of the products of all fields, with the fields of ancestors where
/// their own products are whole rows of it (first for the lower triangle, last for the upper), so that these stay from
/// one row to the next; between two sets of fields, a rectangle, with the fields of ancestors first on both sides. The
/// requested pairs are then copied in runs.
template <class Products>
class DotRun {
 public:
  DotRun(Span<const SegmentedInput> inputs, int64_t dim, const DotPairs& pairs, Matrix<float> y, Span<float> workspace)
      : inputs_(inputs),
        dim_(dim),
        depth_(dim / Products::values),
        is_upper_(pairs.num_left == 0 && pairs.order == DotOrder::upper),
        num_left_(pairs.num_left),
        y_(y) {
    for (const SegmentedInput& input : inputs) {
      assert(input.values.cols % dim == 0 && (input.on_ancestor() || input.values.rows >= y.rows));
      num_fields_ += input.values.cols / dim;
    }
    assert(y.cols == num_dot_pairs(num_fields_, pairs));
    assert(workspace.size() >= dot_workspace(num_fields_, dim, pairs));
    padded_fields_ = dot_places(num_fields_, pairs);
    columns_ = workspace.data();
    products_ = columns_ + dim * padded_fields_;
    std::fill_n(columns_, dim * padded_fields_, 0.0f);
    const int64_t rounded_size = pairs_stride(num_fields_ * dim);
    rounded_ = {workspace.end() - rounded_size, rounded_size};
    positions_ = reinterpret_cast<int32_t*>(products_ + padded_fields_ * padded_fields_);
    runs_ = positions_ + num_fields_;
    left_ = find_positions(0, num_left_, 0);
    right_ = find_positions(num_left_, num_fields_, round_up(num_left_, 16));
    find_runs(pairs.self);
  }

  void run() {
    for (int64_t n = 0; n < y_.rows;) {
      load_fields(true, n);
      if (num_left_ == 0) {
        multiply_triangle(right_.ancestors);
      } else {
        multiply_rectangle(left_.ancestors, right_.ancestors);
      }
      for (const int64_t end = n + run_of_rows(inputs_, n, y_.rows); n < end; ++n) {
        load_fields(false, n);
        if (num_left_ == 0) {
          multiply_triangle(right_.own);
        } else {
          multiply_rectangle(left_.own, {right_.ancestors.begin, right_.own.end});
          multiply_rectangle(left_.ancestors, right_.own);
        }
        float* y = y_.row(n);
        for (const int32_t* run = runs_; run != end_of_runs_; run += 2) {
          copy_row(products_ + run[0], run[1], y);
          y += run[1];
        }
        std::fill(y, y_.row(n) + y_.cols, 0.0f);
      }
    }
  }

 private:
  static constexpr int64_t tile = 8;

  /// Positions in the scratch.
  struct Range {
    int64_t begin = 0, end = 0;
  };
  /// Those of one set of fields.
  struct Side {
    Range ancestors, own;
  };

  /// Where each of the fields [first, last) stands in the scratch, from `position` on.
  Side find_positions(int64_t first, int64_t last, int64_t position) {
    const auto for_each = [&](auto&& body) {
      int64_t f = 0;
      for (const SegmentedInput& input : inputs_)
        for (const int64_t end = f + input.values.cols / dim_; f < end; ++f)
          if (f >= first && f < last) body(f, input.on_ancestor());
    };
    int64_t num_ancestors = 0;
    for_each([&](int64_t, bool on_ancestor) { num_ancestors += on_ancestor; });
    const int64_t num_own = last - first - num_ancestors;
    int64_t ancestor = position + (is_upper_ ? num_own : 0), own = position + (is_upper_ ? 0 : num_ancestors);
    const Side side{{ancestor, ancestor + num_ancestors}, {own, own + num_own}};
    for_each(
        [&](int64_t f, bool on_ancestor) { positions_[f] = static_cast<int32_t>(on_ancestor ? ancestor++ : own++); });
    return side;
  }

  /// Where the products stand in the scratch, in the order of the output: (first, count) of consecutive ones.
  void find_runs(bool self) {
    end_of_runs_ = runs_;
    const bool is_between = num_left_ > 0, has_low_rows = is_between || is_upper_;
    for (int64_t f = 0; f < (is_between ? num_left_ : num_fields_); ++f) {
      const int64_t begin = is_between ? num_left_ : is_upper_ ? f + !self : 0;
      const int64_t end = has_low_rows ? num_fields_ : f + self;
      for (int64_t g = begin; g < end; ++g) {
        const auto [low, high] = std::minmax(positions_[f], positions_[g]);
        const auto place =
            static_cast<int32_t>(has_low_rows ? low * padded_fields_ + high : high * padded_fields_ + low);
        if (end_of_runs_ != runs_ && end_of_runs_[-2] + end_of_runs_[-1] == place) {
          ++end_of_runs_[-1];
        } else {
          *end_of_runs_++ = place;
          *end_of_runs_++ = 1;
        }
      }
    }
  }

  void load_fields(bool on_ancestor, int64_t n) const {
    int64_t first = 0;
    for (const SegmentedInput& input : inputs_) {
      const int64_t count = input.values.cols / dim_, end = first + count;
      if (input.on_ancestor() == on_ancestor && count > 0) {
        const Matrix<const float> fields(input.values.row(input.row_serving(n)), 1, count * dim_);
        const auto* elements = reinterpret_cast<const float*>(Products::elements_of(fields, rounded_).data);
        const int64_t middle = std::clamp(num_left_, first, end);  // of an input with fields of both sides
        const auto load = [&](int64_t f, int64_t last) {
          if (f == last) return;
          transpose_fields(elements + (f - first) * depth_, last - f, depth_, columns_ + positions_[f], padded_fields_);
        };
        load(first, middle);
        load(middle, end);
      }
      first = end;
    }
  }

  /// Rows of the triangle; up to whole tiles also some that are not needed.
  void multiply_triangle(Range rows) const {
    for (int64_t f = rows.begin / tile * tile; f < rows.end; f += tile)
      multiply_tiles(f, rows.end, is_upper_ ? Range{f, num_fields_} : Range{0, std::min(f + tile, rows.end)});
  }
  /// The same of a rectangle.
  void multiply_rectangle(Range rows, Range columns) const {
    if (rows.begin == rows.end || columns.begin == columns.end) return;
    for (int64_t f = rows.begin / tile * tile; f < rows.end; f += tile) multiply_tiles(f, rows.end, columns);
  }
  /// Products of the fields [f, f + tile) with those of the columns; `last`: of the rows that are needed.
  HWY_INLINE void multiply_tiles(int64_t f, int64_t last, Range columns) const {
    const hn::CappedTag<float, 16> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    int64_t g = columns.begin / lanes * lanes;
    for (; g + lanes < columns.end; g += 2 * lanes) {
      multiply_tile<tile / 2, 2>(d, f, g);
      if (f + tile / 2 < last) multiply_tile<tile / 2, 2>(d, f + tile / 2, g);
    }
    if (g < columns.end) multiply_tile<tile, 1>(d, f, g);
  }

  /// Products of the fields [f, f + kRows) with those of kVectors vectors from g on.
  template <int64_t kRows, int64_t kVectors, class D>
  HWY_INLINE void multiply_tile(D d, int64_t f, int64_t g) const {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    hn::Vec<D> sums[kRows * kVectors];
    WARPRANK_UNROLL
    for (int64_t i = 0; i < kRows * kVectors; ++i) sums[i] = hn::Zero(d);
    const float *x = columns_ + f, *others = columns_ + g;
    for (int64_t c = 0; c < depth_; ++c, x += padded_fields_, others += padded_fields_) {
      WARPRANK_UNROLL
      for (int64_t i = 0; i < kRows * kVectors; ++i)
        sums[i] =
            Products::multiply_add(hn::Set(d, x[i / kVectors]), hn::LoadU(d, others + i % kVectors * lanes), sums[i]);
    }
    WARPRANK_UNROLL
    for (int64_t i = 0; i < kRows * kVectors; ++i)
      hn::StoreU(sums[i], d, products_ + (f + i / kVectors) * padded_fields_ + g + i % kVectors * lanes);
  }

  const Span<const SegmentedInput> inputs_;
  const int64_t dim_;
  const int64_t depth_;  // elements of a field
  const bool is_upper_;
  const int64_t num_left_;
  const Matrix<float> y_;
  int64_t num_fields_ = 0, padded_fields_ = 0;
  Side left_, right_;             // all fields are on the right where all pairs are wanted
  float* columns_ = nullptr;      // [depth, padded_fields] the fields, transposed; pairs as floats
  Span<float> rounded_;           // room for an input's fields
  float* products_ = nullptr;     // [padded_fields, padded_fields]
  int32_t* positions_ = nullptr;  // [num_fields]
  int32_t *runs_ = nullptr, *end_of_runs_ = nullptr;
};

inline void dot(Span<const SegmentedInput> inputs, int64_t dim, const DotPairs& pairs, Matrix<float> y,
                Span<float> workspace, Precision precision) {
  if (y.rows == 0) return;
  if constexpr (compiles_bf16_products)
    if (precision == Precision::bf16 && dim % 2 == 0 && has_bf16_products())
      return DotRun<Bf16Products>(inputs, dim, pairs, y, workspace).run();
  DotRun<Fp32Products>(inputs, dim, pairs, y, workspace).run();
}

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
