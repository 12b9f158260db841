// SPDX-License-Identifier: Apache-2.0

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// to[i * b.size() + j] = a[i] b[j].
inline void multiply_all(Span<const float> a, Span<const float> b, float* to) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = 0; j < b.size(); j += lanes) {
    const size_t used = static_cast<size_t>(std::min(lanes, b.size() - j));
    const auto of_b = load_first(d, b.data() + j, used);
    for (int64_t i = 0; i < a.size(); ++i) store_first(hn::Mul(hn::Set(d, a[i]), of_b), d, to + i * b.size() + j, used);
  }
}

/// The same rounded to pairs, for an even b.size().
template <class Products>
void multiply_all_to_pairs(Span<const float> a, Span<const float> b, float* to) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = 0; j < b.size(); j += 2 * lanes) {
    const int64_t left = std::min(2 * lanes, b.size() - j), low = std::min(lanes, left);
    const auto low_of_b = load_first(d, b.data() + j, static_cast<size_t>(low));
    const auto high_of_b = load_first(d, b.data() + j + low, static_cast<size_t>(left - low));
    for (int64_t i = 0; i < a.size(); ++i) {
      const auto factor = hn::Set(d, a[i]);
      store_first(Products::pairs_of(hn::Mul(factor, low_of_b), hn::Mul(factor, high_of_b)), d,
                  to + (i * b.size() + j) / 2, static_cast<size_t>(left / 2));
    }
  }
}

/// What a row of weights is multiplied with: products of a row of a and one of b, or a itself if b has no columns.
class Terms {
 public:
  Terms(Matrix<const float> a, Matrix<const float> b) : a_(a), b_(b) {}
  int64_t rows() const { return a_.rows; }
  int64_t cols() const { return a_.cols * std::max<int64_t>(b_.cols, 1); }

  /// All of them, in the workspace, [rows, cols], if they are products.
  Matrix<const float> all(Span<float> workspace) const {
    if (b_.cols == 0) return a_;
    const Matrix<float> terms(workspace.data(), rows(), cols());
    for (int64_t r = 0; r < rows(); ++r) multiply_all({a_.row(r), a_.cols}, {b_.row(r), b_.cols}, terms.row(r));
    return terms;
  }
  /// The same as elements. A row of an odd number of columns of b is rounded while it is in the first-level cache: the
  /// workspace has room for it behind those that are rounded.
  template <class Products>
  Matrix<const typename Products::Element> elements(Span<float> workspace) const {
    if constexpr (Products::values == 1) {
      return all(workspace);
    } else {
      const int64_t stride = pairs_stride(cols()), pairs = (cols() + 1) / 2;
      const Matrix<float> rounded(workspace.data(), rows(), stride);
      float* const row = rounded.row(round_up(rows(), amx_rows));
      for (int64_t r = 0; r < rows(); ++r) {
        if (b_.cols == 0) {
          Products::elements_of(a_.row_range(r, 1), {rounded.row(r), stride});
        } else if (b_.cols % 2 == 0) {
          multiply_all_to_pairs<Products>({a_.row(r), a_.cols}, {b_.row(r), b_.cols}, rounded.row(r));
          std::fill(rounded.row(r) + pairs, rounded.row(r) + stride, 0.0f);
        } else {
          multiply_all({a_.row(r), a_.cols}, {b_.row(r), b_.cols}, row);
          Products::elements_of({row, 1, cols()}, {rounded.row(r), stride});
        }
      }
      return {reinterpret_cast<const typename Products::Element*>(rounded.data), rows(), pairs, stride};
    }
  }

 private:
  Matrix<const float> a_, b_;
};

/// y = f(before + terms W^T + bias), of at most LinearTarget::block_rows rows; `before` may have no data.
template <class Products>
void run_terms(const LinearGroup& group, const typename Products::Element* weight, const Terms& terms,
               Matrix<const float> before, Matrix<float> y, Span<float> workspace) {
  const float* start[block_tiles * tile_rows];
  for (int64_t r = 0; r < y.rows && before.data != nullptr; ++r) start[r] = before.row(r);
  const auto x = terms.elements<Products>(workspace);
  run_rows<Products>(group, PackedPanels<Products>{weight, x.cols}, x, y, before.data != nullptr ? start : nullptr, {});
}

inline void run_field_part(const LinearGroup& group, Matrix<const float> a, Matrix<const float> b,
                           Matrix<const float> before, Matrix<float> y, Span<float> workspace) {
  const Terms terms(a, b);
  if (group.out <= max_dot_outputs) {
    LinearInputs inputs;
    inputs.residual = before, inputs.residual_first = true;
    return run_heads(group, terms.all(workspace), y, inputs);
  }
  if constexpr (compiles_bf16_products)
    if (group.precision == Precision::bf16)
      return (has_amx_products() ? &run_terms<AmxProducts> : &run_terms<Bf16Products>)(group, group.pairs, terms,
                                                                                       before, y, workspace);
  run_terms<Fp32Products>(group, group.weight, terms, before, y, workspace);
}

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
