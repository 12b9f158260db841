// SPDX-License-Identifier: Apache-2.0
//
// The executor itself: what collectives give, fragments of tensor cores, limits, and that it goes on after errors.

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <string>
#include <vector>

#include "simt/asan.hpp"
#include "simt/runtime.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/mma.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"

namespace {

using namespace warprank::device;  // NOLINT: most of this are kernels
using simt::DeviceArray;

int wrong = 0;  // checks inside kernels that failed
void check(bool right) { wrong += right ? 0 : 1; }

class Executor : public testing::TestWithParam<simt::Schedule> {
 protected:
  void SetUp() override {
    simt::Config config;
    config.schedule = GetParam();
    simt::reset(config);
    wrong = 0;
  }
  void TearDown() override { simt::reset(); }

  static std::string error_of(void (*kernel)(), Dim3 block, int64_t shared_bytes = 0) {
    try {
      launch({1, block, shared_bytes}, kernel);
      simt::synchronize();
    } catch (const simt::Error& error) {
      return error.what();
    }
    return "";
  }
};

void shuffles() {
  const int lane = lane_index();
  for (const int width : {2, 4, 8, 16, 32}) {
    const int first = lane / width * width;
    check(shuffle(full_warp, lane, 3, width) == first + 3 % width);
    check(shuffle_up(full_warp, lane, 1, width) == (lane > first ? lane - 1 : lane));
    check(shuffle_down(full_warp, lane, 1, width) == (lane + 1 < first + width ? lane + 1 : lane));
    check(shuffle_xor(full_warp, lane, 1, width) == (lane ^ 1));
  }
  check(shuffle(full_warp, lane * 1.5, 20) == 30.0);
  if (lane < 16) {
    check(shuffle(0xffffu, lane, 7) == 7);
  } else {
    check(shuffle(0xffff0000u, lane, 20) == 20);
  }
}
TEST_P(Executor, ShufflesGiveTheValueOfTheNamedLane) {
  launch({2, 64}, shuffles);
  simt::synchronize();
  EXPECT_EQ(wrong, 0);
}

void votes() {
  const int lane = lane_index();
  check(ballot(full_warp, lane % 3 == 0) == 0x49249249u);
  check(any(full_warp, lane == 5) && !any(full_warp, lane == 32));
  check(all(full_warp, lane < 32) && !all(full_warp, lane == 5));
  check(match(full_warp, lane / 16) == (lane < 16 ? 0xffffu : 0xffff0000u));
  check(reduce_add(full_warp, static_cast<uint32_t>(lane)) == 496u);
  check(Tile<8>::ballot(lane % 8 == 2) == 4u);
  check(Tile<8>::sum(lane) == lane / 8 * 8 * 8 + 28);
  check(Tile<16>::max(lane) == lane / 16 * 16 + 15);
  check(sync_block_count(lane == 0) == 2);
  check(sync_block_any(lane == 9) && !sync_block_any(false));
  check(sync_block_all(true) && !sync_block_all(lane == 9));
}
TEST_P(Executor, VotesAndReductionsCountTheLanesOfTheirMask) {
  launch({2, 64}, votes);
  simt::synchronize();
  EXPECT_EQ(wrong, 0);
}

void indices(uint32_t* seen) {
  const Dim3 t = thread_index(), b = block_index(), nt = block_dim(), nb = grid_dim();
  const unsigned thread = (t.z * nt.y + t.y) * nt.x + t.x, block = (b.z * nb.y + b.y) * nb.x + b.x;
  atomic_add<Order::relaxed, Scope::device>(&seen[block * nt.x * nt.y * nt.z + thread], 1u);
}
TEST_P(Executor, EveryThreadOfAThreeDimensionalGridRunsOnce) {
  DeviceArray<uint32_t> seen(3 * 2 * 2 * 64, 0);
  launch({{3, 2, 2}, {4, 8, 2}}, indices, seen.data());
  EXPECT_EQ(seen.read(), std::vector<uint32_t>(3 * 2 * 2 * 64, 1));
}

void partial_warp(uint32_t* votes) {
  const uint32_t found = ballot(full_warp, true);
  if (lane_index() == 0) votes[warp_index()] = found;
  if (thread_rank() >= 36) return;
  sync_block();  // threads that have exited do not hold it
}
TEST_P(Executor, LastWarpMayBePartialAndThreadsMayExitEarly) {
  DeviceArray<uint32_t> votes(2);
  launch({1, 40}, partial_warp, votes.data());
  EXPECT_EQ(votes.read(), (std::vector<uint32_t>{0xffffffffu, 0xffu}));
}

void spin(uint32_t* flag, uint32_t* out) {
  if (block_index().x + thread_rank() == 0) {
    while (load<Order::acquire, Scope::device>(flag) == 0) {
    }
    store(out, load(flag + 1));
  } else if (block_index().x == 1 && thread_rank() == 63) {
    store(flag + 1, 9u);
    store<Order::release, Scope::device>(flag, 1u);
  }
}
TEST_P(Executor, ThreadMayWaitForAnotherBlock) {
  DeviceArray<uint32_t> flag(2, 0), out(1);
  launch({2, 64}, spin, flag.data(), out.data());
  EXPECT_EQ(out.read()[0], 9u);
}

void wait_for_flag(uint32_t* flag) {
  while (load<Order::acquire, Scope::device>(flag) == 0) {
  }
}
void set_flag(uint32_t* flag) { store<Order::release, Scope::device>(flag, 1u); }
TEST_P(Executor, LaunchMayWaitForAnotherStream) {
  DeviceArray<uint32_t> flag(1, 0);
  const Stream first = simt::create_stream(), second = simt::create_stream();
  launch({{3}, {32}, 0, first}, wait_for_flag, flag.data());
  launch({{1}, {1}, 0, second}, set_flag, flag.data());
  simt::synchronize(first);
}

/// Fills a register of a fragment: element i of the lane is value(row, column).
template <int Depth>
void multiply(const float* a, const float* b, float* d) {
  const int group = lane_index() / 4, pair = lane_index() % 4 * 2;
  uint32_t fragment_a[Depth / 4], fragment_b[Depth / 8];
  const auto at = [](const float* matrix, int index) { return narrow<warprank::float16>(matrix[index]); };
  for (int i = 0; i < Depth / 4; ++i) {  // as the table in mma.hpp has it
    const int row = group + i % 2 * 8, k = pair + i / 2 * 8;
    fragment_a[i] = pack_halves(at(a, row * Depth + k), at(a, row * Depth + k + 1));
  }
  for (int i = 0; i < Depth / 8; ++i) {
    const int k = pair + i * 8;
    fragment_b[i] = pack_halves(at(b, k * 8 + group), at(b, (k + 1) * 8 + group));
  }
  float sums[4] = {1, 1, 1, 1};
  if constexpr (Depth == 8) mma_m16n8k8(sums, fragment_a, fragment_b, sums);
  if constexpr (Depth == 16) mma_m16n8k16(sums, fragment_a, fragment_b, sums);
  for (int i = 0; i < 4; ++i) d[(group + i / 2 * 8) * 8 + pair + i % 2] = sums[i];
}
template <int Depth>
void expect_product() {
  std::vector<float> a(16 * Depth), b(Depth * 8);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i * 5 % 13) - 6;
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i * 3 % 11) - 5;
  DeviceArray<float> device_a(a), device_b(b), d(16 * 8);
  launch({1, 32}, multiply<Depth>, device_a.data(), device_b.data(), d.data());
  const std::vector<float> result = d.read();
  for (size_t row = 0; row < 16; ++row) {
    for (size_t col = 0; col < 8; ++col) {
      float sum = 1;
      for (size_t k = 0; k < Depth; ++k) sum += a[row * Depth + k] * b[k * 8 + col];
      EXPECT_EQ(result[row * 8 + col], sum);
    }
  }
}
TEST_P(Executor, MmaMultipliesWhatItsFragmentsHold) {
  expect_product<8>();
  simt::Config ampere;
  ampere.target = 80;
  simt::reset(ampere);
  expect_product<16>();
}

