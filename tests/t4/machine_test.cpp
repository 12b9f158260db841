// SPDX-License-Identifier: Apache-2.0
//
// Memory, atomics, matrices, and what lanes, warps and blocks have to do with one another.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "execute/context.hpp"
#include "execute/half_values.hpp"
#include "t4/assembled.hpp"
#include "t4/operands.hpp"

namespace {

using t4_testing::error_of, t4_testing::Kernel, t4_testing::OneWarp, t4_testing::pair_of, t4_testing::Words;
using testing::AllOf, testing::HasSubstr;

uint64_t address_of(const void* memory) { return reinterpret_cast<uint64_t>(memory); }

/// A warp whose pair R2 is the address of an element for each lane.
struct WithMemory : OneWarp {
  std::vector<uint32_t> data;

  explicit WithMemory(const std::string& lines, size_t words = 64, uint32_t shared_bytes = 1024)
      : OneWarp(lines, shared_bytes), data(words) {
    memory.add(data.data(), 4 * words);
    std::iota(data.begin(), data.end(), 100u);
    for (size_t lane = 0; lane < t4::warp_size; ++lane) set64(2, lane, address_of(&data[lane]));
  }
};

TEST(T4Memory, IsLoadedAndStored) {
  WithMemory warp("LDG.E.SYS R0, [R2+0x4]\nSTG.E.SYS [R2], R0\nLDG.E.U8.SYS R1, [R2+-0x0]\nLDG.E.S16.SYS R4, [R2]");
  warp.data[32] = 0xffff8001;
  warp.run();
  EXPECT_EQ(warp.reg(0)[31], 0xffff8001);
  EXPECT_EQ(warp.data[0], 101);
  EXPECT_EQ(warp.data[31], 0xffff8001);
  EXPECT_EQ(warp.reg(1)[31], 1);
  EXPECT_EQ(warp.reg(4)[31], 0xffff8001);
}

TEST(T4Memory, MayBeLoadedIntoTheRegistersOfItsAddress) {
  WithMemory warp("LDG.E.64.SYS R2, [R2]");
  for (size_t lane = 0; lane < t4::warp_size; ++lane) warp.set64(2, lane, address_of(&warp.data[lane / 2 * 2]));
  warp.run();
  EXPECT_EQ(warp.reg(2)[5], 104);
  EXPECT_EQ(warp.reg(3)[5], 105);
  // So may a constant.
  OneWarp constant("LDC.64 R4, c[0x0][R4+0x10]");
  for (uint32_t& offset : constant.reg(4)) offset = 4;
  constant.launch.constants.assign(64, 0);
  constant.launch.constants[0x14] = 7, constant.launch.constants[0x18] = 9;
  constant.run();
  EXPECT_EQ(constant.reg(4)[3], 7);
  EXPECT_EQ(constant.reg(5)[3], 9);
}

TEST(T4Memory, OutOfBoundsIsNamed) {
  WithMemory warp("STG.E.SYS [R2+0x80], R0", 40);
  EXPECT_THAT(error_of([&] { warp.run(); }),
              AllOf(HasSubstr("4 bytes at 0x"), HasSubstr("of global memory are out of bounds: 0 behind the 160 bytes"),
                    HasSubstr("STG.E.SYS [R2+0x80], R0 at 0x0000 of kernel, block (0,0,0) thread 8")));
  EXPECT_EQ(warp.data[39], 0xcdcdcdcd) << "those before it stored";
  WithMemory freed("LDG.E.SYS R0, [R2]");
  freed.memory.remove(freed.data.data());
  EXPECT_THAT(error_of([&] { freed.run(); }), HasSubstr("no memory is allocated"));
  WithMemory odd("LDG.E.64.SYS R0, [R2]");
  EXPECT_THAT(error_of([&] { odd.run(); }), HasSubstr("8 bytes at"));
  EXPECT_THAT(error_of([&] { WithMemory("LDG.E.64.SYS R0, [R2+0x2]").run(); }), HasSubstr("misaligned"));
  EXPECT_THAT(error_of([&] { WithMemory("STS [0x400], R0").run(); }),
              HasSubstr("4 bytes at 0x400 of shared memory are out of bounds: expected less than 1024"));
}

TEST(T4Memory, SharedIsFoundByGenericAddressesToo) {
  OneWarp warp("S2R R0, SR_LANEID\nSTS [R0.X4+0x10], R0\nLD.E.SYS R4, [R2]", 256);
  for (size_t lane = 0; lane < t4::warp_size; ++lane) warp.set64(2, lane, t4::shared_window + 0x10 + 4 * (31 - lane));
  warp.run();
  EXPECT_EQ(warp.reg(4)[3], 28);
}

TEST(T4Memory, LocalIsOfEachLane) {
  OneWarp warp("S2R R0, SR_LANEID\nSTL [R1+-0x8], R0\nLDL R2, [R1+-0x8]");
  for (uint32_t& stack : warp.reg(1)) stack = 0x8000;
  warp.run();
  EXPECT_EQ(warp.reg(2), warp.reg(0));
}

TEST(T4Atomic, CombinesLaneByLane) {
  WithMemory warp(
      "ATOMG.E.ADD.STRONG.GPU PT, R0, [R2], R4\nRED.E.MAX.S32.STRONG.GPU [R2+0x4], R5\n"
      "ATOMG.E.CAS.STRONG.GPU PT, R6, [R2+0x8], R8, R9\nATOMG.E.EXCH.STRONG.GPU PT, R7, [R2+0xc], R4\n"
      "RED.E.ADD.F32.FTZ.RN.STRONG.GPU [R2+0x10], R10");
  warp.data = {7, 0xfffffff0, 5, 6, 0};
  warp.memory.add(warp.data.data(), 4 * warp.data.size());
  for (size_t lane = 0; lane < t4::warp_size; ++lane) {
    warp.set64(2, lane, address_of(warp.data.data()));
    warp.reg(4)[lane] = static_cast<uint32_t>(lane);
    warp.reg(5)[lane] = static_cast<uint32_t>(-static_cast<int>(lane) - 2);
    warp.reg(8)[lane] = 5, warp.reg(9)[lane] = static_cast<uint32_t>(lane + 50);
    warp.reg(10)[lane] = t4::bits_of(0.5f);
  }
  warp.run();
  EXPECT_EQ(warp.data[0], 7 + 31 * 16);
  EXPECT_EQ(warp.reg(0)[3], 7 + 0 + 1 + 2) << "what was there before";
  EXPECT_EQ(warp.data[1], static_cast<uint32_t>(-2));
  EXPECT_EQ(warp.data[2], 50) << "of the first; the others found 50";
  EXPECT_EQ(warp.reg(6)[0], 5);
  EXPECT_EQ(warp.reg(6)[9], 50);
  EXPECT_EQ(warp.reg(7)[9], 8);
  EXPECT_EQ(t4::float_of(warp.data[4]), 16);
}

TEST(T4Atomic, TakesTheLeastAndTheGreatestAsNumbersOfTheirSign) {
  WithMemory warp(
      "RED.E.MIN.S32.STRONG.GPU [R2], R4\nRED.E.MIN.STRONG.GPU [R2+0x4], R4\nRED.E.MAX.STRONG.GPU [R2+0x8], R4");
  warp.data[0] = warp.data[1] = warp.data[2] = 40;
  for (size_t lane = 0; lane < t4::warp_size; ++lane) {
    warp.set64(2, lane, address_of(warp.data.data()));
    warp.reg(4)[lane] = 20 - 3 * static_cast<uint32_t>(lane);
  }
  warp.run();
  EXPECT_EQ(warp.data[0], static_cast<uint32_t>(20 - 93));
  EXPECT_EQ(warp.data[1], 2u);
  EXPECT_EQ(warp.data[2], ~0u);
}

TEST(T4Atomic, OfWiderWords) {
  WithMemory warp("ATOMG.E.ADD.64.STRONG.GPU PT, R0, [R2], R4");
  for (size_t lane = 0; lane < t4::warp_size; ++lane) {
    warp.set64(2, lane, address_of(warp.data.data()) / 8 * 8 + 8);
    warp.set64(4, lane, uint64_t{1} << 32 | 0xffffffff);
  }
  const uint64_t at = warp.get64(2, 0);
  std::memset(reinterpret_cast<void*>(at), 0, 8);
  warp.run();
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(at), 32 * (uint64_t{1} << 32 | 0xffffffff));
  EXPECT_EQ(warp.get64(0, 2), 2 * (uint64_t{1} << 32 | 0xffffffff));
}

