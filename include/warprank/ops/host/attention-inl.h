// SPDX-License-Identifier: Apache-2.0

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Queries whose scores are computed together: keys and values are read once for all of them. Against one tile, FP32
/// takes 0.91 to 0.98 of the time for 50 to 8,192 keys.
inline constexpr int queries_at_once = 4 * tile_rows;

/// Keys rounded up to whole vectors, and to more than a layer that is computed as dot products.
inline int64_t padded_keys(int64_t num_keys) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  return (std::max(num_keys, max_dot_outputs + 1) + lanes - 1) / lanes * lanes;
}

/// Floats for rows of q or k, rounded.
inline int64_t rounded_rows_size(int64_t dim, int64_t num_keys, Precision precision) {
  return precision == Precision::fp32 ? 0 : std::max<int64_t>(num_keys, queries_at_once) * pairs_stride(dim);
}

/// Floats for values as the weights of a linear layer from keys to `dim` outputs, and for a tile's weights, rounded.
inline int64_t packed_values_size(int64_t dim, int64_t num_keys) {
  return (num_keys + 1) / 2 * round_up(dim, static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>())));
}
inline int64_t rounded_values_size(int64_t dim, int64_t num_keys, Precision precision) {
  return precision == Precision::fp32 ? 0
                                      : packed_values_size(dim, num_keys) + queries_at_once * pairs_stride(num_keys);
}

/// A bias for the largest layer.
inline int64_t zeros_size(int64_t dim, int64_t num_keys) {
  return std::max(padded_keys(num_keys), round_up(dim, static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()))));
}

inline int64_t attention_workspace(int64_t dim, int64_t max_keys, Precision precision) {
  return with_room_to_align(padded_keys(max_keys) * (dim + queries_at_once) + zeros_size(dim, max_keys) +
                            rounded_values_size(dim, max_keys, precision) +
                            rounded_rows_size(dim, max_keys, precision));
}

/// A square block of elements of 32 bits: to[c * to_stride + r] = from[r * from_stride + c].
#if HWY_TARGET == HWY_SCALAR
inline constexpr int64_t transposed_block = 1;
HWY_INLINE void transpose_block(const float* from, int64_t, float* to, int64_t) { *to = *from; }
#else
inline constexpr int64_t transposed_block = 4;
HWY_INLINE void transpose_block(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  const hn::CappedTag<float, 4> d;
  const auto r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + from_stride);
  const auto r2 = hn::LoadU(d, from + 2 * from_stride), r3 = hn::LoadU(d, from + 3 * from_stride);
  const auto low01 = hn::InterleaveLower(d, r0, r1), high01 = hn::InterleaveUpper(d, r0, r1);
  const auto low23 = hn::InterleaveLower(d, r2, r3), high23 = hn::InterleaveUpper(d, r2, r3);
  hn::StoreU(hn::ConcatLowerLower(d, low23, low01), d, to);
  hn::StoreU(hn::ConcatUpperUpper(d, low23, low01), d, to + to_stride);
  hn::StoreU(hn::ConcatLowerLower(d, high23, high01), d, to + 2 * to_stride);
  hn::StoreU(hn::ConcatUpperUpper(d, high23, high01), d, to + 3 * to_stride);
}
#endif

/// k [T, D], of elements of 32 bits, as the weights of a linear layer from D to `padded` outputs; those beyond T are 0.
inline void pack_keys(Matrix<const float> k, int64_t padded, float* to) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  for (int64_t first = 0, width = 0; first < padded; first += width) {
    width = vectors_of_panel((padded - first) / lanes) * lanes;
    const int64_t used = std::max<int64_t>(0, std::min(width, k.rows - first));
    float* const panel = to + first * k.cols;
    for (int64_t t = 0; t < used; t += transposed_block) {
      const int64_t rows = std::min(transposed_block, used - t);
      int64_t c = 0;
      if (rows == transposed_block)
        for (; c + transposed_block <= k.cols; c += transposed_block)
          transpose_block(k.row(first + t) + c, k.stride, panel + c * width + t, width);
      for (; c < k.cols; ++c)
        for (int64_t r = t; r < t + rows; ++r) panel[c * width + r] = k.row(first + r)[c];
    }
    for (int64_t c = 0; c < k.cols; ++c) std::fill(panel + c * width + used, panel + (c + 1) * width, 0.0f);
  }
}

