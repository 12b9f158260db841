// SPDX-License-Identifier: Apache-2.0
//
// Every fault of faults.hpp is caught at its line, and its good twin raises nothing in a hundred random orders.

#include "simt/faults.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "simt/race.hpp"
#include "simt/runtime.hpp"

namespace {

using simt::DeviceArray;
using warprank::device::launch;
using warprank::device::launch_overlapping;
using warprank::device::LaunchConfig;
using OneArray = void (*)(float*);

struct Fault {
  std::string name;
  std::string expected;  // part of the message
  bool needs_race_build;
  std::function<void(bool broken)> run;
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

/// A fault of a kernel that takes one array of 512 zeros.
template <class Choose>
Fault of_kernel(const char* name, const char* expected, bool needs_race_build, LaunchConfig config, Choose choose) {
  return {name, expected, needs_race_build, [=](bool broken) {
            DeviceArray<float> out(512, 0.f);
            launch(config, choose(broken), out.data());
            simt::synchronize();
          }};
}

#define KERNEL(name) [](bool broken) { return broken ? &faults::name<true> : &faults::name<false>; }

template <class Choose>
Fault with_flag(const char* name, Choose choose, const char* expected = "data race in global memory") {
  return {name, expected, true, [=](bool broken) {
            DeviceArray<float> out(2, 0.f);
            DeviceArray<uint32_t> flag(1, 0);
            launch({2, 32}, choose(broken), out.data(), flag.data());
            EXPECT_EQ(out.read()[1], 1);
          }};
}

constexpr const char* read_only_of_written = "read-only load of memory that was written while the launch was in flight";

std::vector<Fault> all_faults() {
  std::vector<Fault> faults = {
      of_kernel("missing_barrier", "shared memory", true, {1, 128}, KERNEL(missing_barrier)),
      of_kernel("missing_second_barrier", "data race in shared", true, {1, 128}, KERNEL(missing_second_barrier)),
      of_kernel("missing_barrier_of_copies", "shared memory", true, {1, 32}, KERNEL(missing_barrier_of_copies)),
      of_kernel("missing_warp_barrier", "data race in shared", true, {1, 32}, KERNEL(missing_warp_barrier)),
      of_kernel("divergent_shuffle", "deadlock", false, {1, 32}, KERNEL(divergent_shuffle)),
      of_kernel("shuffle_outside_mask", "not in the mask", false, {1, 32}, KERNEL(shuffle_outside_mask)),
      of_kernel("mask_without_caller", "does not name the calling lane", false, {1, 32}, KERNEL(mask_without_caller)),
      of_kernel("exited_lane_in_mask", "exited", false, {1, 32}, KERNEL(exited_lane_in_mask)),
      of_kernel("different_operations", "different operations", false, {1, 32}, KERNEL(different_operations)),
      of_kernel("barrier_in_branch", "different barriers", false, {1, 64}, KERNEL(barrier_in_branch)),
      of_kernel("shared_out_of_bounds", "shared memory out of bounds", true, {1, 128}, KERNEL(shared_out_of_bounds)),
      of_kernel("misaligned_vector", "misaligned load", false, {1, 32}, KERNEL(misaligned_vector)),
      of_kernel("unwritten_shared", "read of unwritten shared", true, {1, 32}, KERNEL(unwritten_shared)),
      of_kernel("too_much_static_shared", "too much shared", false, {1, 32}, KERNEL(too_much_static_shared)),
      of_kernel("misaligned_matrices", "misaligned", false, {1, 32, 1024}, KERNEL(misaligned_matrices)),
      of_kernel("matrices_from_global", "not in shared memory", false, {1, 32, 512}, KERNEL(matrices_from_global)),
      of_kernel("mma_newer_than_target", "needs sm_80", false, {1, 32}, KERNEL(mma_newer_than_target)),
      of_kernel("copy_not_waited", "was not waited for", true, {1, 32, 512}, KERNEL(copy_not_waited)),
      of_kernel("copy_of_another", "shared memory", true, {1, 64, 1024}, KERNEL(copy_of_another)),
      of_kernel("early_reuse", "shared memory", true, {1, 64, 2048}, KERNEL(early_reuse)),
      of_kernel("blocks_write_one_place", "data race in global", true, {2, 32}, KERNEL(blocks_write_one_place)),
      of_kernel("read_only_load_of_own_write", read_only_of_written, true, {1, 32},
                KERNEL(read_only_load_of_own_write)),
      with_flag("release_weakened", KERNEL(release_weakened)),
      with_flag("acquire_weakened", KERNEL(acquire_weakened)),
      with_flag("release_scope_too_narrow", KERNEL(release_scope_too_narrow)),
      with_flag("fence_scope_too_narrow", KERNEL(fence_scope_too_narrow)),
  };
  for (const auto& [name, choose, plain] :
       {std::tuple<const char*, OneArray (*)(bool), bool>{"global_out_of_bounds",
                                                          [](bool b) -> OneArray {
                                                            return b ? &faults::global_out_of_bounds<true>
                                                                     : &faults::global_out_of_bounds<false>;
                                                          },
                                                          false},
        {"plain_out_of_bounds",
         [](bool b) -> OneArray {
           return b ? &faults::plain_out_of_bounds<true> : &faults::plain_out_of_bounds<false>;
         },
         true}}) {
    faults.push_back({name, "global memory out of bounds", plain, [choose = choose](bool broken) {
                        DeviceArray<float> out(128, 0.f);
                        launch({1, 128}, choose(broken), out.data());
                        simt::synchronize();
                      }});
  }
  faults.push_back({"unwritten_global", "read of unwritten global", true, [](bool broken) {
                      DeviceArray<float> out(32), scratch(32);
                      launch({1, 32}, KERNEL(unwritten_global)(broken), out.data(), scratch.data());
                      simt::synchronize();
                    }});
  faults.push_back({"host_memory", "not the device's", false, [](bool broken) {
                      DeviceArray<float> out(32, 0.f);
                      const std::vector<float> host(32);
                      launch({1, 1}, KERNEL(host_memory)(broken), out.data(), host.data());
                      simt::synchronize();
                    }});
  faults.push_back({"no_dynamic_shared", "no dynamic shared memory", false, [](bool broken) {
                      DeviceArray<float> out(32);
                      launch({1, 32, broken ? 0 : 128}, KERNEL(no_dynamic_shared)(broken), out.data());
                      simt::synchronize();
                    }});
  faults.push_back({"mma_by_half_a_warp", "all 32 lanes", false, [](bool broken) {
                      DeviceArray<float> out(32);
                      launch({1, broken ? 16u : 32u}, KERNEL(mma_by_half_a_warp)(broken), out.data());
                      simt::synchronize();
                    }});
  faults.push_back({"lost_update", "data race in global", true, [](bool broken) {
                      DeviceArray<uint32_t> slots(128, 0);
                      launch({2, 32}, KERNEL(lost_update)(broken), slots.data());
                      uint32_t taken = 0;
                      for (uint32_t slot : slots.read()) taken += slot;
                      EXPECT_EQ(taken, 64u);
                    }});
  faults.push_back({"missing_fence", "data race in global", true, [](bool broken) {
                      constexpr unsigned blocks = 6;
                      DeviceArray<float> out((blocks + 1) * 64);
                      DeviceArray<uint32_t> ticket(1, 0);
                      for (int again = 0; again < 2; ++again) {  // the last arriver leaves the ticket at 0
                        launch({blocks, 64}, KERNEL(missing_fence)(broken), out.data(), ticket.data());
                        EXPECT_EQ(out.read()[blocks * 64], blocks);
                      }
                    }});
  faults.push_back({"atomic_scope_too_narrow", "data race in global", true, [](bool broken) {
                      DeviceArray<uint32_t> count(1, 0);
                      launch({2, 32}, KERNEL(atomic_scope_too_narrow)(broken), count.data());
                      EXPECT_EQ(count.read()[0], 64u);
                    }});
  faults.push_back({"waits_for_nobody", "no progress", false, [](bool broken) {
                      DeviceArray<uint32_t> flag(1, 0);
                      launch({2, 32}, KERNEL(waits_for_nobody)(broken), flag.data());
                      simt::synchronize();
                    }});
  faults.push_back({"votes_for_ever", "no progress", false, [](bool broken) {
                      DeviceArray<uint32_t> flag(1, 0);
                      launch({2, 32}, KERNEL(votes_for_ever)(broken), flag.data());
                      simt::synchronize();
                    }});
  faults.push_back(
      {"stale_read_only_load", "read", true, [](bool broken) {
         DeviceArray<uint32_t> row(32, 0);
         DeviceArray<float> out(32);
         const auto update = broken ? &faults::update_row<true> : &faults::update_row<false>;
         launch({{1}, {32}, 0, simt::create_stream()}, update, row.data());
         launch({{1}, {32}, 0, simt::create_stream()}, KERNEL(stale_read_only_load)(broken), out.data(), row.data());
         simt::synchronize();
       }});
  faults.push_back({"constant_load_of_new_row", read_only_of_written, true, [](bool broken) {
                      DeviceArray<uint32_t> row(33, 0);
                      DeviceArray<float> out(32);
                      launch({{1}, {32}, 0, simt::create_stream()}, KERNEL(publish_row)(broken), row.data());
                      launch({{1}, {32}, 0, simt::create_stream()}, KERNEL(constant_load_of_new_row)(broken),
                             out.data(), row.data());
                      simt::synchronize();
                    }});
  faults.push_back({"unordered_launches", "data race in global", true, [](bool broken) {
                      DeviceArray<float> out(64, 0.f);
                      const auto first = simt::create_stream(), second = broken ? simt::create_stream() : first;
                      launch({{1}, {32}, 0, first}, KERNEL(produce)(broken), out.data());
                      launch({{1}, {32}, 0, second}, KERNEL(consume)(broken), out.data());
                      simt::synchronize();
                    }});
  // Two launches before the one that may be wrong: that it waits for the one before must be enough.
  const auto overlapping = [](const char* name, auto choose, unsigned threads, bool needs_race_build,
                              const char* expected) {
    return Fault{name, expected, needs_race_build, [=](bool broken) {
                   DeviceArray<float> values(128, 0.f);
                   const auto stream = simt::create_stream();
                   launch_overlapping({{1}, {32}, 0, stream}, faults::next_of<false>, values.data());
                   launch_overlapping({{1}, {32}, 0, stream}, faults::next_of<false>, values.data() + 32);
                   launch_overlapping({{1}, {threads}, 0, stream}, choose(broken), values.data() + 64);
                   simt::synchronize();
                 }};
  };
  faults.push_back(overlapping("early_read", KERNEL(early_read), 32, true, "data race in global memory"));
  faults.push_back(overlapping("constant_load_of_launch_before", KERNEL(constant_load_of_launch_before), 32, true,
                               "load of constants that the launch before has written"));
  faults.push_back(overlapping("early_write", KERNEL(early_write), 32, true, "data race in global memory"));
  faults.push_back(
      overlapping("early_wait_of_another", KERNEL(early_wait_of_another), 32, true, "data race in global memory"));
  faults.push_back(overlapping("early_end", KERNEL(early_end), 64, false, "exits before it has waited for the launch"));
  faults.push_back({"use_after_free", "global memory out of bounds", true, [](bool broken) {
                      DeviceArray<float> kept(32);
                      auto* freed = static_cast<float*>(simt::allocate(128));
                      simt::release(freed);
                      launch({1, 32}, KERNEL(touch)(broken), broken ? freed : kept.data());
                      simt::synchronize();
                    }});
  return faults;
}

/// The message of the Error that `run` throws; empty when it throws none.
std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const simt::Error& error) {
    return error.what();
  }
  return "";
}

