// SPDX-License-Identifier: Apache-2.0

// Pooling of table rows. Columns are taken in blocks of two to four vectors that stay in registers over a run of rows.

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V decode(D d, const float* q) {
  // Integers, which Highway loads from any address; single floats only from a float's.
  return hn::BitCast(d, hn::LoadU(hn::RebindToUnsigned<D>(), reinterpret_cast<const uint32_t*>(q)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V decode(D d, const bfloat16* q) {
  const hn::RebindToUnsigned<D> d32;
  const hn::Rebind<uint16_t, D> d16;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(q)));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V decode(D d, const float16* q) {
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || HWY_ARCH_ARM_A64
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(q)));
#else
  // Highway's emulation turns infinity and NaN into numbers.
  const hn::RebindToSigned<D> d32;
  const hn::Rebind<int16_t, D> d16;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const int16_t*>(q)));
  const auto magnitude = hn::And(bits, hn::Set(d32, 0x7fff));
  const auto sign = hn::And(bits, hn::Set(d32, INT32_MIN));
  const auto rebias = hn::Set(d32, (127 - 15) << 23);
  const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), rebias);
  const auto infinite_or_nan = hn::Add(normal, rebias);
  const auto subnormal = hn::BitCast(d32, hn::Mul(hn::ConvertTo(d, magnitude), hn::Set(d, 0x1p-24f)));
  const auto at_least = [&](int32_t limit) HWY_ATTR { return hn::Gt(magnitude, hn::Set(d32, limit - 1)); };
  const auto finite = hn::IfThenElse(at_least(0x400), normal, subnormal);
  return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(at_least(0x7c00), infinite_or_nan, finite)));
#endif
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V decode(D d, const int8_t* q) {
  const hn::RebindToSigned<D> d32;
  const hn::Rebind<int8_t, D> d8;
  return hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, q)));
}

/// Decodes a row: gives a vector of its columns from c on.
template <class Row, class D, class V = hn::Vec<D>>
class RowDecoder {
 public:
  HWY_INLINE RowDecoder(D, const FoundRow& row) : row_(row.values<Row>()) {}
  HWY_INLINE V operator()(int64_t c) const { return decode(D(), row_ + c); }

 private:
  const Row* row_;
};

template <class D, class V>
class RowDecoder<int8_t, D, V> {
 public:
  HWY_INLINE RowDecoder(D d, const FoundRow& row)
      : row_(row.values<int8_t>()), scale_(hn::Set(d, *row.scale)), offset_(hn::Set(d, *row.offset)) {}
  HWY_INLINE V operator()(int64_t c) const { return hn::MulAdd(scale_, decode(D(), row_ + c), offset_); }

 private:
  const int8_t* row_;
  V scale_, offset_;
};

/// A part of one bag: `count` rows at the head of the stream.
struct BagRun {
  const RowStream& rows;
  int64_t count;
  const float* weights;  // of its first row
  int64_t weights_stride;
  bool first, last;  // of its bag
  bool gives_zero;   // when this is the last run: no elements, or a divisor of 0
  double divisor;    // when this is the last run
};

