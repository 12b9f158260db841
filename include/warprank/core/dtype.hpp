// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Storage types of weights and table rows. `float16` and `bfloat16` are 16-bit structs of our own, so that plain C++
/// needs no CUDA toolkit; they have the layout of CUDA's __half and __nv_bfloat16.

#include <cstdint>
#include <cstring>
#include <string>

#include "warprank/core/error.hpp"

namespace warprank { inline namespace v0 {

/// IEEE 754 binary16.
struct float16 {
  uint16_t bits = 0;
};

/// The largest finite half.
inline constexpr float max_float16 = 65504.0f;

/// The upper 16 bits of an IEEE 754 binary32.
struct bfloat16 {
  uint16_t bits = 0;
};

/// The largest finite bfloat16.
inline constexpr float max_bfloat16 = 0x1.fep127f;

inline uint32_t float_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float bits_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

namespace detail {
/// Selects by masks, since a compiler might turn a condition into a branch: loops would then not vectorise.
constexpr uint32_t choose(bool condition, uint32_t a, uint32_t b) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return (a & mask) | (b & ~mask);
}
}  // namespace detail

inline float to_float(float value) { return value; }
inline float to_float(bfloat16 value) { return bits_float(static_cast<uint32_t>(value.bits) << 16); }
inline float to_float(float16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t magnitude = value.bits & 0x7fffu;
  const uint32_t normal = (magnitude << 13) + 0x38000000u;
  const uint32_t special = 0x7f800000u | (magnitude & 0x3ffu) << 13;  // infinity, NaN
  const uint32_t subnormal = float_bits(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t finite = detail::choose(magnitude < 0x0400u, subnormal, normal);
  return bits_float(sign | detail::choose(magnitude < 0x7c00u, finite, special));
}

/// Rounds to nearest, ties to even; overflow gives infinity, NaN stays NaN.
inline float16 to_float16(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  // Adding 0.5 to a value that becomes subnormal aligns the unit in the last place to 2^-24.
  const uint32_t subnormal = float_bits(bits_float(magnitude) + 0.5f) - float_bits(0.5f);
  const uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
  const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;  // 65520 rounds to infinity
  const uint32_t finite = detail::choose(magnitude < 0x38800000u, subnormal, normal);
  return {static_cast<uint16_t>(sign | detail::choose(magnitude < 0x477ff000u, finite, special))};
}

/// Rounds to nearest, ties to even; NaN stays NaN.
inline bfloat16 to_bfloat16(float value) {
  const uint32_t bits = float_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>(bits >> 16 | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

/// Element types of stored tensors. i64 appears only as keys of hashed tables.
enum class DType { f32, f16, bf16, i8, i64 };

/// The DType of a C++ type.
template <class Value>
inline constexpr DType dtype_of = Value::no_such_dtype;
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<float16> = DType::f16;
template <>
inline constexpr DType dtype_of<bfloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<int8_t> = DType::i8;
template <>
inline constexpr DType dtype_of<int64_t> = DType::i64;

constexpr int64_t size_of(DType type) {
  switch (type) {
    case DType::f32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::i8:
      return 1;
    case DType::i64:
      return 8;
  }
  return 0;
}

/// The name used in safetensors files.
constexpr const char* name_of(DType type) {
  switch (type) {
    case DType::f32:
      return "F32";
    case DType::f16:
      return "F16";
    case DType::bf16:
      return "BF16";
    case DType::i8:
      return "I8";
    case DType::i64:
      return "I64";
  }
  return "?";
}

template <class Value>
struct TypeTag {
  using type = Value;
};

/// Calls `body(TypeTag<T>{})` with the C++ type of a floating or row dtype; i64 is refused.
template <class Body>
decltype(auto) dispatch_dtype(DType type, Body&& body) {
  switch (type) {
    case DType::f32:
      return body(TypeTag<float>{});
    case DType::f16:
      return body(TypeTag<float16>{});
    case DType::bf16:
      return body(TypeTag<bfloat16>{});
    case DType::i8:
      return body(TypeTag<int8_t>{});
    case DType::i64:
      break;
  }
  raise(invalid_argument("dtype", "F32, F16, BF16 or I8", name_of(type)));
}

}}  // namespace warprank::v0
