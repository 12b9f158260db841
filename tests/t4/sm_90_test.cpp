// SPDX-License-Identifier: Apache-2.0
//
// What code of sm_90 has that of sm_75 has not.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "execute/context.hpp"
#include "execute/half_values.hpp"
#include "t4/assembled.hpp"
#include "t4/operands.hpp"

namespace {

using t4_testing::OneWarp, t4_testing::pair_of, t4_testing::Words;

TEST(T4Sm90, AddsAndTakesTheLeast) {
  OneWarp warp(
      "VIADD R4, R0, -0x3\nVIMNMX R5, R0, R1, PT\nVIMNMX.U32 R6, R0, R1, !PT\nVIADDMNMX R7, R0, -R1, R2, PT\n"
      "VIADD R8, R0, R1\nVIMNMX3.U32 R9, R0, R1, R2, !PT");
  Words words;
  for (size_t r = 0; r < 3; ++r)
    for (uint32_t& value : warp.reg(r)) value = words.next();
  warp.run();
  for (size_t lane = 0; lane < t4::warp_size; ++lane) {
    const uint32_t a = warp.reg(0)[lane], b = warp.reg(1)[lane], c = warp.reg(2)[lane];
    const auto least = [](uint32_t x, uint32_t y) {
      return static_cast<uint32_t>(std::min(static_cast<int32_t>(x), static_cast<int32_t>(y)));
    };
    EXPECT_EQ(warp.reg(4)[lane], a - 3);
    EXPECT_EQ(warp.reg(5)[lane], least(a, b));
    EXPECT_EQ(warp.reg(6)[lane], std::max(a, b));
    EXPECT_EQ(warp.reg(7)[lane], least(a - b, c));
    EXPECT_EQ(warp.reg(8)[lane], a + b);
    EXPECT_EQ(warp.reg(9)[lane], std::max({a, b, c}));
  }
}

TEST(T4Sm90, PacksTwoHalves) {
  OneWarp warp(
      "F2FP.F16.F32.PACK_AB R4, R0, R1\nF2FP.SATFINITE.F16.F32.PACK_AB R5, R0, R1\n"
      "F2FP.SATFINITE.RELU.F16.F32.PACK_AB R6, R0, R1");
  const float large[] = {1e6f, -INFINITY, 65504, -70000};
  Words words;
  for (size_t lane = 0; lane < t4::warp_size; ++lane) {
    warp.reg(0)[lane] = t4::bits_of(lane < 4 ? large[lane] : words.number(12));
    warp.reg(1)[lane] = t4::bits_of(words.number(12));
  }
  warp.run();
  for (size_t lane = 0; lane < t4::warp_size; ++lane) {
    const auto upper = static_cast<double>(t4::float_of(warp.reg(0)[lane]));
    const auto lower = static_cast<double>(t4::float_of(warp.reg(1)[lane]));
    EXPECT_EQ(warp.reg(4)[lane], pair_of(lower, upper));
    EXPECT_EQ(warp.reg(5)[lane], pair_of(lower, std::clamp(upper, -65504.0, 65504.0)));
    EXPECT_EQ(warp.reg(6)[lane], pair_of(std::max(lower, 0.0), std::clamp(upper, 0.0, 65504.0)));
  }
  EXPECT_EQ(warp.reg(4)[1] >> 16, 0xfc00u) << "infinity, where it does not saturate";
}

TEST(T4Sm90, ReducesOverLanes) {
  OneWarp warp(
      "S2R R0, SR_LANEID\nREDUX.SUM UR4, R0\nREDUX.OR UR5, R0\nREDUX.AND UR6, R0\nREDUX.XOR UR7, R0\n"
      "S2R R1, SR_CgaCtaId");
  warp.run();
  EXPECT_EQ(warp.warp().uniforms[4], 496u);
  EXPECT_EQ(warp.warp().uniforms[5], 31u);
  EXPECT_EQ(warp.warp().uniforms[6], 0u);
  EXPECT_EQ(warp.warp().uniforms[7], 0u);
  EXPECT_EQ(warp.reg(1)[7], 0u);
}

TEST(T4Sm90, CopiesIntoSharedMemory) {
  OneWarp warp(
      "S2R R0, SR_LANEID\nSHF.L.U32 R0, R0, 0x4, RZ\nLDGSTS.E.BYPASS.128 [R0+0x400], desc[UR4][R2.64]\nLDGDEPBAR\n"
      "DEPBAR.LE SB0, 0x0\nLDS.64 R4, [R0+0x408]",
      2048);
  std::vector<uint32_t> data(128);
  std::iota(data.begin(), data.end(), 7u);
  warp.memory.add(data.data(), 4 * data.size());
  for (size_t lane = 0; lane < t4::warp_size; ++lane)  // the last lane has the first piece
    warp.set64(2, lane, reinterpret_cast<uint64_t>(data.data() + 4 * (31 - lane)));
  warp.run();
  for (size_t lane = 0; lane < t4::warp_size; ++lane) {
    EXPECT_EQ(warp.reg(4)[lane], data[4 * (31 - lane) + 2]);
    EXPECT_EQ(warp.reg(5)[lane], data[4 * (31 - lane) + 3]);
  }
  const std::string error = t4_testing::error_of([] {
    OneWarp without("LDGSTS.E.BYPASS.128 [R0], desc[UR4][R2.64]", 2048);
    for (size_t r = 0; r < 4; ++r) std::fill(without.reg(r).begin(), without.reg(r).end(), 0u);
    without.run();
  });
  EXPECT_NE(error.find("16 bytes at 0x0 of global memory are out of bounds"), std::string::npos) << error;
}

TEST(T4Sm90, LanesThatWentApartAreTogetherForACollective) {
  // Half of the lanes come later; SHFL sees all of them.
  OneWarp warp(
      "S2R R0, SR_LANEID\nIMAD.MOV.U32 R1, RZ, RZ, -0x1\nISETP.GE.AND P0, PT, R0, 0x10, PT\n@P0 BRA `(slow)\n"
      "join:\nWARPSYNC.COLLECTIVE R1, `(behind)\nSHFL.BFLY PT, R2, R0, 0x10, 0x1f\nENDCOLLECTIVE\nbehind:\n"
      "IADD3 R2, R2, 0x1, RZ\nEXIT\nslow:\nIADD3 R3, R3, 0x1, RZ\nBRA `(join)");
  warp.run();
  for (uint32_t lane = 0; lane < t4::warp_size; ++lane) EXPECT_EQ(warp.reg(2)[lane], (lane ^ 16) + 1);
}

TEST(T4Sm90, MultipliesMatricesOfSixteen) {
  Words words;
  double a[16][16], b[16][8], c[16][8];
  const auto draw = [&](auto& matrix) {
    for (auto& row : matrix)
      for (double& value : row)
        value = static_cast<double>(t4::half_to_float(t4::to_half(static_cast<double>(words.number(3)))));
  };
  draw(a), draw(b), draw(c);
  OneWarp warp("HMMA.16816.F32 R16, R0, R4, R8\nHMMA.16816.F16 R20, R0, R4, R12");
  // As PTX says where mma.m16n8k16 has its elements.
  for (size_t lane = 0; lane < t4::warp_size; ++lane) {
    const size_t group = lane / 4, two = lane % 4 * 2;
    for (size_t i = 0; i < 4; ++i) {
      const size_t row = group + i % 2 * 8, col = two + i / 2 * 8;
      warp.reg(i)[lane] = pair_of(a[row][col], a[row][col + 1]);
    }
    for (size_t i = 0; i < 2; ++i) warp.reg(4 + i)[lane] = pair_of(b[two + 8 * i][group], b[two + 8 * i + 1][group]);
    for (size_t i = 0; i < 4; ++i)
      warp.reg(8 + i)[lane] = t4::bits_of(static_cast<float>(c[group + i / 2 * 8][two + i % 2]));
    for (size_t i = 0; i < 2; ++i) warp.reg(12 + i)[lane] = pair_of(c[group + 8 * i][two], c[group + 8 * i][two + 1]);
  }
  warp.run();
  for (size_t lane = 0; lane < t4::warp_size; ++lane)
    for (size_t i = 0; i < 4; ++i) {
      const size_t row = lane / 4 + i / 2 * 8, col = lane % 4 * 2 + i % 2;
      double sum = c[row][col];
      for (size_t k = 0; k < 16; ++k) sum += a[row][k] * b[k][col];
      EXPECT_FLOAT_EQ(t4::float_of(warp.reg(16 + i)[lane]), static_cast<float>(sum));
      EXPECT_EQ(static_cast<uint16_t>(warp.reg(20 + i / 2)[lane] >> 16 * (i % 2)), t4::to_half(sum));
    }
}

}  // namespace