template <int Count, bool Transposed>
void load_fragments(uint32_t* out) {
  auto* halves = dynamic_shared<uint16_t>();
  const int lane = lane_index();
  for (int i = lane; i < 256; i += 32) halves[i] = static_cast<uint16_t>(i);  // row r of matrix m begins at (8 m + r) 8
  sync_warp();
  uint32_t fragment[Count];
  load_matrices<Transposed>(fragment, &halves[lane % (8 * Count) * 8]);
  for (int m = 0; m < Count; ++m) out[lane * Count + m] = fragment[m];
}
template <int Count, bool Transposed>
void expect_fragments() {
  DeviceArray<uint32_t> out(32 * Count);
  launch({1, 32, 512}, load_fragments<Count, Transposed>, out.data());
  const std::vector<uint32_t> fragments = out.read();
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t group = lane / 4, pair = lane % 4 * 2;
    for (uint32_t m = 0; m < Count; ++m) {
      const uint32_t low = m * 64 + (Transposed ? pair * 8 + group : group * 8 + pair);
      const uint32_t high = low + (Transposed ? 8 : 1);
      EXPECT_EQ(fragments[lane * Count + m], low | high << 16);
    }
  }
}
TEST_P(Executor, LoadMatricesGivesTheLayoutOfFragments) {
  expect_fragments<1, false>();
  expect_fragments<2, false>();
  expect_fragments<4, false>();
  expect_fragments<1, true>();
  expect_fragments<2, true>();
  expect_fragments<4, true>();
}

