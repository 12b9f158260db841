// SPDX-License-Identifier: Apache-2.0

HWY_BEFORE_NAMESPACE();
namespace warprank::host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// W(q) = event + product diag(q), all three packed alike.
inline void fold_query(const LinearGroup& event, const LinearGroup& product, const float* q, float* folded) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto fold_at = [&](int64_t i, auto factor) HWY_ATTR {
    hn::Store(hn::MulAdd(hn::Load(d, product.weight + i), factor, hn::Load(d, event.weight + i)), d, folded + i);
  };
  if (event.out <= max_dot_outputs) {
    for (int64_t o = 0; o < event.out; ++o)
      for (int64_t c = 0; c < event.in; c += lanes)
        fold_at(o * event.padded_in + c, load_first(d, q + c, static_cast<size_t>(std::min(lanes, event.in - c))));
    return;
  }
  constexpr int64_t panel_width = panel_vectors * static_cast<int64_t>(hn::MaxLanes(d));
  for (int64_t first = 0; first < event.padded_out; first += panel_width) {
    const int64_t width = std::min(panel_width, event.padded_out - first);
    for (int64_t c = 0; c < event.in; ++c) {
      const auto factor = hn::Set(d, q[c]);
      for (int64_t o = 0; o < width; o += lanes) fold_at(first * event.in + c * width + o, factor);
    }
  }
}

/// Scores of the events of one item, whose folded first layer is given; `hidden` has room for two layers.
inline void score_events(const PackedDin& packed, const LinearGroup& folded, Matrix<const float> events, float* hidden,
                         float* scores) {
  for (int64_t first = 0; first < events.rows; first += PackedDin::events_at_once) {
    const int64_t rows = std::min(PackedDin::events_at_once, events.rows - first);
    float *from = hidden, *to = hidden + PackedDin::events_at_once * packed.widest();
    run_linear(folded, events.row_range(first, rows), {from, rows, folded.out}, {});
    for (int64_t i = 0; i < packed.num_later(); ++i) {
      const LinearGroup layer = packed.later(i);
      const bool is_last = i + 1 == packed.num_later();
      run_linear(layer, {from, rows, layer.in}, {is_last ? scores + first : to, rows, layer.out}, {});
      std::swap(from, to);
    }
  }
}

inline void run_din_attention(const PackedDin& packed, Matrix<const float> q, Matrix<const float> k, Segments items,
                              Segments history, Matrix<float> y, Span<float> workspace) {
  assert(items.count == history.count && items.rows() == q.rows && history.rows() == k.rows && y.rows == q.rows);
  assert(q.cols == packed.dim() && k.cols == packed.dim() && y.cols == packed.dim());
  const LinearGroup query = packed.query(), event = packed.event(), product = packed.product();
  float* const folded = align_to_line(workspace);
  float* const offsets = folded + packed.folded_size();
  float* const hidden = offsets + PackedDin::items_at_once * query.padded_out;
  float* const scores = hidden + 2 * PackedDin::events_at_once * packed.widest();

  int64_t parent = 0;
  for (int64_t first = 0; first < q.rows; first += PackedDin::items_at_once) {
    const int64_t count = std::min(PackedDin::items_at_once, q.rows - first);
    // Columns between out and padded_out are read as biases of outputs that do not exist.
    std::fill_n(offsets, count * query.padded_out, 0.0f);
    run_linear(query, q.row_range(first, count), {offsets, count, query.out, query.padded_out}, {});
    for (int64_t n = first; n < first + count; ++n) {
      while (items.end(parent) <= n) ++parent;
      const int64_t length = history.size(parent);
      const Matrix<const float> events = k.row_range(history.begin(parent), length);
      if (length == 0) {
        std::fill_n(y.row(n), y.cols, 0.0f);
        continue;
      }
      assert(workspace.size() >= packed.workspace_size(length));
      LinearGroup layer = event;
      layer.weight = folded;
      layer.bias = offsets + (n - first) * query.padded_out;
      fold_query(event, product, q.row(n), folded);
      score_events(packed, layer, events, hidden, scores);
      if (packed.normalization() == Normalization::softmax)
        finite_softmax(1.0f, scores, length);
      else if (packed.normalization() == Normalization::sigmoid)
        activate({warprank::sigmoid, {}, {}, {}}, {scores, 1, length}, {scores, 1, length});
      weighted_sums({scores, 1, length}, events, false, y.row_range(n, 1));
    }
  }
}

inline DinKernel din_kernel() { return &run_din_attention; }

}  // namespace warprank::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
