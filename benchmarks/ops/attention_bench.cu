// SPDX-License-Identifier: Apache-2.0

// Attention of several heads in one launch against what a framework does for each user and head: scores by cuBLASLt, a
// softmax, and the weighted sum by cuBLASLt. Items over the history of their user, and histories over themselves. With
// the weights of silu, as in HSTU (causal, or items that also see themselves), against the same with a softmax.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "dense.cuh"
#include "policies.cuh"
#include "reference/attention.hpp"
#include "row_launches.cuh"
#include "warprank/ops/attention.cuh"

namespace warprank::bench {
namespace {

struct Shape {
  int64_t requests, items, events, heads;  ///< items 0: the events themselves
  static constexpr int64_t width = 64;

  bool is_self() const { return items == 0; }
  int64_t queries() const { return is_self() ? events : items; }  ///< of a request
  int64_t dim() const { return width / heads; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(dim())); }
};

std::vector<int64_t> even_offsets(int64_t count, int64_t size) {
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i <= count; ++i) offsets.push_back(i * size);
  return offsets;
}

/// Scores, softmax and weighted sums of a user's head, one after another. The scale is a power of two, and is in the
/// keys.
Queue queue_head(Memory& memory, const Shape& shape, Matrix<const float16> q, const std::vector<float>& k,
                 const std::vector<float>& v, Matrix<float16> y) {
  const int64_t dim = shape.dim(), events = shape.events;
  std::vector<float> keys, values(v.size());
  for (const float value : k) keys.push_back(value * shape.scale());
  for (int64_t t = 0; t < events; ++t)
    for (int64_t c = 0; c < dim; ++c) values[static_cast<size_t>(c * events + t)] = v[static_cast<size_t>(t * dim + c)];
  const Matrix<float16> scores(memory.allocate<float16>(q.rows * events), q.rows, events),
      weights(memory.allocate<float16>(q.rows * events), q.rows, events);
  const AxisInput<void> input{Matrix<const float16>(scores)};
  RowProgram softmax;
  softmax.inputs = {&input, 1}, softmax.step = SoftmaxOfRow{}, softmax.y = weights;
  return in_sequence({queue_product(memory, {keys, {}, dim, false}, q, scores), queue_row_programs(memory, {softmax}),
                      queue_product(memory, {values, {}, events, false}, weights, y)});
}

/// Of one query: the kernel's bound, or that of a chain which rounds scores and weights to FP16.
reference::Bounded expected_of(const Shape& shape, const std::vector<float>& q, const std::vector<float>& k,
                               const std::vector<float>& v, bool is_rounded) {
  const int64_t one[] = {0, 1}, all[] = {0, shape.events};
  const auto attend = [&](auto reference, const reference::AttentionSettings& settings) {
    return reference({q.data(), 1, shape.width}, {k.data(), shape.events, shape.width},
                     {v.data(), shape.events, shape.width}, {one, 1}, {all, 1}, settings);
  };
  reference::AttentionSettings settings{shape.heads, shape.scale()};
  reference::Bounded y = attend(reference::attention_in_fp16, settings);
  if (!is_rounded) return y;
  settings.of_magnitudes = true;
  const reference::Bounded weighted = attend(reference::attention, settings);
  settings.scale = 0;
  const reference::Bounded mean = attend(reference::attention, settings);
  double largest_score = 0;
  for (int64_t t = 0; t < shape.events; ++t)
    for (int64_t h = 0; h < shape.heads; ++h) {
      double score = 0;
      for (int64_t c = h * shape.dim(); c < (h + 1) * shape.dim(); ++c)
        score += static_cast<double>(q[static_cast<size_t>(c)]) * k[static_cast<size_t>(t * shape.width + c)];
      largest_score = std::max(largest_score, std::fabs(shape.scale() * score));
    }
  for (size_t i = 0; i < y.value.size(); ++i)
    y.bound[i] +=
        0x1p14 * (1 + 2 * largest_score) * weighted.value[i] + static_cast<double>(shape.events) * mean.value[i];
  return y;
}

/// The kernel that divides events, of any number of warps.
template <int Target, int Dim, int Warps>
WARPRANK_KERNEL(Warps* device::warp_size, detail::attention::split_policy_of(Target, Warps, Dim).min_blocks)
attention_by_warps_kernel(
    const detail::attention::SplitDescriptor* descriptors,
    const WARPRANK_GRID_CONSTANT detail::attention::SplitLaunch<AttentionWeights::softmax> launch) {
  detail::attention::attend_split<Target, Dim, Warps, AttentionWeights::softmax, false>(descriptors, launch);
}