/// The text of the line of faults.hpp that the message names.
std::string named_line(const std::string& message) {
  const std::string name = "faults.hpp:";
  const size_t found = message.find(name);
  if (found == std::string::npos) return "";
  const size_t begin = message.rfind(' ', found) + 1, number = found + name.size();
  std::ifstream source(message.substr(begin, number - 1 - begin));
  std::string line;
  for (int i = std::atoi(message.c_str() + number); i > 0; --i) std::getline(source, line);
  return line;
}

class Faults : public testing::TestWithParam<Fault> {
 protected:
  void SetUp() override {
    if (GetParam().needs_race_build && !simt::race::enabled()) GTEST_SKIP() << "only the race build sees it";
  }
  void TearDown() override { simt::reset(); }

  static simt::Config random_order(uint64_t seed) {
    simt::Config config;
    config.seed = seed;
    config.watchdog = 20'000;
    return config;
  }
};

TEST_P(Faults, AreCaughtAtTheirLine) {
  constexpr int max_seeds = 20;
  std::string message;
  int seed = 0;
  while (message.empty() && ++seed <= max_seeds) {
    simt::reset(random_order(static_cast<uint64_t>(seed)));
    message = error_of([&] { GetParam().run(true); });
  }
  ASSERT_LE(seed, max_seeds) << "not caught";
  EXPECT_NE(message.find(GetParam().expected), std::string::npos) << message;
  EXPECT_NE(message.find("thread"), std::string::npos) << message;
  EXPECT_NE(named_line(message).find("// " + GetParam().name), std::string::npos) << message;
}

TEST_P(Faults, AreNotSeenInTheirGoodTwin) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    simt::reset(random_order(seed));
    ASSERT_EQ(error_of([&] { GetParam().run(false); }), "") << "seed " << seed;
  }
  for (const simt::Schedule schedule : {simt::Schedule::forward, simt::Schedule::reverse}) {
    simt::Config config = random_order(1);
    config.schedule = schedule;
    simt::reset(config);
    ASSERT_EQ(error_of([&] { GetParam().run(false); }), "");
  }
}

INSTANTIATE_TEST_SUITE_P(All, Faults, testing::ValuesIn(all_faults()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
