// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What decides how long a small kernel takes: of its busiest warp the operations of the vocabulary, by kind; barriers;
/// and how many loads wait for one another (simt/load_rounds.hpp says how far that is known). Tables of these stand in
/// tests/counts.json, so that whoever makes a kernel longer sees it:
///
///     TEST(LongestWarps, OfFm) {
///       CountTable table(longest_warp_columns({"fields", "rows"}));
///       add_longest_warp(table, [&](const Config& config) { reset(config); ... launch, synchronize ... }, 24, 100);
///     }

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "simt/load_rounds.hpp"
#include "support/counts.hpp"
#include "support/kernel_testing.hpp"

namespace kernel_testing {

inline std::vector<const char*> longest_warp_columns(std::vector<const char*> of_what) {
  of_what.push_back("operations");
  for (const simt::WarpOperations::Kind& kind : simt::WarpOperations::kinds) of_what.push_back(kind.name);
  of_what.push_back("rounds of loads");
  return of_what;
}

inline Config config_of_longest_warp() {
  Config config;
  config.target = 80;
  config.multiprocessors = 132;
  config.schedule = simt::Schedule::forward;
  return config;
}

/// As below, of a run whose loads are not tried: it is long, or its blocks wait for one another, with wrong values for
/// ever.
template <class... Cells>
void add_operations_of_longest_warp(CountTable& table, const std::function<void(const Config&)>& run,
                                    const std::string& rounds, const Cells&... cells) {
  Config config = config_of_longest_warp();
  config.count_warps = true;
  run(config);
  const simt::WarpOperations busiest = counters().busiest_warp;
  EXPECT_GT(busiest.total(), 0);
  reset();
  std::vector<std::string> row;
  const auto add = [&](const auto& cell) {
    std::ostringstream text;
    text << cell;
    row.push_back(text.str());
  };
  (add(cells), ...);
  add(busiest.total());
  for (const simt::WarpOperations::Kind& kind : simt::WarpOperations::kinds) add(busiest.*kind.count);
  add(rounds);
  table.add_row(row);
}

/// Adds a row: what was launched, and what was counted. `run` begins with a reset to the config that it is given, and
/// does all that it does in the same way each time. Returns the loads that wait for one another.
template <class... Cells>
simt::LoadRounds add_longest_warp(CountTable& table, const std::function<void(const Config&)>& run,
                                  const Cells&... cells) {
  testing::TestPartResultArray failures;
  const simt::LoadRounds rounds = [&] {
    // Wrong values make wrong results, which processes of their own would print.
    const testing::ScopedFakeTestPartResultReporter ignore(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
    return simt::load_rounds([&] { run(config_of_longest_warp()); });
  }();
  EXPECT_EQ(failures.size(), 0) << "of the run as it is";
  add_operations_of_longest_warp(table, run, std::to_string(rounds.rounds), cells...);
  return rounds;
}

}  // namespace kernel_testing