TEST(T4Atomic, SaysWhetherItWasDoneWhereSharedMemoryNeedsAnotherWay) {
  WithMemory warp("ATOM.E.ADD.64.STRONG.GPU P0, R0, [R2], R4", 64, 64);
  std::memset(warp.block->shared.data(), 0, 64);
  const uint64_t global = (address_of(warp.data.data()) + 7) / 8 * 8;
  for (size_t lane = 0; lane < t4::warp_size; ++lane) {
    warp.set64(2, lane, lane % 2 == 0 ? global : t4::shared_window);
    warp.set64(4, lane, 1);
  }
  const uint64_t before = *reinterpret_cast<const uint64_t*>(global);
  warp.run();
  EXPECT_EQ(warp.warp().predicates[0], 0x55555555u);
  EXPECT_EQ(*reinterpret_cast<const uint64_t*>(global), before + 16);
  EXPECT_EQ(warp.block->shared[0], 0);
}

TEST(T4Atomic, LoopsOfSharedCompareAndSwapEnd) {
  OneWarp warp(
      "again:\nLDS R1, [0x10]\nIADD3 R2, R1, 0x3, RZ\nATOMS.CAST.SPIN R2, [0x10], R1, R2\n"
      "ISETP.EQ.U32.AND P0, PT, R2, 0x1, PT\n@!P0 BRA `(again)",
      64);
  std::memset(warp.block->shared.data(), 0, 64);
  warp.run();
  EXPECT_EQ(warp.block->shared[0x10], 96);
}

