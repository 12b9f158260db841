// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The speed of cards, to predict the time of a plan on a card that is not at hand. Peaks are from the vendor's data
/// sheets. Sustained speeds were measured on three cards: on the T4 236 of 320 GB/s and, within its 70 W, 24 of 65
/// TFLOP/s; on the H200 4.3 of 4.8 TB/s and 790 of 989 TFLOP/s; on the H100 2.98 of 3.35 TB/s (a copy, read and
/// written) and, by mma.sync, 636 of 989 TFLOP/s. Of the other cards, those with GDDR6 and little power are assumed to
/// sustain the shares of the T4, and the A100 those of the H200, until measurements replace these assumptions.
///
/// Latencies were measured on the H100 (SXM, PCIe 5, driver 580, 22 November 2026). On other cards they are assumed to
/// grow as the clock falls; the start-up times of the driver and the bus are assumed to be the same.

#include <cstdint>
#include <string>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/suggest.hpp"
#include "warprank/plan/cost.hpp"

namespace warprank { inline namespace v0 { namespace plan {

struct Card {
  const char* name;
  double peak_bandwidth;   ///< bytes a second; data sheet
  double peak_flops;       ///< FP16 on tensor cores, FP32 accumulation, dense, a second; data sheet
  double bandwidth_share;  ///< sustained share of the peak
  double flops_share;
  double bus_bandwidth;     ///< of copies from the host, bytes a second
  double clock;             ///< the highest, in Hz; data sheet
  bool overlaps;            ///< a kernel begins before the previous one in the graph has ended
  int64_t multiprocessors;  ///< data sheet
  double cache_bandwidth;   ///< of the second-level cache, all multiprocessors reading, bytes a second

  constexpr double bandwidth() const { return peak_bandwidth * bandwidth_share; }
  constexpr double flops() const { return peak_flops * flops_share; }
};

inline constexpr double t4_bandwidth_share = 236.0 / 320, t4_flops_share = 24.0 / 65;
inline constexpr double h200_bandwidth_share = 4.3 / 4.8, h200_flops_share = 790.0 / 989;
/// Measured with PCIe 5 x16: 55.2 GB/s. Older generations are assumed to reach the same share of their peaks.
inline constexpr double pcie5 = 55.2e9, pcie4 = pcie5 / 2, pcie3 = pcie5 / 4;

/// The bandwidth of the second-level cache, in bytes a second, if a multiprocessor's share in a clock is that of the
/// H100, by a fit of ops/detail/linear/tiling.hpp in which waves had no cost of their own (3 KB in 0.054 us), or that
/// of the T4, as Jia et al. measured it (2019: 1.27 TB/s).
constexpr double cache_like_h100(int64_t multiprocessors, double clock) {
  return 3072 / 0.0541e-6 / 1.98e9 * static_cast<double>(multiprocessors) * clock;
}
constexpr double cache_like_t4(int64_t multiprocessors, double clock) {
  return 1.27e12 / 40 / 1.59e9 * static_cast<double>(multiprocessors) * clock;
}

inline constexpr Card cards[] = {{"T4", 320e9, 65e12, t4_bandwidth_share, t4_flops_share, pcie3, 1.59e9, false, 40,
                                  cache_like_t4(40, 1.59e9)},  // shares measured
                                 {"A10", 600e9, 125e12, t4_bandwidth_share, t4_flops_share, pcie4, 1.695e9, false, 72,
                                  cache_like_t4(72, 1.695e9)},  // assumed: GDDR6, 150 W
                                 {"L4", 300e9, 121e12, t4_bandwidth_share, t4_flops_share, pcie4, 2.04e9, false, 58,
                                  cache_like_t4(58, 2.04e9)},  // assumed: GDDR6, 72 W
                                 {"A100", 1555e9, 312e12, h200_bandwidth_share, h200_flops_share, pcie4, 1.41e9, false,
                                  108, cache_like_h100(108, 1.41e9)},  // 40 GB; assumed
                                 {"H100", 3350e9, 989e12, 2.98 / 3.35, 636.0 / 989, pcie5, 1.98e9, true, 132,
                                  cache_like_h100(132, 1.98e9)},  // SXM; measured
                                 {"H200", 4800e9, 989e12, h200_bandwidth_share, h200_flops_share, pcie5, 1.98e9, true,
                                  132, cache_like_h100(132, 1.98e9)}};  // shares measured

/// The time of a batch beside its kernels: until a copy from the host has begun, or the graph's first kernel has
/// fetched the batch (H200, 26 to 105 KB: 6.1 us less); and from the launch of a graph until the host sees the stores
/// of its last kernel, without the time of kernels.
inline constexpr double copy_seconds = 8.2e-6, fetch_seconds = copy_seconds - 6.1e-6, graph_seconds = 4.4e-6;
/// Batches of up to so many bytes are fetched (ContextOptions::fetch_bytes).
inline constexpr int64_t most_fetched_bytes = 128 << 10;

/// Times on the H100: of a kernel of a graph that uses the results of the previous one, in turn and overlapping; of a
/// trip to memory that the next trip waits for, with the computation around it (345 ns of it are the load itself, 145
/// from the second-level cache); and of an instruction of a warp that has a scheduler for itself.
inline constexpr double kernel_seconds = 1.27e-6, overlapping_kernel_seconds = 0.75e-6;
inline constexpr double trip_seconds = 0.5e-6, instruction_seconds = 1.6e-9;
inline constexpr double latency_clock = 1.98e9;

/// Throws invalid_argument for a card that is not in the table.
inline const Card& card_named(const std::string& name) {
  std::vector<std::string> names;
  for (const Card& card : cards) {
    if (name == card.name) return card;
    names.emplace_back(card.name);
  }
  throw invalid_argument("card '" + name + "'", "one of plan/cards.hpp", unknown_name(name, names));
}

/// The latency of a kernel, however little work there is: trips to memory that wait for one another, and instructions
/// of its busiest warp.
struct Latency {
  double trips = 0, instructions = 0;
};

/// The predicted time of a step on a card: its launches, the latency of their kernels, and its bytes or its operations,
/// whichever takes longer.
constexpr double predicted_seconds(const Cost& cost, const Latency& latency, double launches, const Card& card) {
  const double memory = cost.bytes / card.bandwidth(), arithmetic = cost.flops / card.flops();
  const double each = card.overlaps ? overlapping_kernel_seconds : kernel_seconds;
  const double latencies = launches * each + latency.trips * trip_seconds + latency.instructions * instruction_seconds;
  return latencies * (latency_clock / card.clock) + (memory > arithmetic ? memory : arithmetic);
}

/// The predicted time of a batch of so many bytes beside its kernels.
constexpr double predicted_seconds_outside(double bytes, const Card& card) {
  const double begin = bytes <= static_cast<double>(most_fetched_bytes) ? fetch_seconds : copy_seconds;
  return begin + bytes / card.bus_bandwidth + graph_seconds;
}

}}}  // namespace warprank::v0::plan