/// The packed panels of `padded` keys that have all of [seen.begin, seen.end).
inline SeenKeys whole_panels(SeenKeys seen, int64_t padded) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  SeenKeys whole{0, 0};
  while (whole.end < seen.end || whole.end == 0) {
    const int64_t width = vectors_of_panel((padded - whole.end) / lanes) * lanes;
    if (whole.end + width <= seen.begin) whole.begin = whole.end + width;
    whole.end += width;
  }
  return whole;
}

/// v [T, D] rounded, as the weights of a linear layer from T inputs to D outputs; false if a value is not finite then.
template <class Products>
bool pack_values(Matrix<const float> v, typename Products::Element* to) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), padded = round_up(v.cols, lanes);
  const auto most = hn::Set(d, to_float(max_bfloat16));
  auto are_finite = hn::Eq(most, most);
  for (int64_t first = 0, width = 0; first < padded; first += width) {
    width = vectors_of_panel((padded - first) / lanes) * lanes;
    for (int64_t t = 0; t < v.rows; t += 2)
      for (int64_t c = first; c < first + width; c += lanes, to += lanes) {
        const size_t used = static_cast<size_t>(std::min(lanes, v.cols - c));
        const auto value_at = [&](int64_t i) HWY_ATTR {
          if (t + i == v.rows) return hn::Zero(d);
          const auto values = load_first(d, v.row(t + i) + c, used);
          are_finite = hn::And(are_finite, hn::Le(hn::Abs(values), most));
          return values;
        };
        Products::store_elements(d, value_at, to);
      }
  }
  return hn::AllTrue(d, are_finite);
}

/// A tile of queries and what they see: by row, and by one row at least.
struct SeenTile {
  SeenKeys rows[queries_at_once], any;
};

/// y [rows, D] = the sums of `packed` values of T keys, weighted by `weights`, whose first column is key `first` and
/// which are overwritten where a row does not see a key. `first` is even; `rounded`: room for the weights.
template <class Products>
void sum_rounded_values(Matrix<float> weights, int64_t first, const SeenTile& seen, int64_t num_keys,
                        const typename Products::Element* packed, const float* zeros, Matrix<float> y,
                        Span<float> rounded) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  const int64_t skipped = seen.any.begin / 2, begin = 2 * skipped;
  for (int64_t r = 0; r < y.rows; ++r) {
    float* const of_row = weights.row(r) - first;
    std::fill(of_row + begin, of_row + seen.rows[r].begin, 0.0f);
    std::fill(of_row + seen.rows[r].end, of_row + seen.any.end, 0.0f);
  }
  run_rows<Products>({num_keys, y.cols, num_keys, round_up(y.cols, lanes), nullptr, zeros, {}},
                     PackedPanels<Products>{packed, (num_keys + 1) / 2, skipped},
                     Products::elements_of(weights.columns(begin - first, seen.any.end - begin), rounded), y, nullptr,
                     {});
}

/// The same of v itself in FP32, [T, D], in the order of keys. Those that all rows see are summed for all together.
inline void sum_values(Matrix<const float> weights, int64_t first, const SeenTile& seen, Matrix<const float> v,
                       Matrix<float> y) {
  SeenKeys all = seen.any;
  for (int64_t r = 0; r < y.rows; ++r)
    all = {std::max(all.begin, seen.rows[r].begin), std::min(all.end, seen.rows[r].end)};
  if (all.begin > all.end) all.end = all.begin;
  const auto add = [&](int64_t row, int64_t rows, int64_t from, int64_t to, bool to_sums) {
    const int64_t count = std::max<int64_t>(to - from, 0);
    if (count > 0 || !to_sums)
      weighted_sums(weights.row_range(row, rows).columns(from - first, count), v.row_range(from, count), to_sums,
                    y.row_range(row, rows));
  };
  const bool has_earlier = seen.any.begin < all.begin;
  for (int64_t r = 0; r < y.rows && has_earlier; ++r)
    add(r, 1, seen.rows[r].begin, std::min(all.begin, seen.rows[r].end), false);
  add(0, y.rows, all.begin, all.end, has_earlier);
  for (int64_t r = 0; r < y.rows; ++r) add(r, 1, std::max(all.end, seen.rows[r].begin), seen.rows[r].end, true);
}

