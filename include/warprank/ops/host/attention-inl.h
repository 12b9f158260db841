// SPDX-License-Identifier: Apache-2.0

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int64_t keys_per_panel = panel_vectors * static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));

/// Keys rounded up to whole vectors, and to more than a layer that is computed as dot products.
inline int64_t padded_keys(int64_t num_keys) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  return (std::max(num_keys, max_dot_outputs + 1) + lanes - 1) / lanes * lanes;
}

/// Floats for rows of q or k, rounded.
inline int64_t rounded_rows_size(int64_t dim, int64_t num_keys, Precision precision) {
  return precision == Precision::fp32 ? 0 : std::max<int64_t>(num_keys, tile_rows) * pairs_stride(dim);
}

inline int64_t attention_workspace(int64_t dim, int64_t max_keys, Precision precision) {
  return with_room_to_align(padded_keys(max_keys) * (dim + 1 + tile_rows) +
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
  for (int64_t first = 0; first < padded; first += keys_per_panel) {
    const int64_t width = std::min(keys_per_panel, padded - first);
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

/// y[r] += w_r own.v[r], w the weight of row r's own key.
inline void add_own_values(Span<const float> weights, Matrix<const float> own_v, Matrix<float> y) {
  for (int64_t r = 0; r < y.rows; ++r)
    weighted_sums({&weights[r], 1, 1, 1}, own_v.row_range(r, 1), true, y.row_range(r, 1));
}

/// One head of one segment. Times of `bias` are those of the segment.
template <class Products, class Element = typename Products::Element>
void attend(Matrix<const float> q, Matrix<const float> k, Matrix<const float> v, const OwnKeys& own,
            const AttentionOptions& options, const AttentionBias& bias, int64_t head, Matrix<float> y,
            float* workspace) {
  const bool silu = options.weights == AttentionWeights::silu;
  const float scale = bias.tables == nullptr ? options.scale : 1;  // a bias is added to what is scaled
  const int64_t padded = padded_keys(k.rows);
  float* const packed = workspace;
  float* const zeros = packed + padded * k.cols;
  float* const scores = zeros + padded;
  constexpr Precision precision = Products::values == 1 ? Precision::fp32 : Precision::bf16;
  const Span<float> rounded(scores + padded * tile_rows, rounded_rows_size(k.cols, k.rows, precision));
  const Matrix<const Element> keys = Products::elements_of(k, rounded);
  pack_keys({reinterpret_cast<const float*>(keys.data), keys.rows, keys.cols, keys.stride}, padded, packed);
  std::fill_n(zeros, padded, 0.0f);

  for (int64_t first = 0; first < q.rows; first += tile_rows) {
    const int64_t rows = std::min<int64_t>(tile_rows, q.rows - first);
    SeenKeys seen[tile_rows], any{k.rows, 0}, all{0, k.rows};  // by row; by one at least; by all
    for (int64_t r = 0; r < rows; ++r) {
      seen[r] = seen_keys(options, first + r, k.rows);
      any = {std::min(any.begin, seen[r].begin), std::max(any.end, seen[r].end)};
      all = {std::max(all.begin, seen[r].begin), std::min(all.end, seen[r].end)};
    }
    if (all.begin > all.end) all.end = all.begin;
    // Whole panels of those that were packed.
    const int64_t begin = any.begin / keys_per_panel * keys_per_panel;
    const int64_t end = std::min(padded, (padded_keys(any.end) + keys_per_panel - 1) / keys_per_panel * keys_per_panel);
    const int64_t stride = end - begin;
    run_rows<Products>({k.cols, stride, k.cols, stride, nullptr, zeros, {}},
                       PackedPanels<Products>{reinterpret_cast<const Element*>(packed + begin * keys.cols), keys.cols},
                       Products::elements_of(q.row_range(first, rows), rounded), {scores, rows, stride}, nullptr, {});

    for (int64_t r = 0; r < rows; ++r) {
      float* const of_row = scores + r * stride + seen[r].begin - begin;
      if (bias.tables != nullptr) {
        const float time = bias.query_times.data != nullptr ? *bias.query_times.row(first + r) : 0;
        add_bias(options.scale, bias, head, time, bias.key_times, options.causal ? first + r : k.rows, seen[r], of_row);
      }
      if (silu)
        finite_silu(scale, 1 / options.divisor, of_row, seen[r].end - seen[r].begin);
      else
        finite_softmax(options.scale, of_row, seen[r].end - seen[r].begin);
    }
    float own_weights[tile_rows];  // before y, which may be q, is written
    if (own.k.data != nullptr) {
      for (int64_t r = 0; r < rows; ++r) own_weights[r] = dot_product(q.row(first + r), own.k.row(first + r), q.cols);
      if (bias.tables != nullptr)
        for (int64_t r = 0; r < rows; ++r)
          own_weights[r] = options.scale * own_weights[r] + bias.tables->of_own(bias.first_head + head);
      finite_silu(scale, 1 / options.divisor, own_weights, rows);
    }
    const Matrix<float> sums = y.row_range(first, rows);
    weighted_sums({scores + all.begin - begin, rows, all.end - all.begin, stride},
                  v.row_range(all.begin, all.end - all.begin), false, sums);
    for (int64_t r = 0; r < rows; ++r) {
      const auto add = [&](int64_t from, int64_t to) {
        if (from < to)
          weighted_sums({scores + r * stride + from - begin, 1, to - from, stride}, v.row_range(from, to - from), true,
                        sums.row_range(r, 1));
      };
      add(seen[r].begin, std::min(all.begin, seen[r].end));
      add(std::max(all.end, seen[r].begin), seen[r].end);
    }
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
