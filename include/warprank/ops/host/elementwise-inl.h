// SPDX-License-Identifier: Apache-2.0

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Natural logarithm: -inf at 0, NaN below; within 4 u |log x|.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  // x = 2^e m with m in [sqrt(1/2), sqrt(2)); subnormal numbers are scaled up first.
  const auto is_small = hn::Lt(x, hn::Set(d, 0x1p-126f));
  const V scaled = hn::IfThenElse(is_small, hn::Mul(x, hn::Set(d, 0x1p24f)), x);
  const auto bits = hn::BitCast(di, scaled);
  const auto sqrt_half = hn::Set(di, 0x3f3504f3);
  const auto exponent = hn::ShiftRight<23>(hn::Sub(bits, sqrt_half));
  const V m = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(exponent)));
  const V e = hn::Sub(hn::ConvertTo(d, exponent), hn::IfThenElseZero(is_small, hn::Set(d, 24.0f)));
  // log m = 2 artanh(s) = 2 (s + s^3/3 + s^5/5 + ...) with s = f / (2 + f), f = m - 1, s^2 < 0.03; written as
  // f - s (f - 2 s^2 (1/3 + s^2/5 + ...)) so that the leading term f is exact.
  const V f = hn::Sub(m, one);
  const V s = hn::Div(f, hn::Add(f, hn::Set(d, 2.0f)));
  const V s2 = hn::Mul(s, s);
  V series = hn::Set(d, 2.0f / 9.0f);
  series = hn::MulAdd(series, s2, hn::Set(d, 2.0f / 7.0f));
  series = hn::MulAdd(series, s2, hn::Set(d, 2.0f / 5.0f));
  series = hn::MulAdd(series, s2, hn::Set(d, 2.0f / 3.0f));
  const V log_m = hn::NegMulAdd(s, hn::NegMulAdd(series, s2, f), f);
  // ln 2 in two parts, the first with so few bits that its product with e is exact.
  const V low = hn::MulAdd(e, hn::Set(d, -2.12194440054690583e-4f), log_m);
  const V y = hn::MulAdd(e, hn::Set(d, 0.693359375f), low);
  const V infinity = hn::BitCast(d, hn::Set(di, 0x7f800000)), nan = hn::BitCast(d, hn::Set(di, 0x7fc00000));
  const V limits = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), hn::IfThenElse(hn::Lt(x, zero), nan, x));
  return hn::IfThenElse(hn::And(hn::Gt(x, zero), hn::Lt(x, infinity)), y, limits);
}

/// sin(x + quarters pi / 2), quarters 0 or 1, for |x| <= 8192 (or NaN).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sine_of_small(D d, V x, int quarters) {
  const hn::RebindToSigned<D> di;
  // |x| = q pi / 2 + r; q is in the lowest bits of `shifted`, as in ReducedExp.
  const V t = hn::Abs(x), shift = hn::Set(d, 0x1.8p23f);
  const V shifted = hn::MulAdd(t, hn::Set(d, 0x1.45f306p-1f), shift);
  const V q = hn::Sub(shifted, shift);
  // pi / 2 in four parts, the first three with so few bits that their products with q are exact: near a zero of the
  // result r is what remains of x.
  V r = hn::NegMulAdd(q, hn::Set(d, 0x1.92p0f), t);
  r = hn::NegMulAdd(q, hn::Set(d, 0x1.fb4p-12f), r);
  r = hn::NegMulAdd(q, hn::Set(d, 0x1.444p-24f), r);
  r = hn::NegMulAdd(q, hn::Set(d, 0x1.68c234p-39f), r);
  // Minimax over |r| <= pi / 4.
  const V r2 = hn::Mul(r, r);
  V p = hn::Set(d, -1.9515295891e-4f);
  p = hn::MulAdd(p, r2, hn::Set(d, 8.3321608736e-3f));
  p = hn::MulAdd(p, r2, hn::Set(d, -1.6666654611e-1f));
  const V sine = hn::MulAdd(hn::Mul(p, r2), r, r);
  p = hn::Set(d, 2.4433157118e-5f);
  p = hn::MulAdd(p, r2, hn::Set(d, -1.3887316255e-3f));
  p = hn::MulAdd(p, r2, hn::Set(d, 4.1666645683e-2f));
  const V cosine = hn::MulAdd(hn::Mul(r2, r2), p, hn::NegMulAdd(hn::Set(d, 0.5f), r2, hn::Set(d, 1.0f)));
  const auto quarter = hn::Add(hn::BitCast(di, shifted), hn::Set(di, quarters)), one = hn::Set(di, 1);
  const auto is_odd = hn::MaskFromVec(hn::BitCast(d, hn::Neg(hn::And(quarter, one))));
  const V sign = hn::And(hn::SignBit(d), hn::BitCast(d, hn::ShiftLeft<30>(quarter)));
  const V y = hn::Xor(hn::IfThenElse(is_odd, cosine, sine), sign);
  return quarters == 0 ? hn::Xor(y, hn::And(hn::SignBit(d), x)) : y;
}