void atomics(uint32_t* numbers, uint64_t* wide) {
  atomic_add<Order::relaxed, Scope::device>(&numbers[0], 2u);
  atomic_max<Order::relaxed, Scope::device>(&numbers[1], static_cast<uint32_t>(thread_rank()));
  atomic_min<Order::relaxed, Scope::device>(&numbers[2], static_cast<uint32_t>(thread_rank()));
  take_ticket<Order::acq_rel, Scope::device>(&numbers[3], 63);
  atomic_add<Order::relaxed, Scope::system>(wide, uint64_t{1} << 32);
}
TEST_P(Executor, AtomicsOfAllThreadsCount) {
  DeviceArray<uint32_t> numbers(4, 0);
  DeviceArray<uint64_t> wide(1, 0);
  simt::fill(numbers.data() + 2, 0xff, 4);
  launch({4, 64}, atomics, numbers.data(), wide.data());
  EXPECT_EQ(numbers.read(), (std::vector<uint32_t>{512, 63, 0, 0}));
  EXPECT_EQ(wide.read()[0], uint64_t{256} << 32);
  EXPECT_EQ(simt::counters().atomics, 5 * 256);
}

void halves(float* out) {
  out[0] = widen(narrow<warprank::float16>(1.f / 3));
  out[1] = widen(narrow<warprank::bfloat16>(1.f / 3));
  out[2] = widen(int8_t{-7});
  out[3] = widen(high_half(pack_halves(narrow<warprank::float16>(1), narrow<warprank::float16>(2))));
  out[4] = widen(narrow<warprank::float16>(65520));
  out[5] = widen(narrow<warprank::float16>(-FLT_MAX));
  out[6] = widen(narrow<warprank::float16>(-INFINITY));
  out[7] = widen(narrow<warprank::float16>(NAN));
}
TEST_P(Executor, HalvesRoundToNearestAndStayFinite) {
  DeviceArray<float> out(8);
  launch({1, 1}, halves, out.data());
  std::vector<float> values = out.read();
  EXPECT_TRUE(std::isnan(values.back()));
  values.pop_back();
  EXPECT_EQ(values, (std::vector<float>{0.333251953125f, 0.333984375f, -7, 2, 65504, -65504, -INFINITY}));
}

void arrive(uint32_t* count, uint32_t* order) {
  order[global_thread_rank()] = atomic_add<Order::relaxed, Scope::device>(count, 1u);
}
TEST(Schedules, SameSeedGivesTheSameOrder) {
  const auto order_of = [](uint64_t seed) {
    simt::Config config;
    config.seed = seed;
    simt::reset(config);
    DeviceArray<uint32_t> count(1, 0), order(3 * 40);
    launch({3, 40}, arrive, count.data(), order.data());
    return order.read();
  };
  EXPECT_EQ(order_of(5), order_of(5));
  EXPECT_NE(order_of(5), order_of(6));
  simt::reset();
}

