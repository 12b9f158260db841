// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/host/attention_bias.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "guarded.hpp"
#include "reference/attention.hpp"
#include "support/host_op_testing.hpp"
#include "warprank/ops/host/attention.hpp"

namespace warprank { namespace {

using namespace test_support;

/// Numbers and times of an attention with biases.
struct BiasedCase {
  std::vector<int64_t> queries = {3, 0, 9, 4}, keys = {5, 20, 90, 0};
  int64_t dim = 6;
  host_ops::AttentionOptions options{2, 0.4f, false, host_ops::Precision::fp32, AttentionWeights::silu, 20};
  bool has_own = false, by_head = false;
  int64_t positions = 12, buckets = 9;  ///< 0: there is no such bias
  float scale_of_times = 400;

  int64_t width() const { return dim * options.heads; }
  int64_t tables() const { return by_head ? options.heads : 1; }
  OwnedSegments query_segments() const { return OwnedSegments(options.causal ? keys : queries); }
  OwnedSegments key_segments() const { return OwnedSegments(keys); }
};

std::vector<float> normal_numbers(uint32_t seed, int64_t count) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

class BiasedAttention {
 public:
  explicit BiasedAttention(const BiasedCase& c)
      : case_(c),
        queries_(c.query_segments()),
        keys_(c.key_segments()),
        q_(num_queries(), c.width()),
        k_(num_keys(), c.width()),
        v_(num_keys(), c.width()),
        own_k_(num_queries(), c.width()),
        own_v_(num_queries(), c.width()),
        query_times_(num_queries(), 1),
        key_times_(num_keys(), 1),
        tables_(normal_numbers(7, c.tables() * c.positions),
                c.buckets > 0 ? normal_numbers(8, c.tables() * (c.buckets + 1)) : std::vector<float>(), c.tables(),
                width_of_buckets) {
    q_.fill(1), k_.fill(2), v_.fill(3), own_k_.fill(4), own_v_.fill(5);
    query_times_.fill(9, c.scale_of_times), key_times_.fill(10, c.scale_of_times);
  }

  /// The columns of the heads from the first on.
  AwkwardMatrix run(int64_t first_head = 0) const {
    host_ops::AttentionOptions options = case_.options;
    options.heads -= first_head;
    const int64_t columns = options.heads * case_.dim;
    const auto ours = [&](const AwkwardMatrix& m) { return m.view().columns(first_head * case_.dim, columns); };
    const int64_t longest = *std::max_element(case_.keys.begin(), case_.keys.end());
    const int64_t size = host_ops::attention_workspace(case_.dim, longest, options.precision);
    const test::GuardedMatrix workspace(1, size);
    AwkwardMatrix y(num_queries(), columns);
    const host_ops::OwnKeys own = case_.has_own ? host_ops::OwnKeys{ours(own_k_), ours(own_v_)} : host_ops::OwnKeys{};
    host_ops::attention(ours(q_), ours(k_), ours(v_), queries_.view(), keys_.view(), options, y.view(),
                        {workspace.view().data, size}, own,
                        {&tables_, first_head, query_times_.view(), key_times_.view()});
    y.expect_guards_untouched();
    return y;
  }

  void expect_right() const {
    const host_ops::AttentionOptions& options = case_.options;
    reference::AttentionSettings settings{options.heads, options.scale, options.causal, options.weights,
                                          options.divisor};
    if (case_.has_own) settings.own_k = own_k_.view(), settings.own_v = own_v_.view();
    settings.window = options.window, settings.full_last = options.full_last;
    std::vector<float> query_times, key_times;
    for (int64_t r = 0; r < num_queries(); ++r) query_times.push_back(query_times_.view().row(r)[0]);
    for (int64_t r = 0; r < num_keys(); ++r) key_times.push_back(key_times_.view().row(r)[0]);
    settings.bias.tables = case_.tables();
    settings.bias.num_positions = case_.positions, settings.bias.num_buckets = case_.buckets;
    if (case_.positions > 0) settings.bias.positions = tables_.positions.data();
    if (case_.buckets > 0) settings.bias.times = tables_.times.data();
    settings.bias.bucket_width = width_of_buckets;
    settings.bias.query_times = query_times.data(), settings.bias.key_times = key_times.data();
    expect_within(reference::attention(q_.view(), k_.view(), v_.view(), queries_.view(), keys_.view(), settings),
                  run().view(), 0.25);
  }

