// SPDX-License-Identifier: Apache-2.0

// DIN attention in one launch against what a framework does: the concatenation [q, k, q - k, q * k] of every item with
// every event in memory, the layers on it by cuBLASLt, and a weighted sum.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "dense.cuh"
#include "policies.cuh"
#include "warprank/ops/din_attention.cuh"
#include "workloads.hpp"

namespace warprank::bench {
namespace {

/// Of what the rounding errors of all layers and events could add up to if all had one sign; they come to less than a
/// hundredth.
constexpr double share_of_bound = 1.0 / 16;

/// Row n T + t of y [N T, 4 D]: [q_n, k, q_n - k, q_n * k] for event t of the user of item n.
WARPRANK_KERNEL(256, 1)
concatenate_kernel(const float16* q, const float16* k, const int64_t* user_of, int64_t num_items, int64_t num_events,
                   int64_t dim, float16* y) {
  for (int64_t i = device::global_thread_rank(); i < num_items * num_events * dim; i += device::num_threads()) {
    const int64_t column = i % dim, row = i / dim, item = row / num_events;
    const int64_t event = user_of[item] * num_events + row % num_events;
    const float16 query = q[item * dim + column], key = k[event * dim + column];
    float16* const to = y + row * 4 * dim + column;
    device::store(to, query);
    device::store(to + dim, key);
    device::store(to + 2 * dim, device::narrow<float16>(device::widen(query) - device::widen(key)));
    device::store(to + 3 * dim, device::narrow<float16>(device::widen(query) * device::widen(key)));
  }
}

/// y[n] = sum_t scores[n T + t] k_t
WARPRANK_KERNEL(256, 1)
weighted_sum_kernel(const float* scores, const float16* k, const int64_t* user_of, int64_t num_items,
                    int64_t num_events, int64_t dim, float16* y) {
  for (int64_t i = device::global_thread_rank(); i < num_items * dim; i += device::num_threads()) {
    const int64_t item = i / dim, column = i % dim;
    float sum = 0;
    for (int64_t t = 0; t < num_events; ++t)
      sum += scores[item * num_events + t] * device::widen(k[(user_of[item] * num_events + t) * dim + column]);
    device::store(&y[i], device::narrow<float16>(sum));
  }
}

/// For one item: the first layer's error is that of ops/din_attention.cuh, which also covers inputs that are rounded.
reference::Bounded expected_of(const std::vector<DenseLayer>& layers, const float* q, const float* k,
                               int64_t num_events, int64_t dim) {
  std::vector<float> x;
  std::vector<double> sizes;
  Activations pairs(num_events, 4 * dim, {});
  for (int64_t t = 0; t < num_events; ++t)
    for (int block = 0; block < 4; ++block)
      for (int64_t c = 0; c < dim; ++c) {
        const double a = q[c], b = k[t * dim + c];
        const double value[] = {a, b, a - b, a * b};
        const double size[] = {std::fabs(a), std::fabs(b), std::fabs(a) + std::fabs(b), std::fabs(a * b)};
        pairs.of.value.push_back(value[block]);
        pairs.of.bound.push_back(0);
        sizes.push_back(size[block]);
      }
  constexpr double relative = 0x1p14 + 8;  // 2 u16, and 2 (n + 6) u for 2 (n + 2) u
  Activations scores = propagate(pairs, layers[0].weight, layers[0].bias, true, true, relative, sizes);
  scores = propagate(std::vector<DenseLayer>(layers.begin() + 1, layers.end()), scores);
  reference::Bounded y;
  for (int64_t c = 0; c < dim; ++c) {
    double sum = 0, bound = 0;
    for (int64_t t = 0; t < num_events; ++t) {
      const double key = k[t * dim + c], score = scores.of.value[static_cast<size_t>(t)];
      sum += score * key;
      bound += std::fabs(key) *
               (scores.of.bound[static_cast<size_t>(t)] + 2 * static_cast<double>(num_events + 2) * std::fabs(score));
    }
    y.value.push_back(sum);
    y.bound.push_back(bound);
  }
  return y;
}

/// The chained kernel for networks of 2 x 16 outputs, of any number of tiles at once.
template <int Target, int Steps, int Tiles>
WARPRANK_KERNEL(detail::din::chained::block_threads, detail::din::chained::resident_blocks(Target, Steps, 2))
din_by_tiles_kernel(const detail::din::chained::Descriptor* descriptors) {
  using namespace detail::din::chained;  // NOLINT
  attend_history<Block<Target, Steps, 2, false, Tiles>>(descriptors);
}

Queue queue_by_tiles(const DinKernel& launch, int num_steps, int tiles, const unsigned char* descriptors) {
  using detail::din::chained::Descriptor;
  const device::Dim3 grid(static_cast<unsigned>(launch.blocks), static_cast<unsigned>(launch.histories));
  const auto* const from = reinterpret_cast<const Descriptor*>(descriptors);
  const auto kernel = device::dispatch_target<75, 80>(device::target(), [&](auto target) {
    const auto of_steps = [&](auto steps) -> void (*)(const Descriptor*) {
      if (tiles == 1) return din_by_tiles_kernel<target(), steps(), 1>;
      if (tiles == 2) return din_by_tiles_kernel<target(), steps(), 2>;
      return din_by_tiles_kernel<target(), steps(), 4>;
    };
    if (num_steps == 2) return of_steps(std::integral_constant<int, 2>());
    if (num_steps == 4) return of_steps(std::integral_constant<int, 4>());
    return of_steps(std::integral_constant<int, 8>());
  });
  return [=, bytes = launch.shared_bytes](device::Stream stream) {
    device::launch_overlapping({grid, detail::din::chained::block_threads, bytes, stream}, kernel, from);
  };
}

void din_attention(Run& run, int64_t requests, int64_t items, int64_t num_events, int64_t dim,
                   const PolicySweep* sweep = nullptr) {
  const std::vector<DenseLayer> layers = random_stack({4 * dim, 64, 32, 1});
  std::vector<DinLayer> views;
  for (const DenseLayer& layer : layers) views.push_back({layer.weight, layer.bias, layer.activation(), {}, {}, {}});
  const DinWeights network(dim, views);

  const int64_t num_items = requests * items;
  const std::vector<int64_t> item_offsets = request_offsets(requests, items);
  std::vector<int64_t> history_offsets, user_of;
  for (int64_t r = 0; r <= requests; ++r) history_offsets.push_back(r * num_events);
  for (int64_t r = 0; r < requests; ++r)
    user_of.resize(static_cast<size_t>(item_offsets[static_cast<size_t>(r) + 1]), r);
  const std::vector<float16> q_values = random_halves(num_items * dim, 7),
                             k_values = random_halves(requests * num_events * dim, 8);
  const auto* const q = run.upload(q_values);
  const auto* const k = run.upload(k_values);
  const auto* const users = run.upload(user_of);

  DinHistory history;
  history.q = {q, num_items, dim};
  history.k = {k, requests * num_events, dim};
  history.item_offsets = run.upload(item_offsets), history.history_offsets = run.upload(history_offsets);
  history.parents.capacity = requests;
  history.network = &network, history.device_weights = run.upload(network.bytes());
  history.longest_history = num_events;

  const std::vector<float> keys = to_floats(k_values);
  const auto check = [&](const float16* result) {
    return [&, result] {
      const std::vector<float16> got = run.read(result, num_items * dim);
      for (const int64_t item : some_rows(num_items)) {
        const std::vector<float> query = select_rows(q_values, dim, {item});
        const float* of_user = keys.data() + user_of[static_cast<size_t>(item)] * num_events * dim;
        expect_within<float16>("din_attention", expected_of(layers, query.data(), of_user, num_events, dim),
                               select_rows(got, dim, {item}), share_of_bound);
      }
    };
  };
  const auto call_by = [&](const LaunchPolicies& policies) -> Call {
    auto* const y = run.allocate<float16>(num_items * dim);
    history.y = Matrix<float16>(y, num_items, dim);
    const DinLaunch launch(Span<const DinHistory>(&history, 1), device::target(), policies);
    if (sweep == nullptr) return {queue_launch(run, launch), check(y)};
    const int tiles = dim <= 64 ? policies.din_tiles : policies.din_tiles_wide;
    return {queue_by_tiles(launch.kernel(0), detail::din::packed(network).shape.steps, tiles,
                           run.upload(launch.descriptors())),
            check(y)};
  };
  if (sweep != nullptr) return compare_policies(run, *sweep, call_by);

  auto* const unfused = run.allocate<float16>(num_items * dim);
  const int64_t pairs = num_items * num_events;
  auto* const concatenation = run.allocate<float16>(pairs * 4 * dim);
  auto* const scores = run.allocate<float>(pairs);
  const auto blocks = [](int64_t threads) {
    return static_cast<unsigned>(std::min<int64_t>((threads + 255) / 256, 1 << 16));
  };
  const Queue chain = in_sequence(
      {[=](device::Stream stream) {
         device::launch({blocks(pairs * dim), 256, 0, stream}, concatenate_kernel, q, k, users, num_items, num_events,
                        dim, concatenation);
       },
       queue_chain(run, layers, {concatenation, pairs, 4 * dim}, Matrix<float>(scores, pairs, 1), queue_product),
       [=](device::Stream stream) {
         device::launch({blocks(num_items * dim), 256, 0, stream}, weighted_sum_kernel, scores, k, users, num_items,
                        num_events, dim, unfused);
       }});

  const double folded = static_cast<double>(dim * 64 + 64 * 32 + 32 + dim);
  run.measure({2.0 * static_cast<double>(2 * num_items * dim + requests * num_events * dim) +
                   static_cast<double>(network.bytes().size()),
               2 * static_cast<double>(pairs) * folded},
              call_by(usual_policies()), {{"unfused", {chain, check(unfused)}}});
}

}  // namespace

void add_benchmarks() {
  using Sizes = std::vector<std::pair<int64_t, int64_t>>;
  const Sizes histories = on_gpu ? Sizes{{50, 32}, {100, 64}, {200, 128}} : Sizes{{11, 16}, {37, 32}};
  const Sizes requests = on_gpu ? Sizes{{1, 100}, {1, 500}, {16, 100}} : Sizes{{1, 5}, {2, 3}};
  const auto name_of = [](int64_t count, int64_t items, int64_t events, int64_t dim) {
    return "din_attention/requests:" + std::to_string(count) + "/items:" + std::to_string(items) +
           "/events:" + std::to_string(events) + "/dim:" + std::to_string(dim);
  };
  for (const auto& [events, dim] : histories)
    for (const auto& [count, items] : requests)
      add(name_of(count, items, events, dim), [count = count, items = items, events = events, dim = dim](Run& run) {
        din_attention(run, count, items, events, dim);
      });

  using Policies = LaunchPolicies;
  Sizes more_requests = on_gpu ? Sizes{{1, 100}, {1, 500}, {1, 1000}, {8, 100}, {16, 100}, {64, 100}} : Sizes{{1, 9}};
  if (is_simulated()) more_requests = {{1, 100}, {1, 200}, {1, 500}, {8, 100}};  // minutes for what is larger
  const auto add_sweep_of = [&](const PolicySweep& sweep, const Sizes& sizes) {
    for (const auto& [events, dim] : sizes)
      for (const auto& [count, items] : more_requests)
        add_policy(sweep, name_of(count, items, events, dim),
                   [count = count, items = items, events = events, dim = dim](Run& run, const PolicySweep* of) {
                     din_attention(run, count, items, events, dim, of);
                   });
  };
  const Sizes narrow = on_gpu ? Sizes{{50, 32}, {100, 64}} : Sizes{{11, 16}};
  add_sweep_of({"din_items_of_one_block", &Policies::din_items_of_one_block, {0, no_limit}}, narrow);
  add_sweep_of({"din_tiles", &Policies::din_tiles, {1, 2, 4}}, narrow);
  add_sweep_of({"din_tiles_wide", &Policies::din_tiles_wide, {1, 2, 4}}, on_gpu ? Sizes{{200, 128}} : Sizes{{37, 128}});
}

}  // namespace warprank::bench
