// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ops/attention_case.hpp"
#include "support/counts.hpp"

// In the plain build alone: the host's kernels take a minute to compile with sanitizers.
#if !defined(__CUDACC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WARPRANK_TEST_PLAIN
#include "ops/attention_block.hpp"
#include "support/longest_warp.hpp"
#include "warprank/ops/host/attention.hpp"
#endif

namespace {

using namespace kernel_testing;  // NOLINT: this is a test of kernels
using namespace warprank;        // NOLINT

constexpr float infinity = std::numeric_limits<float>::infinity(), nan_value = std::numeric_limits<float>::quiet_NaN();

TEST(AttentionKernel, MatchesTheFormulaForEveryNumberAndWidthOfHeads) {
  for_each_target([](const Config& config) {
    std::vector<AttentionCase> cases = cases_of_every_number_and_width_of_heads();
    for (AttentionCase& c : cases) c.make();
    run_attentions(cases, config.target);
  });
}

TEST(AttentionKernel, MatchesTheFormulaForWideHeads) {
  for_each_target(
      [](const Config& config) {
        std::vector<AttentionCase> cases;
        for (const int64_t dim : {65, 100, 128, 200, 255, 256}) {
          AttentionCase c = with(dim == 100 ? 3 : 1, dim, {18, 1}, {37, 5});
          c.is_aligned = dim != 128, c.half_y = dim == 256;
          cases.push_back(c.make());
        }
        cases.push_back(self(2, 80, {35}, true).make());
        cases.push_back(with(2, 8, {2}, {50}).make());
        run_attentions(cases, config.target);
      },
      {75, 80, 86, 90});
}

TEST(AttentionKernel, MatchesTheFormulaForRaggedUsers) {
  for_each_target([](const Config& config) {
    std::vector<AttentionCase> cases;
    cases.push_back(with(2, 12, {1, 0, 70, 2, 17, 33, 0, 16, 3}, {0, 5, 1, 31, 32, 33, 7, 0, 150}).make());
    for (const bool causal : {false, true}) {
      cases.push_back(self(2, 12, {0, 1, 2, 15, 16, 17, 0, 64, 65, 130}, causal).make());
      cases.push_back(self(1, 8, {200}, causal).make());
    }
    run_attentions(cases, config.target);
  });
}

/// Users with events for no warp of a block, for one, for all, and for more than one step of each.
TEST(AttentionKernel, MatchesTheFormulaWhereEventsAreDividedAmongWarps) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {16, 32, 64, 128})
      for (const bool half_y : {false, true}) {
        std::vector<AttentionCase> cases;
        for (const int64_t heads : {1, 3}) {
          AttentionCase& c = cases.emplace_back(
              with(heads, dim, {1, 0, 33, 2, 17, 16, 0, 5, 3}, {0, 5, 1, 15, 16, 17, 7, 128, 300 - dim}));
          c.half_y = half_y, c.make();
          cases.push_back(self(heads, dim, {1, 0, 33, 2, 17, 16, 0, 300 - dim}, true).make());
        }
        run_attentions(cases, config.target);
      }
    std::vector<AttentionCase> many_users{with(1, 16, Sizes(100, 1), Sizes(100, 3))};
    many_users[0].items[40] = 50, many_users[0].items[2] = many_users[0].items[98] = 0;
    run_attentions({many_users[0].make()}, config.target);
    run_attentions({self(2, 32, {0, 1, 40, 130}, false).make(), with(1, 32, {2}, {3}).make()}, config.target);
  });
}

TEST(AttentionKernel, MatchesTheFormulaForOneUserWhateverLiesBehindTheCounts) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {16, 32, 64, 128})
      for (const int64_t items : {1, 16, 20})
        for (const int64_t events : {0, 1, 17, 130, 260}) {
          if (build == Build::race && dim > 32) continue;
          AttentionCase c = with(2, dim, {items}, {events});
          c.half_y = items == 16;
          expect_right_for_one_user(c, config.target);
        }
    for (const int64_t dim : {16, 128})
      for (const int64_t events : {1, 16, 20, 140})
        if (build != Build::race || dim < 32) expect_right_for_one_user(self(2, dim, {events}, true), config.target);
  });
}

/// Only launches whose attentions have one width of 16, 32, 64 or 128, and are aligned.
TEST(AttentionLaunch, DividesEventsAmongWarpsWhereItMay) {
  const auto is_split = [](std::vector<AttentionCase> cases, int target) {
    std::vector<std::unique_ptr<DeviceAttention>> memory;
    std::vector<Attention> views;
    for (AttentionCase& c : cases) {
      memory.push_back(std::make_unique<DeviceAttention>(c.make()));
      views.push_back(memory.back()->view());
    }
    const AttentionLaunch launch(views, target);
    EXPECT_LE(launch.shared_bytes(), warprank::device::shared_limit(target, 1));
    return launch.is_split();
  };
  for_each_target([&](const Config& config) {
    for (const int64_t dim : {16, 32, 64, 128}) EXPECT_TRUE(is_split({with(2, dim, {3}, {4})}, config.target));
    for (const int64_t dim : {8, 24, 48, 256}) EXPECT_FALSE(is_split({with(2, dim, {3}, {4})}, config.target));
    EXPECT_TRUE(is_split({with(1, 16, {3}, {4}), with(3, 16, {3}, {4}), self(2, 16, {3}, false)}, config.target));
    EXPECT_FALSE(is_split({with(1, 16, {3}, {4}), with(1, 32, {3}, {4})}, config.target));
    EXPECT_TRUE(is_split({with(1, 16, {3}, {4}), self(1, 16, {3}, true)}, config.target));
    AttentionCase misaligned = with(1, 16, {3}, {4});
    misaligned.is_aligned = false;
    EXPECT_FALSE(is_split({misaligned}, config.target));
  });
}