  AwkwardMatrix& query_times() { return query_times_; }
  AwkwardMatrix& key_times() { return key_times_; }

  static constexpr float width_of_buckets = 0.301f;

 private:
  int64_t num_queries() const { return queries_.view().rows(); }
  int64_t num_keys() const { return keys_.view().rows(); }

  BiasedCase case_;
  OwnedSegments queries_, keys_;
  AwkwardMatrix q_, k_, v_, own_k_, own_v_, query_times_, key_times_;
  host_ops::AttentionBiasTables tables_;
};

TEST(HostAttentionBias, MatchesTheFormulaByPositionByTimeAndByBoth) {
  for_each_target([] {
    for (const int64_t positions : {0, 1, 7, 200})
      for (const int64_t buckets : {0, 1, 9, 128})
        for (const bool by_head : {false, true})
          for (const bool causal : {false, true}) {
            if (positions == 0 && buckets == 0) continue;
            SCOPED_TRACE(testing::Message() << positions << " positions, " << buckets << " buckets, "
                                            << (by_head ? "by head, " : "") << (causal ? "causal" : ""));
            BiasedCase c;
            c.positions = positions, c.buckets = buckets, c.by_head = by_head, c.options.causal = causal;
            c.has_own = !causal;
            BiasedAttention(c).expect_right();
          }
  });
}

TEST(HostAttentionBias, MatchesTheFormulaInAWindowAndForEveryTime) {
  for_each_target([] {
    for (const int64_t window : {1, 6, 40})
      for (const int64_t full_last : {0, 5})
        for (const bool causal : {false, true})
          for (const float scale : {0.0f, 3.0f, 1e5f, 1e30f}) {
            BiasedCase c;
            c.options.window = window, c.options.full_last = full_last, c.options.causal = causal;
            c.scale_of_times = scale, c.buckets = 300;
            BiasedAttention(c).expect_right();
          }
  });
}

/// Ends of buckets are what an approximate logarithm would get wrong.
TEST(HostAttentionBias, HasTheBucketsOfTheFormulaAtTheirEnds) {
  for_each_target([] {
    const std::vector<float> limits = time_bucket_limits(60, BiasedAttention::width_of_buckets);
    BiasedCase c;
    c.queries = {1}, c.keys = {180}, c.positions = 0, c.buckets = 60;
    BiasedAttention attention(c);
    attention.query_times().at(0, 0) = 0;
    for (int64_t b = 0; b < 60; ++b) {
      const float limit = limits[static_cast<size_t>(b)];
      attention.key_times().at(3 * b, 0) = std::nextafter(limit, 0.0f);
      attention.key_times().at(3 * b + 1, 0) = -limit;
      attention.key_times().at(3 * b + 2, 0) = std::nextafter(limit, INFINITY);
    }
    attention.expect_right();
  });
}

TEST(HostAttentionBias, TakesATimeThatIsNoNumberForNoDifference) {
  for_each_target([] {
    BiasedCase c;
    c.queries = {2}, c.keys = {3};
    BiasedAttention attention(c);
    for (int64_t t = 0; t < 3; ++t) attention.key_times().at(t, 0) = attention.query_times().at(1, 0);
    attention.query_times().at(0, 0) = attention.query_times().at(1, 0);
    const AwkwardMatrix same = attention.run();
    attention.query_times().at(0, 0) = std::nanf("");
    expect_same_bits(same.view(), attention.run().view());
    attention.query_times().at(0, 0) = INFINITY;  // in the last bucket
    const AwkwardMatrix far = attention.run();
    EXPECT_NE(same.view().row(0)[0], far.view().row(0)[0]);
    attention.query_times().at(0, 0) = -1e30f;
    expect_same_bits(far.view(), attention.run().view());
  });
}

TEST(HostAttentionBias, GivesTheHeadsOfAPartTheirOwnBiases) {
  for_each_target([] {
    BiasedCase c;
    c.options.heads = 3, c.by_head = true;
    c.has_own = true;
    const BiasedAttention attention(c);
    const AwkwardMatrix all = attention.run();
    for (const int64_t first : {1, 2})
      expect_same_bits(all.view().columns(first * c.dim, (3 - first) * c.dim), attention.run(first).view());
  });
}

}}  // namespace warprank