/// sin(x + quarters pi / 2): NaN of infinity.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sine(D d, V x, int quarters) {
  constexpr float largest = 8192.0f;
  const auto is_large = hn::Gt(hn::Abs(x), hn::Set(d, largest));
  const V y = sine_of_small(d, hn::IfThenZeroElse(is_large, x), quarters);
  if (HWY_LIKELY(hn::AllFalse(d, is_large))) return y;
  HWY_ALIGN float from[hn::MaxLanes(D())], to[hn::MaxLanes(D())];
  hn::Store(x, d, from);
  hn::Store(y, d, to);
  for (size_t i = 0; i < hn::Lanes(d); ++i)
    if (std::fabs(from[i]) > largest) to[i] = quarters == 0 ? std::sin(from[i]) : std::cos(from[i]);
  return hn::Load(d, to);
}

/// The angle of the point (x, y).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V atan2(D d, V y, V x) {
  const V zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  const V width = hn::Abs(x), height = hn::Abs(y);
  // The angle to the nearer axis has a tangent of 0 to 1; of two equal sides, which may be infinite or zero, it is 1
  // or 0. Comparisons with NaN are false: the quotient is NaN.
  const auto is_steep = hn::Gt(height, width);
  const V small = hn::IfThenElse(is_steep, width, height), large = hn::IfThenElse(is_steep, height, width);
  const V tangent =
      hn::IfThenElse(hn::Eq(small, large), hn::IfThenElseZero(hn::Gt(large, zero), one), hn::Div(small, large));
  // Minimax for atan(t) / t - 1 over t <= 1, relative error 2^-25.8.
  const V t2 = hn::Mul(tangent, tangent);
  V p = hn::Set(d, 2.9206922533e-3f);
  p = hn::MulAdd(p, t2, hn::Set(d, -1.6367928194e-2f));
  p = hn::MulAdd(p, t2, hn::Set(d, 4.3211861261e-2f));
  p = hn::MulAdd(p, t2, hn::Set(d, -7.5522143310e-2f));
  p = hn::MulAdd(p, t2, hn::Set(d, 1.0666004661e-1f));
  p = hn::MulAdd(p, t2, hn::Set(d, -1.4211055309e-1f));
  p = hn::MulAdd(p, t2, hn::Set(d, 1.9993772834e-1f));
  p = hn::MulAdd(p, t2, hn::Set(d, -3.3333152736e-1f));
  V angle = hn::MulAdd(hn::Mul(p, t2), tangent, tangent);
  angle = hn::IfThenElse(is_steep, hn::Sub(hn::Set(d, 0x1.921fb6p0f), angle), angle);
  const V from_left = hn::Sub(hn::Set(d, 0x1.921fb6p1f), angle);
  const auto is_left = hn::MaskFromVec(hn::BitCast(d, hn::BroadcastSignBit(hn::BitCast(hn::RebindToSigned<D>(), x))));
  return hn::Or(hn::IfThenElse(is_left, from_left, angle), hn::And(hn::SignBit(d), y));
}

