// SPDX-License-Identifier: Apache-2.0
//
// The model of a card: what it is told, its caches, pipes and schedulers, on kernels whose time is known.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <sstream>

#include "model/accesses.hpp"
#include "model/report.hpp"
#include "model/simulation.hpp"
#include "t4/assembled.hpp"

namespace {

using t4_testing::error_of, t4_testing::Kernel;
using testing::AllOf, testing::HasSubstr;

const t4::Card& card() {
  static const t4::Card t4 = t4::read_card(WARPRANK_TEST_DATA "/../tools/t4/cards/t4.card");
  return t4;
}

TEST(T4Card, IsReadWithTheSourcesOfItsParameters) {
  EXPECT_EQ(card().multiprocessors, 40);
  EXPECT_EQ(card().l2_latency, 188);
  EXPECT_EQ(t4::read_card(WARPRANK_TEST_DATA "/../tools/t4/cards/h100.card").multiprocessors, 132);
  const auto error = [](const std::string& text) {
    std::istringstream in(text);
    return error_of([&] { t4::parse_card(in, "my.card"); });
  };
  EXPECT_EQ(error("# mine\nmultiprocessors 40"),
            "my.card:2: expected a name, a number and its source, got multiprocessors 40");
  EXPECT_EQ(error("cores 40 guessed"), "my.card:1: there is no parameter cores");
  EXPECT_THAT(error("gigahertz 0 guessed"), HasSubstr("my.card:1: expected more than 0 for gigahertz"));
  EXPECT_EQ(error("gigahertz 1 guessed\ngigahertz 2 guessed"), "my.card:2: got gigahertz a second time");
  EXPECT_EQ(error("gigahertz 1 guessed"), "my.card: barrier_interval is missing");
  EXPECT_THAT(error_of([] { t4::read_card("/nowhere"); }), HasSubstr("/nowhere cannot be read"));
}

// ---- Memory

std::vector<uint64_t> every(uint64_t stride, int count = 32) {
  std::vector<uint64_t> addresses;
  for (int i = 0; i < count; ++i) addresses.push_back(4096 + stride * static_cast<uint64_t>(i));
  return addresses;
}
int waves(uint64_t stride, int width) { return t4::wavefronts(every(stride).data(), 32, width); }

TEST(T4Accesses, BanksAreAskedOneWordAtATime) {
  EXPECT_EQ(waves(4, 4), 1);
  EXPECT_EQ(waves(0, 4), 1) << "all want the same word";
  EXPECT_EQ(waves(8, 4), 2);
  EXPECT_EQ(waves(12, 4), 1) << "3 and 32 have no common factor";
  EXPECT_EQ(waves(128, 4), 32);
  EXPECT_EQ(waves(1, 1), 1);
  EXPECT_EQ(waves(8, 8), 2) << "halves of the warp, each of all banks";
  EXPECT_EQ(waves(16, 16), 4);
  EXPECT_EQ(waves(32, 16), 8);
  EXPECT_EQ(waves(0, 16), 4) << "a quarter of the warp at a time";
}

TEST(T4Accesses, SectorsAreAskedForOnce) {
  std::vector<uint64_t> sectors;
  const auto count = [&](uint64_t stride, int width) {
    t4::find_sectors(every(stride).data(), 32, width, sectors);
    return std::pair(static_cast<int>(sectors.size()), t4::count_lines(sectors));
  };
  EXPECT_EQ(count(4, 4), std::pair(4, 1));
  EXPECT_EQ(count(16, 16), std::pair(16, 4));
  EXPECT_EQ(count(128, 4), std::pair(32, 32));
  EXPECT_EQ(count(0, 8), std::pair(1, 1));
  const uint64_t odd[] = {30};
  t4::find_sectors(odd, 1, 4, sectors);
  EXPECT_EQ(sectors, std::vector<uint64_t>({0, 1}));
}

TEST(T4Caches, WhatWasUsedLongestAgoGoes) {
  t4::SectorCache cache(4 * 128, 4);  // one set of four lines
  for (uint64_t line = 1; line <= 4; ++line) cache.line(line).there[0] = static_cast<double>(line);
  cache.line(1).written = 0b101;
  cache.line(2);
  EXPECT_LT(cache.line(5).there[0], 0) << "in the place of 3";
  EXPECT_EQ(cache.line(1).there[0], 1);
  EXPECT_LT(cache.line(3).there[0], 0) << "in the place of 4";
  EXPECT_EQ(cache.written_back(), 0u);
  for (const uint64_t line : {6, 7, 8, 9}) cache.line(line);
  EXPECT_EQ(cache.written_back(), 2u);
  cache.line(9).there[1] = 77;
  cache.settle();
  EXPECT_EQ(cache.line(9).there[1], 0);
  EXPECT_LT(cache.line(9).there[2], 0);
}

// ---- Kernels

/// What a launch takes, of an L2 that has what it used before.
t4::Timing time(Kernel& kernel, t4::SecondLevel& second_level, const t4::Card& on = card()) {
  t4::CodeMemory code(on);
  return t4::Simulation(on, second_level, code, kernel.launch, true).run();
}
t4::Timing time(Kernel& kernel, const t4::Card& on = card()) {
  t4::SecondLevel second_level(on);
  return time(kernel, second_level, on);
}
/// Cycles of each further turn of a loop of these instructions.
double cycles_of_turn(const std::string& lines, t4::Dim3 block = {32, 1, 1}) {
  const auto cycles = [&](const std::string& turns) {
    Kernel kernel(
        "IMAD.MOV.U32 R20, RZ, RZ, " + turns + " ! 4\nagain:\n" + lines +
            "\nIADD3 R20, R20, -0x1, RZ ! 4\nISETP.NE.AND P6, PT, R20, RZ, PT ! 12\n@P6 BRA `(again) ! 1\nEXIT",
        {}, block, 4096);
    return time(kernel).cycles;
  };
  return (cycles("0xc8") - cycles("0x64")) / 100;
}
constexpr double loop_cycles = 4 + 12 + 7;  // its own: the branch is taken

TEST(T4Model, StallsAsTheControlCodeSays) {
  EXPECT_DOUBLE_EQ(cycles_of_turn("FFMA R0, R0, R1, R2 ! 4"), loop_cycles + 4);
  EXPECT_DOUBLE_EQ(cycles_of_turn("FFMA R0, R0, R1, R2 ! 4\nFFMA R0, R0, R1, R2 ! 15"), loop_cycles + 19);
}

TEST(T4Model, PipesTakeAWarpEverySoManyCycles) {
  // Eight warps, two for each scheduler, that could issue every cycle: the pipes of 16 lanes take two for each.
  std::string fmas, functions, products;
  for (int i = 0; i < 8; ++i) {
    fmas += "FFMA R" + std::to_string(i) + ", R9, R10, R11 ! 1\n";
    functions += "MUFU.EX2 R" + std::to_string(i) + ", R9 ! 1\n";
    products += "HMMA.1688.F32 R" + std::to_string(4 * (i % 2)) + ", R8, R10, RZ ! 1\n";
  }
  const t4::Dim3 two_for_each{256, 1, 1};
  EXPECT_NEAR(cycles_of_turn(fmas, two_for_each), 2 * 8 * 2, 8);
  EXPECT_NEAR(cycles_of_turn(functions, two_for_each), 2 * 8 * card().function_interval, 8);
  EXPECT_NEAR(cycles_of_turn(products, two_for_each), 2 * 8 * card().tensor_interval, 8);
}

TEST(T4Model, LoadsTakeAsLongAsTheirCacheIsFar) {
  const double shared = cycles_of_turn("LDS R0, [0x10] ! 2 w0\nIADD3 R0, R0, 0x0, RZ ! 4 u1");
  EXPECT_NEAR(shared, loop_cycles + card().shared_latency + 4, 2);
  const double conflicts = cycles_of_turn(
      "S2R R1, SR_LANEID ! 2 w0\nSHF.L.U32 R1, R1, 0x7, RZ ! 6 u1\nLDS R0, [R1] ! 2 w0\nIADD3 R0, R0, 0x0, RZ ! 4 u1");
  const double without = cycles_of_turn(
      "S2R R1, SR_LANEID ! 2 w0\nSHF.L.U32 R1, R1, 0x2, RZ ! 6 u1\nLDS R0, [R1] ! 2 w0\nIADD3 R0, R0, 0x0, RZ ! 4 u1");
  EXPECT_NEAR(conflicts - without, 2 * 31, 1);
}

/// Follows pointers, `count` of them `stride` bytes apart.
struct Chase {
  std::vector<uint64_t> data;
  Kernel kernel;

