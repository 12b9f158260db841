// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Products of panels of BF16 pairs by AMX, the tile registers of Xeons from Sapphire Rapids on: a tile is 16 rows of
/// 64 bytes, and one instruction adds 16 x 16 sums of 32 products each. Sums are FP32; of the 32 products those of even
/// k are added in one chain and those of odd k in another.
///
/// Instructions are written as bytes: assemblers that know the others of this library need not know these.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "warprank/core/round_up.hpp"
#include "warprank/core/view.hpp"
#include "warprank/ops/host/products.hpp"

#if HWY_ARCH_X86_64 && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace warprank { inline namespace v0 { namespace host_ops {

inline constexpr int64_t amx_rows = 16, amx_pairs = 16;  ///< of a tile

/// A part of a layer: sums += x panel, [rows, 16 column_tiles], of `depth` pairs, a multiple of amx_pairs. Rows are as
/// many as whole tiles have, all of them can be read and written.
struct AmxPart {
  const Bf16Pair* x;  ///< [rows, depth]
  int64_t x_stride, rows, depth;
  const Bf16Pair* panel;  ///< [depth, 16 column_tiles]
  int64_t column_tiles;
  float* sums;
  int64_t sums_stride;
};

/// Two tiles of rows by two of columns at a time: each tile of factors is used twice.
template <class Tiles>
void multiply_part(Tiles& tiles, const AmxPart& part) {
  const int64_t panel_stride = part.column_tiles * amx_pairs;
  const auto bytes = [](int64_t elements) { return elements * 4; };
  const auto block = [&](int64_t row, int64_t column, auto has_lower, auto has_right) {
    constexpr bool lower = decltype(has_lower)::value, right = decltype(has_right)::value;
    float* const sums = part.sums + row * part.sums_stride + column * amx_pairs;
    float* const below = sums + amx_rows * part.sums_stride;
    const int64_t sums_stride = bytes(part.sums_stride);
    tiles.template load<0>(sums, sums_stride);
    if constexpr (right) tiles.template load<1>(sums + amx_pairs, sums_stride);
    if constexpr (lower) tiles.template load<2>(below, sums_stride);
    if constexpr (lower && right) tiles.template load<3>(below + amx_pairs, sums_stride);
    for (int64_t k = 0; k < part.depth; k += amx_pairs) {
      const Bf16Pair* const x = part.x + row * part.x_stride + k;
      const Bf16Pair* const panel = part.panel + k * panel_stride + column * amx_pairs;
      tiles.template load<4>(x, bytes(part.x_stride));
      tiles.template load<6>(panel, bytes(panel_stride));
      tiles.template multiply<0, 4, 6>();
      if constexpr (right) {
        tiles.template load<7>(panel + amx_pairs, bytes(panel_stride));
        tiles.template multiply<1, 4, 7>();
      }
      if constexpr (lower) {
        tiles.template load<5>(x + amx_rows * part.x_stride, bytes(part.x_stride));
        tiles.template multiply<2, 5, 6>();
        if constexpr (right) tiles.template multiply<3, 5, 7>();
      }
    }
    tiles.template store<0>(sums, sums_stride);
    if constexpr (right) tiles.template store<1>(sums + amx_pairs, sums_stride);
    if constexpr (lower) tiles.template store<2>(below, sums_stride);
    if constexpr (lower && right) tiles.template store<3>(below + amx_pairs, sums_stride);
  };
  // Columns outside: a panel of two column tiles stays in the first-level cache while all rows pass it.
  for (int64_t column = 0; column < part.column_tiles; column += 2)
    for (int64_t row = 0; row < part.rows; row += 2 * amx_rows) {
      const bool lower = row + amx_rows < part.rows, right = column + 1 < part.column_tiles;
      if (lower && right)
        block(row, column, std::true_type(), std::true_type());
      else if (lower)
        block(row, column, std::true_type(), std::false_type());
      else if (right)
        block(row, column, std::false_type(), std::true_type());
      else
        block(row, column, std::false_type(), std::false_type());
    }
}

inline constexpr int64_t amx_width = 64;  ///< outputs of a panel that is whole

/// A panel of a layer: outputs [first, first + width), of which the first `count` exist; `width` is a multiple of 16.
struct AmxPanel {
  int64_t first, width, count;
  int64_t max_depth;  ///< pairs that `part` gives at once, a multiple of amx_pairs
};