// ---- Warps

TEST(T4Warp, ExchangesValues) {
  OneWarp warp(
      "S2R R0, SR_LANEID\nSHFL.BFLY PT, R1, R0, 0x5, 0x1f\nSHFL.UP P0, R2, R0, 0x4, RZ\n"
      "SHFL.DOWN P1, R3, R0, 0x1, 0x1807\nSHFL.IDX PT, R4, R0, 0x2, 0x181f\nVOTE.ANY R5, P2, P0\n"
      "MATCH.ANY R6, R4\nVOTE.ALL P3, P0\n"
      "SHFL.UP PT, R7, R0, 0x3, 0x1800");
  warp.run();
  for (uint32_t lane = 0; lane < t4::warp_size; ++lane) {
    EXPECT_EQ(warp.reg(1)[lane], lane ^ 5);
    EXPECT_EQ(warp.reg(2)[lane], lane < 4 ? lane : lane - 4);
    EXPECT_EQ(warp.reg(3)[lane], lane % 8 == 7 ? lane : lane + 1) << "in segments of 8";
    EXPECT_EQ(warp.reg(4)[lane], lane / 8 * 8 + 2);
    EXPECT_EQ(warp.reg(6)[lane], 0xffu << lane / 8 * 8);
    EXPECT_EQ(warp.reg(7)[lane], lane % 8 < 3 ? lane : lane - 3) << "in segments, too";
  }
  EXPECT_EQ(warp.warp().predicates[0], 0xfffffff0);
  EXPECT_EQ(warp.warp().predicates[1], 0x7f7f7f7f);
  EXPECT_EQ(warp.reg(5)[3], 0xfffffff0);
  EXPECT_EQ(warp.warp().predicates[2], ~0u);
  EXPECT_EQ(warp.warp().predicates[3], 0u);
}

