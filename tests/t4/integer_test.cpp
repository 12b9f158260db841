// SPDX-License-Identifier: Apache-2.0
//
// Integer operations and those of bits, against wider or slower arithmetic, for random and special operands.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "t4/assembled.hpp"
#include "t4/operands.hpp"

namespace {

using t4_testing::OneWarp, t4_testing::Words;

constexpr int num_rounds = 60;

int64_t as_signed(uint32_t value) { return static_cast<int32_t>(value); }

using IntegerReference = std::function<uint32_t(uint32_t a, uint32_t b, uint32_t c)>;
/// R0 of what is computed of R1, R2 and R3.
void expect_result(const std::string& line, const IntegerReference& reference) {
  OneWarp warp(line);
  Words words;
  for (int round = 0; round < num_rounds; ++round) {
    for (size_t r = 1; r <= 3; ++r)
      for (uint32_t& value : warp.reg(r)) value = words.next();
    warp.restart();
    warp.run();
    for (size_t lane = 0; lane < t4::warp_size; ++lane) {
      const uint32_t a = warp.reg(1)[lane], b = warp.reg(2)[lane], c = warp.reg(3)[lane];
      ASSERT_EQ(warp.reg(0)[lane], reference(a, b, c)) << line << std::hex << " of " << a << " " << b << " " << c;
    }
  }
}
using PairReference = std::function<uint64_t(uint64_t a, uint64_t b, uint32_t c)>;
/// R0 and R1 of the pairs R2, R4 and of R6.
void expect_pair(const std::string& lines, const PairReference& reference) {
  OneWarp warp(lines);
  Words words;
  for (int round = 0; round < num_rounds; ++round) {
    for (size_t r = 2; r <= 6; ++r)
      for (uint32_t& value : warp.reg(r)) value = words.next();
    warp.restart();
    warp.run();
    for (size_t lane = 0; lane < t4::warp_size; ++lane) {
      const uint64_t a = warp.get64(2, lane), b = warp.get64(4, lane);
      ASSERT_EQ(warp.get64(0, lane), reference(a, b, warp.reg(6)[lane]))
          << lines << std::hex << " of " << a << " " << b << " " << warp.reg(6)[lane];
    }
  }
}

TEST(T4Integer, MultipliesAndAdds) {
  expect_result("IMAD R0, R1, R2, R3", [](auto a, auto b, auto c) { return a * b + c; });
  expect_result("IMAD R0, R1, -R2, R3", [](auto a, auto b, auto c) { return c - a * b; });
  expect_result("IMAD.MOV.U32 R0, RZ, RZ, R3", [](auto, auto, auto c) { return c; });
  expect_result("IMAD.HI.U32 R0, R1, R2, RZ",
                [](auto a, auto b, auto) { return static_cast<uint32_t>(uint64_t{a} * b >> 32); });
  expect_pair("IMAD.WIDE R0, R2, R6, R4", [](auto a, auto b, auto c) {
    return b + static_cast<uint64_t>(as_signed(static_cast<uint32_t>(a)) * as_signed(c));
  });
  expect_pair("IMAD.WIDE.U32 R0, R2, R6, R4", [](auto a, auto b, auto c) { return b + (a & 0xffffffff) * c; });
}

TEST(T4Integer, CarriesThroughPairs) {
  expect_pair("IADD3 R0, P0, R2, R4, RZ\nIADD3.X R1, R3, R5, RZ, P0, !PT", [](auto a, auto b, auto) { return a + b; });
  expect_pair("IADD3 R0, P1, R2, -R4, RZ\nIADD3.X R1, R3, ~R5, RZ, P1, !PT",
              [](auto a, auto b, auto) { return a - b; });
  expect_pair("IADD3 R0, P0, R2, -R4, RZ\nIMAD.X R1, R3, 0x1, ~R5, P0", [](auto a, auto b, auto) { return a - b; });
  // Three words may carry 2.
  expect_pair("IADD3 R0, P0, P1, R2, R4, R6\nIADD3.X R1, R3, R5, RZ, P0, P1",
              [](auto a, auto b, auto c) { return a + b + c; });
  // The product of pairs, by parts.
  expect_pair("IMAD.WIDE.U32 R0, R2, R4, RZ\nIMAD R1, R2, R5, R1\nIMAD R1, R3, R4, R1",
              [](auto a, auto b, auto) { return a * b; });
}

TEST(T4Integer, FindsAddresses) {
  expect_result("LEA R0, R1, R2, 0x3", [](auto a, auto b, auto) { return (a << 3) + b; });
  expect_pair("LEA R0, P0, R2, R4, 0x3\nLEA.HI.X R1, R2, R5, R3, 0x3, P0",
              [](auto a, auto b, auto) { return (a << 3) + b; });
  expect_pair("LEA R0, P0, R6, R4, 0x1\nLEA.HI.X.SX32 R1, R6, R5, 0x1, P0",
              [](auto, auto b, auto c) { return b + static_cast<uint64_t>(as_signed(c)) * 2; });
  expect_result("LEA.HI R0, R1, R2, R3, 0x5",
                [](auto a, auto b, auto c) { return static_cast<uint32_t>((uint64_t{c} << 32 | a) << 5 >> 32) + b; });
}

TEST(T4Integer, Compares) {
  const auto select = [](const std::string& lines) { return lines + "\nSEL R0, R2, R4, P0\nSEL R1, R3, R5, P0"; };
  const std::vector<std::pair<std::string, std::function<bool(int)>>> relations = {
      {"GE", [](int order) { return order >= 0; }}, {"GT", [](int order) { return order > 0; }},
      {"LE", [](int order) { return order <= 0; }}, {"LT", [](int order) { return order < 0; }},
      {"EQ", [](int order) { return order == 0; }}, {"NE", [](int order) { return order != 0; }}};
  for (const auto& [name, holds] : relations) {
    const auto order = [](auto a, auto b) { return a < b ? -1 : a > b ? 1 : 0; };
    const auto& relation = holds;
    expect_pair(
        select("ISETP." + name + ".U32.AND P0, PT, R2, R4, PT\nISETP." + name + ".U32.AND.EX P0, PT, R3, R5, PT, P0"),
        [&](auto a, auto b, auto) { return relation(order(a, b)) ? a : b; });
    expect_pair(
        select("ISETP." + name + ".U32.AND P0, PT, R2, R4, PT\nISETP." + name + ".AND.EX P0, PT, R3, R5, PT, P0"),
        [&](auto a, auto b, auto) {
          return relation(order(static_cast<int64_t>(a), static_cast<int64_t>(b))) ? a : b;
        });
  }
  expect_result("IMNMX R0, R1, R2, PT", [](auto a, auto b, auto) { return as_signed(a) < as_signed(b) ? a : b; });
  expect_result("IMNMX.U32 R0, R1, R2, !PT", [](auto a, auto b, auto) { return std::max(a, b); });
  expect_result("IABS R0, R1", [](auto a, auto, auto) { return static_cast<uint32_t>(std::abs(as_signed(a))); });
}

TEST(T4Integer, ComparisonsAreCombinedWithTheirLastPredicate) {
  for (const std::string combination : {"AND", "OR", "XOR"}) {
    OneWarp warp("ISETP.GE." + combination + " P0, P1, R1, R2, P2");
    Words words;
    for (size_t r : {1, 2})
      for (uint32_t& value : warp.reg(r)) value = words.next();
    warp.warp().predicates[2] = words.next() ^ 0x55555555;
    const t4::Mask last = warp.warp().predicates[2];
    warp.run();
    for (size_t lane = 0; lane < t4::warp_size; ++lane) {
      const bool holds = as_signed(warp.reg(1)[lane]) >= as_signed(warp.reg(2)[lane]), with = last >> lane & 1;
      const auto combined = [&](bool value) {
        return combination == "AND" ? value && with : combination == "OR" ? value || with : value != with;
      };
      EXPECT_EQ(warp.warp().predicates[0] >> lane & 1, combined(holds)) << combination;
      EXPECT_EQ(warp.warp().predicates[1] >> lane & 1, combined(!holds)) << combination;
    }
  }
}

TEST(T4Integer, SumsProductsOfBytes) {
  const auto sum = [](uint32_t a, uint32_t b, uint32_t c, bool a_signed, bool b_signed) {
    for (int i = 0; i < 4; ++i) {
      const int64_t x = a_signed ? int64_t{int8_t(a >> 8 * i)} : int64_t{uint8_t(a >> 8 * i)};
      const int64_t y = b_signed ? int64_t{int8_t(b >> 8 * i)} : int64_t{uint8_t(b >> 8 * i)};
      c += static_cast<uint32_t>(x * y);
    }
    return c;
  };
  expect_result("IDP.4A.S8.S8 R0, R1, R2, R3", [&](auto a, auto b, auto c) { return sum(a, b, c, true, true); });
  expect_result("IDP.4A.U8.S8 R0, R1, R2, R3", [&](auto a, auto b, auto c) { return sum(a, b, c, false, true); });
}

// ---- Bits

TEST(T4Bits, LogicFollowsItsTable) {
  for (const int table : {0x00, 0x80, 0xfe, 0x96, 0xc0, 0x3c, 0x1b, 0xe8, 0xff}) {
    char line[64];
    std::snprintf(line, sizeof line, "LOP3.LUT R0, R1, R2, R3, 0x%x, !PT", table);
    expect_result(line, [&](auto a, auto b, auto c) {
      uint32_t result = 0;
      for (int bit = 0; bit < 32; ++bit)
        result |= static_cast<uint32_t>(table >> ((a >> bit & 1) * 4 + (b >> bit & 1) * 2 + (c >> bit & 1)) & 1) << bit;
      return result;
    });
  }
  expect_result("LOP3.LUT P0, RZ, R1, R2, RZ, 0xc0, !PT\nSEL R0, R1, R2, P0",
                [](auto a, auto b, auto) { return (a & b) != 0 ? a : b; });
  expect_result(
      "ISETP.GE.AND P1, PT, R1, R2, PT\nISETP.GE.AND P2, PT, R2, R3, PT\n"
      "PLOP3.LUT P0, P3, P1, P2, PT, 0x28, 0x0\nSEL R0, R1, R2, P0",
      [](auto a, auto b, auto c) {  // row 5 is P1 and not P2, row 3 is P2 and not P1
        return (as_signed(a) >= as_signed(b)) != (as_signed(b) >= as_signed(c)) ? a : b;
      });
}

TEST(T4Bits, Shifts) {
  const auto clamp = [](uint32_t by, uint32_t most) { return std::min(by, most); };
  expect_result("SHF.L.U32 R0, R1, R2, RZ", [](auto a, auto b, auto) { return b >= 32 ? 0 : a << b; });
  expect_result("SHF.R.U32.HI R0, RZ, R2, R1", [](auto a, auto b, auto) { return b >= 32 ? 0 : a >> b; });
  expect_result("SHF.R.S32.HI R0, RZ, R2, R1",
                [&](auto a, auto b, auto) { return static_cast<uint32_t>(as_signed(a) >> clamp(b, 63)); });
  expect_result("SHF.L.W.U32.HI R0, R1, R2, R3", [](auto a, auto b, auto c) {
    return static_cast<uint32_t>((uint64_t{c} << 32 | a) << (b & 31) >> 32);
  });
  expect_pair("SHF.L.U64.HI R1, R2, R6, R3\nSHF.L.U32 R0, R2, R6, RZ", [](auto a, auto, auto c) {
    const uint64_t upper = c >= 64 ? 0 : a << c;  // the lower word is of 32 bits
    return (upper & 0xffffffff00000000) | (c >= 32 ? 0 : static_cast<uint32_t>(a) << c);
  });
  expect_result("SHF.R.U64 R0, R1, R2, R3", [](auto a, auto b, auto c) {
    return static_cast<uint32_t>(b >= 64 ? 0 : (uint64_t{c} << 32 | a) >> b);
  });
}

TEST(T4Bits, SelectsBytesAndBits) {
  expect_result("PRMT R0, R1, R2, R3", [](auto a, auto b, auto c) {
    uint8_t bytes[8], result[4];
    std::memcpy(bytes, &a, 4), std::memcpy(bytes + 4, &c, 4);
    for (int i = 0; i < 4; ++i) {
      const uint8_t byte = bytes[b >> 4 * i & 7];
      result[i] = (b >> 4 * i & 8) == 0 ? byte : (byte >= 128 ? 255 : 0);
    }
    std::memcpy(&a, result, 4);
    return a;
  });
  expect_result("SGXT R0, R1, 0xb", [](auto a, auto, auto) { return static_cast<uint32_t>(as_signed(a << 21) >> 21); });
  expect_result("SGXT.U32 R0, R1, R2", [](auto a, auto b, auto) { return b >= 32 ? a : a & ((1u << b) - 1); });
  expect_result("BMSK R0, R1, R2", [](auto a, auto b, auto) {
    uint32_t mask = 0;
    for (uint64_t bit = a; bit < std::min<uint64_t>(uint64_t{a} + b, 32); ++bit) mask |= 1u << bit;
    return mask;
  });
}

TEST(T4Bits, CountsAndReverses) {
  const auto highest = [](uint32_t value) {
    for (int bit = 31; bit >= 0; --bit)
      if (value >> bit & 1) return static_cast<uint32_t>(bit);
    return ~0u;
  };
  expect_result("POPC R0, R1", [](auto a, auto, auto) {
    uint32_t count = 0;
    for (; a != 0; a >>= 1) count += a & 1;
    return count;
  });
  expect_result("FLO.U32 R0, R1", [&](auto a, auto, auto) { return highest(a); });
  expect_result("FLO R0, R1", [&](auto a, auto, auto) { return highest(as_signed(a) < 0 ? ~a : a); });
  expect_result("FLO.U32.SH R0, R1", [&](auto a, auto, auto) { return a == 0 ? ~0u : 31 - highest(a); });
  expect_result("BREV R0, R1", [](auto a, auto, auto) {
    uint32_t result = 0;
    for (int bit = 0; bit < 32; ++bit, a >>= 1) result = result << 1 | (a & 1);
    return result;
  });
}

}  // namespace