Queue queue_by_warps(Run& run, int64_t units, const Shape& shape, int warps,
                     const std::vector<unsigned char>& descriptors) {
  using detail::attention::SplitDescriptor;
  using Launch = detail::attention::SplitLaunch<AttentionWeights::softmax>;
  const device::Dim3 grid(static_cast<unsigned>(units), static_cast<unsigned>(shape.heads));
  const auto* const from = reinterpret_cast<const SplitDescriptor*>(run.upload(descriptors));
  Launch launch{};
  std::memcpy(static_cast<void*>(launch.attentions), descriptors.data(), sizeof(SplitDescriptor));
  const auto kernel = device::dispatch_target<75, 80>(device::target(), [&](auto target) {
    const auto of_dim = [&](auto dim) -> void (*)(const SplitDescriptor*, Launch) {
      if (warps == 2) return attention_by_warps_kernel<target(), dim(), 2>;
      if (warps == 4) return attention_by_warps_kernel<target(), dim(), 4>;
      return attention_by_warps_kernel<target(), dim(), 8>;
    };
    return shape.dim() == 16 ? of_dim(std::integral_constant<int, 16>()) : of_dim(std::integral_constant<int, 64>());
  });
  const int64_t bytes = detail::attention::split_bytes(warps, static_cast<int>(shape.dim()));
  return [=](device::Stream stream) {
    device::launch_overlapping({grid, static_cast<unsigned>(warps * device::warp_size), bytes, stream}, kernel, from,
                               launch);
  };
}

void attention(Run& run, const Shape& shape, const PolicySweep* sweep = nullptr) {
  const int64_t num_queries = shape.requests * shape.queries(), num_events = shape.requests * shape.events;
  const int64_t width = shape.width, dim = shape.dim();
  const std::vector<float16> q_values = random_halves(num_queries * width, 1),
                             k_values = random_halves(num_events * width, 2),
                             v_values = random_halves(num_events * width, 3);
  const Matrix<const float16> q(run.upload(q_values), num_queries, width), k(run.upload(k_values), num_events, width),
      v(run.upload(v_values), num_events, width);
  const auto result = [&] { return Matrix<float16>(run.allocate<float16>(num_queries * width), num_queries, width); };

  Attention described;
  described.q = q, described.k = k, described.v = v;
  described.item_offsets = run.upload(even_offsets(shape.requests, shape.queries()));
  described.history_offsets = run.upload(even_offsets(shape.requests, shape.events));
  described.parents.capacity = shape.requests, described.heads = shape.heads, described.scale = shape.scale();

  const auto rows_of = [&](const std::vector<float16>& values, int64_t user, int64_t first, int64_t cols) {
    std::vector<float> rows;
    for (int64_t t = user * shape.events; t < (user + 1) * shape.events; ++t)
      for (int64_t c = first; c < first + cols; ++c)
        rows.push_back(to_float(values[static_cast<size_t>(t * width + c)]));
    return rows;
  };
  const auto check = [&](Matrix<float16> to, bool is_rounded) {
    return [&, to, is_rounded] {
      const std::vector<float16> got = run.read(to.data, num_queries * width);
      for (const int64_t row : some_rows(num_queries)) {
        const int64_t user = row / shape.queries();
        expect_within<float16>(
            "attention",
            expected_of(shape, select_rows(q_values, width, {row}), rows_of(k_values, user, 0, width),
                        rows_of(v_values, user, 0, width), is_rounded),
            select_rows(got, width, {row}), 1);
      }
    };
  };
  const auto call_by = [&](const LaunchPolicies& policies) -> Call {
    const Matrix<float16> y = result();
    described.y = y;
    const AttentionLaunch launch(Span<const Attention>(&described, 1));
    if (sweep == nullptr) return {queue_launch(run, launch), check(y, false)};
    return {
        queue_by_warps(run, launch.num_blocks() / shape.heads, shape, policies.attention_warps, launch.descriptors()),
        check(y, false)};
  };
  if (sweep != nullptr) return compare_policies(run, *sweep, call_by);

  const Matrix<float16> unfused = result();
  std::vector<Queue> heads;
  for (int64_t user = 0; user < shape.requests; ++user)
    for (int64_t h = 0; h < shape.heads; ++h) {
      const int64_t first = user * shape.queries();
      heads.push_back(queue_head(run, shape, q.row_range(first, shape.queries()).columns(h * dim, dim),
                                 rows_of(k_values, user, h * dim, dim), rows_of(v_values, user, h * dim, dim),
                                 unfused.row_range(first, shape.queries()).columns(h * dim, dim)));
    }
  run.measure({4.0 * static_cast<double>((num_queries + num_events) * width),
               4.0 * static_cast<double>(num_queries * shape.events * width)},
              call_by(usual_policies()), {{"unfused", {in_sequence(heads), check(unfused, true)}}});
}