// Each lane counts down from its number; then they meet.
const char* const loop = R"(
  S2R R0, SR_LANEID
  IMAD.MOV.U32 R1, RZ, RZ, RZ
  BSSY B0, `(met)
again:
  ISETP.EQ.AND P0, PT, R0, RZ, PT
  @P0 BREAK B0
  @P0 BRA `(out)
  IADD3 R0, R0, -0x1, RZ
  IADD3 R1, R1, 0x2, RZ
  BRA `(again)
out:
  BSSY B1, `(met)
  BSYNC B1
met:
  WARPSYNC 0xffffffff
  VOTE.ANY R2, PT, PT
)";
TEST(T4Warp, DivergesAndMeets) {
  OneWarp warp(loop);
  warp.run();
  for (uint32_t lane = 0; lane < t4::warp_size; ++lane) EXPECT_EQ(warp.reg(1)[lane], 2 * lane);
  EXPECT_EQ(warp.reg(2)[4], ~0u);
}

TEST(T4Warp, MeetsWhereTheCodeSays) {
  // The lanes that get there first wait for those that took the way behind.
  OneWarp warp(
      "S2R R0, SR_LANEID\nISETP.GE.AND P0, PT, R0, 0xa, PT\nBSSY B0, `(met)\n@P0 BRA `(far)\nIADD3 R0, R0, 0x1, RZ\n"
      "met:\nBSYNC B0\nVOTE.ANY R2, PT, PT\nEXIT\nfar:\nIADD3 R0, R0, 0x2, RZ\nBRA `(met)");
  warp.run();
  EXPECT_EQ(warp.reg(2)[0], ~0u);
  EXPECT_EQ(warp.reg(0)[9], 10u);
  EXPECT_EQ(warp.reg(0)[10], 12u);
}
TEST(T4Warp, HalvesThatUseABarrierOneAfterTheOtherDoNotWaitForOneAnother) {
  // The odd lanes of the lower half come to BSYNC when the upper half has set the barrier anew, and has met.
  OneWarp warp(
      "S2R R0, SR_LANEID\nISETP.GE.AND P0, PT, R0, 0x10, PT\nLOP3.LUT R1, R0, 0x1, RZ, 0xc0, !PT\n"
      "ISETP.NE.AND P1, PT, R1, RZ, PT\n@P0 BRA `(upper)\nBSSY B0, `(met)\n@P1 BRA `(far)\nmet:\nBSYNC B0\n"
      "all:\nWARPSYNC 0xffffffff\nVOTE.ANY R2, PT, PT\nEXIT\n"
      "upper:\nBMOV.32.CLEAR RZ, B0\nBSSY B0, `(met)\nBSYNC B0\nBRA `(all)\nfar:\nBRA `(met)");
  warp.run();
  EXPECT_EQ(warp.reg(2)[0], ~0u);
}

TEST(T4Warp, CallsAndReturnsAndJumps) {
  OneWarp warp(
      "S2R R0, SR_LANEID\nIMAD.MOV.U32 R4, RZ, RZ, 0x30\nCALL.REL.NOINC `(twice)\n"
      "IADD3 R2, R1, 0x1, RZ\nLOP3.LUT R5, R0, 0x1, RZ, 0xc0, !PT\nSHF.L.U32 R5, R5, 0x4, RZ\n"
      "IADD3 R5, R5, 0x10, RZ\nBRX R5 -0x10\nIADD3 R2, R2, 0x1, RZ\nEXIT\ntwice:\nIMAD.SHL.U32 R1, R0, 0x2, "
      "RZ\nRET.REL.NODEC R4 `(kernel)\nkernel:");
  warp.run();
  for (uint32_t lane = 0; lane < t4::warp_size; ++lane) EXPECT_EQ(warp.reg(2)[lane], 2 * lane + 1 + (lane + 1) % 2);
}