TEST(AttentionKernel, MatchesTheFormulaForThousandsOfEvents) {
  if (build == Build::race) return;
  for_each_target([](const Config& config) {
    run_attentions({with(1, 16, {2, 1}, {4003, 4}).make()}, config.target);
    run_attentions({with(1, 24, {2, 1}, {4003, 4}).make(), self(1, 8, {300}, true).make()}, config.target);
  });
}

TEST(AttentionKernel, MatchesTheFormulaForEveryScale) {
  for_each_target([](const Config& config) {
    std::vector<AttentionCase> cases;
    for (const float scale : {0.0f, 1e-3f, 0.25f, -0.25f, 2.0f})
      for (const float of_values : {1e-3f, 1.0f, 8.0f}) {
        AttentionCase c = with(2, 8, {5, 2}, {40, 3});
        c.scale = scale, c.of_values = of_values;
        cases.push_back(c.make());
        c.dim = 16;
        run_attentions({c.make()}, config.target);
      }
    run_attentions(cases, config.target);
  });
}

TEST(AttentionKernel, GivesTheSameInEveryOrder) {
  for_each_target([](const Config& config) {
    const std::vector<AttentionCase> divided{with(2, 16, {5, 1, 0, 18}, {21, 0, 3, 150}).make(),
                                             self(1, 16, {40}, false).make()};
    in_every_order([&] { return joined(run_attentions(divided, config.target, false)); },
                   build == Build::plain ? 20 : 6, config);
    std::vector<AttentionCase> cases{with(2, 16, {5, 1, 0, 18}, {21, 0, 3, 40}), self(1, 8, {40}, true),
                                     with(3, 5, {4}, {17})};
    cases[2].is_aligned = false, cases[1].half_y = true;
    for (AttentionCase& c : cases) c.make();
    // As many chunks as there may be.
    in_every_order([&] { return joined(run_attentions(cases, config.target, false)); }, build == Build::plain ? 20 : 8,
                   config);
  });
}

TEST(AttentionKernel, StreamsChunksInEveryOrder) {
  for_each_target([](const Config& config) {
    const std::vector<AttentionCase> cases{with(1, 128, {20}, {70}).make(), self(1, 72, {45}, true).make()};
    in_every_order([&] { return joined(run_attentions(cases, config.target, false)); }, build == Build::plain ? 20 : 4,
                   config);
  });
}

TEST(AttentionKernel, GivesZerosForAnEmptyHistory) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {12, 16}) {
      const AttentionCase c = with(2, dim, {3, 20}, {0, 0}).make();
      EXPECT_EQ(run_attentions({c}, config.target)[0], std::vector<float>(static_cast<size_t>(23 * c.width()), 0.0f));
    }
  });
}

TEST(AttentionKernel, LaunchesNothingWithoutItemsAndNothingIsWrittenWithoutUsers) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {12, 16}) {
      AttentionCase empty = with(1, dim, {}, {});
      run_attentions({empty.make()}, config.target);
      run_attentions({with(1, dim, {0, 0}, {5, 0}).make()}, config.target);
      empty.more = 0;
      clear_counters();
      run_attentions({empty, empty}, config.target);
      run_attentions({}, config.target);
      if (!on_gpu) {
        EXPECT_EQ(counters().launches, 0);
      }
    }
  });
}

/// Counts beyond the capacity are the caller's mistake; what he has not given is not written.
TEST(AttentionKernel, WritesNoMoreItemsThanTheCapacity) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {6, 16}) {
      const AttentionCase c = with(2, dim, {5, 2}, {4, 3}).make();
      const std::vector<float> all = run_attentions({c}, config.target)[0];
      DeviceAttention memory(c);
      CapacityMatrix<float> y(3, 2 * dim, 6, true);
      Attention view = memory.view();
      view.y = y.view();
      view.y.rows = view.q.rows = 3;
      DeviceAttentions launch({view}, config.target);
      launch.run();
      EXPECT_EQ(y.values(), rows(all, 2 * dim, 0, 3));
    }
  });
}

/// Whatever is computed beside it, and on however many multiprocessors.
TEST(AttentionKernel, GivesAnItemTheSameBitsWhateverItsNeighbours) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {40, 32}) {
      reset(config);
      const AttentionCase together = with(2, dim, {19, 1, 5}, {59, 140, 1}).make();
      const std::vector<float> all = run_attentions({together}, config.target)[0];
      Config wide = config;
      wide.multiprocessors = 100;
      reset(wide);
      EXPECT_EQ(run_attentions({together, together}, config.target)[1], all);
      expect_same_alone(together, all, config.target);
    }
  });
}

TEST(AttentionKernel, GivesTheSameBitsToAHistoryThatIsCutBehindTheEvent) {
  for_each_target([](const Config& config) {
    const AttentionCase whole = self(1, 8, {75}, true).make();
    const std::vector<float> all = run_attentions({whole}, config.target)[0];
    std::vector<AttentionCase> cases;
    for (int64_t length = 1; length <= 75; length += build == Build::plain ? 1 : 9) {
      AttentionCase& c = cases.emplace_back(whole);
      c.items = c.events = {length};
      c.q = rows(whole.q, 8, 0, length), c.k = rows(whole.k, 8, 0, length), c.v = rows(whole.v, 8, 0, length);
    }
    for (const std::vector<float>& y : run_attentions(cases, config.target, false))
      EXPECT_EQ(y, rows(all, 8, 0, static_cast<int64_t>(y.size()) / 8));
  });
}