template <ElementwiseFunction kFunction, class D, class V = hn::Vec<D>>
HWY_INLINE V evaluate(D d, V a, V b, V c, V alpha) {
  using Function = ElementwiseFunction;
  [[maybe_unused]] const V zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  if constexpr (kFunction == Function::add) return hn::Add(a, b);
  if constexpr (kFunction == Function::sub) return hn::Sub(a, b);
  if constexpr (kFunction == Function::mul) return hn::Mul(a, b);
  if constexpr (kFunction == Function::div) return hn::Div(a, b);
  if constexpr (kFunction == Function::min) return min_or_nan(d, a, b);
  if constexpr (kFunction == Function::max) return max_or_nan(d, a, b);
  if constexpr (kFunction == Function::atan2) return atan2(d, a, b);
  if constexpr (kFunction == Function::less) return hn::IfThenElseZero(hn::Lt(a, b), one);
  if constexpr (kFunction == Function::less_equal) return hn::IfThenElseZero(hn::Le(a, b), one);
  if constexpr (kFunction == Function::greater) return hn::IfThenElseZero(hn::Gt(a, b), one);
  if constexpr (kFunction == Function::greater_equal) return hn::IfThenElseZero(hn::Ge(a, b), one);
  if constexpr (kFunction == Function::equal) return hn::IfThenElseZero(hn::Eq(a, b), one);
  // Highway's Ne is false for NaN on some targets.
  if constexpr (kFunction == Function::not_equal) return hn::IfThenZeroElse(hn::Eq(a, b), one);
  if constexpr (kFunction == Function::select) return hn::IfThenElse(hn::Eq(c, zero), b, a);
  if constexpr (kFunction == Function::neg) return hn::Neg(a);
  if constexpr (kFunction == Function::abs) return hn::Abs(a);
  if constexpr (kFunction == Function::exp) return exp(d, a);
  if constexpr (kFunction == Function::log) return log(d, a);
  if constexpr (kFunction == Function::sqrt) return hn::Sqrt(a);
  if constexpr (kFunction == Function::square) return hn::Mul(a, a);
  if constexpr (kFunction == Function::sin) return sine(d, a, 0);
  if constexpr (kFunction == Function::cos) return sine(d, a, 1);
  if constexpr (kFunction == Function::relu) return relu(d, a);
  if constexpr (kFunction == Function::leaky_relu) return leaky_relu(d, a, alpha);
  if constexpr (kFunction == Function::elu) return elu(d, a, alpha);
  if constexpr (kFunction == Function::sigmoid) return sigmoid(d, a);
  if constexpr (kFunction == Function::tanh) return tanh(d, a);
  if constexpr (kFunction == Function::gelu) return gelu(d, a);
  if constexpr (kFunction == Function::gelu_tanh) return gelu_tanh(d, a);
  if constexpr (kFunction == Function::silu) return silu(d, a);
}

/// The first `count` elements of a register, `count` a multiple of 16. `to` may be an operand.
template <size_t kFunction>
void run_instruction(const float* a, const float* b, const float* c, float alpha, int64_t count, float* to) {
  constexpr auto function = static_cast<ElementwiseFunction>(kFunction);
  const hn::CappedTag<float, 16> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto zero = hn::Zero(d), alphas = hn::Set(d, alpha);
  for (int64_t i = 0; i < count; i += lanes) {
    const auto va = hn::LoadU(d, a + i);
    const auto vb = arity(function) >= 2 ? hn::LoadU(d, b + i) : zero;
    const auto vc = arity(function) >= 3 ? hn::LoadU(d, c + i) : zero;
    hn::StoreU(evaluate<function>(d, va, vb, vc, alphas), d, to + i);
  }
}

using InstructionKernel = void (*)(const float*, const float*, const float*, float, int64_t, float*);

template <size_t... kFunctions>
constexpr auto instruction_kernels(std::index_sequence<kFunctions...>) {
  return std::array<InstructionKernel, sizeof...(kFunctions)>{&run_instruction<kFunctions>...};
}

/// Interprets a program block by block. A block is whole rows, or a part of one wide row; in a register its elements
/// are contiguous and padded to a multiple of 16, so that instructions know neither rows nor incomplete vectors.
class ElementwiseRun {
 public:
  ElementwiseRun(const ElementwiseProgram& program, Span<const SegmentedInput> inputs, Span<const float* const> vectors,
                 Matrix<float> y, Span<float> workspace)
      : program_(program),
        inputs_(inputs),
        vectors_(vectors),
        y_(y),
        registers_(workspace.data()),
        capacity_(elementwise_block(program)) {
    assert(inputs.size() == program.num_inputs && vectors.size() == program.num_vectors);
    assert(workspace.size() >= elementwise_workspace(program));
  }

