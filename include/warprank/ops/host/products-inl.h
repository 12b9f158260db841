// SPDX-License-Identifier: Apache-2.0

// Products of FP32 values and of pairs of BF16 values, behind one interface, and rounding to pairs.

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// An element is one value.
struct Fp32Products {
  using Element = float;
  static constexpr bool are_of_tiles = false;
  static constexpr int64_t values = 1;
  /// x as elements.
  static Matrix<const float> elements_of(Matrix<const float> x, Span<float>) { return x; }
  template <class D>
  static HWY_INLINE hn::Vec<D> broadcast(D d, const float* element) {
    return hn::Set(d, *element);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const float* elements) {
    return hn::Load(d, elements);
  }
  template <class V>
  static HWY_INLINE V multiply_add(V a, V b, V sum) {
    return hn::MulAdd(a, b, sum);
  }
  /// A vector of elements: what value_at(0) gives, and of pairs value_at(1).
  template <class D, class ValueAt>
  static HWY_INLINE void store_elements(D d, ValueAt value_at, float* to) {
    hn::Store(value_at(0), d, to);
  }
};

#if HWY_ARCH_X86 && HWY_MAX_BYTES == 64
inline constexpr bool compiles_bf16_products = true;

// Written out, since no instruction set that all versions of Highway know has these, and intrinsics would need
// functions that are compiled for another one.

/// low and high rounded to BF16, side by side in this order.
template <class V>
HWY_INLINE V round_to_bf16(V low, V high) {
  V rounded;
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(rounded.raw) : "v"(low.raw), "v"(high.raw));
  return rounded;
}

/// `count` values of x rounded to pairs, with zeros behind them up to pairs_stride(count).
inline void round_to_pairs(const float* x, int64_t count, Bf16Pair* pairs) {
  const hn::ScalableTag<float> d;
  constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(d));
  auto* to = reinterpret_cast<float*>(pairs);
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes, to += lanes)
    hn::StoreU(round_to_bf16(hn::LoadU(d, x + i), hn::LoadU(d, x + i + lanes)), d, to);
  if (i == count) return;
  const int64_t low = std::min(lanes, count - i), high = count - i - low;
  hn::StoreU(round_to_bf16(load_first(d, x + i, static_cast<size_t>(low)),
                           load_first(d, x + i + low, static_cast<size_t>(high))),
             d, to);
}

/// An element is a pair; in vectors it has the bits of a float.
struct Bf16Products {
  using Element = Bf16Pair;
  static constexpr bool are_of_tiles = false;
  static constexpr int64_t values = 2;
  /// x as elements, [rows, (cols + 1) / 2], in the workspace: x.rows * pairs_stride(x.cols) floats.
  static Matrix<const Bf16Pair> elements_of(Matrix<const float> x, Span<float> workspace) {
    const int64_t stride = pairs_stride(x.cols);
    assert(workspace.size() >= x.rows * stride);
    auto* pairs = reinterpret_cast<Bf16Pair*>(workspace.data());
    for (int64_t r = 0; r < x.rows; ++r) round_to_pairs(x.row(r), x.cols, pairs + r * stride);
    return {pairs, x.rows, (x.cols + 1) / 2, stride};
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> broadcast(D d, const Bf16Pair* element) {
    uint32_t bits;
    std::memcpy(&bits, element, sizeof bits);
    return hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), bits));
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Bf16Pair* elements) {
    return hn::Load(d, reinterpret_cast<const float*>(elements));
  }
  /// The values of low and behind them those of high, rounded: a vector of elements.
  template <class V>
  static HWY_INLINE V pairs_of(V low, V high) {
    return round_to_bf16(low, high);
  }
  /// sum + a.even * b.even + a.odd * b.odd in each lane, with a rounding for each addition.
  template <class V>
  static HWY_INLINE V multiply_add(V a, V b, V sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  }
  template <class D, class ValueAt>
  static HWY_INLINE void store_elements(D, ValueAt value_at, Bf16Pair* to) {
    const hn::Repartition<uint16_t, D> all;
    const hn::Half<decltype(all)> half;
    const hn::RebindToUnsigned<D> bits;
    const auto rounded = hn::BitCast(all, round_to_bf16(value_at(0), value_at(1)));
    const auto even = hn::PromoteTo(bits, hn::LowerHalf(half, rounded));
    const auto odd = hn::PromoteTo(bits, hn::UpperHalf(half, rounded));
    hn::Store(hn::Or(even, hn::ShiftLeft<16>(odd)), bits, reinterpret_cast<uint32_t*>(to));
  }
};

/// The same by AMX.
struct AmxProducts : Bf16Products {
  static constexpr bool are_of_tiles = true;
};

inline bool has_bf16_products() { return processor_has_avx512_bf16(); }
#else
inline constexpr bool compiles_bf16_products = false;
struct Bf16Products {
  using Element = Bf16Pair;
};
struct AmxProducts : Bf16Products {};
inline bool has_bf16_products() { return false; }
#endif

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
