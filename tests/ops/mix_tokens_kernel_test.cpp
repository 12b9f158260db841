// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "reference/mix_tokens.hpp"
#include "support/axis_input_testing.hpp"
#include "support/counted_replay.hpp"
#include "support/far_away.hpp"
#include "support/kernel_testing.hpp"
#include "support/narrowed.hpp"
#include "warprank/ops/mix_tokens.cuh"
#if !defined(__CUDACC__)
#include "warprank/ops/host/mix_tokens.hpp"
#endif

namespace {

using namespace kernel_testing;  // NOLINT
using warprank::float16;
using warprank::LayerNormOfRow;
using warprank::Matrix;
using warprank::MixTokens;
using warprank::MixTokensOptions;
using warprank::Span;

/// Rows of tokens on the host, and learned vectors: gamma, beta, and those of the input, if it is normed.
struct Rows {
  int64_t tokens = 1;
  AxisValues x;
  bool norms_input = false;
  std::vector<float> vectors;

  Rows(int64_t rows, int64_t tokens, int64_t columns, bool norms_input, uint32_t seed = 1)
      : tokens(tokens),
        x(random_values<float16>(rows, tokens * columns, seed)),
        norms_input(norms_input),
        vectors(random_values<float>(4, columns, seed + 1).values) {}
  int64_t columns() const { return x.cols / tokens; }
  Span<const float> vector(int64_t i) const { return {vectors.data() + i * columns(), columns()}; }
};
constexpr float eps = 1e-5f, input_eps = 1e-3f;

template <class Out>
std::vector<Out> run(const Rows& rows, Placement placement = {}) {
  const int64_t cols = rows.x.cols, columns = rows.columns();
  DeviceMatrix<float16> x(converted<float16>(rows.x.values), rows.x.rows, cols, cols + placement.gap, placement.skip);
  DeviceMatrix<Out> y(rows.x.rows, cols, cols + 2 * placement.gap, placement.skip);
  DeviceArray<float> vectors(rows.vectors);
  const auto norm = [&](float of_eps, int64_t first) {
    return LayerNormOfRow{of_eps, vectors.data() + first * columns, vectors.data() + (first + 1) * columns};
  };
  MixTokensOptions options{norm(eps, 0), {}};
  if (rows.norms_input) options.input_norm = norm(input_eps, 2);
  const MixTokens<Out> mix(x.view(), rows.tokens, y.view(), nullptr, options);
  const DeviceArray<unsigned char> descriptors(mix.descriptors());
  mix.launch({descriptors.data()});
  return y.read();
}

warprank::reference::Bounded reference_of(const Rows& rows) {
  const warprank::reference::TokenNormOf norm{eps, rows.vector(0), rows.vector(1)},
      input_norm{input_eps, rows.vector(2), rows.vector(3)};
  return warprank::reference::mix_tokens({rows.x.values.data(), rows.x.rows, rows.x.cols}, rows.tokens, norm,
                                         rows.norms_input ? &input_norm : nullptr, true);
}

template <class Out>
void expect_reference(const Rows& rows, Placement placement = {}, int seeds = 1) {
  SCOPED_TRACE(std::to_string(rows.x.rows) + " rows of " + std::to_string(rows.tokens) + " x " +
               std::to_string(rows.columns()) + (rows.norms_input ? ", normed" : ""));
  expect_within(reference_of(rows), in_every_order([&] { return run<Out>(rows, placement); }, seeds), 1);
}

template <class Out>
class MixTokensKernel : public testing::Test {};
using Outs = testing::Types<float, float16>;
TYPED_TEST_SUITE(MixTokensKernel, Outs, );

TYPED_TEST(MixTokensKernel, MatchesTheFormulaForEveryShape) {
  for (const int64_t tokens : {1, 2, 3, 16, 33})
    for (const int64_t part : {1, 4, 5, 12})
      for (const bool norms_input : {false, true}) {
        if (tokens == 33 && part > 4) continue;
        expect_reference<TypeParam>({3, tokens, tokens * part, norms_input});
      }
}

TYPED_TEST(MixTokensKernel, TakesTheSizesOfRankMixerAndNoRows) {
  for (const bool norms_input : {false, true}) {
    expect_reference<TypeParam>({2, 16, 768, norms_input});
    expect_reference<TypeParam>({0, 2, 4, norms_input});
  }
}

TYPED_TEST(MixTokensKernel, TakesRowsThatAreStridedAndMisalignedInEveryOrder) {
  for (const Placement placement : {Placement{4, 4}, Placement{4, 1}, Placement{3, 0}})
    for (const bool norms_input : {false, true}) expect_reference<TypeParam>({5, 4, 16, norms_input}, placement, 5);
}

/// More rows than blocks, of several warps each.
TYPED_TEST(MixTokensKernel, GivesARowTheSameBitsAloneAndAmongOthers) {
  const int64_t num_rows = 4 * warprank::device::num_multiprocessors() + 5;
  for (const bool norms_input : {false, true}) {
    const Rows rows(num_rows, 16, 64, norms_input);
    const auto floats_of = [](const std::vector<TypeParam>& values) {
      std::vector<float> floats;
      for (const TypeParam value : values) floats.push_back(warprank::to_float(value));
      return floats;
    };
    const std::vector<float> together =
        floats_of(in_every_order([&] { return run<TypeParam>(rows); }, build == Build::plain ? 3 : 1));
    for (const int64_t n : {int64_t{0}, num_rows / 3, num_rows - 1}) {
      Rows alone = rows;
      alone.x = rows.x.row(n);
      reset();
      EXPECT_EQ(floats_of(run<TypeParam>(alone)),
                std::vector<float>(together.begin() + n * 1024, together.begin() + (n + 1) * 1024));
    }
  }
}

TEST(MixTokensKernelRows, KeepNaNAmongTheTokensThatReadIt) {
  Rows rows(2, 2, 8, false);
  rows.x.values[1] = NAN;  // of token 0 and its part 0, which only token 0 reads
  reset();
  const std::vector<float> y = run<float>(rows);
  for (size_t c = 0; c < y.size(); ++c) EXPECT_EQ(std::isnan(y[c]), c < 8) << c;
}

TYPED_TEST(MixTokensKernel, FollowsTheCountInDeviceMemoryAndTakesOtherVectors) {
  const int64_t capacity = 9, cols = 4 * 16;
  const Rows rows(capacity, 4, 16, true), others(capacity, 4, 16, true, 5);
  in_every_order(
      [&] {
        DeviceMatrix<float16> x(converted<float16>(rows.x.values), capacity, cols);
        DeviceMatrix<TypeParam> y(capacity, cols);
        DeviceArray<float> vectors(rows.vectors), other_vectors(others.vectors);
        DeviceArray<int64_t> num_rows(1);
        const auto made_with = [&](const float* v) {
          return MixTokens<TypeParam>(x.view(), 4, y.view(), num_rows.data(),
                                      {LayerNormOfRow{eps, v, v + 16}, LayerNormOfRow{input_eps, v + 32, v + 48}});
        };
        const MixTokens<TypeParam> mix = made_with(vectors.data());
        DeviceArray<unsigned char> descriptors(mix.descriptors());
        const CountedReplay replay(mix, descriptors.data());
        for (const bool are_others : {false, true})
          for (const int64_t count : {9, 3, 0}) {
            if (are_others) descriptors.write(made_with(other_vectors.data()).descriptors());
            Rows counted = rows;
            counted.x.rows = count;
            if (are_others) counted.vectors = others.vectors;
            expect_within(reference_of(counted), replay.rows_of(count, num_rows, y), 1);
          }
      },
      3);
}

/// 100 items of 16 tokens of 768 columns.
TEST(MixTokensKernelCounts, ReadsAndWritesEachSectorOnce) {
  if constexpr (build == Build::plain) {
    Config config;
    config.count_sectors = true;
    reset(config);
    const Rows rows(100, 16, 768, true);
    clear_counters();
    run<float16>(rows);
    EXPECT_EQ(counters().launches, 1);
    EXPECT_EQ(counters().atomics, 0);
    EXPECT_EQ(counters().global_store_sectors, 100 * 16 * 768 / 16);
  } else {
    GTEST_SKIP() << "counted in the plain build";
  }
}

#if !defined(__CUDACC__)
TEST(MixTokensKernelHost, AgreesWithTheHostPath) {
  const Rows rows(20, 4, 16, false);
  std::vector<float> host(rows.x.values.size()), workspace(64);
  warprank::host_ops::mix_tokens({rows.x.values.data(), 20, 64}, 4, {eps, rows.vector(0), rows.vector(1)}, nullptr,
                                 {host.data(), 20, 64}, workspace);
  warprank::reference::Bounded between = reference_of(rows);
  between.value.assign(host.begin(), host.end());
  reset();
  expect_within(between, run<float>(rows), 2);
}
#endif

TEST(MixTokensKernelArguments, AreRefusedWhereTheyDoNotFit) {
  alignas(16) float16 from[64] = {};
  auto* const to = warprank::test_support::far_away<float>();
  struct Given {
    Matrix<const float16> x;
    int64_t tokens;
    Matrix<float> y;
    MixTokensOptions options;
  };
  const auto refusal = [&](const std::function<void(Given&)>& change) -> std::string {
    Given given{{from, 2, 32}, 4, {to, 2, 32}, {}};
    change(given);
    try {
      MixTokens<float> made(given.x, given.tokens, given.y, nullptr, given.options);
    } catch (const warprank::invalid_argument& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  const std::string tokens = "mix_tokens: x: expected columns that divide into ";
  EXPECT_EQ(refusal([](auto&) {}), "nothing was thrown");
  EXPECT_EQ(refusal([](auto& given) { given.tokens = 0; }), tokens + "0 tokens of as many parts, got 32");
  EXPECT_EQ(refusal([](auto& given) { given.tokens = 3; }), tokens + "3 tokens of as many parts, got 32");
  EXPECT_EQ(refusal([](auto& given) { given.tokens = 8; }), tokens + "8 tokens of as many parts, got 32");
  EXPECT_EQ(refusal([](auto& given) { given.y.rows = 1; }),
            "mix_tokens: x: expected the shape of y, [1, 32], got [2, 32]");
  EXPECT_EQ(refusal([](auto& given) { given.y.data = nullptr; }), "mix_tokens: y: expected an address, got null");
  EXPECT_EQ(refusal([](auto& given) { given.options.norm.eps = -1; }),
            "mix_tokens: norm: eps: expected 0 or more, got -1.000000");
  EXPECT_EQ(refusal([](auto& given) {
              given.options.input_norm = LayerNormOfRow{NAN, nullptr, nullptr};
            }).substr(0, 45),
            "mix_tokens: input norm: eps: expected 0 or mo");
  EXPECT_EQ(refusal([](auto& given) {
              given.options.input_norm = LayerNormOfRow{};
              given.x.cols = given.x.stride = given.y.cols = given.y.stride = 1 << 20;
            }),
            "mix_tokens: x with an input norm: expected at most 24576 columns, got 1048576");
}

}  // namespace