/// y[r] += w_r own.v[r], w the weight of row r's own key.
inline void add_own_values(Span<const float> weights, Matrix<const float> own_v, Matrix<float> y) {
  for (int64_t r = 0; r < y.rows; ++r)
    weighted_sums({&weights[r], 1, 1, 1}, own_v.row_range(r, 1), true, y.row_range(r, 1));
}

/// One head of one segment. Times of `bias` are those of the segment. What a query does not see has no effect on it,
/// also where it is not finite: then values are not rounded, as 0 times such a value is NaN.
template <class Products, class Element = typename Products::Element>
void attend(Matrix<const float> q, Matrix<const float> k, Matrix<const float> v, const OwnKeys& own,
            const AttentionOptions& options, const AttentionBias& bias, int64_t head, Matrix<float> y,
            float* workspace) {
  const bool silu = options.weights == AttentionWeights::silu;
  const float scale = bias.tables == nullptr ? options.scale : 1;  // a bias is added to what is scaled
  const int64_t padded = padded_keys(k.rows);
  float* const packed = workspace;
  constexpr Precision precision = Products::values == 1 ? Precision::fp32 : Precision::bf16;
  float* const packed_values = packed + padded * k.cols;
  const Span<float> rounded_weights(packed_values + packed_values_size(v.cols, k.rows),
                                    queries_at_once * pairs_stride(k.rows));
  float* const zeros = packed_values + rounded_values_size(v.cols, k.rows, precision);
  float* const scores = zeros + zeros_size(v.cols, k.rows);
  const Span<float> rounded(scores + padded * queries_at_once, rounded_rows_size(k.cols, k.rows, precision));
  const Matrix<const Element> keys = Products::elements_of(k, rounded);
  pack_keys({reinterpret_cast<const float*>(keys.data), keys.rows, keys.cols, keys.stride}, padded, packed);
  std::fill_n(zeros, zeros_size(v.cols, k.rows), 0.0f);
  [[maybe_unused]] bool rounds_values = false;
  if constexpr (precision == Precision::bf16)
    rounds_values = k.rows > 0 && pack_values<Products>(v, reinterpret_cast<Element*>(packed_values));

  for (int64_t first = 0; first < q.rows; first += queries_at_once) {
    const int64_t rows = std::min<int64_t>(queries_at_once, q.rows - first);
    SeenTile seen{{}, {k.rows, 0}};
    for (int64_t r = 0; r < rows; ++r) {
      seen.rows[r] = seen_keys(options, first + r, k.rows);
      seen.any = {std::min(seen.any.begin, seen.rows[r].begin), std::max(seen.any.end, seen.rows[r].end)};
    }
    const SeenKeys panels = whole_panels(seen.any, padded);
    const int64_t begin = panels.begin, stride = panels.end - begin;
    run_rows<Products>({k.cols, stride, k.cols, stride, nullptr, zeros, {}},
                       PackedPanels<Products>{reinterpret_cast<const Element*>(packed + begin * keys.cols), keys.cols},
                       Products::elements_of(q.row_range(first, rows), rounded), {scores, rows, stride}, nullptr, {});

    for (int64_t r = 0; r < rows; ++r) {
      float* const of_row = scores + r * stride + seen.rows[r].begin - begin;
      const int64_t count = seen.rows[r].end - seen.rows[r].begin;
      if (bias.tables != nullptr) {
        const float time = bias.query_times.data != nullptr ? *bias.query_times.row(first + r) : 0;
        add_bias(options.scale, bias, head, time, bias.key_times, options.causal ? first + r : k.rows, seen.rows[r],
                 of_row);
      }
      constexpr bool is_rounded = precision == Precision::bf16;
      if (silu)
        finite_silu<is_rounded>(scale, 1 / options.divisor, of_row, count);
      else
        finite_softmax<is_rounded>(options.scale, of_row, count);
    }
    float own_weights[queries_at_once];  // before y, which may be q, is written
    if (own.k.data != nullptr) {
      for (int64_t r = 0; r < rows; ++r) own_weights[r] = dot_product(q.row(first + r), own.k.row(first + r), q.cols);
      if (bias.tables != nullptr)
        for (int64_t r = 0; r < rows; ++r)
          own_weights[r] = options.scale * own_weights[r] + bias.tables->of_own(bias.first_head + head);
      finite_silu(scale, 1 / options.divisor, own_weights, rows);
    }
    const Matrix<float> sums = y.row_range(first, rows);
    const Matrix<float> weights(scores, rows, stride);
    if constexpr (precision == Precision::bf16)
      if (rounds_values)
        sum_rounded_values<Products>(weights, begin, seen, k.rows, reinterpret_cast<const Element*>(packed_values),
                                     zeros, sums, rounded_weights);
    if (!rounds_values) sum_values(weights, begin, seen, v, sums);
    if (own.k.data != nullptr) add_own_values({own_weights, rows}, own.v.row_range(first, rows), sums);
  }
}