/// sums [x.rows, count] = bias + row_bias + x W^T, x [rows, pairs]. Behind the rows of x there are others up to a
/// multiple of amx_rows, of any values; behind the pairs of a row zeros, up to a multiple of amx_pairs.
/// `panels.part(first, width, k, depth)` gives pairs [k, k + depth) of a panel, [depth, width], and behind them finite
/// ones up to a multiple of amx_pairs. bias [all outputs], row_bias [x.rows] of rows of all outputs, or null. Columns
/// of `sums` behind the count, and rows behind those of x up to a multiple of amx_rows, are overwritten.
template <class Tiles, class Panels>
void sum_panel(Tiles& tiles, const Panels& panels, const AmxPanel& panel, Matrix<const Bf16Pair> x, const float* bias,
               const float* const* row_bias, float (*sums)[amx_width]) {
  const int64_t rows = round_up(x.rows, amx_rows);
  for (int64_t r = 0; r < rows; ++r) {
    std::fill_n(sums[r], panel.width, 0.0f);
    if (r >= x.rows) continue;
    for (int64_t c = 0; c < panel.count; ++c)
      sums[r][c] = row_bias == nullptr ? bias[panel.first + c] : bias[panel.first + c] + row_bias[r][panel.first + c];
  }
  for (int64_t k = 0; k < x.cols; k += panel.max_depth) {
    const int64_t depth = std::min(panel.max_depth, x.cols - k);
    multiply_part(
        tiles, {x.data + k, x.stride, rows, round_up(depth, amx_pairs), panels.part(panel.first, panel.width, k, depth),
                panel.width / amx_pairs, sums[0], amx_width});
  }
}

#if HWY_ARCH_X86_64 && defined(__linux__)

/// The tile registers of the calling thread.
class AmxTiles {
 public:
  AmxTiles() {
    struct alignas(64) {
      uint8_t palette, start_row, reserved[14];
      uint16_t bytes_of_row[16];
      uint8_t rows[16];
    } config = {1, 0, {}, {}, {}};
    for (int tile = 0; tile < 8; ++tile) config.bytes_of_row[tile] = 64, config.rows[tile] = amx_rows;
    asm volatile(".byte 0xc4, 0xe2, 0x78, 0x49, 0x06" : : "S"(&config), "m"(config));  // ldtilecfg (%rsi)
  }
  ~AmxTiles() { asm volatile(".byte 0xc4, 0xe2, 0x78, 0x49, 0xc0"); }  // tilerelease
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  /// tileloadd (%rsi, %rdi), and tilestored there.
  template <int Tile>
  void load(const void* from, int64_t stride) {
    asm volatile(".byte 0xc4, 0xe2, 0x7b, 0x4b, %c[place], 0x3e"
                 :
                 : "S"(from), "D"(stride), [place] "i"(Tile * 8 + 4)
                 : "memory");
  }
  template <int Tile>
  void store(void* to, int64_t stride) {
    asm volatile(".byte 0xc4, 0xe2, 0x7a, 0x4b, %c[place], 0x3e"
                 :
                 : "S"(to), "D"(stride), [place] "i"(Tile * 8 + 4)
                 : "memory");
  }
  /// tdpbf16ps: Sum += A B.
  template <int Sum, int A, int B>
  void multiply() {
    asm volatile(".byte 0xc4, 0xe2, %c[b], 0x5c, %c[places]"
                 :
                 : [b] "i"((~B & 15) * 8 + 2), [places] "i"(0xc0 + Sum * 8 + A));
  }
};

/// Whether the processor has AMX for BF16, the system lets this process use it, which is asked once, and a product of
/// small whole numbers is right.
inline bool has_amx_products() {
  static const bool has = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
    constexpr unsigned bf16 = 1u << 22, tile = 1u << 24;
    if ((edx & bf16) == 0 || (edx & tile) == 0) return false;
    constexpr long ask_for_state = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    if (syscall(SYS_arch_prctl, ask_for_state, tile_data) != 0) return false;
    alignas(64) Bf16Pair x[amx_rows * amx_pairs], panel[amx_pairs * amx_pairs];
    alignas(64) float sums[amx_rows * amx_pairs];
    const auto number = [](int64_t i) { return to_bfloat16(static_cast<float>(i % 5 - 2)); };
    for (int64_t i = 0; i < amx_rows * amx_pairs; ++i) {
      x[i] = {number(i), number(i + 3)}, panel[i] = {number(2 * i), number(i / 3)};
      sums[i] = static_cast<float>(i);
    }
    {
      AmxTiles tiles;
      multiply_part(tiles, {x, amx_pairs, amx_rows, amx_pairs, panel, 1, sums, amx_pairs});
    }
    for (int64_t r = 0; r < amx_rows; ++r)
      for (int64_t c = 0; c < amx_pairs; ++c) {
        float sum = static_cast<float>(r * amx_pairs + c);
        for (int64_t k = 0; k < amx_pairs; ++k) {
          const Bf16Pair a = x[r * amx_pairs + k], b = panel[k * amx_pairs + c];
          sum += to_float(a.even) * to_float(b.even) + to_float(a.odd) * to_float(b.odd);
        }
        if (sums[r * amx_pairs + c] != sum) return false;
      }
    return true;
  }();
  return has;
}

#else

inline bool has_amx_products() { return false; }

#endif

}}}  // namespace warprank::v0::host_ops