TEST(AttentionKernel, ReadsCountsAndOffsetsWhenAGraphIsReplayed) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {8, 16}) {
      const AttentionCase c = with(2, dim, {4, 0, 30, 5}, {9, 4, 0, 20}).make();
      DeviceAttention memory(c);
      DeviceAttentions launch({memory.view()}, config.target);
      const Stream stream = create_stream();
      begin_capture(stream);
      launch.run(stream);
      const Graph graph = end_capture(stream);
      EXPECT_EQ(num_launches(graph), 1);
      const std::vector<float> all = run_attentions({c}, config.target)[0];
      for (const int64_t users : {4, 0, 3, 1, 4}) {
        // Into a y of its own, so that nothing is left from before.
        const int64_t items = users == 4 ? 39 : users == 3 ? 34 : users * 4;
        CapacityMatrix<float> y(items, c.width(), 41, true);
        Attention view = memory.view();
        view.y = y.view();
        const AttentionLaunch moved({&view, 1}, config.target);
        launch.descriptors().write(moved.descriptors());
        memory.num_parents().write({users});
        kernel_testing::launch(graph, stream);
        EXPECT_EQ(y.values(), rows(all, c.width(), 0, items));
      }
      // The events of the last user go to the one before.
      AttentionCase moved = c;
      moved.events = {9, 4, 20, 0};
      memory.history_offsets().write({0, 9, 13, 33, 33});
      const Attention view = memory.view();
      const AttentionLaunch same({&view, 1}, config.target);
      launch.descriptors().write(same.descriptors());
      kernel_testing::launch(graph, stream);
      EXPECT_EQ(memory.values(), run_attentions({moved}, config.target)[0]);
    }
  });
}

/// As blocks of a model use it: one row has q, k and v, and y takes the place of q.
TEST(AttentionKernel, MayWriteOverTheQueriesInRowsThatHaveKeysAndValuesToo) {
  for_each_target([](const Config& config) {
    for (const bool causal : {false, true})
      for (const int64_t dim : {8, 7, 16}) {
        const AttentionCase c = self(3, dim, {40, 3}, causal).make();
        const int64_t width = c.width();
        const std::vector<float> expected = rounded(run_attentions({c}, config.target)[0]);
        std::vector<warprank::float16> all;
        for (int64_t row = 0; row < 43; ++row)
          for (const auto* values : {&c.q, &c.k, &c.v})
            for (const float value : rows(*values, width, row, 1)) all.push_back(to_float16(value));
        DeviceMatrix<warprank::float16> x(all, 43, 3 * width);
        DeviceAttention memory(c);
        Attention view = memory.view();
        const Matrix<warprank::float16> q = x.view().columns(0, width);
        view.q = q, view.k = x.view().columns(width, width), view.v = x.view().columns(2 * width, width), view.y = q;
        DeviceAttentions launch({view}, config.target);
        launch.run();
        const std::vector<warprank::float16> written = x.read();
        for (size_t i = 0; i < written.size(); ++i) {
          const int64_t row = static_cast<int64_t>(i) / (3 * width), column = static_cast<int64_t>(i) % (3 * width);
          if (column < width) {
            EXPECT_EQ(to_float(written[i]), expected[static_cast<size_t>(row * width + column)]);
          } else {
            EXPECT_EQ(written[i].bits, all[i].bits);
          }
        }
      }
  });
}

// ---- What is not finite, or large

/// One item and one head, whose first column is given and the others are 0.
AttentionCase one_column(float query, const std::vector<float>& keys, const std::vector<float>& values, float scale,
                         int64_t dim = 1) {
  AttentionCase c = with(1, dim, {1}, {static_cast<int64_t>(keys.size())});
  const auto widened = [dim](const std::vector<float>& column) {
    std::vector<float> all(column.size() * static_cast<size_t>(dim));
    for (size_t i = 0; i < column.size(); ++i) all[i * static_cast<size_t>(dim)] = column[i];
    return all;
  };
  c.q = widened({query}), c.k = widened(keys), c.v = widened(values), c.scale = scale;
  return c;
}
constexpr int64_t widths[] = {1, 16};

TEST(AttentionKernel, GivesTheMeanValueOfTheBestKeysWhenScoresAreExtreme) {
  for_each_target([](const Config& config) {
    struct Extreme {
      float query, best_key, other_key, scale;
    };
    for (const auto& [query, best_key, other_key, scale] :
         {Extreme{65504, 65504, -65504, 1}, Extreme{65504, 65504, -65504, 3e38f}, Extreme{1, -1000, -2000, 1},
          Extreme{infinity, 1, -1, 1}, Extreme{2, infinity, 3, 1}, Extreme{2, 3, -infinity, 1}}) {
      std::vector<float> keys, values;
      for (int t = 0; t < 40; ++t) {
        keys.push_back(t % 5 == 0 ? best_key : other_key);
        values.push_back(t % 5 == 0 ? static_cast<float>(t) : 60000.0f);
      }
      for (const int64_t dim : widths)
        EXPECT_EQ(run_attentions({one_column(query, keys, values, scale, dim)}, config.target, false)[0][0], 17.5f)
            << "query " << query << ", dim " << dim;
    }
  });
}

TEST(AttentionKernel, WeighsAllKeysAlikeWhenEveryScoreIsMinusInfinity) {
  for_each_target([](const Config& config) {
    for (const size_t count : {3, 40})
      for (const int64_t dim : widths) {
        const std::vector<float> ones(count, 1), twos(count, 2);
        EXPECT_EQ(run_attentions({one_column(-infinity, ones, twos, 1, dim)}, config.target, false)[0][0], 2)
            << "dim " << dim;
      }
  });
}