TEST(T4Warp, LanesMayWaitForLanesBehindThem) {
  // Lane 0 asks for what lane 1 stores later in the code.
  WithMemory warp(
      "S2R R0, SR_LANEID\nISETP.NE.AND P0, PT, R0, RZ, PT\n@P0 BRA `(others)\nask:\n"
      "LDG.E.STRONG.SYS R1, [R2]\nISETP.NE.AND P1, PT, R1, 0x7, PT\n@P1 BRA `(ask)\nBRA `(end)\nothers:\n"
      "IMAD.MOV.U32 R1, RZ, RZ, 0x7\nSTG.E.SYS [R2], R1\nend:\nNOP");
  for (size_t lane = 0; lane < t4::warp_size; ++lane) warp.set64(2, lane, address_of(warp.data.data()));
  warp.run();
  EXPECT_EQ(warp.reg(1)[0], 7);
}

// ---- Blocks

TEST(T4Block, BarriersOrderWarps) {
  // Each thread stores its number; behind the barrier it has that of the thread 37 further.
  Kernel kernel(
      "S2R R0, SR_TID.X\nSTS [R0.X4], R0\nBAR.SYNC 0x0\nIADD3 R1, R0, 0x25, RZ\nLOP3.LUT R1, R1, 0x7f, RZ, 0xc0, !PT\n"
      "LDS R2, [R1.X4]\nISETP.NE.AND P0, PT, R1, R2, PT\nBAR.RED.POPC 0x0, P0\nB2R.RESULT R3\n"
      "ISETP.NE.AND P0, PT, R3, RZ, PT\n@P0 BPT.TRAP 0x1\nEXIT",
      {5, 1, 1}, {128, 1, 1}, 512);
  const t4::Executed executed = t4::execute(kernel.launch, 1);
  EXPECT_EQ(executed.instructions, 5 * 4 * 12u);
  EXPECT_EQ(executed.longest_warp, 12);
}

TEST(T4Block, WaitsAreFoundThatNeverEnd) {
  Kernel unmet("S2R R0, SR_TID.X\nISETP.GE.AND P0, PT, R0, 0x20, PT\n@P0 BAR.SYNC 0x0, 0x60\nEXIT", {}, {64, 1, 1});
  EXPECT_THAT(error_of([&] { t4::execute(unmet.launch, 1); }),
              AllOf(HasSubstr("threads wait for others that never come"), HasSubstr("warp 1 at @P0 BAR.SYNC")));
  std::vector<uint32_t> flag(1);
  Kernel endless(
      "IMAD.MOV.U32 R2, RZ, RZ, c[0x0][0x160]\nIMAD.MOV.U32 R3, RZ, RZ, c[0x0][0x164]\nask:\n"
      "LDG.E.STRONG.GPU R0, [R2]\nISETP.EQ.AND P0, PT, R0, RZ, PT\n@P0 BRA `(ask)\nEXIT");
  endless.memory.add(flag.data(), 4);
  const uint64_t address = address_of(flag.data());
  endless.launch.constants.resize(0x168);
  std::memcpy(endless.launch.constants.data() + 0x160, &address, 8);
  EXPECT_THAT(error_of([&] { t4::execute(endless.launch, 4); }), HasSubstr("an endless wait"));
}

