// SPDX-License-Identifier: Apache-2.0

/// Layers by AMX: the order of loads and products, and the layout of what they read, on tiles in memory; and on those
/// of the processor where it has them.

#include "warprank/ops/host/amx.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "warprank/core/dtype.hpp"
#include "warprank/core/round_up.hpp"
#include "warprank/ops/host/linear.hpp"

namespace warprank { namespace {

using host_ops::Bf16Pair;

/// What the instructions do, as their manual says, on eight tiles of 16 rows of 64 bytes.
struct TilesInMemory {
  template <int Tile>
  void load(const void* from, int64_t stride) {
    for (int64_t r = 0; r < 16; ++r) std::memcpy(tiles[Tile][r], static_cast<const char*>(from) + r * stride, 64);
  }
  template <int Tile>
  void store(void* to, int64_t stride) {
    for (int64_t r = 0; r < 16; ++r) std::memcpy(static_cast<char*>(to) + r * stride, tiles[Tile][r], 64);
  }
  template <int Sum, int A, int B>
  void multiply() {
    ++products;
    for (int r = 0; r < 16; ++r) {
      float sums[16];
      std::memcpy(sums, tiles[Sum][r], 64);
      for (int c = 0; c < 16; ++c) {
        float even = 0, odd = 0;
        for (int k = 0; k < 16; ++k) {
          Bf16Pair a, b;
          std::memcpy(&a, tiles[A][r] + 4 * k, 4);
          std::memcpy(&b, tiles[B][k] + 4 * c, 4);
          even = std::fma(to_float(a.even), to_float(b.even), even);
          odd = std::fma(to_float(a.odd), to_float(b.odd), odd);
        }
        sums[c] += even + odd;
      }
      std::memcpy(tiles[Sum][r], sums, 64);
    }
  }

  char tiles[8][16][64];
  int64_t products = 0;
};

struct Part {
  Part(int64_t num_rows, int64_t num_pairs, int64_t num_column_tiles)
      : rows(num_rows), depth(num_pairs), column_tiles(num_column_tiles), width(16 * num_column_tiles) {
    std::mt19937 engine(static_cast<uint32_t>(rows * 1009 + depth * 31 + column_tiles));
    std::uniform_real_distribution<float> distribution(-1, 1);
    const auto values = [&](int64_t count) {
      std::vector<Bf16Pair> pairs(static_cast<size_t>(count));
      for (Bf16Pair& pair : pairs) pair = {to_bfloat16(distribution(engine)), to_bfloat16(distribution(engine))};
      return pairs;
    };
    x = values(rows * x_stride()), panel = values(depth * width);
    for (int64_t i = 0; i < rows * sums_stride(); ++i) sums.push_back(distribution(engine));
  }
  int64_t x_stride() const { return depth + 16; }
  int64_t sums_stride() const { return width + 3; }

  template <class Tiles>
  std::vector<float> run(Tiles& tiles) const {
    std::vector<float> found = sums;
    host_ops::multiply_part(
        tiles, {x.data(), x_stride(), rows, depth, panel.data(), column_tiles, found.data(), sums_stride()});
    return found;
  }
  /// Columns behind the panel's stay as they were.
  void check(const std::vector<float>& found) const {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < sums_stride(); ++c) {
        const size_t i = static_cast<size_t>(r * sums_stride() + c);
        double sum = sums[i], size = std::abs(sum);
        for (int64_t k = 0; c < width && k < depth; ++k) {
          const Bf16Pair a = x[static_cast<size_t>(r * x_stride() + k)], b = panel[static_cast<size_t>(k * width + c)];
          const double even = double{to_float(a.even)} * to_float(b.even);
          const double odd = double{to_float(a.odd)} * to_float(b.odd);
          sum += even + odd, size += std::abs(even) + std::abs(odd);
        }
        ASSERT_LE(std::abs(found[i] - sum), 0x1p-24 * static_cast<double>(2 * depth + 2) * size)
            << "row " << r << ", column " << c << " of " << rows << " x " << depth << " x " << width;
      }
  }