/// Weights that differ by more than FP16 has bits for.
TEST(AttentionKernel, KeepsSmallWeights) {
  for_each_target([](const Config& config) {
    const float small = -20 * std::log(2.0f);  // a weight of 2^-20
    for (const int64_t dim : widths) {
      const AttentionCase c = one_column(1, {0, to_float(to_float16(small))}, {0, 32768}, 1, dim);
      const float y = run_attentions({c}, config.target, false)[0][0];
      EXPECT_NEAR(y, 32768 * std::exp(to_float(to_float16(small))), 0x1p-5 * 0x1p-10);
    }
  });
}

TEST(AttentionKernel, KeepsNaNInItsItemOrItsUser) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {8, 16}) {
      const AttentionCase c = with(2, dim, {5, 20}, {20, 9}).make();
      const auto half_width = static_cast<size_t>(dim), width = 2 * half_width;
      const std::vector<float> clean = run_attentions({c}, config.target)[0];
      const auto expect = [&](const AttentionCase& spoilt, const std::function<bool(size_t, size_t)>& is_spoilt) {
        const std::vector<float> values = run_attentions({spoilt}, config.target, false)[0];
        for (size_t i = 0; i < values.size(); ++i) {
          if (is_spoilt(i / width, i % width))
            EXPECT_FALSE(std::isfinite(values[i])) << i;
          else
            EXPECT_EQ(values[i], clean[i]) << i;
        }
      };
      AttentionCase in_q = c, in_k = c, in_v = c;
      in_q.q[1 * width + 3] = nan_value;
      expect(in_q, [&](size_t item, size_t column) { return item == 1 && column < half_width; });
      in_k.k[22 * width + half_width + 1] = nan_value;
      expect(in_k, [&](size_t item, size_t column) { return item >= 5 && column >= half_width; });
      for (const float value : {nan_value, infinity}) {
        in_v.v[22 * width + 9] = value;
        expect(in_v, [](size_t item, size_t column) { return item >= 5 && column == 9; });
      }
    }
  });
}

TEST(AttentionKernel, GivesAnEventTheSameBitsWhateverComesBehindIt) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {16, 32}) {
      const AttentionCase whole = self(2, dim, {150}, true).make();
      const std::vector<float> all = run_attentions({whole}, config.target)[0];
      for (const int64_t events : {1, 16, 37, 130}) {
        AttentionCase shorter = whole;
        shorter.items = shorter.events = {events};
        for (auto* values : {&shorter.q, &shorter.k, &shorter.v}) *values = rows(*values, whole.width(), 0, events);
        EXPECT_EQ(run_attentions({shorter}, config.target)[0], rows(all, whole.width(), 0, events)) << events;
      }
    }
  });
}

TEST(AttentionKernel, GivesNaNOnlyToEventsThatSeeIt) {
  for_each_target([](const Config& config) {
    for (const size_t dim : {8, 16, 64, 128}) {
      if (build == Build::race && dim > 16) continue;
      const AttentionCase c = self(2, static_cast<int64_t>(dim), {3, 90}, true).make();
      const std::vector<float> clean = run_attentions({c}, config.target)[0];
      for (const float value : {nan_value, infinity, -infinity})
        for (const size_t event : {3, 12, 50, 92}) {
          const size_t width = 2 * dim, column = dim + event % dim;  // of the second head
          AttentionCase in_k = c, in_v = c;
          in_k.k[event * width + 2] = value, in_v.v[event * width + column] = value;
          const std::vector<float> of_k = run_attentions({in_k}, config.target, false)[0],
                                   of_v = run_attentions({in_v}, config.target, false)[0];
          for (size_t i = 0; i < clean.size(); ++i) {
            const bool sees_it = i / width >= event;
            if (!sees_it || i % width >= dim) {
              EXPECT_EQ(of_k[i], clean[i]) << event << ", " << i;
            } else if (std::isnan(value)) {
              EXPECT_TRUE(std::isnan(of_k[i])) << event << ", " << i;
            } else {
              EXPECT_TRUE(std::isfinite(of_k[i])) << event << ", " << i;
            }
            if (sees_it && i % width == column)
              EXPECT_FALSE(std::isfinite(of_v[i])) << event << ", " << i;
            else
              EXPECT_EQ(of_v[i], clean[i]) << event << ", " << i;
          }
        }
    }
  });
}

TEST(AttentionKernel, MayBeBeyondTwoToTheThirtyOneElements) {
  if constexpr (build == Build::asan) GTEST_SKIP() << "so much memory has no shadow";
  for_each_target([](const Config& config) {
    for (const auto& [dim, causal] : {std::pair<int64_t, bool>{8, false}, std::pair<int64_t, bool>{16, false},
                                      std::pair<int64_t, bool>{16, true}}) {
      AttentionCase c = self(1, dim, {3, 1}, causal);
      c.weights = AttentionWeights::silu, c.has_own_keys = !causal;
      c.make();
      const int64_t stride = (int64_t{1} << 30) + 8;  // 6 GB in four rows, mostly untouched
      DeviceArray<warprank::float16> memory(3 * stride + 5 * dim);
      const auto place = [&, dim = dim](const std::vector<float>& values, int64_t column) {
        for (int64_t row = 0; row < 4; ++row) {
          std::vector<warprank::float16> narrow;
          for (const float value : rows(values, dim, row, 1)) narrow.push_back(to_float16(value));
          memory.write(narrow, row * stride + column);
        }
        return Matrix<const warprank::float16>(memory.data() + column, 4, dim, stride);
      };
      DeviceAttention rest(c);
      Attention view = rest.view();
      view.q = place(c.q, 0), view.k = place(c.k, dim), view.v = place(c.v, 2 * dim);
      if (!causal) view.own_k = place(c.own_k, 3 * dim), view.own_v = place(c.own_v, 4 * dim);
      view.y.rows = 4;
      DeviceAttentions launch({view}, config.target);
      launch.run();
      rest.expect_right(share_of_attention_bound);
    }
  });
}