  Chase(size_t count, size_t stride, const std::string& load)
      : data(count * stride / 8 + 1),
        kernel(
            "IMAD.MOV.U32 R2, RZ, RZ, c[0x0][0x160] ! 4\nIMAD.MOV.U32 R3, RZ, RZ, c[0x0][0x164] ! 4\n"
            "IMAD.MOV.U32 R20, RZ, RZ, 0x800 ! 4\nagain:\n" +
                load +
                " R2, [R2] ! 2 w0\n"
                "IADD3 R20, R20, -0x1, RZ ! 4\nISETP.NE.AND P6, PT, R20, RZ, PT ! 12\n@P6 BRA `(again) ! 1 u1\nEXIT",
            {}, {1, 1, 1}) {
    for (size_t i = 0; i < count; ++i)
      data[i * stride / 8] = reinterpret_cast<uint64_t>(&data[(i + 1) % count * stride / 8]);
    kernel.memory.add(data.data(), 8 * data.size());
    kernel.launch.constants.resize(0x168);
    const uint64_t first = reinterpret_cast<uint64_t>(data.data());
    std::memcpy(kernel.launch.constants.data() + 0x160, &first, 8);
  }
};
TEST(T4Model, PointersAreFollowedAtTheLatencyOfEachCache) {
  constexpr double steps = 2048;
  t4::SecondLevel second_level(card());
  Chase near(8, 128, "LDG.E.64.SYS");
  EXPECT_NEAR(time(near.kernel, second_level).cycles / steps, card().l1_latency + 7, 0.1 * card().l1_latency);
  Chase far(2048, 128, "LDG.E.64.STRONG.GPU");  // which passes the L1
  const t4::Timing cold = time(far.kernel, second_level), warm = time(far.kernel, second_level);
  EXPECT_EQ(cold.dram_sectors, 2048u);
  EXPECT_EQ(warm.dram_sectors, 0u);
  EXPECT_NEAR(warm.cycles / steps, card().l2_latency + 7, 0.1 * card().l2_latency);
  EXPECT_NEAR(cold.cycles / steps, card().dram_latency + card().l2_latency + 7, 0.1 * card().dram_latency);
}

TEST(T4Model, CodeIsFetchedOnce) {
  std::string straight;
  for (int i = 0; i < 800; ++i) straight += "FFMA R0, R0, R1, R2 ! 4\n";
  Kernel kernel(straight + "EXIT");
  const t4::Timing once = time(kernel);
  EXPECT_NEAR(once.cycles, 800 * 4, 250) << "100 lines of 8 instructions come in time";
  t4::Card slow = card();
  slow.fetch_line_cycles = 100;
  Kernel again(straight + "EXIT");
  EXPECT_NEAR(time(again, slow).cycles, 100 * 100, 500) << "it waits for each line";
  EXPECT_LT(cycles_of_turn(straight), loop_cycles + 800 * 4 + 10) << "the caches have it";
}

TEST(T4Model, CodeStaysFromLaunchToLaunch) {
  std::string straight;
  for (int i = 0; i < 800; ++i) straight += "FFMA R0, R0, R1, R2 ! 2\n";
  Kernel kernel(straight + "EXIT"), other("FFMA R0, R0, R1, R2 ! 2\nEXIT");
  t4::SecondLevel second_level(card());
  t4::CodeMemory code(card());
  const auto run = [&](Kernel& which) {
    return t4::Simulation(card(), second_level, code, which.launch, false).run().cycles;
  };
  const double cold = run(kernel);
  EXPECT_NEAR(cold, 100 * card().fetch_line_cycles, 300);
  run(other);
  EXPECT_NEAR(run(kernel), 100 * card().l0_code_cycles, 200) << "from the L1.5 or the L0";
}

/// An H100's.
const t4::Card& newer_card() {
  static const t4::Card h100 = t4::read_card(WARPRANK_TEST_DATA "/../tools/t4/cards/h100.card");
  return h100;
}

TEST(T4Model, NewerCardsTakeMoreAtOnce) {
  const auto cycles = [](const std::string& line, const t4::Card& on) {
    std::string lines;
    for (int i = 0; i < 400; ++i) lines += line + " ! 1 w0\n";
    Kernel kernel(lines + "IADD3 R0, R0, 0x0, RZ ! 1 u1\nEXIT", {}, {256, 1, 1}, 4096);  // two warps for each scheduler
    t4::Card fetches = on;
    fetches.fetch_line_cycles = 1;
    return time(kernel, fetches).cycles;
  };
  EXPECT_NEAR(cycles("FFMA R0, R9, R10, R11", card()), 2 * 400 * 2, 100);
  EXPECT_NEAR(cycles("FFMA R0, R9, R10, R11", newer_card()), 2 * 400, 200) << "32 lanes";
  EXPECT_NEAR(cycles("IMAD R0, R9, R10, R11", newer_card()), 2 * 400 * 2, 100);
  EXPECT_NEAR(cycles("HMMA.16816.F32 R0, R8, R10, RZ", newer_card()), 2 * 400 * 2 * newer_card().tensor_interval, 200);
  EXPECT_NEAR(cycles("LDS R0, [0x10]", card()), 8 * 400 * 2, 100) << "16 units";
  EXPECT_NEAR(cycles("LDS R0, [0x10]", newer_card()), 8 * 400, 150) << "32 units";
}

TEST(T4Model, CopiesIntoSharedMemoryAreAwaitedByGroup) {
  std::vector<uint32_t> data(64);
  const auto cycles = [&](const std::string& lines) {
    Kernel kernel(
        "IMAD.MOV.U32 R2, RZ, RZ, c[0x0][0x160] ! 4\nIMAD.MOV.U32 R3, RZ, RZ, c[0x0][0x164] ! 4\n" + lines + "EXIT", {},
        {1, 1, 1}, 4096);
    kernel.memory.add(data.data(), 4 * data.size());
    kernel.launch.constants.resize(0x168);
    const uint64_t first = reinterpret_cast<uint64_t>(data.data());
    std::memcpy(kernel.launch.constants.data() + 0x160, &first, 8);
    t4::SecondLevel second_level(newer_card());
    time(kernel, second_level, newer_card());
    return time(kernel, second_level, newer_card()).cycles;
  };
  const std::string copies =
      "LDGSTS.E.BYPASS.128 [RZ], desc[UR4][R2.64] ! 1\nLDGDEPBAR ! 1\n"
      "LDGSTS.E.BYPASS.128 [RZ+0x10], desc[UR4][R2.64+0x10] ! 1\nLDGDEPBAR ! 1\n";
  const double none = cycles(copies);
  EXPECT_NEAR(cycles(copies + "DEPBAR.LE SB0, 0x2 ! 4\n"), none + 4, 1) << "two may be left";
  const double first = cycles(copies + "DEPBAR.LE SB0, 0x1 ! 4\n"), all = cycles(copies + "DEPBAR.LE SB0, 0x0 ! 4\n");
  EXPECT_NEAR(first - none, newer_card().l2_latency, 20);
  EXPECT_GT(all, first);
  EXPECT_NEAR(all, first, 20) << "they are on their way together";
}

TEST(T4Model, LaunchesOverlapTheOneBefore) {
  // 100 instructions that need nothing of the launch before, and 400 that do.
  std::string early, late;
  for (int i = 0; i < 400; ++i) (i < 100 ? early : late) += "FFMA R0, R0, R1, R2 ! 4\n";
  for (int i = 0; i < 100; ++i) late += "FFMA R0, R0, R1, R2 ! 4\n";
  Kernel kernel(early + "PREEXIT ! 1\nACQBULK ! 4\n" + late + "EXIT");
  t4::SecondLevel second_level(newer_card());
  t4::CodeMemory code(newer_card());
  const auto run = [&](const t4::Previous* before) {
    t4::Simulation simulation(newer_card(), second_level, code, kernel.launch, false, before);
    simulation.run();
    return simulation.as_previous();
  };
  run(nullptr);  // the caches have the code
  const t4::Previous alone = run(nullptr), behind = run(&alone), behind_that = run(&behind);
  EXPECT_NEAR(alone.timing.cycles, 500 * 4, 100);
  EXPECT_NEAR(alone.timing.dependents_begin, 100 * 4, 50);
  EXPECT_NEAR(behind.timing.cycles, 400 * 4, 50) << "the first 100 are done before the other one has ended";
  EXPECT_EQ(behind.timing.cycles, behind_that.timing.cycles);
  // Where the multiprocessors have no room beside the launch before, nothing is early.
  Kernel large(early + "PREEXIT ! 1\nACQBULK ! 4\n" + late + "EXIT", {132, 1, 1}, {32, 1, 1}, 160 << 10);
  const auto run_large = [&](const t4::Previous* before) {
    t4::Simulation simulation(newer_card(), second_level, code, large.launch, false, before);
    simulation.run();
    return simulation.as_previous();
  };
  run_large(nullptr);
  const t4::Previous large_alone = run_large(nullptr);
  EXPECT_NEAR(run_large(&large_alone).timing.cycles, 500 * 4, 100);
}

TEST(T4Model, BlocksFillTheMultiprocessors) {
  const auto cycles = [](uint32_t blocks) {
    std::string lines;
    for (int i = 0; i < 100; ++i) lines += "FFMA R0, R0, R1, R2 ! 4\n";
    Kernel kernel(lines + "EXIT", {blocks, 1, 1}, {1024, 1, 1});
    return time(kernel).cycles;
  };
  EXPECT_EQ(cycles(1), cycles(40));
  EXPECT_GT(cycles(41), 1.7 * cycles(40)) << "one comes after another";
  EXPECT_LT(cycles(80), 2.1 * cycles(40));
}

TEST(T4Model, BlocksWaitForOneAnotherInTime) {
  // Block 1 counts down, then stores; block 0 asks until it has.
  std::vector<uint32_t> flag(1);
  const auto cycles = [&](const std::string& turns) {
    flag[0] = 0;
    Kernel kernel(
        "IMAD.MOV.U32 R2, RZ, RZ, c[0x0][0x160] ! 4\nIMAD.MOV.U32 R3, RZ, RZ, c[0x0][0x164] ! 4\n"
        "S2R R0, SR_CTAID.X ! 2 w0\nISETP.NE.AND P0, PT, R0, RZ, PT ! 12 u1\n@P0 BRA `(other) ! 1\nask:\n"
        "LDG.E.STRONG.GPU R4, [R2] ! 2 w0\nISETP.EQ.AND P1, PT, R4, RZ, PT ! 12 u1\n@P1 BRA `(ask) ! 1\nEXIT\n"
        "other:\nIMAD.MOV.U32 R20, RZ, RZ, " +
            turns +
            " ! 4\nagain:\nIADD3 R20, R20, -0x1, RZ ! 4\n"
            "ISETP.NE.AND P6, PT, R20, RZ, PT ! 12\n@P6 BRA `(again) ! 1\nSTG.E.SYS [R2], R0 ! 1\nEXIT",
        {2, 1, 1});
    kernel.memory.add(flag.data(), 4);
    kernel.launch.constants.resize(0x168);
    const uint64_t first = reinterpret_cast<uint64_t>(flag.data());
    std::memcpy(kernel.launch.constants.data() + 0x160, &first, 8);
    return time(kernel).cycles;
  };
  const double difference = cycles("0x3e8") - cycles("0x1f4");
  EXPECT_NEAR(difference, 500 * loop_cycles, 2 * card().l2_latency);
}

TEST(T4Model, BarriersAreWaitedFor) {
  const std::string lines = "S2R R0, SR_TID.X ! 2 w0\nISETP.GE.AND P0, PT, R0, 0x20, PT ! 12 u1\n";
  Kernel kernel(lines +
                    "IMAD.MOV.U32 R20, RZ, RZ, 0x64 ! 4\n@P0 BRA `(met) ! 1\nagain:\nIADD3 R20, R20, -0x1, RZ ! 4\n"
                    "ISETP.NE.AND P6, PT, R20, RZ, PT ! 12\n@P6 BRA `(again) ! 1\nmet:\nBAR.SYNC 0x0 ! 5\nEXIT",
                {}, {64, 1, 1});
  const t4::Timing timing = time(kernel);
  EXPECT_NEAR(timing.stalls[static_cast<size_t>(t4::Why::barrier)], 100 * loop_cycles, 200);
  Kernel unmet(lines + "@P0 BAR.SYNC 0x0, 0x60 ! 5\nEXIT", {}, {64, 1, 1});
  EXPECT_THAT(error_of([&] { time(unmet); }), HasSubstr("threads wait for others that never come"));
}

TEST(T4Model, SlicesOfTheL2WaitForThoseWhoWantTheSameLine) {
  t4::SecondLevel second_level(card());
  t4::Timing timing;
  const auto time_of_last = [&](uint64_t stride) {
    second_level.begin_launch();
    double last = 0;
    for (uint64_t i = 0; i < 1600; ++i) {
      double port = 0;
      last = std::max(last, second_level.ask(i * stride, 0, true, port, timing));
    }
    return last - card().l2_latency;
  };
  EXPECT_NEAR(time_of_last(0), 1600 * card().l2_slices / card().l2_sectors_per_cycle, 2);
  EXPECT_LT(time_of_last(4), 1.5 * 1600 / card().l2_sectors_per_cycle);
}

TEST(T4Report, SaysWhereTimeGoes) {
  Kernel kernel("FFMA R0, R0, R1, R2 ! 4\nMUFU.EX2 R0, R0 ! 1 w0\nFFMA R0, R0, R1, R2 ! 4 u1\nEXIT");
  const t4::Timing timing = time(kernel);
  EXPECT_EQ(timing.instructions, 4u);
  EXPECT_THAT(t4::describe("mine", timing, card()),
              AllOf(HasSubstr("mine: "), HasSubstr("functions"), HasSubstr("fetch")));
  EXPECT_THAT(t4::to_json("m\"ine", timing),
              AllOf(HasSubstr("{\"name\": \"m\\\"ine\", \"cycles\": "), HasSubstr("\"stalls\": {")));
  EXPECT_THAT(t4::to_json("mine", timing, true), HasSubstr("\"blocks\": [[0, 0, "));
  EXPECT_THAT(t4::describe_last_warp(timing, 2), HasSubstr("FFMA R0, R0, R1, R2"));
  EXPECT_EQ(t4::short_name("_ZN8warprank6detail2fm9fm_kernelILi1EfEEvNS1_9ArgumentsIfEEi"),
            "warprank::detail::fm::fm_kernel<1, float>");
  EXPECT_EQ(t4::short_name("_Z5scalePfi"), "scale");
  EXPECT_EQ(t4::short_name("plain"), "plain");
}

}  // namespace