void nothing() {}
TEST_P(Executor, RefusesLaunchesThatNoTargetCanRun) {
  EXPECT_NE(error_of(nothing, 1025).find("1025 threads"), std::string::npos);
  EXPECT_NE(error_of(nothing, {32, 32, 2}).find("2048 threads"), std::string::npos);
  EXPECT_NE(error_of(nothing, 0).find("0 threads"), std::string::npos);
  const std::string too_much = error_of(nothing, 32, 65537);
  EXPECT_NE(too_much.find("launch refused: 65537 bytes of shared memory, sm_75 has 65536"), std::string::npos);
  EXPECT_NE(too_much.find("executor_test.cpp:"), std::string::npos) << too_much;
  simt::Config hopper;
  hopper.target = 90;
  simt::reset(hopper);
  EXPECT_EQ(error_of(nothing, 32, 227 << 10), "");
  EXPECT_EQ(error_of(nothing, 1024), "");
}

void large_static_shared() {
  struct Storage {
    float values[5000];
  };
  static_shared<Storage>().values[0] = 1;
}
TEST_P(Executor, RefusesStaticSharedMemoryThatALaunchWithoutOptInHasNoRoomFor) {
  EXPECT_EQ(error_of(large_static_shared, 1, 28 << 10), "");
  EXPECT_EQ(error_of(large_static_shared, 1, (32 << 10) + 16), "");
  const std::string too_much = error_of(large_static_shared, 1, 32 << 10);
  EXPECT_NE(too_much.find("20000 bytes static and 32768 dynamic, the launch allows 49152 and 49152 in all"),
            std::string::npos)
      << too_much;
}
TEST_P(Executor, LaunchesNothingForAnEmptyGrid) {
  launch({0, 32}, nothing);
  simt::synchronize();
  EXPECT_EQ(simt::counters().launches, 0);
}

void barrier_by_one() {
  if (thread_rank() == 0) shuffle(full_warp, 1, 0);
  sync_block();
}
void barriers() {
  for (int i = 0; i < 10; ++i) sync_block();
}
TEST_P(Executor, RunsOnAfterAnError) {
  EXPECT_NE(error_of(barrier_by_one, 64).find("deadlock"), std::string::npos);
  EXPECT_EQ(error_of(barriers, 1024), "");
  EXPECT_EQ(simt::counters().barriers, 10);
}

void write_behind(float* out) { out[thread_rank() + 1] = 1; }
TEST_P(Executor, FindsDamageBehindAnAllocation) {
  DeviceArray<float> out(32, 0.f);
  const auto run = [&] {
    launch({1, 32}, write_behind, out.data());
    simt::synchronize();
  };
  if (simt::address_sanitizer) {
    EXPECT_DEATH(run(), "use-after-poison");
    return;
  }
  try {
    run();
    FAIL() << "nothing thrown";
  } catch (const simt::Error& error) {
    EXPECT_NE(std::string(error.what()).find("global memory out of bounds"), std::string::npos);
  }
}

void write_beside(float* out) {
  struct Storage {
    float values[32];
  };
  float* values = static_shared<Storage>().values;
  values[thread_rank() + 1] = 1;
  out[thread_rank()] = 1;
}
TEST_P(Executor, FindsDamageBesideSharedStorage) {
  DeviceArray<float> out(32, 0.f);
  const auto run = [&] {
    launch({1, 32}, write_beside, out.data());
    simt::synchronize();
  };
  if (simt::address_sanitizer) {
    EXPECT_DEATH(run(), "use-after-poison");
    return;
  }
  try {
    run();
    FAIL() << "nothing thrown";
  } catch (const simt::Error& error) {
    EXPECT_NE(std::string(error.what()).find("shared memory out of bounds"), std::string::npos);
  }
}

TEST_P(Executor, VocabularyMeansNothingOutsideOfKernels) { EXPECT_THROW(sync_block(), simt::Error); }

std::string name_of(const testing::TestParamInfo<simt::Schedule>& schedule) {
  const char* names[] = {"forward", "reverse", "random"};
  return names[static_cast<int>(schedule.param)];
}
INSTANTIATE_TEST_SUITE_P(Orders, Executor,
                         testing::Values(simt::Schedule::forward, simt::Schedule::reverse, simt::Schedule::random),
                         name_of);

}  // namespace