// ---- Host, PyTorch

#if defined(WARPRANK_TEST_PLAIN)

using test_support::golden_tensor;

/// More than one kernel takes.
TEST(AttentionKernel, GivesTheSameBitsInALaunchOfMany) {
  for_each_target([](const Config& config) {
    std::vector<AttentionCase> cases;
    for (int64_t i = 0; i < 18; ++i) cases.push_back(with(1 + i % 2, 16, {3, i}, {20 + i, 5}).make());
    const std::vector<std::vector<float>> together = run_attentions(cases, config.target);
    for (const size_t i : {size_t{0}, size_t{15}, size_t{16}, size_t{17}})
      EXPECT_EQ(together[i], run_attentions({cases[i]}, config.target)[0]);
  });
}

TEST(AttentionKernel, AgreesWithTheHost) {
  for_each_target([](const Config& config) {
    for (const bool causal : {false, true}) {
      AttentionCase c = causal ? self(2, 12, {1, 0, 40, 17}, true) : with(2, 12, {1, 0, 40, 2}, {0, 5, 90, 17});
      c.make();
      const std::vector<int64_t> items = AttentionCase::offsets(c.items, 0),
                                 events = AttentionCase::offsets(c.events, 0);
      std::vector<float> workspace(static_cast<size_t>(host_ops::attention_workspace(12, 90))), y(c.q.size());
      host_ops::attention({c.q.data(), c.num_items(), 24}, {c.k.data(), c.num_events(), 24},
                          {c.v.data(), c.num_events(), 24}, {items.data(), 4}, {events.data(), 4},
                          {2, static_cast<float>(c.true_scale()), causal}, {y.data(), c.num_items(), 24}, workspace);
      Bounded expected = c.expected();
      expected.value.assign(y.begin(), y.end());
      DeviceAttention memory(c);
      DeviceAttentions launch({memory.view()}, config.target);
      launch.run();
      expect_within(expected, memory.values(), share_of_attention_bound);
    }
  });
}

/// Builder::target_attention: projections, attention, projection.
TEST(AttentionBlock, OfItemsOverAHistoryGivesWhatPyTorchGives) {
  for_each_target([](const Config& config) {
    const BlockWeights weights("target_attention");
    const BlockInput q("target_attention", "q", 6), k("target_attention", "k", 6),
        other("target_attention", "other_k", 5);
    const Sizes items = golden_tensor<float>("target_attention", "dense/q").rows,
                events = golden_tensor<float>("target_attention", "dense/k").rows;
    for (const auto& [name, heads] :
         {std::pair<std::string, int64_t>{"one_head", 1}, {"two_heads", 2}, {"no_bias", 3}, {"widths", 2}}) {
      SCOPED_TRACE(name);
      const BlockInput& history = name == "widths" ? other : k;
      const BlockLayer of_q = weights.layer(name + ".q"), of_k = weights.layer(name + ".k"),
                       of_v = weights.layer(name + ".v"), out = weights.layer(name + ".out");
      AttentionCase c;
      c.items = items, c.events = events, c.heads = heads, c.dim = of_q.out / heads, c.more = 0;
      DeviceAttention offsets(c.make());
      Attention attention = offsets.view();
      const int64_t inner = of_q.out;
      DeviceMatrix<warprank::float16> queries(c.num_items(), inner), keys_and_values(c.num_events(), 2 * inner);
      DeviceMatrix<float> y(c.num_items(), out.out);
      attention.q = queries.view(), attention.y = queries.view();
      const Matrix<warprank::float16> keys = keys_and_values.view().columns(0, inner),
                                      values = keys_and_values.view().columns(inner, inner);
      attention.k = keys, attention.v = values;

      clear_counters();
      run_layers({of_q.on(q.view(), queries.view()), of_k.on(history.view(), keys), of_v.on(history.view(), values)},
                 config.target);
      DeviceAttentions launch({attention}, config.target);
      launch.run();
      synchronize();
      run_layers({out.on(queries.view(), y.view())}, config.target);
      EXPECT_EQ(counters().launches, 3);

      const UncertainRows attended = exact_attention(of_q.exact(q.exact).narrow(), of_k.exact(history.exact).narrow(),
                                                     of_v.exact(history.exact).narrow(), items, events, heads, false);
      expect_golden(golden_tensor<double>("target_attention", "output/" + name).values,
                    out.exact(UncertainRows(attended).narrow()), y.read());
    }
  });
}

