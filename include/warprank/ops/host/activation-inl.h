// SPDX-License-Identifier: Apache-2.0

// Exponentials and activations of a vector of floats; accuracy in activation.hpp.

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// x = q ln 2 + r with integer q and |r| <= ln(2) / 2; exp(r) - 1 = em1. For |x| <= 128 (or NaN, which em1 then is).
template <class D, class V = hn::Vec<D>>
struct ReducedExp {
  hn::Vec<hn::RebindToSigned<D>> q;
  V em1;

  HWY_INLINE ReducedExp(D d, V x) {
    // Adding 1.5 * 2^23 rounds to an integer, which is then in the lowest bits: half the instructions of conversions.
    const hn::RebindToSigned<D> di;
    const V shift = hn::Set(d, 0x1.8p23f), shifted = hn::MulAdd(x, hn::Set(d, 1.44269504088896341f), shift);
    const V qf = hn::Sub(shifted, shift);
    q = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, shift));
    // ln 2 in two parts, the first with so few bits that its product with q is exact.
    const V r = hn::NegMulAdd(qf, hn::Set(d, -2.12194440054690583e-4f), hn::NegMulAdd(qf, hn::Set(d, 0.693359375f), x));
    // Minimax for exp(r) - 1 = r + r^2 p(r), relative error 2^-31.
    V p = hn::Set(d, 1.9845886261e-4f);
    p = hn::MulAdd(p, r, hn::Set(d, 1.3940744212e-3f));
    p = hn::MulAdd(p, r, hn::Set(d, 8.3333896273e-3f));
    p = hn::MulAdd(p, r, hn::Set(d, 4.1666359533e-2f));
    p = hn::MulAdd(p, r, hn::Set(d, 1.6666666368e-1f));
    p = hn::MulAdd(p, r, hn::Set(d, 5.0000000444e-1f));
    em1 = hn::MulAdd(hn::Mul(r, r), p, r);
  }
};

/// 2^q, for -126 <= q <= 127.
template <class D, class VI, class V = hn::Vec<D>>
HWY_INLINE V power_of_two(D d, VI q) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(q, hn::Set(di, 127))));
}

/// e^x; 0 from -104 down, infinity from 88.73 up.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp(D d, V x) {
  // Compare and choose rather than min and max, which lose NaN on some targets.
  const V low = hn::Set(d, -104.0f), high = hn::Set(d, 89.0f);
  x = hn::IfThenElse(hn::Lt(x, low), low, x);
  x = hn::IfThenElse(hn::Gt(x, high), high, x);
  const ReducedExp<D> e(d, x);
  // In two steps, since 2^q may be too large or too small for a float where e^x is not.
  const auto half = hn::ShiftRight<1>(e.q);
  const V y = hn::Add(e.em1, hn::Set(d, 1.0f));
  return hn::Mul(hn::Mul(y, power_of_two(d, half)), power_of_two(d, hn::Sub(e.q, half)));
}

/// e^x for x <= 0; 0 where it is below 2^-126.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_of_nonpositive(D d, V x) {
  const V low = hn::Set(d, -87.3365f);
  const auto vanishes = hn::Lt(x, low);
  const ReducedExp<D> e(d, hn::IfThenElse(vanishes, low, x));
  const V power = power_of_two(d, e.q);
  return hn::IfThenZeroElse(vanishes, hn::MulAdd(power, e.em1, power));
}

/// e^x for |x| <= 87.3365, within 2^-13 of itself: half the instructions, for what is rounded to BF16.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V rough_exp(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V log2_e = hn::Set(d, 1.44269504088896341f), shift = hn::Set(d, 0x1.8p23f);
  const V shifted = hn::MulAdd(x, log2_e, shift);  // an integer in the lowest bits, as in ReducedExp
  const V f = hn::MulSub(x, log2_e, hn::Sub(shifted, shift));
  V p = hn::Set(d, 5.5171668530e-2f);  // minimax for 2^f, |f| <= 1 / 2, relative error 2^-13.7
  p = hn::MulAdd(p, f, hn::Set(d, 2.4261112511e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 6.9326096773e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 9.9992805719e-1f));
  // A product, since NaN plus 2^q in the bits of the exponent may be a number.
  return hn::Mul(p, power_of_two(d, hn::BitCast(di, shifted)));
}