/// Adds a run to `columns` columns from `column` on: Vectors - 1 whole vectors and one that ends with the last column,
/// which may overlap the one before.
template <class Row, bool IsMax, size_t Vectors, class D, class V = hn::Vec<D>>
HWY_INLINE void pool_columns(D d, const TableView& table, const BagRun& run, int64_t column, int64_t columns,
                             float* y) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto at = [&](size_t v) HWY_ATTR {
    return column + (v + 1 < Vectors ? static_cast<int64_t>(v) * lanes : columns - lanes);
  };
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  V pooled[Vectors];
  WARPRANK_UNROLL
  for (size_t v = 0; v < Vectors; ++v)
    pooled[v] = !run.first ? hn::LoadU(d, y + at(v)) : hn::Set(d, IsMax ? lowest : 0.0f);

  for (int64_t k = 0; k < run.count; ++k) {
    const V weight = hn::Set(d, run.weights[k * run.weights_stride]);
    const auto add = [&](size_t v, V x) HWY_ATTR {
      if constexpr (IsMax)
        pooled[v] = hn::IfThenElse(hn::Or(hn::Gt(x, pooled[v]), hn::IsNaN(x)), x, pooled[v]);
      else
        pooled[v] = hn::MulAdd(weight, x, pooled[v]);
    };
    const FoundRow& found = run.rows[k];
    if (HWY_LIKELY(found.is_row())) {
      const RowDecoder<Row, D> row(d, found);
      WARPRANK_UNROLL
      for (size_t v = 0; v < Vectors; ++v) add(v, row(at(v)));
    } else if (found.is_default_row()) {
      WARPRANK_UNROLL
      for (size_t v = 0; v < Vectors; ++v)
        add(v, table.default_row == nullptr ? hn::Zero(d) : hn::LoadU(d, table.default_row + at(v)));
    }
  }

  if (run.last) {
    if (run.gives_zero) {
      WARPRANK_UNROLL
      for (size_t v = 0; v < Vectors; ++v) pooled[v] = hn::Zero(d);
    } else if (!IsMax && run.divisor != 1.0) {
      // Beyond the range of FP32, the sum of many large weights is divided by in two steps.
      const bool is_large = std::fabs(run.divisor) > double{std::numeric_limits<float>::max()};
      const V divisor = hn::Set(d, static_cast<float>(is_large ? run.divisor * 0x1p-32 : run.divisor));
      WARPRANK_UNROLL
      for (size_t v = 0; v < Vectors; ++v) pooled[v] = hn::Div(pooled[v], divisor);
      if (is_large) {
        WARPRANK_UNROLL
        for (size_t v = 0; v < Vectors; ++v) pooled[v] = hn::Mul(pooled[v], hn::Set(d, 0x1p-32f));
      }
    }
  }
  WARPRANK_UNROLL
  for (size_t v = 0; v < Vectors; ++v) hn::StoreU(pooled[v], d, y + at(v));
}

/// One bag's divisor, from its elements in order.
class BagDivisor {
 public:
  BagDivisor(Pooling pooling, bool weighted)
      : pooling_(pooling), weighted_(weighted && (pooling == Pooling::mean || pooling == Pooling::sqrtn)) {}

  void add(const BagRun& run) {
    for (int64_t k = 0; k < run.count; ++k) elements_ += !run.rows[k].is_padding();
    if (!weighted_) return;
    for (int64_t k = 0; k < run.count; ++k) {
      if (run.rows[k].is_padding()) continue;
      const double weight = run.weights[k * run.weights_stride];
      weights_ += pooling_ == Pooling::mean ? weight : weight * weight;
    }
  }
  bool has_element() const { return elements_ > 0; }
  double value() const {
    const double total = weighted_ ? weights_ : static_cast<double>(elements_);
    if (pooling_ == Pooling::mean) return total;
    if (pooling_ == Pooling::sqrtn) return std::sqrt(total);
    return 1;
  }

 private:
  Pooling pooling_;
  bool weighted_;
  int64_t elements_ = 0;
  double weights_ = 0;
};

/// Whether rows of more than two vectors of Width lanes are left to Width: to the widest only.
template <size_t Width>
constexpr bool is_widest = 2 * Width > hn::MaxLanes(hn::ScalableTag<float>());

/// All columns of a run, in blocks of at most four vectors of Width lanes.
template <class Row, bool IsMax, size_t Width>
HWY_INLINE void pool_run(const TableView& table, const BagRun& run, float* y) {
  const hn::CappedTag<float, Width> d;
  if constexpr (is_widest<Width>) {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t column = 0, columns; column < table.dim; column += columns) {
      // A block leaves nothing or at least a vector: the next must not reach back into columns already stored.
      const int64_t rest = table.dim - column;
      columns = rest <= 4 * lanes ? rest : rest >= 5 * lanes ? 4 * lanes : 3 * lanes;
      if (columns > 3 * lanes)
        pool_columns<Row, IsMax, 4>(d, table, run, column, columns, y);
      else if (columns > 2 * lanes)
        pool_columns<Row, IsMax, 3>(d, table, run, column, columns, y);
      else
        pool_columns<Row, IsMax, 2>(d, table, run, column, columns, y);
    }
  } else {
    pool_columns<Row, IsMax, 2>(d, table, run, 0, table.dim, y);
  }
}