/// Builder::self_attention: projections, attention, residual, layer norm, feed-forward.
TEST(AttentionBlock, OfAHistoryOverItselfGivesWhatPyTorchGives) {
  struct Golden {
    std::string name;
    int64_t heads;
    Activation activation;
    bool norm_first, causal;
  };
  for_each_target([](const Config& config) {
    const BlockWeights weights("self_attention");
    const BlockInput x("self_attention", "x", 6);
    const Sizes events = golden_tensor<int64_t>("self_attention", "lengths/event").values;
    for (const Golden& golden :
         {Golden{"post_norm", 1, relu, false, false}, Golden{"pre_norm", 2, gelu, true, false},
          Golden{"causal", 2, relu, false, true}, Golden{"causal_pre_norm", 3, gelu, true, true}}) {
      SCOPED_TRACE(golden.name);
      const BlockLayer q = weights.layer(golden.name + ".q"), k = weights.layer(golden.name + ".k"),
                       v = weights.layer(golden.name + ".v"), out = weights.layer(golden.name + ".out"),
                       ffn0 = weights.layer(golden.name + ".ffn.0", golden.activation),
                       ffn1 = weights.layer(golden.name + ".ffn.1");
      const BlockNorm norm1 = weights.norm(golden.name + ".norm1"), norm2 = weights.norm(golden.name + ".norm2");
      AttentionCase c = self(golden.heads, 6 / golden.heads, events, golden.causal);
      c.more = 0;
      const int64_t n = c.make().num_items();
      ASSERT_EQ(n, x.exact.rows());
      DeviceAttention offsets(c);
      DeviceMatrix<warprank::float16> qkv(n, 18), normed(n, 6), middle(n, 6), hidden(n, ffn0.out), last(n, 6);
      DeviceMatrix<float> y(n, 6);
      const auto columns = [&](int64_t i) { return qkv.view().columns(i * 6, 6); };
      Attention attention = offsets.view();
      attention.q = columns(0), attention.k = columns(1), attention.v = columns(2), attention.y = columns(0);

      clear_counters();
      if (golden.norm_first) norm1.run(x.view(), normed.view());
      const Matrix<const warprank::float16> in = golden.norm_first ? normed.view() : x.view();
      run_layers({q.on(in, columns(0)), k.on(in, columns(1)), v.on(in, columns(2))}, config.target);
      DeviceAttentions launch({attention}, config.target);
      launch.run();
      synchronize();
      LinearLayer projected = out.on(columns(0), middle.view());
      projected.residual = x.view();
      run_layers({projected}, config.target);
      (golden.norm_first ? norm2 : norm1).run(middle.view(), normed.view());
      run_layers({ffn0.on(normed.view(), hidden.view())}, config.target);
      LinearLayer end = golden.norm_first ? ffn1.on(hidden.view(), y.view()) : ffn1.on(hidden.view(), last.view());
      end.residual = golden.norm_first ? Matrix<const warprank::float16>(middle.view()) : normed.view();
      run_layers({end}, config.target);
      if (!golden.norm_first) norm2.run(last.view(), y.view());
      EXPECT_EQ(counters().launches, 7);

      const UncertainRows input = golden.norm_first ? norm1.exact(x.exact).narrow() : x.exact;
      const UncertainRows attended =
          exact_attention(q.exact(input).narrow(), k.exact(input).narrow(), v.exact(input).narrow(), events, events,
                          golden.heads, golden.causal);
      const UncertainRows between = out.exact(UncertainRows(attended).narrow(), &x.exact).narrow();
      const UncertainRows fed = (golden.norm_first ? norm2 : norm1).exact(between).narrow();
      UncertainRows result = ffn1.exact(ffn0.exact(fed).narrow(), golden.norm_first ? &between : &fed);
      if (!golden.norm_first) result = norm2.exact(result.narrow());
      expect_golden(golden_tensor<double>("self_attention", "output/" + golden.name).values, result, y.read());
    }
  });
}

#endif

// ---- Refusals

TEST(AttentionLaunch, RefusesWhatDoesNotFitTogether) {
  for_each_target(
      [](const Config& config) {
        const AttentionCase c = with(2, 4, {3}, {4}).make(), itself = self(2, 4, {4}, true).make();
        DeviceAttention memory(c), second(c), of_self(itself);
        const auto message = [&](const std::function<void(Attention&)>& change,
                                 DeviceAttention& changed) -> std::string {
          Attention view = changed.view();
          change(view);
          try {
            AttentionLaunch launch(std::vector<Attention>{second.view(), view}, config.target);
          } catch (const invalid_argument& error) {
            return error.what();
          }
          return "accepted";
        };
        const auto expect = [&](const char* part, const std::function<void(Attention&)>& change) {
          EXPECT_THAT(message(change, memory), testing::HasSubstr(part));
        };
        expect("accepted", [](Attention&) {});
        expect("attention 1's heads: expected 1 or more, got 0", [](Attention& a) { a.heads = 0; });
        expect("columns: expected 1 to 256 for each of its heads, got 8 columns, 3 heads",
               [](Attention& a) { a.heads = 3; });
        expect("columns: expected 1 to 256", [](Attention& a) { a.q.cols = 0; });
        expect("columns: expected 1 to 256", [](Attention& a) { a.q.cols = 514; });
        expect("attention 1's k: expected [6, 8], got [6, 9]", [](Attention& a) { a.k.cols = 9; });
        expect("attention 1's v: expected [6, 8], got [5, 8]", [](Attention& a) { a.v.rows = 5; });
        expect("attention 1's y: expected [5, 8], got [4, 8]", [](Attention& a) { a.y.rows = 4; });
        expect("F16 or F32", [](Attention& a) { a.y.type = DType::i8; });
        expect("stride", [](Attention& a) { a.v.stride = 7; });
        expect("attention 1's q", [](Attention& a) { a.q.data = nullptr; });
        expect("parents: expected 0 or more", [](Attention& a) { a.parents.capacity = -1; });
        expect("item offsets", [](Attention& a) { a.item_offsets = nullptr; });
        expect("history offsets", [](Attention& a) { a.history_offsets = nullptr; });
        expect("scale: expected a number", [](Attention& a) { a.scale = infinity; });
        expect("attention 1's events: expected at most 2147483647",
               [](Attention& a) { a.k.rows = a.v.rows = int64_t{1} << 31; });
        expect("attention 1: expected items that are the events, as it is causal, got another axis",
               [](Attention& a) { a.causal = true; });
        expect("overlap with y of attention 1", [&](Attention& a) { a.y = second.view().y; });
        const auto over = [](const Matrix<const warprank::float16>& m, int64_t num_rows) {
          return Matrix<warprank::float16>(const_cast<warprank::float16*>(m.data), num_rows, 8, m.stride);
        };
        expect("accepted", [&](Attention& a) { a.y = over(a.q, 5); });
        expect("y of attention 1: expected memory of its own, got an overlap with q of attention 1", [&](Attention& a) {
          a.y = Matrix<warprank::float16>(const_cast<warprank::float16*>(a.q.data + 4), 5, 8, 16);
        });
        expect("overlap with k of attention 1", [&](Attention& a) { a.y = over(a.k, 5); });
        expect("overlap with v of attention 1", [&](Attention& a) { a.y = over(a.v, 5); });
        expect("overlap with q of attention 0", [&](Attention& a) { a.y = over(second.view().q, 5); });
        EXPECT_EQ(message([](Attention&) {}, of_self), "accepted");
        EXPECT_THAT(message([](Attention& a) { a.q.rows = a.y.rows = 5; }, of_self), testing::HasSubstr("causal"));
        EXPECT_THROW(AttentionLaunch(std::vector<Attention>{memory.view()}, 70), invalid_argument);
      },
      {75});
}

