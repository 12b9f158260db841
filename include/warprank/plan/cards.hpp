// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What cards can do, to predict the time of a plan on one that is not at hand. Peaks are the vendor's data sheets.
/// What is sustained was measured on two of them: on the T4 236 of 320 GB/s and, within its 70 W, 24 of 65 TFLOP/s; on
/// the H200 4.3 of 4.8 TB/s and 790 of 989 TFLOP/s. Of the others those with GDDR6 and little power are taken to
/// sustain the shares of the T4, those with HBM the shares of the H200: assumptions, to be replaced by measurements.

#include <string>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/suggest.hpp"
#include "warprank/plan/cost.hpp"

namespace warprank::plan {

struct Card {
  const char* name;
  double peak_bandwidth;   ///< bytes a second; data sheet
  double peak_flops;       ///< FP16 on tensor cores, FP32 accumulation, dense, a second; data sheet
  double bandwidth_share;  ///< of the peak that is sustained
  double flops_share;

  constexpr double bandwidth() const { return peak_bandwidth * bandwidth_share; }
  constexpr double flops() const { return peak_flops * flops_share; }
};

inline constexpr double t4_bandwidth_share = 236.0 / 320, t4_flops_share = 24.0 / 65;
inline constexpr double h200_bandwidth_share = 4.3 / 4.8, h200_flops_share = 790.0 / 989;

inline constexpr Card cards[] = {
    {"T4", 320e9, 65e12, t4_bandwidth_share, t4_flops_share},           // measured
    {"A10", 600e9, 125e12, t4_bandwidth_share, t4_flops_share},         // shares assumed: GDDR6, 150 W
    {"L4", 300e9, 121e12, t4_bandwidth_share, t4_flops_share},          // shares assumed: GDDR6, 72 W
    {"A100", 1555e9, 312e12, h200_bandwidth_share, h200_flops_share},   // 40 GB; shares assumed
    {"H100", 3350e9, 989e12, h200_bandwidth_share, h200_flops_share},   // SXM; shares assumed
    {"H200", 4800e9, 989e12, h200_bandwidth_share, h200_flops_share}};  // measured

/// A captured graph takes 2.5 us to start and 0.2 us for each kernel: from memory of older cards, to be measured.
inline constexpr double graph_seconds = 2.5e-6, launch_seconds = 0.2e-6;

/// Throws invalid_argument for a card that is not in the table.
inline const Card& card_named(const std::string& name) {
  std::vector<std::string> names;
  for (const Card& card : cards) {
    if (name == card.name) return card;
    names.emplace_back(card.name);
  }
  throw invalid_argument("card '" + name + "'", "one of plan/cards.hpp", unknown_name(name, names));
}

/// The least that a step takes on a card: its launches, and then its bytes or its operations, whichever takes longer.
/// Small kernels, which do not fill a card, take longer.
constexpr double predicted_seconds(const Cost& cost, double launches, const Card& card) {
  const double memory = cost.bytes / card.bandwidth(), arithmetic = cost.flops / card.flops();
  return launches * launch_seconds + (memory > arithmetic ? memory : arithmetic);
}

}  // namespace warprank::plan
