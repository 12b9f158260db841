// SPDX-License-Identifier: Apache-2.0

// Pages about one user on the host engine, one thread, from a packed request to scores: each page as a whole request to
// the plan, and as the divided plan has it (plan/divide.hpp), where later pages are the items alone and join the states
// that the first has left. In turns within one benchmark. Counters: microseconds of a whole request, of the first page
// and of a later one; later_speedup of a later page, first_speedup of the first, and pages_speedup of four pages over
// as many whole requests; bytes of a whole request, of a later page, and of the states.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>

#include "measure.hpp"
#include "pages.hpp"
#include "warprank/host.hpp"

namespace warprank { namespace {

void pages(benchmark::State& state, const std::string& name, int64_t items) {
  constexpr int64_t num_pages = 4;
  bench::BatchShape shape;
  shape.items = items;
  bench::Pages pages(bench::reference_models().at(name), shape, host(), StateType::f32);
  const auto score_whole = [&] { benchmark::DoNotOptimize(pages.score_whole()); };
  const auto score_first = [&] { benchmark::DoNotOptimize(pages.score_first()); };
  const auto score_later = [&] { benchmark::DoNotOptimize(pages.score_later()); };

  bench::Minimum of_whole, of_first, of_later;
  const int64_t calls = bench::calls_for(5e-3, score_whole);
  for (auto _ : state) {
    of_whole.sample(score_whole, calls);
    of_first.sample(score_first, calls);
    of_later.sample(score_later, calls);
  }
  state.counters["whole_us"] = of_whole.value() * 1e6;
  state.counters["first_us"] = of_first.value() * 1e6;
  state.counters["later_us"] = of_later.value() * 1e6;
  state.counters["first_speedup"] = of_whole.value() / of_first.value();
  state.counters["later_speedup"] = of_whole.value() / of_later.value();
  state.counters["pages_speedup"] =
      num_pages * of_whole.value() / (of_first.value() + (num_pages - 1) * of_later.value());
  state.counters["whole_bytes"] = static_cast<double>(pages.whole_bytes());
  state.counters["later_bytes"] = static_cast<double>(pages.later_bytes());
  state.counters["state_bytes"] = static_cast<double>(pages.state_bytes());
}

const bool added = [] {
  for (const char* name : {"user_heavy", "wide_deep", "din_mmoe", "meituan_like"})
    for (const int64_t items : {5, 20, 100, 500})
      benchmark::RegisterBenchmark((std::string(name) + "/items:" + std::to_string(items)).c_str(),
                                   [=](benchmark::State& state) { pages(state, name, items); })
          ->Iterations(15)
          ->Unit(benchmark::kMillisecond);
  return true;
}();

}}  // namespace warprank