void attention_with_silu(Run& run, const Shape& shape) {
  const int64_t num_queries = shape.requests * shape.queries(), num_events = shape.requests * shape.events;
  const int64_t width = shape.width;
  const std::vector<float16> q = random_halves(num_queries * width, 1), k = random_halves(num_events * width, 2),
                             v = random_halves(num_events * width, 3), own_k = random_halves(num_queries * width, 4),
                             own_v = random_halves(num_queries * width, 5);
  const auto upload = [&](const std::vector<float16>& values) {
    return Matrix<const float16>(run.upload(values), static_cast<int64_t>(values.size()) / width, width);
  };
  Attention described;
  described.q = upload(q), described.k = upload(k), described.v = upload(v);
  described.item_offsets = run.upload(even_offsets(shape.requests, shape.queries()));
  described.history_offsets =
      shape.is_self() ? described.item_offsets : run.upload(even_offsets(shape.requests, shape.events));
  described.parents.capacity = shape.requests, described.heads = shape.heads, described.scale = shape.scale();
  described.causal = shape.is_self();
  const auto call_of = [&](Attention attention) -> Call {
    const Matrix<float16> y(run.allocate<float16>(num_queries * width), num_queries, width);
    attention.y = y;
    const auto check = [&, attention, y] {
      const std::vector<float16> got = run.read(y.data, num_queries * width);
      for (const int64_t row : some_rows(num_queries)) {
        const int64_t first = row / shape.queries() * shape.events,
                      seen = shape.is_self() ? row % shape.queries() + 1 : shape.events;
        std::vector<int64_t> events;
        for (int64_t t = first; t < first + seen; ++t) events.push_back(t);
        const auto of_row = select_rows(q, width, {row}), keys = select_rows(k, width, events),
                   values = select_rows(v, width, events), own_key = select_rows(own_k, width, {row}),
                   own_value = select_rows(own_v, width, {row});
        reference::AttentionSettings settings{shape.heads, shape.scale(), false, attention.weights, attention.divisor};
        if (attention.own_k.data != nullptr)
          settings.own_k = {own_key.data(), 1, width}, settings.own_v = {own_value.data(), 1, width};
        const int64_t one[] = {0, 1}, all[] = {0, seen};
        expect_within<float16>("attention",
                               reference::attention_in_fp16({of_row.data(), 1, width}, {keys.data(), seen, width},
                                                            {values.data(), seen, width}, {one, 1}, {all, 1}, settings),
                               select_rows(got, width, {row}), 1);
      }
    };
    return {queue_launch(run, AttentionLaunch(Span<const Attention>(&attention, 1))), check};
  };
  const Call softmax = call_of(described);
  described.weights = AttentionWeights::silu, described.divisor = static_cast<float>(shape.events);
  if (!shape.is_self()) described.own_k = upload(own_k), described.own_v = upload(own_v);
  const double pairs = static_cast<double>(num_queries * shape.events) * (shape.is_self() ? 0.5 : 1);
  run.measure({4.0 * static_cast<double>((num_queries + num_events) * width), 4.0 * pairs * static_cast<double>(width)},
              call_of(described), {{"softmax", softmax}});
}

}  // namespace

void add_benchmarks() {
  const std::vector<Shape> shapes = on_gpu ? std::vector<Shape>{{1, 100, 64, 1},   {1, 100, 200, 1}, {1, 500, 200, 4},
                                                                {16, 100, 200, 4}, {1, 0, 200, 4},   {16, 0, 200, 4}}
                                           : std::vector<Shape>{{1, 5, 24, 1}, {2, 5, 24, 4}, {2, 0, 16, 4}};
  const PolicySweep warps{"attention_warps", &LaunchPolicies::attention_warps, {2, 4, 8}};
  for (const Shape& shape : shapes) {
    const std::string name = "attention/" +
                             std::string(shape.is_self() ? "self" : "items:" + std::to_string(shape.items)) +
                             "/requests:" + std::to_string(shape.requests) + "/events:" + std::to_string(shape.events) +
                             "/heads:" + std::to_string(shape.heads);
    add(name, [=](Run& run) { attention(run, shape); });
    add_policy(warps, name, [=](Run& run, const PolicySweep* sweep) { attention(run, shape, sweep); });
    add(name + "/silu", [=](Run& run) { attention_with_silu(run, shape); });
  }
}

}  // namespace warprank::bench
