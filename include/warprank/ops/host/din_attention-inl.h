// SPDX-License-Identifier: Apache-2.0

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// W(q) = event + product diag(q) in panels; event and product are packed so in FP32.
template <class Products>
void fold_panels(const LinearGroup& event, const LinearGroup& product, const float* q,
                 typename Products::Element* folded) {
  const hn::ScalableTag<float> d;
  constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(d));
  for (int64_t first = 0, width = 0; first < event.padded_out; first += width) {
    width = vectors_of_panel((event.padded_out - first) / lanes) * lanes;
    const int64_t panel = first * event.in;
    for (int64_t c = 0; c < event.in; c += Products::values)
      for (int64_t o = 0; o < width; o += lanes, folded += lanes)
        Products::store_elements(
            d,
            [&](int64_t i) HWY_ATTR {
              if (c + i == event.in) return hn::Zero(d);  // the second of a pair
              const int64_t at = panel + (c + i) * width + o;
              return hn::MulAdd(hn::Load(d, product.weight + at), hn::Set(d, q[c + i]), hn::Load(d, event.weight + at));
            },
            folded);
  }
}

/// W(q) of a first layer of up to max_dot_outputs, packed as event and product are.
inline void fold_dots(const LinearGroup& event, const LinearGroup& product, const float* q, float* folded) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t o = 0; o < event.out; ++o)
    for (int64_t c = 0; c < event.in; c += lanes) {
      const int64_t at = o * event.padded_in + c;
      const auto factor = load_first(d, q + c, static_cast<size_t>(std::min(lanes, event.in - c)));
      hn::Store(hn::MulAdd(hn::Load(d, product.weight + at), factor, hn::Load(d, event.weight + at)), d, folded + at);
    }
}

/// Scores of the events of one item. `run_first(first, y)` computes the first layer of the events from `first` on;
/// `hidden` has room for two layers.
template <class RunFirst>
void score_events(const PackedDin& packed, int64_t num_events, const RunFirst& run_first, float* hidden,
                  Span<float> workspace, float* scores) {
  for (int64_t first = 0; first < num_events; first += PackedDin::events_at_once) {
    const int64_t rows = std::min(PackedDin::events_at_once, num_events - first);
    float *from = hidden, *to = hidden + PackedDin::events_at_once * packed.widest();
    run_first(first, Matrix<float>(from, rows, packed.event().out));
    for (int64_t i = 0; i < packed.num_later(); ++i) {
      const LinearGroup layer = packed.later(i);
      const bool is_last = i + 1 == packed.num_later();
      run_linear(layer, {from, rows, layer.in}, {is_last ? scores + first : to, rows, layer.out}, {}, workspace);
      std::swap(from, to);
    }
  }
}

/// The first layer is panels of `Products`, or dot products in FP32 up to max_dot_outputs.
template <class Products, class Element = typename Products::Element>
void run_din(const PackedDin& packed, Matrix<const float> q, Matrix<const float> k, Segments items, Segments history,
             Matrix<float> y, Span<float> workspace) {
  assert(items.count == history.count && items.rows() == q.rows && history.rows() == k.rows && y.rows == q.rows);
  assert(q.cols == packed.dim() && k.cols == packed.dim() && y.cols == packed.dim());
  const LinearGroup query = packed.query(), event = packed.event(), product = packed.product();
  float* const folded = align_to_line(workspace);
  float* const offsets = folded + packed.folded_size();
  float* const hidden = offsets + PackedDin::items_at_once * query.padded_out;
  const Span<float> later(hidden + 2 * PackedDin::events_at_once * packed.widest(), packed.later_workspace());
  float* const scores = later.end();

  int64_t parent = -1, next = 0;
  Matrix<const Element> elements;  // of the parent's history
  for (int64_t first = 0; first < q.rows; first += PackedDin::items_at_once) {
    const int64_t count = std::min(PackedDin::items_at_once, q.rows - first);
    // Columns between out and padded_out are read as biases of outputs that do not exist.
    std::fill_n(offsets, count * query.padded_out, 0.0f);
    run_linear(query, q.row_range(first, count), {offsets, count, query.out, query.padded_out}, {}, {});
    for (int64_t n = first; n < first + count; ++n) {
      while (items.end(next) <= n) ++next;
      const int64_t length = history.size(next);
      const Matrix<const float> events = k.row_range(history.begin(next), length);
      if (length == 0) {
        std::fill_n(y.row(n), y.cols, 0.0f);
        continue;
      }
      assert(workspace.size() >= packed.workspace_size(length));
      if (std::exchange(parent, next) != next)
        elements = Products::elements_of(events, {scores + length, workspace.end() - scores - length});
      LinearGroup layer = event;
      layer.weight = folded;
      layer.bias = offsets + (n - first) * query.padded_out;
      layer.precision = packed.precision();
      const bool is_dots = event.out <= max_dot_outputs;
      auto* const panels = reinterpret_cast<Element*>(folded);
      if (is_dots)
        fold_dots(event, product, q.row(n), folded);
      else
        fold_panels<Products>(event, product, q.row(n), panels);
      const auto run_first = [&](int64_t begin, Matrix<float> to) {
        if (is_dots)
          run_heads(layer, events.row_range(begin, to.rows), to, {});
        else
          run_rows<Products>(layer, PackedPanels<Products>{panels, elements.cols}, elements.row_range(begin, to.rows),
                             to, nullptr, {});
      };
      score_events(packed, length, run_first, hidden, later, scores);
      if (packed.normalization() == Normalization::softmax)
        finite_softmax(1.0f, scores, length);
      else if (packed.normalization() == Normalization::sigmoid)
        activate({warprank::sigmoid, {}, {}, {}}, {scores, 1, length}, {scores, 1, length});
      weighted_sums({scores, 1, length}, events, false, y.row_range(n, 1));
    }
  }
}

inline DinKernel din_kernel(Precision precision) {
  if constexpr (compiles_bf16_products)
    if (precision == Precision::bf16) return &run_din<Bf16Products>;
  return &run_din<Fp32Products>;
}

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
