// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Random attentions for tests of the kernel: for the oracle, and in a device's memory.

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "reference/attention.hpp"
#include "support/capacity_matrix.hpp"
#include "support/kernel_testing.hpp"
#include "support/message_of.hpp"
#include "warprank/ops/attention.cuh"

namespace kernel_testing {

using warprank::reference::Bounded;
using Sizes = std::vector<int64_t>;

/// Sizes are of the users: how many items and events each has.
struct AttentionCase {
  Sizes items = {3}, events = {11};
  int64_t dim = 16, heads = 1;
  bool is_self = false;  ///< items are the events
  bool causal = false;
  float scale = 0;
  warprank::AttentionWeights weights = warprank::AttentionWeights::softmax;
  float divisor = 1;
  bool has_own_keys = false;
  int64_t window = 0, full_last = 0;
  warprank::AttentionBiasShape bias{1, 0, 0};  ///< without positions and buckets: none
  float of_times = 400;                        ///< magnitude of times
  float of_values = 1;                         ///< magnitude of q, k and v
  bool is_aligned = true, half_y = false;
  int64_t more = 2;                 ///< parents and rows of the capacity
  std::vector<float> q, k, v;       ///< [items, heads * dim], [events, heads * dim]; FP16 numbers
  std::vector<float> own_k, own_v;  ///< [items, heads * dim] with own keys, else none
  std::vector<float> by_position, by_time, item_times, event_times;  ///< of a bias

  /// Fills in what is random.
  AttentionCase& make(uint32_t seed = 1) {
    if (is_self) events = items;
    std::mt19937 engine(static_cast<uint32_t>(dim * 1009 + heads * 31) + seed);
    q = rounded(random_values(engine, num_items() * width(), of_values));
    k = rounded(random_values(engine, num_events() * width(), of_values));
    v = rounded(random_values(engine, num_events() * width(), of_values));
    own_k = rounded(random_values(engine, num_own() * width(), of_values));
    own_v = rounded(random_values(engine, num_own() * width(), of_values));
    if (!has_bias()) return *this;
    by_position = random_values(engine, bias.tables * bias.positions, 1);
    by_time = random_values(engine, bias.tables * bias.cells_of_table(), 1);
    item_times = random_values(engine, num_items(), of_times);
    event_times = random_values(engine, num_events(), of_times);
    return *this;
  }

  bool has_bias() const { return bias.positions > 0 || bias.has_time(); }
  int64_t width() const { return heads * dim; }
  int64_t num_items() const { return std::accumulate(items.begin(), items.end(), int64_t{0}); }
  int64_t num_events() const { return std::accumulate(events.begin(), events.end(), int64_t{0}); }
  int64_t num_times(int64_t rows) const { return has_bias() ? rows : 0; }
  int64_t num_own() const { return has_own_keys ? num_items() : 0; }
  int64_t num_users() const { return static_cast<int64_t>(items.size()); }
  double true_scale() const { return scale == 0 ? 1 / std::sqrt(static_cast<double>(dim)) : scale; }

  /// What lies behind the true count must not be read.
  static std::vector<int64_t> offsets(const Sizes& sizes, int64_t more) {
    std::vector<int64_t> all = {0};
    for (const int64_t size : sizes) all.push_back(all.back() + size);
    all.resize(all.size() + static_cast<size_t>(more), int64_t{1} << 60);
    return all;
  }

