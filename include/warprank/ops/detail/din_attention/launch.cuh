// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host's part of ops/din_attention.cuh: checks histories, divides their work, and launches. History is DinHistory,
/// which is defined there, for all to read.

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/target.hpp"
#include "warprank/ops/detail/common/check_float_matrix.hpp"
#include "warprank/ops/detail/common/item_units.cuh"
#include "warprank/ops/detail/din_attention/chained/kernel.cuh"
#include "warprank/ops/detail/din_attention/chained/layout.hpp"
#include "warprank/ops/detail/din_attention/rows.hpp"
#include "warprank/ops/detail/din_attention/staged/kernel.cuh"
#include "warprank/ops/detail/din_attention/staged/partition.hpp"
#include "warprank/ops/detail/din_attention/weights.hpp"
#include "warprank/ops/launch_policies.hpp"

namespace warprank { inline namespace v0 { namespace detail::din {

/// Histories that one kernel takes: those of one shape, or all that the staged kernel takes.
struct Launch {
  bool is_chained = false;
  chained::Shape shape;     ///< of networks: chunks may differ
  int64_t descriptors = 0;  ///< the first, in bytes
  int64_t histories = 0;
  int64_t blocks = 0;  ///< for each history
  int64_t shared_bytes = 0;

  bool takes(const DinWeights& network) const {
    const chained::Shape& other = packed(network).shape;
    return is_chained == network.is_chained() && shape.steps == other.steps && shape.pairs == other.pairs &&
           shape.is_dice == other.is_dice;
  }
};

/// Histories that are launched together.
struct Plan {
  std::vector<unsigned char> descriptors;
  std::vector<Launch> launches;
  std::vector<int> chunk_events;  ///< of each history
  int target = 0;
};

template <class History>
void check_history(const History& history, const std::string& what, Problems& problems) {
  if (history.network == nullptr) return problems.add(what + "'s network", "packed weights", "none");
  const int64_t dim = history.network->dim();
  check_matrix<const void>(what + "'s q", history.q, history.q.rows, dim, problems);
  check_matrix<const void>(what + "'s k", history.k, history.k.rows, dim, problems);
  if (history.added.data != nullptr)
    check_matrix<const void>(what + "'s added", history.added, history.k.rows, dim, problems);
  check_matrix(what + "'s y", history.y, history.q.rows, dim, problems);
  check_pointer(what + "'s weights", history.device_weights, 16, problems);
  check_items_and_events(history, what, problems);
  constexpr int64_t limit = int64_t{1} << 30;
  const auto expect_few = [&](const char* of, int64_t got) {
    if (history.network->is_chained() && got >= limit) problems.add(what + of, "fewer than 2^30", std::to_string(got));
  };
  expect_few("'s items", history.q.rows);
  expect_few("'s events", history.k.rows);
  expect_few("'s parents", history.parents.capacity);
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
      refuse("added", region_of(FloatMatrix<const void>(histories[j].added)));
      if (i < j) refuse("y", region_of(histories[j].y));
    }
}

template <class History>
int64_t longest_of(const History& history) {
  return history.longest_history > 0 ? history.longest_history : history.k.rows;
}

/// What both kernels are told.
template <class Descriptor, class History>
Descriptor describe_common(const History& history) {
  Descriptor to{};
  to.q = rows_of(history.q);
  to.k = rows_of(history.k);
  to.added = rows_of(history.added);
  to.y = gemm::operand_of(history.y);
  to.axes = items_and_events_of(history);
  to.factor = packed(*history.network).factor;
  to.normalization = history.network->normalization();
  to.dim = static_cast<int>(history.network->dim());
  return to;
}

template <class History>
chained::Descriptor describe_chained(const History& history, int target) {
  const PackedNetwork& network = packed(*history.network);
  auto to = describe_common<chained::Descriptor>(history);
  to.weights = static_cast<const unsigned char*>(history.device_weights);
  to.head_bias = network.chained_head_bias;
  to.safe_query = network.safe_query;
  to.chunks = network.shape.chunks;
  to.places = chained::choose_places(network.shape, longest_of(history), target);
  return to;
}

template <class History>
Descriptor describe_staged(const History& history, int target) {
  const PackedNetwork& network = packed(*history.network);
  const auto* const weights = static_cast<const unsigned char*>(history.device_weights);
  const auto floats = [&](int64_t offset) {
    return offset < 0 ? nullptr : reinterpret_cast<const float*>(weights + offset);
  };
  const auto padded = [](int64_t width) { return static_cast<int>((width + 15) / 16 * 16); };

  auto to = describe_common<Descriptor>(history);
  to.event_weights = floats(0);
  to.pair_weights = reinterpret_cast<const float16*>(weights + network.pair_weights);
  to.head = floats(network.head);
  to.head_bias = floats(network.head_bias);
  to.padded_dim = padded(to.dim);
  to.num_hidden = static_cast<int>(network.hidden.size());

  Shape shape{to.padded_dim, to.num_hidden, {}, longest_of(history)};
  for (int i = 0; i < to.num_hidden; ++i) {
    const PackedLayer& layer = network.hidden[static_cast<size_t>(i)];
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

/// How many blocks there are for each history: one on each multiprocessor while that has few items, then as many as
/// fit. Which items share a unit the kernel decides by how many there are.
template <class History>
void divide_chained(Launch& launch, const std::vector<const History*>& histories, int target,
                    const LaunchPolicies& policies) {
  const int64_t multiprocessors = device::num_multiprocessors();
  int64_t items = 0, most_items = 0;
  for (const History* history : histories) items += history->q.rows, most_items = std::max(most_items, history->q.rows);
  const bool shares = items > policies.din_items_of_one_block * multiprocessors &&
                      chained::resident_blocks(target, launch.shape.steps, launch.shape.pairs) == 2 &&
                      launch.shared_bytes <= device::shared_limit(target, 2);
  const int64_t resident = multiprocessors * (shares ? 2 : 1);
  launch.blocks = std::min(most_items, (resident + launch.histories - 1) / launch.histories);
}

template <class Descriptor>
void append_descriptor(Plan& plan, Launch& launch, const Descriptor& descriptor, int64_t shared_bytes) {
  static_assert(sizeof(Descriptor) % 16 == 0 && std::is_trivially_copyable_v<Descriptor>);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&descriptor);
  plan.descriptors.insert(plan.descriptors.end(), bytes, bytes + sizeof descriptor);
  launch.shared_bytes = std::max(launch.shared_bytes, shared_bytes);
  ++launch.histories;
}

/// Checks the histories and divides their work. Capacities, shapes and the target decide alone.
template <class History>
Plan plan_histories(Span<const History> histories, int target, const LaunchPolicies& policies) {
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
    raise(invalid_argument("histories of one launch", "at most 65535", std::to_string(histories.size())));
  for (const History& history : histories) {
    const auto takes = [&](const Launch& launch) { return launch.takes(*history.network); };
    if (std::any_of(plan.launches.begin(), plan.launches.end(), takes)) continue;
    Launch& launch = plan.launches.emplace_back();
    launch.is_chained = history.network->is_chained();
    launch.shape = packed(*history.network).shape;
  }
  plan.chunk_events.resize(static_cast<size_t>(histories.size()));
  for (Launch& launch : plan.launches) {
    launch.descriptors = static_cast<int64_t>(plan.descriptors.size());
    std::vector<const History*> taken;
    std::vector<Partition> partitions;
    for (int64_t i = 0; i < histories.size(); ++i) {
      const History& history = histories[i];
      if (!launch.takes(*history.network)) continue;
      int& chunk_events = plan.chunk_events[static_cast<size_t>(i)];
      taken.push_back(&history);
      if (launch.is_chained) {
        const chained::Descriptor descriptor = describe_chained(history, target);
        append_descriptor(plan, launch, descriptor, descriptor.places.bytes);
        chunk_events = descriptor.places.chunk_events;
      } else {
        const Descriptor descriptor = describe_staged(history, target);
        append_descriptor(plan, launch, descriptor, descriptor.partition.bytes);
        chunk_events = descriptor.partition.events;
        partitions.push_back(descriptor.partition);
      }
    }
    if (launch.is_chained) {
      divide_chained(launch, taken, target, policies);
      continue;
    }
    for (size_t i = 0; i < taken.size(); ++i) {
      const int64_t wanted = device::num_multiprocessors() * partitions[i].blocks;
      const int64_t groups = (taken[i]->q.rows + partitions[i].items - 1) / partitions[i].items;
      launch.blocks = std::max(launch.blocks, std::min(groups, (wanted + launch.histories - 1) / launch.histories));
    }
  }
  return plan;
}

WARPRANK_HIDDEN WARPRANK_KERNELS_INLINE void launch(const Plan& plan, const void* descriptors, device::Stream stream);

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_DIN_ATTENTION)
/// f(std::integral_constant<int, value>{}) for one of these values.
template <int First, int... Others, class F>
WARPRANK_HIDDEN void dispatch_value(int value, F&& f) {
  if (value == First) return f(std::integral_constant<int, First>{});
  if constexpr (sizeof...(Others) > 0) dispatch_value<Others...>(value, f);
}

WARPRANK_KERNELS_INLINE void launch(const Plan& plan, const void* descriptors, device::Stream stream) {
  device::dispatch_target<75, 80>(plan.target, [&](auto target) {
    for (const Launch& launch : plan.launches) {
      const device::Dim3 grid(static_cast<unsigned>(launch.blocks), static_cast<unsigned>(launch.histories));
      const void* const first = static_cast<const unsigned char*>(descriptors) + launch.descriptors;
      const auto queue = [&](auto threads, auto kernel, auto* of_launch) {
        device::launch_overlapping({grid, static_cast<unsigned>(threads), launch.shared_bytes, stream}, kernel,
                                   of_launch);
      };
      if (!launch.is_chained) {
        queue(block_threads, din_staged_kernel<target()>, static_cast<const Descriptor*>(first));
        continue;
      }
      dispatch_value<2, 4, 8>(launch.shape.steps, [&](auto steps) {
        dispatch_value<2, 3>(launch.shape.pairs, [&](auto pairs) {
          dispatch_value<0, 1>(launch.shape.is_dice, [&](auto is_dice) {
            queue(chained::block_threads, chained::din_chained_kernel<target(), steps(), pairs(), is_dice() == 1>,
                  static_cast<const chained::Descriptor*>(first));
          });
        });
      });
    }
  });
}
#endif

}}}  // namespace warprank::v0::detail::din
