// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host's part of ops/din_attention.cuh: checks histories, divides their work, and launches. History is DinHistory,
/// which is defined there, for all to read.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/target.hpp"
#include "warprank/ops/detail/din_attention/kernel.cuh"
#include "warprank/ops/detail/din_attention/partition.hpp"
#include "warprank/ops/detail/din_attention/weights.hpp"
#include "warprank/ops/detail/gemm/check.hpp"
#include "warprank/ops/detail/item_units.cuh"

namespace warprank::detail::din {

/// Histories of one launch.
struct Plan {
  std::vector<Descriptor> descriptors;
  int target = 0;
  int64_t blocks = 0;  ///< for each history
  int64_t shared_bytes = 0;
};

template <class History>
void check_history(const History& history, const std::string& what, Problems& problems) {
  if (history.network == nullptr) return problems.add(what + "'s network", "packed weights", "none");
  const int64_t dim = history.network->dim();
  check_matrix<const void>(what + "'s q", history.q, history.q.rows, dim, problems);
  check_matrix<const void>(what + "'s k", history.k, history.k.rows, dim, problems);
  check_matrix(what + "'s y", history.y, history.q.rows, dim, problems);
  check_pointer(what + "'s weights", history.device_weights, 16, problems);
  check_items_and_events(history, what, problems);
  if (history.longest_history < 0)
    problems.add(what + "'s longest history", "0 or more", std::to_string(history.longest_history));
}

/// That no history writes what it or another of the launch reads or writes.
template <class History>
void check_overlaps(Span<const History> histories, Problems& problems) {
  for (int64_t i = 0; i < histories.size(); ++i)
    for (int64_t j = 0; j < histories.size(); ++j) {
      const auto refuse = [&](const char* name, const Region& region) {
        if (overlap(region_of(histories[i].y), region))
          problems.add("y of history " + std::to_string(i), "memory of its own",
                       "an overlap with " + std::string(name) + " of history " + std::to_string(j));
      };
      refuse("q", region_of(FloatMatrix<const void>(histories[j].q)));
      refuse("k", region_of(FloatMatrix<const void>(histories[j].k)));
      if (i < j) refuse("y", region_of(histories[j].y));
    }
}

inline Rows rows_of(const Matrix<const half>& matrix) {
  const bool is_aligned = reinterpret_cast<uintptr_t>(matrix.data) % 16 == 0 && matrix.stride % 8 == 0;
  return {matrix.data, matrix.stride, is_aligned};
}

template <class History>
Descriptor describe(const History& history, int target) {
  const DinWeights& network = *history.network;
  const auto* const weights = static_cast<const unsigned char*>(history.device_weights);
  const auto floats = [&](int64_t offset) {
    return offset < 0 ? nullptr : reinterpret_cast<const float*>(weights + offset);
  };
  const auto padded = [](int64_t width) { return static_cast<int>((width + 15) / 16 * 16); };

  Descriptor to{};
  to.q = rows_of(history.q);
  to.k = rows_of(history.k);
  to.y = operand_of(history.y);
  to.axes = items_and_events_of(history);
  to.event_weights = floats(network.event_weights());
  to.pair_weights = reinterpret_cast<const half*>(weights + network.pair_weights());
  to.head = floats(network.head());
  to.head_bias = floats(network.head_bias());
  to.factor = network.factor();
  to.normalization = network.normalization();
  to.dim = static_cast<int>(network.dim());
  to.padded_dim = padded(network.dim());
  to.num_hidden = network.num_hidden();

  Shape shape{to.padded_dim, to.num_hidden, {}, history.longest_history > 0 ? history.longest_history : history.k.rows};
  for (int i = 0; i < to.num_hidden; ++i) {
    const DinWeights::HiddenLayer& layer = network.hidden(i);
    to.hidden[i] = {
        weights + layer.weights,
        floats(layer.bias),
        static_cast<int>(layer.width),
        padded(layer.width),
        {layer.activation.kind, layer.activation.alpha, floats(layer.alpha), floats(layer.scale), floats(layer.shift)}};
    shape.hidden[i] = to.hidden[i].padded;
  }
  const int most_tiles = target >= 80 ? policy<80>.event_tiles : policy<75>.event_tiles;
  to.partition = choose_partition(shape, target, most_tiles);
  return to;
}

/// Checks the histories and divides their work. Capacities, shapes and the target decide alone.
template <class History>
Plan plan_histories(Span<const History> histories, int target) {
  Problems problems;
  for (int64_t i = 0; i < histories.size(); ++i) check_history(histories[i], "history " + std::to_string(i), problems);
  problems.throw_if_any();
  check_overlaps(histories, problems);
  problems.throw_if_any();

  Plan plan;
  plan.target = target;
  device::dispatch_target<75, 80>(target, [](auto) {});  // or throws
  constexpr int64_t most_histories = 65535;
  if (histories.size() > most_histories)
    throw invalid_argument("histories of one launch", "at most 65535", std::to_string(histories.size()));
  for (const History& history : histories) {
    plan.descriptors.push_back(describe(history, target));
    const Partition& partition = plan.descriptors.back().partition;
    const int64_t wanted = device::num_multiprocessors() * partition.blocks;
    const int64_t groups = (history.q.rows + partition.items - 1) / partition.items;
    plan.blocks = std::max(plan.blocks, std::min(groups, (wanted + histories.size() - 1) / histories.size()));
    plan.shared_bytes = std::max<int64_t>(plan.shared_bytes, partition.bytes);
  }
  return plan;
}

WARPRANK_HIDDEN inline void run_histories(const Plan& plan, const void* descriptors, device::Stream stream) {
  device::dispatch_target<75, 80>(plan.target, [&](auto target) {
    const device::Dim3 grid(static_cast<unsigned>(plan.blocks), static_cast<unsigned>(plan.descriptors.size()));
    device::launch({grid, block_threads, plan.shared_bytes, stream}, din_attention_kernel<target()>,
                   static_cast<const Descriptor*>(descriptors));
  });
}

}  // namespace warprank::detail::din