TEST(T4Block, WaitForOtherBlocks) {
  // Block 0 waits until all others have added 1.
  const std::string lines =
      "IMAD.MOV.U32 R2, RZ, RZ, c[0x0][0x160]\nIMAD.MOV.U32 R3, RZ, RZ, c[0x0][0x164]\nS2R R0, SR_CTAID.X\n"
      "ISETP.NE.AND P0, PT, R0, RZ, PT\nIMAD.MOV.U32 R1, RZ, RZ, 0x1\n@P0 RED.E.ADD.STRONG.GPU [R2], R1\n@P0 "
      "EXIT\nask:\n"
      "LDG.E.STRONG.GPU R4, [R2]\nISETP.NE.AND P1, PT, R4, 0x60, PT\n@P1 BRA `(ask)\nEXIT";
  std::vector<uint32_t> count(1);
  Kernel kernel(lines, {4, 1, 1});
  kernel.memory.add(count.data(), 4);
  const uint64_t address = address_of(count.data());
  kernel.launch.constants.resize(0x168);
  std::memcpy(kernel.launch.constants.data() + 0x160, &address, 8);
  t4::execute(kernel.launch, 2);
  EXPECT_EQ(count[0], 96);
}

TEST(T4Block, LetOthersGoFirstWhereTheyAskForSeveralThingsInTurn) {
  // Block 0 asks for two words until block 1 has written both.
  std::vector<uint32_t> words(2);
  Kernel kernel(
      "IMAD.MOV.U32 R2, RZ, RZ, c[0x0][0x160]\nIMAD.MOV.U32 R3, RZ, RZ, c[0x0][0x164]\nS2R R0, SR_CTAID.X\n"
      "ISETP.NE.AND P0, PT, R0, RZ, PT\n@P0 BRA `(other)\nask:\nLDG.E.STRONG.GPU R4, [R2]\n"
      "LDG.E.STRONG.GPU R5, [R2+0x4]\nISETP.EQ.AND P1, PT, R4, RZ, PT\n@P1 BRA `(ask)\n"
      "ISETP.EQ.AND P1, PT, R5, RZ, PT\n@P1 BRA `(ask)\nEXIT\nother:\nSTG.E.SYS [R2+0x4], R0\nSTG.E.SYS [R2], R0\n"
      "EXIT",
      {2, 1, 1});
  kernel.memory.add(words.data(), 8);
  const uint64_t address = address_of(words.data());
  kernel.launch.constants.resize(0x168);
  std::memcpy(kernel.launch.constants.data() + 0x160, &address, 8);
  EXPECT_LT(t4::execute(kernel.launch, 2).instructions, 100u);
}

TEST(T4Block, WhatIsNotKnownIsNamed) {
  EXPECT_THAT(error_of([] { OneWarp("FROB.X R0, R1").run(); }),
              HasSubstr("the instruction is not known to the executor: FROB.X R0, R1 at 0x0000 of kernel"));
  EXPECT_THAT(error_of([] { OneWarp("IADD3.FROB R0, R1, R2, RZ").run(); }), HasSubstr("IADD3.FROB"));
  EXPECT_THAT(error_of([] { OneWarp("MUFU.FROB R0, R1").run(); }), HasSubstr("MUFU.FROB"));
  EXPECT_THAT(error_of([] { OneWarp("BPT.TRAP 0x1").run(); }), HasSubstr("the kernel has trapped"));
  EXPECT_THAT(error_of([] { OneWarp("BRA `(nowhere)"); }), HasSubstr("label nowhere of kernel is nowhere"));
}

// ---- Matrices