  void run() {
    const int64_t num_parts = (y_.cols + capacity_ - 1) / capacity_;
    const int64_t width = num_parts == 1 ? y_.cols : round_up((y_.cols + num_parts - 1) / num_parts);
    int64_t rows_at_once = std::min(num_parts == 1 ? capacity_ / y_.cols : 1, y_.rows);
    if (rows_at_once > 16) rows_at_once -= rows_at_once % 16;  // full blocks need no padding

    for (size_t i = 0; i < program_.constants.size(); ++i)
      std::fill_n(at(program_.first_constant() + static_cast<int>(i)), capacity_, program_.constants[i]);
    for (column_ = 0; column_ < y_.cols; column_ += width) {
      cols_ = std::min(width, y_.cols - column_);
      rows_ = rows_at_once;
      load_vectors();
      for (row_ = 0; row_ < y_.rows; row_ += rows_at_once) {
        rows_ = std::min(rows_at_once, y_.rows - row_);
        load_inputs();
        run_block();
      }
    }
  }

 private:
  static int64_t round_up(int64_t count) { return (count + 15) / 16 * 16; }
  int64_t count() const { return rows_ * cols_; }
  float* at(int r) const { return registers_ + r * capacity_; }
  Matrix<float> matrix(int r) const { return {at(r), rows_, cols_}; }
  void pad(int r) const { std::fill(at(r) + count(), at(r) + round_up(count()), 0.0f); }

  /// Whether a matrix holds the block as a register does.
  bool is_in_place(int64_t cols, int64_t stride) const {
    return cols == y_.cols && count() % 16 == 0 && (rows_ == 1 || stride == cols);
  }
  bool is_in_place(const SegmentedInput& input) const {
    return !input.on_ancestor() && is_in_place(input.values.cols, input.values.stride);
  }

  void load_vectors() const {
    for (int v = 0; v < program_.num_vectors; ++v) {
      const int r = program_.first_vector() + v;
      for (int64_t n = 0; n < rows_; ++n) copy_row(vectors_[v] + column_, cols_, matrix(r).row(n));
      pad(r);
    }
  }

  void load_inputs() const {
    for (int i = 0; i < program_.num_inputs; ++i) {
      const SegmentedInput& input = inputs_[i];
      if (is_in_place(input)) continue;
      if (input.values.cols == y_.cols)
        copy_rows({input.values.columns(column_, cols_), input.segments}, row_, matrix(i));
      else
        repeat_column(input, matrix(i));
      pad(i);
    }
  }

  void repeat_column(const SegmentedInput& input, Matrix<float> to) const {
    assert(input.values.cols == 1);
    for (int64_t n = 0; n < rows_; ++n) std::fill_n(to.row(n), cols_, *input.values.row(input.row_serving(row_ + n)));
  }

  const float* operand(int r) const {
    if (r < 0) return nullptr;
    if (r < program_.num_inputs && is_in_place(inputs_[r])) return inputs_[r].values.row(row_) + column_;
    return at(r);
  }

  void run_block() const {
    static constexpr auto kernels =
        instruction_kernels(std::make_index_sequence<names_of(ElementwiseFunction{}).size()>());
    const bool writes_in_place = is_in_place(y_.cols, y_.stride);
    int result = program_.first_result();
    for (const Instruction& instruction : program_.instructions) {
      const bool is_last = result + 1 == program_.num_registers();
      float* to = is_last && writes_in_place ? y_.row(row_) + column_ : at(result);
      kernels[static_cast<size_t>(instruction.function)](operand(instruction.a), operand(instruction.b),
                                                         operand(instruction.c), instruction.alpha, round_up(count()),
                                                         to);
      ++result;
    }
    if (!writes_in_place)
      for (int64_t n = 0; n < rows_; ++n) copy_row(matrix(result - 1).row(n), cols_, y_.row(row_ + n) + column_);
  }

  const ElementwiseProgram& program_;
  const Span<const SegmentedInput> inputs_;
  const Span<const float* const> vectors_;
  const Matrix<float> y_;
  float* const registers_;
  const int64_t capacity_;
  int64_t row_ = 0, column_ = 0, rows_ = 0, cols_ = 0;  // the block
};

inline void elementwise(const ElementwiseProgram& program, Span<const SegmentedInput> inputs,
                        Span<const float* const> vectors, Matrix<float> y, Span<float> workspace) {
  if (y.rows == 0 || y.cols == 0) return;
  ElementwiseRun(program, inputs, vectors, y, workspace).run();
}

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