inline void attention(Matrix<const float> q, Matrix<const float> k, Matrix<const float> v, Segments queries,
                      Segments keys, const AttentionOptions& options, Matrix<float> y, Span<float> workspace,
                      const OwnKeys& own, const AttentionBias& bias) {
  assert(queries.count == keys.count && queries.rows() == q.rows && keys.rows() == k.rows);
  assert(k.rows == v.rows && q.cols == k.cols && q.cols == v.cols && q.cols % options.heads == 0);
  assert(y.rows == q.rows && y.cols == q.cols);
  const bool has_own = own.k.data != nullptr;
  assert(!has_own || (options.weights == AttentionWeights::silu && own.k.rows == q.rows && own.v.rows == q.rows &&
                      own.k.cols == q.cols && own.v.cols == q.cols));
  assert(bias.tables == nullptr || options.weights == AttentionWeights::silu);
  const int64_t dim = q.cols / options.heads;
  auto* run = &attend<Fp32Products>;
  if constexpr (compiles_bf16_products)
    if (options.precision == Precision::bf16 && has_bf16_products()) run = &attend<Bf16Products>;
  for (int64_t s = 0; s < queries.count; ++s) {
    const auto rows_of = [&](auto m, Segments segments) { return m.row_range(segments.begin(s), segments.size(s)); };
    if (queries.size(s) == 0) continue;
    if (keys.size(s) == 0 && !has_own) {
      for (int64_t i = queries.begin(s); i < queries.end(s); ++i) std::fill_n(y.row(i), y.cols, 0.0f);
      continue;
    }
    assert(workspace.size() >= attention_workspace(dim, keys.size(s), options.precision));
    assert(!options.causal || queries.size(s) == keys.size(s));
    AttentionBias of_segment = bias;
    if (bias.query_times.data != nullptr) {
      of_segment.query_times = rows_of(bias.query_times, queries);
      of_segment.key_times = rows_of(bias.key_times, keys);
    }
    for (int64_t h = 0; h < options.heads; ++h) {
      const auto head = [&](auto m) { return m.columns(h * dim, dim); };
      const OwnKeys own_of_head =
          has_own ? OwnKeys{head(rows_of(own.k, queries)), head(rows_of(own.v, queries))} : OwnKeys{};
      run(head(rows_of(q, queries)), head(rows_of(k, keys)), head(rows_of(v, keys)), own_of_head, options, of_segment,
          h, head(rows_of(y, queries)), align_to_line(workspace));
    }
  }
}

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