TEST(T4Matrices, OfHalvesAreMultiplied) {
  Words words;
  double a[16][8], b[8][8], c[16][8];
  const auto draw = [&](auto& matrix) {
    for (auto& row : matrix)
      for (double& value : row)
        value = static_cast<double>(t4::half_to_float(t4::to_half(static_cast<double>(words.number(3)))));
  };
  draw(a), draw(b), draw(c);
  OneWarp warp("HMMA.1688.F32 R12, R0, R2, R4\nHMMA.1688.F16 R16, R0, R2, R8\nHMMA.1688.F32 R20, R0, R2, RZ");
  // As PTX says where mma.m16n8k8 has its elements.
  for (size_t lane = 0; lane < t4::warp_size; ++lane) {
    const size_t group = lane / 4, two = lane % 4 * 2;
    warp.reg(0)[lane] = pair_of(a[group][two], a[group][two + 1]);
    warp.reg(1)[lane] = pair_of(a[group + 8][two], a[group + 8][two + 1]);
    warp.reg(2)[lane] = pair_of(b[two][group], b[two + 1][group]);
    for (size_t i = 0; i < 4; ++i)
      warp.reg(4 + i)[lane] = t4::bits_of(static_cast<float>(c[group + i / 2 * 8][two + i % 2]));
    for (size_t i = 0; i < 2; ++i) warp.reg(8 + i)[lane] = pair_of(c[group + 8 * i][two], c[group + 8 * i][two + 1]);
  }
  warp.run();
  for (size_t lane = 0; lane < t4::warp_size; ++lane)
    for (size_t i = 0; i < 4; ++i) {
      const size_t row = lane / 4 + i / 2 * 8, col = lane % 4 * 2 + i % 2;
      double product = 0;
      for (size_t k = 0; k < 8; ++k) product += a[row][k] * b[k][col];
      EXPECT_FLOAT_EQ(t4::float_of(warp.reg(12 + i)[lane]), static_cast<float>(c[row][col] + product));
      EXPECT_FLOAT_EQ(t4::float_of(warp.reg(20 + i)[lane]), static_cast<float>(product));
      const auto half = static_cast<uint16_t>(warp.reg(16 + i / 2)[lane] >> 16 * (i % 2));
      EXPECT_EQ(half, t4::to_half(c[row][col] + product));
    }
}

TEST(T4Matrices, OfBytesAreMultiplied) {
  Words words;
  OneWarp warp("IMMA.8816.S8.S8 R4, R0.ROW, R1.COL, R2");
  for (size_t r = 0; r < 4; ++r)
    for (uint32_t& value : warp.reg(r)) value = words.next();
  const auto element = [&](size_t r, size_t line, size_t k) {  // four bytes of lane line * 4 + k / 4
    return int64_t{static_cast<int8_t>(warp.reg(r)[line * 4 + k / 4] >> 8 * (k % 4))};
  };
  std::vector<uint32_t> expected;
  for (size_t row = 0; row < 8; ++row)
    for (size_t col = 0; col < 8; ++col) {
      int64_t sum = static_cast<int32_t>(warp.reg(2 + col % 2)[row * 4 + col / 2]);
      for (size_t k = 0; k < 16; ++k) sum += element(0, row, k) * element(1, col, k);
      expected.push_back(static_cast<uint32_t>(sum));
    }
  warp.run();
  for (size_t row = 0; row < 8; ++row)
    for (size_t col = 0; col < 8; ++col) EXPECT_EQ(warp.reg(4 + col % 2)[row * 4 + col / 2], expected[row * 8 + col]);
}

TEST(T4Matrices, AreLoadedAndTransposed) {
  // Rows of 8 halves, numbered; LDSM takes 4 matrices of them, as they are and transposed.
  OneWarp warp(
      "S2R R0, SR_LANEID\nSHF.L.U32 R0, R0, 0x4, RZ\nLDSM.16.M88.4 R4, [R0]\nLDSM.16.MT88.4 R8, [R0]\n"
      "MOVM.16.MT88 R12, R4",
      512);
  for (size_t i = 0; i < 256; ++i) {
    const auto value = static_cast<uint16_t>(i);
    std::memcpy(warp.block->shared.data() + 2 * i, &value, 2);
  }
  warp.run();
  for (uint32_t lane = 0; lane < t4::warp_size; ++lane)
    for (uint32_t matrix = 0; matrix < 4; ++matrix) {
      const uint32_t first = 64 * matrix + lane / 4 * 8 + lane % 4 * 2, turned = 64 * matrix + lane % 4 * 16 + lane / 4;
      EXPECT_EQ(warp.reg(4 + matrix)[lane], first | (first + 1) << 16);
      EXPECT_EQ(warp.reg(8 + matrix)[lane], turned | (turned + 8) << 16);
    }
  EXPECT_EQ(warp.reg(12), warp.reg(8));
}

}  // namespace