  /// With the bound that ops/attention.cuh states, in units of 2^-24.
  Bounded expected() const {
    const std::vector<int64_t> of_items = offsets(items, 0), of_events = offsets(events, 0);
    const warprank::Segments queries{of_items.data(), num_users()}, keys{of_events.data(), num_users()};
    warprank::reference::AttentionSettings settings{heads, true_scale(), causal, weights, divisor};
    settings.window = window, settings.full_last = full_last;
    if (has_own_keys) {
      settings.own_k = {own_k.data(), num_items(), width()};
      settings.own_v = {own_v.data(), num_items(), width()};
    }
    if (bias.positions > 0) settings.bias.positions = by_position.data();
    if (bias.has_time()) settings.bias.times = by_time.data();
    settings.bias.tables = bias.tables, settings.bias.num_positions = bias.positions;
    settings.bias.num_buckets = bias.time_buckets, settings.bias.bucket_width = bias.time_bucket_width;
    settings.bias.query_times = item_times.data(), settings.bias.key_times = event_times.data();
    return warprank::reference::attention_in_fp16({q.data(), num_items(), width()}, {k.data(), num_events(), width()},
                                                  {v.data(), num_events(), width()}, queries, keys, settings);
  }
};

inline AttentionCase with(int64_t heads, int64_t dim, Sizes items, Sizes events) {
  AttentionCase c;
  c.heads = heads, c.dim = dim, c.items = std::move(items), c.events = std::move(events);
  return c;
}
inline AttentionCase self(int64_t heads, int64_t dim, Sizes events, bool causal) {
  AttentionCase c = with(heads, dim, std::move(events), {});
  c.is_self = true, c.causal = causal;
  return c;
}

inline std::vector<float> joined(const std::vector<std::vector<float>>& lists) {
  std::vector<float> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

/// Rows [begin, begin + count) of values of this width.
inline std::vector<float> rows(const std::vector<float>& values, int64_t width, int64_t begin, int64_t count) {
  return {values.begin() + begin * width, values.begin() + (begin + count) * width};
}

/// A case's arrays in the device's memory.
class DeviceAttention {
 public:
  explicit DeviceAttention(const AttentionCase& c)
      : case_(c),
        num_parents_(std::vector<int64_t>{c.num_users()}),
        item_offsets_(AttentionCase::offsets(c.items, c.more)),
        history_offsets_(AttentionCase::offsets(c.events, c.more)),
        q_(c.num_items(), c.width(), c.num_items() + c.more, c.is_aligned, c.q),
        k_(c.num_events(), c.width(), c.num_events() + c.more, c.is_aligned, c.k),
        v_(c.num_events(), c.width(), c.num_events() + c.more, c.is_aligned, c.v),
        own_k_(c.num_own(), c.width(), c.num_own() + c.more, c.is_aligned, c.own_k),
        own_v_(c.num_own(), c.width(), c.num_own() + c.more, c.is_aligned, c.own_v),
        half_y_(c.num_items(), c.width(), c.num_items() + c.more, c.is_aligned),
        bias_(c.has_bias() ? warprank::pack_attention_bias(c.bias, c.by_position, c.by_time) : std::vector<float>()),
        item_times_(c.num_times(c.num_items()), 1, c.num_times(c.num_items() + c.more), c.is_aligned, c.item_times),
        event_times_(c.num_times(c.num_events()), 1, c.num_times(c.num_events() + c.more), c.is_aligned, c.event_times),
        float_y_(c.num_items(), c.width(), c.num_items() + c.more, c.is_aligned) {}

  warprank::Attention view() {
    warprank::Attention to;
    to.q = q_.view(), to.k = k_.view(), to.v = v_.view();
    if (case_.half_y)
      to.y = half_y_.view();
    else
      to.y = float_y_.view();
    to.item_offsets = item_offsets_.data();
    to.history_offsets = case_.is_self ? item_offsets_.data() : history_offsets_.data();
    to.parents = {case_.num_users() + case_.more, num_parents_.data()};
    to.heads = case_.heads, to.scale = case_.scale, to.causal = case_.causal;
    to.weights = case_.weights, to.divisor = case_.divisor;
    to.window = case_.window, to.full_last = case_.full_last;
    if (case_.has_bias()) {
      to.bias = bias_.data(), to.bias_shape = case_.bias;
      to.item_times = item_times_.view(), to.event_times = event_times_.view();
    }
    if (case_.has_own_keys) to.own_k = own_k_.view(), to.own_v = own_v_.view();
    return to;
  }

  std::vector<float> values() const {
    if (!case_.half_y) return float_y_.values();
    std::vector<float> values;
    for (const float16 value : half_y_.values()) values.push_back(warprank::to_float(value));
    return values;
  }
  void expect_right(double share_of_bound) const {
    if (case_.half_y)
      expect_within(case_.expected(), half_y_.values(), share_of_bound);
    else
      expect_within(case_.expected(), float_y_.values(), share_of_bound);
  }

  DeviceArray<int64_t>& num_parents() { return num_parents_; }
  DeviceArray<int64_t>& history_offsets() { return history_offsets_; }

 private:
  const AttentionCase& case_;
  DeviceArray<int64_t> num_parents_, item_offsets_, history_offsets_;
  CapacityMatrix<float16> q_, k_, v_, own_k_, own_v_, half_y_;
  DeviceArray<float> bias_;
  CapacityMatrix<float> item_times_, event_times_, float_y_;
};

/// Why a launch of the case that is changed is refused, or "".
inline std::string refusal_of(AttentionCase c, const std::function<void(warprank::Attention&)>& change) {
  DeviceAttention memory(c.make());
  warprank::Attention view = memory.view();
  change(view);
  return warprank::test_support::message_of([&] {
    warprank::AttentionLaunch({&view, 1}, on_gpu ? warprank::device::target() : 75);
  });
}

/// A prepared launch with its memory.
class DeviceAttentions {
 public:
  DeviceAttentions(const std::vector<warprank::Attention>& attentions, int target)
      : launch_(attentions, target), descriptors_(launch_.descriptors()) {}
  void run(Stream stream = {}) { launch_.launch({descriptors_.data()}, stream); }
  const warprank::AttentionLaunch& launch() const { return launch_; }
  DeviceArray<unsigned char>& descriptors() { return descriptors_; }

 private:
  warprank::AttentionLaunch launch_;
  DeviceArray<unsigned char> descriptors_;
};

/// Of what rounding errors could add up to if all had one sign.
inline constexpr double share_of_attention_bound = 0.5;

/// Runs the cases in one launch and gives their outputs.
inline std::vector<std::vector<float>> run_attentions(const std::vector<AttentionCase>& cases, int target,
                                                      bool check = true) {
  std::vector<std::unique_ptr<DeviceAttention>> memory;
  std::vector<warprank::Attention> views;
  for (const AttentionCase& c : cases) {
    memory.push_back(std::make_unique<DeviceAttention>(c));
    views.push_back(memory.back()->view());
  }
  DeviceAttentions launch(views, target);
  launch.run();
  std::vector<std::vector<float>> outputs;
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("attention " + std::to_string(i) + ": " + std::to_string(cases[i].heads) + " heads of " +
                 std::to_string(cases[i].dim) + (cases[i].causal ? ", causal" : "") + ", " +
                 warprank::name_of_enum(cases[i].weights) + (cases[i].has_own_keys ? ", own keys" : "") + ", window " +
                 std::to_string(cases[i].window) + ", full " + std::to_string(cases[i].full_last) + ", " +
                 std::to_string(cases[i].bias.positions) + " positions, " + std::to_string(cases[i].bias.time_buckets) +
                 " buckets");
    if (check) memory[i]->expect_right(share_of_attention_bound);
    outputs.push_back(memory[i]->values());
  }
  return outputs;
}

/// Not yet filled in.
inline std::vector<AttentionCase> cases_of_every_number_and_width_of_heads() {
  std::vector<AttentionCase> cases;
  for (const int64_t heads : {1, 2, 3, 8, 16})
    for (const int64_t dim : {1, 2, 5, 8, 15, 16, 17, 31, 48, 64}) {
      if (heads > 3 && dim > 16) continue;
      AttentionCase& c = cases.emplace_back(with(heads, dim, {3, 1, 2}, {5, 20, 2}));
      c.is_aligned = heads != 2, c.half_y = dim % 2 == 0;
    }
  return cases;
}

/// One user in a capacity of one: what lies behind the counts is read, and does not get into what is written.
inline void expect_right_for_one_user(AttentionCase c, int target) {
  DeviceAttention memory(c.make());
  warprank::Attention view = memory.view();
  view.parents.capacity = 1;
  view.q.rows = view.y.rows = c.num_items() + c.more, view.k.rows = view.v.rows = c.num_events() + c.more;
  if (c.has_own_keys) view.own_k.rows = view.own_v.rows = c.num_items() + c.more;
  DeviceAttentions launch({view}, target);
  EXPECT_TRUE(launch.launch().is_split());
  launch.run();
  memory.expect_right(share_of_attention_bound);
  const std::vector<float> values = memory.values();
  EXPECT_EQ(values, run_attentions({c}, target)[0]) << "found among several";
  memory.num_parents().write({0});  // nothing is written then
  launch.run();
  EXPECT_EQ(memory.values(), values);
}

/// `all`: what the case gives. Of its users some items alone, in a larger capacity and in none.
inline void expect_same_alone(const AttentionCase& together, const std::vector<float>& all, int target) {
  const int64_t width = together.width();
  int64_t item = 0, event = 0;
  for (size_t user = 0; user < together.items.size(); ++user) {
    for (int64_t n = 0; n < together.items[user]; ++n, ++item) {
      if (n > 2 && n < 17) continue;
      AttentionCase alone = together;
      alone.items = {1}, alone.events = {together.events[user]};
      alone.q = rows(together.q, width, item, 1);
      alone.k = rows(together.k, width, event, together.events[user]);
      alone.v = rows(together.v, width, event, together.events[user]);
      if (together.has_own_keys) {
        alone.own_k = rows(together.own_k, width, item, 1);
        alone.own_v = rows(together.own_v, width, item, 1);
      }
      if (together.has_bias()) {
        alone.item_times = rows(together.item_times, 1, item, 1);
        alone.event_times = rows(together.event_times, 1, event, together.events[user]);
      }
      for (const int64_t more : {2, 0}) {
        alone.more = more;
        EXPECT_EQ(run_attentions({alone}, target)[0], rows(all, width, item, 1));
      }
    }
    event += together.events[user];
  }
}

}  // namespace kernel_testing