TEST(AttentionPartition, FitsForEveryWidthAndTarget) {
  namespace attention = warprank::detail::attention;
  for (const int target : {75, 80, 86, 89, 90}) {
    if (!has_shared_memory_of(target)) continue;
    for (const int dim : {16, 32, 48, 64, 80, 128, 192, 256})
      for (const bool wide : {false, true}) {
        if (!wide && dim > attention::narrow_columns) continue;
        const attention::Policy policy = wide ? (target >= 80 ? attention::policy<80, 256> : attention::policy<75, 256>)
                                              : (target >= 80 ? attention::policy<80, 64> : attention::policy<75, 64>);
        const attention::Partition p = attention::choose_partition(dim, target, policy);
        EXPECT_LE(p.bytes, warprank::device::shared_limit(target, 1));
        EXPECT_GE(p.chunk, policy.step);
        EXPECT_EQ(p.chunk % policy.step, 0);
      }
  }
}

// ---- What the executor counts

/// One user, heads of a multiple of 16 columns in rows of whole sectors.
struct LeastWork {
  int64_t mma = 0, key_sectors = 0, load_sectors = 0, store_sectors = 0, unit_items = 0;
  double products = 0;  ///< mma of the products that a row needs, undivided into tiles
};

/// The same where a block has 16 items and its warps divide the events.
LeastWork least_split_work(const AttentionCase& c, int target, LeastWork least) {
  const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  constexpr int64_t sector = 32, of_warp = 64 / 16 + 3;  // addresses by 16 bytes, and counts
  const int64_t items = c.items[0], warps = c.dim == 128 && target < 80 ? 4 : 8;
  const int64_t row_sectors = c.dim * 2 / sector;  // of a head
  const int64_t units = ceil_div(items, 16);
  least.unit_items = 16;
  // Rows of keys are requested eight at a time, those of values four; the last event stands for what is behind it.
  // Lanes request 16 bytes at once: of 128 columns both halves of each sector of the values.
  int64_t all_steps = 0, key_rows = 0, value_rows = 0;
  int64_t query_rows = 0;  // of each warp that has events
  for (int64_t first = 0; first < items; first += 16) {
    const int64_t rest = items - first, events = c.causal ? std::min(first + 16, items) : c.events[0];
    const int64_t steps = ceil_div(events, 16);
    all_steps += steps;
    const auto rows_from = [&](int64_t event, std::initializer_list<int64_t> places) {
      std::set<int64_t> different;
      for (const int64_t place : places) different.insert(std::min(event + place, events - 1));
      return static_cast<int64_t>(different.size());
    };
    for (int64_t event = 0; event < events; event += 16) {
      for (const int64_t tile : {0, 8}) key_rows += rows_from(event + tile, {0, 1, 2, 3, 4, 5, 6, 7});
      for (const int64_t i : {0, 1, 8, 9}) value_rows += rows_from(event + i, {0, 2, 4, 6});
    }
    const int64_t rows = std::min<int64_t>(rest, 8) + std::clamp<int64_t>(rest - 8, 1, 8);  // the last where none is
    query_rows += rows * std::min(steps, warps);
  }
  // Scores of two tiles, the sum of the weights, values.
  least.mma = c.heads * all_steps * (2 * c.dim / 16 + 1 + c.dim / 8) * (target < 80 ? 2 : 1);
  least.key_sectors = c.heads * (key_rows + value_rows * (c.dim == 128 ? 2 : 1)) * row_sectors;
  least.load_sectors = least.key_sectors + c.heads * (query_rows * row_sectors + units * warps * of_warp);
  // Lanes store four columns at once at most, half of a sector, and another lane or another time the other half.
  least.store_sectors = 2 * items * c.width() * 4 / sector;
  return least;
}