  int64_t rows, depth, column_tiles, width;
  std::vector<Bf16Pair> x, panel;
  std::vector<float> sums;
};

TEST(Amx, MultipliesPartsOfEveryShape) {
  for (const int64_t rows : {16, 32, 48, 112})
    for (const int64_t depth : {16, 32, 80})
      for (const int64_t column_tiles : {1, 2, 3, 4}) {
        const Part part(rows, depth, column_tiles);
        TilesInMemory tiles;
        part.check(part.run(tiles));
        EXPECT_EQ(tiles.products, rows / 16 * (depth / 16) * column_tiles);
      }
}

/// Weights behind those of a panel may be any finite ones, as x is 0 there.
TEST(Amx, AddsNothingWhereXIsZero) {
  Part part(32, 32, 2);
  for (int64_t r = 0; r < 32; ++r)
    for (int64_t k = 20; k < 32; ++k) part.x[static_cast<size_t>(r * part.x_stride() + k)] = {};
  Part other = part;
  for (size_t i = 20 * 32; i < other.panel.size(); ++i) other.panel[i] = {to_bfloat16(3e38f), to_bfloat16(-3e38f)};
  TilesInMemory tiles;
  EXPECT_EQ(part.run(tiles), other.run(tiles));
}

TEST(Amx, GivesARowTheSameBitsWhateverItsNeighbours) {
  const Part part(112, 48, 3);
  TilesInMemory tiles;
  const std::vector<float> together = part.run(tiles);
  for (const int64_t r : {0, 16, 96}) {
    const auto first = part.sums.begin() + r * part.sums_stride();
    std::vector<float> alone(first, first + 16 * part.sums_stride());
    host_ops::multiply_part(tiles, {part.x.data() + r * part.x_stride(), part.x_stride(), 16, 48, part.panel.data(), 3,
                                    alone.data(), part.sums_stride()});
    for (size_t i = 0; i < alone.size(); ++i)
      ASSERT_EQ(alone[i], together[static_cast<size_t>(r * part.sums_stride()) + i]);
  }
}

/// A layer in panels of pairs, as PackedLinear has it, and rows rounded as its workspace has them.
struct Layer {
  Layer(int64_t num_rows, int64_t num_in, int64_t num_out) : rows(num_rows), in(num_in), out(num_out) {
    std::mt19937 engine(static_cast<uint32_t>(rows * 1009 + in * 31 + out));
    std::uniform_real_distribution<float> distribution(-1, 1);
    const auto values = [&](int64_t count) {
      std::vector<float> found(static_cast<size_t>(count));
      for (float& value : found) value = to_float(to_bfloat16(distribution(engine)));
      return found;
    };
    x = values(rows * in), weight = values(out * in), bias = values(padded_out()), row_bias = values(2 * padded_out());
    const int64_t stride = host_ops::pairs_stride(in), depth = (in + 1) / 2;
    pairs.assign(static_cast<size_t>(round_up(rows, 16) * stride), {to_bfloat16(NAN), to_bfloat16(NAN)});
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < 2 * stride; ++k) {
        Bf16Pair& pair = pairs[static_cast<size_t>(r * stride + k / 2)];
        (k % 2 == 0 ? pair.even : pair.odd) = to_bfloat16(k < in ? x[static_cast<size_t>(r * in + k)] : 0);
      }
    panels.assign(static_cast<size_t>(padded_out() * depth + 15 * 64), {to_bfloat16(7), to_bfloat16(-7)});
    std::fill_n(panels.begin(), padded_out() * depth, Bf16Pair{});
    for (int64_t first = 0; first < out; first += width_at(first))
      for (int64_t o = first; o < std::min(first + width_at(first), out); ++o)
        for (int64_t k = 0; k < in; ++k) {
          Bf16Pair& pair = panels[static_cast<size_t>(first * depth + k / 2 * width_at(first) + o - first)];
          (k % 2 == 0 ? pair.even : pair.odd) = to_bfloat16(weight[static_cast<size_t>(o * in + k)]);
        }
  }
  int64_t padded_out() const { return round_up(out, 16); }
  int64_t width_at(int64_t first) const { return 16 * host_ops::vectors_of_panel((padded_out() - first) / 16); }
  const Bf16Pair* part(int64_t first, int64_t width, int64_t k, int64_t) const {
    return panels.data() + first * ((in + 1) / 2) + k * width;
  }

  void check(bool has_row_bias) const {
    std::vector<const float*> of_rows;
    for (int64_t r = 0; r < rows; ++r) of_rows.push_back(row_bias.data() + r % 2 * padded_out());
    TilesInMemory tiles;
    for (int64_t first = 0; first < out; first += width_at(first)) {
      const int64_t width = width_at(first), count = std::min(width, out - first);
      float sums[112][64];
      host_ops::sum_panel(tiles, *this, {first, width, count, 1024},
                          {pairs.data(), rows, (in + 1) / 2, host_ops::pairs_stride(in)}, bias.data(),
                          has_row_bias ? of_rows.data() : nullptr, sums);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < count; ++c) {
          double sum = bias[static_cast<size_t>(first + c)];
          if (has_row_bias) sum += of_rows[static_cast<size_t>(r)][first + c];
          double size = std::abs(sum) + 2;
          for (int64_t k = 0; k < in; ++k) {
            const double product =
                double{x[static_cast<size_t>(r * in + k)]} * weight[static_cast<size_t>((first + c) * in + k)];
            sum += product, size += std::abs(product);
          }
          ASSERT_LE(std::abs(sums[r][c] - sum), 0x1p-24 * static_cast<double>(in + 2) * size)
              << "row " << r << ", output " << first + c << " of " << rows << " x " << in << " -> " << out;
        }
    }
  }

  int64_t rows, in, out;
  std::vector<float> x, weight, bias, row_bias;
  std::vector<Bf16Pair> pairs, panels;
};

TEST(Amx, SumsPanelsOfLayersOfEveryShape) {
  for (const int64_t rows : {1, 5, 16, 17, 33, 108})
    for (const int64_t in : {1, 2, 31, 32, 33, 100})
      for (const int64_t out : {9, 16, 17, 64, 70, 130})
        for (const bool has_row_bias : {false, true}) Layer(rows, in, out).check(has_row_bias);
  Layer(20, 4100, 70).check(true);  // in parts
}

#if HWY_ARCH_X86_64 && defined(__linux__)
TEST(Amx, HasTheBitsOfItsEmulationWhereThereAreTiles) {
  if (!host_ops::has_amx_products()) GTEST_SKIP() << "this processor has no AMX for BF16";
  for (const int64_t column_tiles : {1, 2, 3, 4}) {
    const Part part(48, 80, column_tiles);
    TilesInMemory emulated;
    host_ops::AmxTiles tiles;
    EXPECT_EQ(part.run(tiles), part.run(emulated));
  }
}
#endif

}}  // namespace warprank