template <class Row, bool IsMax, size_t Width>
HWY_NOINLINE void pool_bags(const BagFeature& feature, RowStream& rows) {
  static const float one = 1;
  const bool weighted = feature.weights != nullptr;
  const int64_t num_bags = feature.num_bags();
  const int64_t* offsets = feature.bags.offsets;
  int64_t empty_bags = 0, id = 0;
  for (int64_t b = 0; b < num_bags; ++b) {
    const int64_t end = offsets == nullptr ? b + 1 : offsets[b + 1];
    BagDivisor divisor(feature.pooling, weighted);
    bool first = true;
    do {
      const int64_t count = std::min(end - id, RowStream::max_run);
      rows.require(count);
      BagRun run{rows, count, &one, 0, first, id + count == end, false, 1};
      if (weighted) {
        run.weights = feature.weights + id * feature.weights_stride;
        run.weights_stride = feature.weights_stride;
      }
      divisor.add(run);
      run.divisor = divisor.value();
      run.gives_zero = !divisor.has_element() || run.divisor == 0;
      pool_run<Row, IsMax, Width>(feature.table, run, feature.y.row(b));
      rows.pop(count);
      id += count;
      first = false;
    } while (id < end);
    empty_bags += !divisor.has_element();
  }
  if (feature.counters != nullptr) feature.counters->empty_bags += empty_bags;
}

/// One id per bag: the rows as they are, zeros for padding.
template <class Row, size_t Width>
HWY_NOINLINE void copy_rows(const BagFeature& feature, RowStream& rows) {
  const hn::CappedTag<float, Width> d;
  const TableView& table = feature.table;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), last = table.dim - lanes;
  const auto copy = [&](float* y, auto&& decode_at) HWY_ATTR {
    for (int64_t c = 0; c < last; c += lanes) hn::StoreU(decode_at(c), d, y + c);
    hn::StoreU(decode_at(last), d, y + last);
  };
  int64_t padding = 0;
  for (int64_t id = 0, count; id < feature.ids.size(); id += count) {
    count = std::min(feature.ids.size() - id, RowStream::max_run);
    rows.require(count);
    for (int64_t k = 0; k < count; ++k) {
      const FoundRow& found = rows[k];
      float* y = feature.y.row(id + k);
      if (HWY_LIKELY(found.is_row())) {
        const RowDecoder<Row, decltype(d)> row(d, found);
        copy(y, [&](int64_t c) HWY_ATTR { return row(c); });
      } else if (found.is_default_row() && table.default_row != nullptr) {
        copy(y, [&](int64_t c) HWY_ATTR { return hn::LoadU(d, table.default_row + c); });
      } else {
        copy(y, [&](int64_t) HWY_ATTR { return hn::Zero(d); });
        padding += found.is_padding();
      }
    }
    rows.pop(count);
  }
  if (feature.counters != nullptr) feature.counters->empty_bags += padding;
}

/// Doubles Width, the lanes of a vector, while rows have more than two such vectors.
template <class Row, size_t Width = 1>
HWY_INLINE void pool_rows(const BagFeature& feature, RowStream& rows) {
  if constexpr (!is_widest<Width>) {
    if (feature.table.dim > static_cast<int64_t>(2 * Width)) return pool_rows<Row, 2 * Width>(feature, rows);
  }
  if (feature.bags.offsets == nullptr && feature.weights == nullptr) return copy_rows<Row, Width>(feature, rows);
  if (feature.pooling == Pooling::max) return pool_bags<Row, true, Width>(feature, rows);
  return pool_bags<Row, false, Width>(feature, rows);
}

inline void embedding_bag(Span<const BagFeature> features) {
  RowStream rows(features);
  for (const BagFeature& feature : features) {
    switch (feature.table.type) {
      case DType::f32:
        pool_rows<float>(feature, rows);
        break;
      case DType::f16:
        pool_rows<float16>(feature, rows);
        break;
      case DType::bf16:
        pool_rows<bfloat16>(feature, rows);
        break;
      case DType::i8:
        pool_rows<int8_t>(feature, rows);
        break;
      case DType::i64:
        break;
    }
  }
}

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