/// e^x - 1 for x <= 0, exact in relation to itself also near 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V expm1_of_nonpositive(D d, V x) {
  const V low = hn::Set(d, -30.0f);
  x = hn::IfThenElse(hn::Lt(x, low), low, x);
  const ReducedExp<D> e(d, x);
  const V power = power_of_two(d, e.q);
  return hn::MulAdd(power, e.em1, hn::Sub(power, hn::Set(d, 1.0f)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V e = exp_of_nonpositive(d, hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh(D d, V x) {
  const V em1 = expm1_of_nonpositive(d, hn::Mul(hn::Abs(x), hn::Set(d, -2.0f)));
  return hn::CopySign(hn::Div(em1, hn::Add(em1, hn::Set(d, 2.0f))), x);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V relu(D d, V x) {
  return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
}

/// x > 0 ? x : alpha x
template <class D, class V = hn::Vec<D>>
HWY_INLINE V leaky_relu(D d, V x, V alpha) {
  return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, hn::Mul(alpha, x));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V elu(D d, V x, V alpha) {
  // The smaller of x and 0, but NaN for NaN.
  const V negative = hn::IfThenZeroElse(hn::Gt(x, hn::Zero(d)), x);
  return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, hn::Mul(alpha, expm1_of_nonpositive(d, negative)));
}

/// x (p + alpha (1 - p)), p = sigmoid(scale x + shift)
template <class D, class V = hn::Vec<D>>
HWY_INLINE V dice(D d, V x, V alpha, V scale, V shift) {
  const V p = sigmoid(d, hn::MulAdd(scale, x, shift));
  return hn::Mul(x, hn::MulAdd(alpha, hn::Sub(hn::Set(d, 1.0f), p), p));
}

/// x f for a factor f that is exactly 0 below `low`: there -0 also for x = -infinity.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V times_vanishing(D d, V x, V factor, float low) {
  return hn::Mul(hn::IfThenElse(hn::Lt(x, hn::Set(d, low)), hn::Set(d, low), x), factor);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V silu(D d, V x) {
  return times_vanishing(d, x, sigmoid(d, x), -105.0f);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu(D d, V x) {
  const V one = hn::Set(d, 1.0f), t = hn::Abs(x);
  // Phi(-t) = exp(-t^2 / 2) s q(s), s = 1 / (1 + 0.35 t): minimax over 0 <= t <= 14, relative error 2^-24.9.
  const V s = hn::Div(one, hn::MulAdd(t, hn::Set(d, 0.35f), one));
  V q = hn::Set(d, -2.9146139386e-2f);
  q = hn::MulAdd(q, s, hn::Set(d, 1.4397270706e-1f));
  q = hn::MulAdd(q, s, hn::Set(d, -2.5571631910e-1f));
  q = hn::MulAdd(q, s, hn::Set(d, 1.5917649116e-1f));
  q = hn::MulAdd(q, s, hn::Set(d, -2.3111417386e-2f));
  q = hn::MulAdd(q, s, hn::Set(d, 1.0550866298e-1f));
  q = hn::MulAdd(q, s, hn::Set(d, 1.1983270385e-1f));
  q = hn::MulAdd(q, s, hn::Set(d, 1.3986189182e-1f));
  q = hn::MulAdd(q, s, hn::Set(d, 1.3962140305e-1f));
  const V tail = hn::Mul(hn::Mul(q, s), exp(d, hn::Mul(hn::Mul(t, t), hn::Set(d, -0.5f))));
  const V phi = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
  return times_vanishing(d, x, phi, -15.0f);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_tanh(D d, V x) {
  // 1/2 (1 + tanh(z)) = sigmoid(2 z), z = sqrt(2 / pi) (x + 0.044715 x^3).
  const V z2 = hn::Mul(x, hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.0713548163f), hn::Set(d, 1.59576912161f)));
  return times_vanishing(d, x, sigmoid(d, z2), -15.0f);
}

/// Sigmoid, silu and dice within 2^-12 of what they are, and 2^-118 beside.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V rough_sigmoid(D d, V x) {
  const V most = hn::Set(d, 87.3365f), least = hn::Neg(most);
  x = hn::IfThenElse(hn::Gt(x, most), most, hn::IfThenElse(hn::Lt(x, least), least, x));
  return hn::ApproximateReciprocal(hn::Add(hn::Set(d, 1.0f), rough_exp(d, hn::Neg(x))));
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V rough_silu(D d, V x) {
  return times_vanishing(d, x, rough_sigmoid(d, x), -87.3365f);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V rough_dice(D d, V x, V alpha, V scale, V shift) {
  const V p = rough_sigmoid(d, hn::MulAdd(scale, x, shift));
  return hn::Mul(x, hn::MulAdd(alpha, hn::Sub(hn::Set(d, 1.0f), p), p));
}

/// f(x) for one vector of channels; alpha, scale and shift are those of its channels where the kind learns them.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V apply_activation(D d, const Activation& spec, V x, V alpha, V scale, V shift) {
  switch (spec.kind) {
    case ActivationKind::identity:
      return x;
    case ActivationKind::relu:
      return relu(d, x);
    case ActivationKind::leaky_relu:
      return leaky_relu(d, x, hn::Set(d, spec.alpha));
    case ActivationKind::elu:
      return elu(d, x, hn::Set(d, spec.alpha));
    case ActivationKind::prelu:
      return leaky_relu(d, x, alpha);
    case ActivationKind::dice:
      return dice(d, x, alpha, scale, shift);
    case ActivationKind::sigmoid:
      return sigmoid(d, x);
    case ActivationKind::tanh:
      return tanh(d, x);
    case ActivationKind::gelu:
      return gelu(d, x);
    case ActivationKind::gelu_tanh:
      return gelu_tanh(d, x);
    case ActivationKind::silu:
      return silu(d, x);
  }
  return x;
}

/// The same for channels [channel, channel + count) of a layer, at most a vector of them; reads no others.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V apply_activation(D d, const ChannelActivation& activation, int64_t channel, size_t count, V x) {
  const ActivationKind kind = activation.spec.kind;
  const bool is_dice = kind == ActivationKind::dice, has_alpha = is_dice || kind == ActivationKind::prelu;
  const V zero = hn::Zero(d);
  return apply_activation(d, activation.spec, x,
                          has_alpha ? load_first(d, activation.alpha.data() + channel, count) : zero,
                          is_dice ? load_first(d, activation.scale.data() + channel, count) : zero,
                          is_dice ? load_first(d, activation.shift.data() + channel, count) : zero);
}

/// The same where rough activations will do.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V apply_rough_activation(D d, const ChannelActivation& activation, int64_t channel, size_t count, V x) {
  const auto learned = [&](Span<const float> values) HWY_ATTR { return load_first(d, values.data() + channel, count); };
  switch (activation.spec.kind) {
    case ActivationKind::sigmoid:
      return rough_sigmoid(d, x);
    case ActivationKind::silu:
      return rough_silu(d, x);
    case ActivationKind::dice:
      return rough_dice(d, x, learned(activation.alpha), learned(activation.scale), learned(activation.shift));
    default:
      return apply_activation(d, activation, channel, count, x);
  }
}

inline void activate(const ChannelActivation& activation, Matrix<const float> x, Matrix<float> y) {
  assert(x.rows == y.rows && x.cols == y.cols);
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < x.rows; ++r)
    for (int64_t c = 0; c < x.cols; c += lanes) {
      const size_t count = static_cast<size_t>(std::min(lanes, x.cols - c));
      store_first(apply_activation(d, activation, c, count, load_first(d, x.row(r) + c, count)), d, y.row(r) + c,
                  count);
    }
}

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
