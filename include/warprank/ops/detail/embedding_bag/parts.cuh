// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A lane's part of a row: raw words from memory, then elements added to sums, then elements of y. Rows of all types
/// go the same way, as words, but where they are decoded.

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "warprank/core/dtype.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/ops/detail/embedding_bag/record.hpp"

namespace warprank { inline namespace v0 { namespace detail::embedding_bag {

/// 16 bytes, or fewer; of I8 also scale and offset, in the last two words.
struct RawPart {
  uint32_t words[4];
};
/// Those on their way to a lane, as many as ids are taken in turn.
inline constexpr int in_flight = policy.ids_in_flight;
using RowsInFlight = RawPart[in_flight];
/// Sums of the elements of a part, of which it may have fewer. By a name of its own: clang 14 does not parse the array
/// as a parameter.
using PartSums = float[max_part_size];

/// Elements that change nothing: -0 in sums, 0 too, and -infinity in maxima.
WARPRANK_DEVICE RawPart no_part(RowType type, bool is_max) {
  if (type == RowType::i8) return {{0, 0, 0, is_max ? 0xff800000u : 0u}};
  const uint32_t word = type == RowType::f32   ? is_max ? 0xff800000u : 0x80000000u
                        : !is_max              ? 0x80008000u
                        : type == RowType::f16 ? 0xfc00fc00u
                                               : 0xff80ff80u;
  return {{word, word, word, word}};
}

template <int Words>
WARPRANK_DEVICE void load_words(bool is_wide, const unsigned char* from, RawPart& raw) {
  const auto* words = reinterpret_cast<const uint32_t*>(from);
  const auto loaded = is_wide ? device::load_vector_once<Words>(words) : device::load_vector_constant<Words>(words);
  WARPRANK_UNROLL
  for (int i = 0; i < Words; ++i) raw.words[i] = loaded[i];
}
/// A part of 4 bytes or less, by several loads where rows are misaligned.
WARPRANK_DEVICE uint32_t load_narrow(const Record& f, const unsigned char* part) {
  const int bytes = f.load_bytes, end = f.part_bytes;
  if (bytes == 4) return device::load_constant(reinterpret_cast<const uint32_t*>(part));
  uint32_t word = 0;
  for (int at = 0; at < end; at += bytes) {
    const uint32_t bits = bytes == 1 ? uint32_t{device::load_constant(part + at)}
                                     : uint32_t{device::load_constant(reinterpret_cast<const uint16_t*>(part + at))};
    word |= bits << (8 * at);
  }
  return word;
}
/// Loads the lane's part of each row that is one; the others stay as they are. All loads are on their way together.
template <bool CanBeNarrow>
WARPRANK_DEVICE void load_parts(const Record& f, const uint32_t (&rows)[in_flight], int part, RowsInFlight& raw) {
  const unsigned char* const first = f.rows + part * f.part_bytes;
  const auto for_rows = [&](const auto& load_one) {
    WARPRANK_UNROLL
    for (int k = 0; k < in_flight; ++k) {
      if (rows[k] < missing_row) load_one(raw[k], rows[k]);
    }
  };
  const uint32_t stride = f.row_stride;
  const bool is_wide = f.has(Flag::wide_rows);
  const auto address = [&](uint32_t row) { return first + uint64_t{row} * stride; };
  if (f.part_bytes == 16) {
    for_rows([&](RawPart& to, uint32_t row) { load_words<4>(is_wide, address(row), to); });
    return;
  }
  if (!CanBeNarrow || f.part_bytes == 8) {
    for_rows([&](RawPart& to, uint32_t row) { load_words<2>(is_wide, address(row), to); });
  } else {
    for_rows([&](RawPart& to, uint32_t row) { to.words[0] = load_narrow(f, address(row)); });
  }
  if (f.type != RowType::i8) return;
  const auto number = [&](const unsigned char* of_first, uint32_t row) {
    return reinterpret_cast<const uint32_t*>(of_first + uint64_t{row} * f.scale_stride);
  };
  if (f.has(Flag::scale_beside_offset)) {
    for_rows([&](RawPart& to, uint32_t row) {
      const auto both = device::load_vector_constant<2>(number(f.scale, row));
      to.words[2] = both[0], to.words[3] = both[1];
    });
  } else {
    for_rows([&](RawPart& to, uint32_t row) {
      to.words[2] = device::load_constant(number(f.scale, row));
      to.words[3] = device::load_constant(number(f.offset, row));
    });
  }
}

/// The type of rows, for code that is compiled for it.
template <RowType Type>
struct RowsOf {
  static constexpr RowType type = Type;
};
/// Calls `run` with the RowsOf of the type.
template <class Run>
WARPRANK_DEVICE void with_type(RowType type, const Run& run) {
  if (type == RowType::f16) return run(RowsOf<RowType::f16>{});
  if (type == RowType::f32) return run(RowsOf<RowType::f32>{});
  if (type == RowType::bf16) return run(RowsOf<RowType::bf16>{});
  run(RowsOf<RowType::i8>{});
}
/// Calls each(i, x) for the elements in the first two words of a part or in the others, of I8 as they are stored.
template <RowType Type, class Each>
WARPRANK_DEVICE void for_elements(const RawPart& raw, bool is_first_half, const Each& each) {
  WARPRANK_UNROLL
  for (int w = 0; w < 2; ++w) {
    const int at = is_first_half ? w : w + 2;
    const uint32_t word = raw.words[at];
    if constexpr (Type == RowType::f32) {
      each(at, device::float_of_bits(word));
    } else if constexpr (Type == RowType::f16) {
      each(2 * at, device::widen(device::low_half(word)));
      each(2 * at + 1, device::widen(device::high_half(word)));
    } else if constexpr (Type == RowType::bf16) {
      each(2 * at, device::float_of_bits(word << 16));
      each(2 * at + 1, device::float_of_bits(word & 0xffff0000u));
    } else {
      WARPRANK_UNROLL
      for (int i = 0; i < 4; ++i) each(4 * at + i, device::widen_byte(word, i));
    }
  }
}
/// Calls each(k, i, x) for all elements of N parts, row by row.
template <RowType Type, int N, class Each>
WARPRANK_DEVICE void for_all_elements(const Record& f, const RawPart (&raw)[N], const Each& each) {
  WARPRANK_UNROLL
  for (int k = 0; k < N; ++k) for_elements<Type>(raw[k], true, [&](int i, float x) { each(k, i, x); });
  if constexpr (Type != RowType::i8) {
    if (f.part_bytes <= 8) return;
    WARPRANK_UNROLL
    for (int k = 0; k < N; ++k) for_elements<Type>(raw[k], false, [&](int i, float x) { each(k, i, x); });
  }
}
WARPRANK_DEVICE float scale_of(const RawPart& raw) { return device::float_of_bits(raw.words[2]); }
WARPRANK_DEVICE float offset_of(const RawPart& raw) { return device::float_of_bits(raw.words[3]); }

/// Stores N elements from the `from`-th on, by one store.
template <int N, class Out>
WARPRANK_DEVICE void store_some(Out* y, const Out (&elements)[max_part_size], int from = 0) {
  device::Vector<Out, N> some;
  WARPRANK_UNROLL
  for (int i = 0; i < N; ++i) some[i] = elements[from + i];
  device::store_vector(y + from, some);
}
/// Stores `size` elements at y, as a vector where it is aligned.
template <class Out>
WARPRANK_DEVICE void store_elements(Out* y, const PartSums& values, int size, bool is_aligned) {
  constexpr int whole = 16 / static_cast<int>(sizeof(Out));
  Out out[max_part_size];
  WARPRANK_UNROLL
  for (int i = 0; i < max_part_size; ++i) out[i] = device::narrow<Out>(values[i]);
  if (is_aligned && size == max_part_size) {
    WARPRANK_UNROLL
    for (int i = 0; i < max_part_size; i += whole) store_some<whole>(y, out, i);
  } else if (is_aligned && size == 4) {
    store_some<4>(y, out);
  } else if (is_aligned && size == 2) {
    store_some<2>(y, out);
  } else {
    WARPRANK_UNROLL
    for (int i = 0; i < max_part_size; ++i) {
      if (i < size) device::store(y + i, out[i]);
    }
  }
}
WARPRANK_DEVICE int64_t place_in_y(const Record& f, int64_t row, int column) {
  return row * int64_t{f.y_stride} + column;
}
/// Stores a part of a row of y.
WARPRANK_DEVICE void store_part(const Record& f, int64_t row, int part, const PartSums& values) {
  const int64_t at = place_in_y(f, row, part * f.part_size);
  const bool is_aligned = f.has(Flag::y_is_aligned);
  if (f.has(Flag::y_is_half)) {
    store_elements(reinterpret_cast<float16*>(f.y) + at, values, f.part_size, is_aligned);
  } else {
    store_elements(reinterpret_cast<float*>(f.y) + at, values, f.part_size, is_aligned);
  }
}

/// The row of the table that an id names, padding_row or missing_row.
WARPRANK_DEVICE uint32_t row_of(uint32_t num_rows, int64_t id, int64_t padding) {
  if (id == padding) return padding_row;
  return static_cast<uint64_t>(id) < num_rows ? static_cast<uint32_t>(id) : missing_row;
}

}}}  // namespace warprank::v0::detail::embedding_bag