LeastWork least_work(const AttentionCase& c, const AttentionLaunch& launch, int target) {
  const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  constexpr int64_t sector = 32;
  const int64_t items = c.items[0], events = c.events[0], depth = target >= 80 ? 16 : 8;
  LeastWork least;
  for (int64_t first = 0; first < items; first += 16) {
    const int64_t keys = c.causal ? std::min(first + 16, items) : events;
    least.mma += c.heads * (ceil_div(keys, 8) * ceil_div(c.dim, depth) + ceil_div(c.dim, 8) * ceil_div(keys, depth));
  }
  const double pairs = c.causal ? static_cast<double>(items * (items + 1)) / 2 : static_cast<double>(items * events);
  least.products = 2 * pairs * static_cast<double>(c.width()) / static_cast<double>(16 * 8 * depth);
  if (launch.is_split()) return least_split_work(c, target, least);
  const int64_t blocks = launch.num_blocks() / c.heads;
  least.unit_items = std::min<int64_t>(64, ceil_div(ceil_div(items, blocks), 16) * 16);
  for (int64_t first = 0; first < items; first += least.unit_items) {
    const int64_t keys = c.causal ? std::min(first + least.unit_items, items) : events;
    least.key_sectors += keys * c.width() * 2 * 2 / sector;
    least.load_sectors += c.heads * 3;  // offsets, read by one thread
  }
  const int64_t descriptor = static_cast<int64_t>(sizeof(warprank::detail::attention::Descriptor));
  least.load_sectors += least.key_sectors + items * c.width() * 2 / sector;
  least.load_sectors += launch.num_blocks() * (ceil_div(descriptor, sector) + 2);
  least.store_sectors = items * c.width() * 4 / sector;
  return least;
}

TEST(AttentionCounts, ReadsKeysAndValuesOncePerUnit) {
  if (build != Build::plain) return;
  CountTable table({"target", "L", "heads x D", "N", "mma", "/ undivided", "bytes read", "of k and v",
                    "for units of items", "bytes written", "keys on chip"});
  for_each_target([&](const Config& config) {
    std::vector<AttentionCase> cases;
    for (const int64_t items : {1, 100, 500}) {
      cases.push_back(with(2, 16, {items}, {50}));
      cases.push_back(with(4, 16, {items}, {100}));
      cases.push_back(with(1, 64, {items}, {100}));
      cases.push_back(with(1, 128, {items}, {200}));
    }
    for (const int64_t events : {100, 1000})
      for (const bool causal : {false, true}) cases.push_back(self(4, 16, {events}, causal));
    cases.push_back(self(1, 16, {100}, true));  // on one multiprocessor: large units
    for (AttentionCase& c : cases) {
      c.more = 0, c.make();
      if (!all_counts() && c.num_items() * c.num_events() > 10000) continue;
      SCOPED_TRACE(std::to_string(c.events[0]) + " x " + std::to_string(c.width()) + ", " + std::to_string(c.items[0]) +
                   " items" + (c.causal ? ", causal" : ""));
      Config counting = config;
      counting.count_sectors = true;
      counting.multiprocessors = c.is_self && c.heads == 1 ? 1 : config.target == 75 ? 40 : 108;
      reset(counting);
      DeviceAttention memory(c);
      // Rows of whole sectors.
      std::vector<std::unique_ptr<DeviceMatrix<warprank::float16>>> inputs;
      const auto place = [&](const std::vector<float>& values) {
        std::vector<warprank::float16> narrow;
        for (const float value : values) narrow.push_back(to_float16(value));
        const int64_t num_rows = static_cast<int64_t>(values.size()) / c.width();
        inputs.push_back(std::make_unique<DeviceMatrix<warprank::float16>>(narrow, num_rows, c.width()));
        return inputs.back()->view();
      };
      DeviceMatrix<float> y(c.num_items(), c.width());
      Attention view = memory.view();
      view.q = place(c.q), view.k = place(c.k), view.v = place(c.v), view.y = y.view();
      DeviceAttentions launch({view}, config.target);
      clear_counters();
      launch.run();
      synchronize();
      const LeastWork least = least_work(c, launch.launch(), config.target);
      const Counters& counts = counters();
      EXPECT_EQ(counts.mma, least.mma);
      EXPECT_EQ(counts.global_load_sectors, least.load_sectors);
      EXPECT_EQ(counts.global_store_sectors, least.store_sectors);
      EXPECT_EQ(counts.launches, 1);
      table.add(config.target, c.events[0], std::to_string(c.heads) + " x " + std::to_string(c.dim),
                std::to_string(c.items[0]) + (c.causal    ? " causal"
                                              : c.is_self ? " self"
                                                          : ""),
                counts.mma, over(counts.mma, least.products), counts.global_load_sectors * 32, least.key_sectors * 32,
                least.unit_items, counts.global_store_sectors * 32,
                launch.launch().is_split() ? 0 : launch.launch().chunk_events(0));
    }
  });
}

#if defined(WARPRANK_TEST_PLAIN)
TEST(AttentionCounts, OfTheLongestWarp) {
  CountTable table(longest_warp_columns({"L", "heads x D", "N"}));
  // Of few items: on as many multiprocessors, blocks have no more.
  for (const auto& [heads, dim, events] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 64, 200}, {2, 32, 200}, {1, 64, 1000}}) {
    AttentionCase c = with(heads, dim, {16}, {events});
    c.make();
    add_longest_warp(
        table,
        [&](const Config& config) {
          reset(config);
          DeviceAttention memory(c);
          DeviceAttentions launch({memory.view()}, config.target);
          launch.run();
          synchronize();
        },
        events, std::to_string(heads) + " x " + std::to_string(dim), 16);
  }
}
#endif

}  // namespace
