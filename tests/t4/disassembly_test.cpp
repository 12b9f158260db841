// SPDX-License-Identifier: Apache-2.0
//
// nvdisasm's text, and what is read of it.

#include <gtest/gtest.h>

#include <sstream>

#include "program/disassembly.hpp"
#include "program/operand.hpp"

namespace {

using t4::Modifier, t4::Opcode, t4::Operand;

const char* const text = R"(
	.target	sm_75
	.section	.text._Z5scalePf,"ax",@progbits
	.sectioninfo	@"SHI_REGISTERS=14"
_Z5scalePf:
.text._Z5scalePf:
	//## File "/src/scale.cu", line 12
        /*0000*/                   IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28] ;          /* 0x00000a00ff017624 */
                                                                                    /* 0x000fc400078e00ff */
        /*0010*/              @!P0 BRA `(.L_x_1) ;                                  /* 0x0000000000008947 */
                                                                                    /* 0x000fea0003800000 */
	//## File "/src/scale.cu", line 13 inlined at "/src/scale.cu", line 20
        /*0020*/                   FSETP.GTU.AND P1, PT, |R2|.reuse, -1.5, !P3 ;    /* 0xbfc00000ff027808 */
                                                                                    /* 0x0000640000000800 */
.L_x_1:
        /*0030*/                   LDL.64 R4, [R1+-0x8]               (*"SpillRefill"*); /* 0x0000000000000000 */
                                                                                    /* 0x0001620000100800 */
        /*0040*/                   HFMA2 R0, -RZ, RZ, 1.875, 0 ;                    /* 0x3f800000ff007431 */
                                                                                    /* 0x000fe200000001ff */
	.section	.nv.other,"ax"
        /*0000*/                   EXIT ;                                           /* 0x000000000000794d */
)";

TEST(T4Disassembly, FindsFunctionsInstructionsAndTheirControl) {
  std::istringstream in(text);
  const t4::Disassembly all = t4::parse_disassembly(in);
  ASSERT_EQ(all.functions.size(), 1);
  const t4::Code& code = all.functions.at("_Z5scalePf");
  EXPECT_EQ(code.num_registers, 14);
  ASSERT_EQ(code.instructions.size(), 5);
  const t4::Instruction &mov = code.instructions[0], &bra = code.instructions[1], &fsetp = code.instructions[2];
  EXPECT_EQ(mov.opcode, Opcode::IMAD);
  EXPECT_EQ(mov.operands[3].kind, Operand::Kind::constant);
  EXPECT_EQ(mov.operands[3].offset, 0x28);
  EXPECT_EQ(mov.control.stall, 2);
  EXPECT_EQ(mov.control.write_barrier, t4::Control::no_barrier);
  EXPECT_EQ(mov.line, 12);
  EXPECT_EQ(*mov.file, "/src/scale.cu");
  EXPECT_EQ(bra.guard, 0);
  EXPECT_TRUE(bra.guard_negative);
  EXPECT_EQ(bra.operands[0].target, 3);
  EXPECT_EQ(fsetp.address, 0x20);
  EXPECT_EQ(fsetp.line, 13);
  EXPECT_TRUE(fsetp.operands[2].absolute);
  EXPECT_EQ(fsetp.operands[3].immediate, 0xbfc00000);
  EXPECT_TRUE(fsetp.operands[4].inverted);
  EXPECT_EQ(fsetp.control.stall, 2);
  EXPECT_EQ(fsetp.control.write_barrier, 1);
  EXPECT_EQ(fsetp.control.read_barrier, 0);
  EXPECT_EQ(code.instructions[3].width, 8);
  EXPECT_EQ(code.instructions[3].operands.size(), 2);
  EXPECT_EQ(code.instructions[3].operands[1].offset, -8);
  EXPECT_EQ(code.instructions[3].control.waits, 0u);
  EXPECT_EQ(code.instructions[4].operands.size(), 4) << "a pair of halves is one";
  EXPECT_EQ(code.instructions[4].operands[3].immediate, 0x3f800000);
}

TEST(T4Disassembly, ReadsOperands) {
  const Operand memory = t4::parse_operand("[R2.U32+UR4+0x1c]", 0);
  EXPECT_EQ(memory.kind, Operand::Kind::memory);
  EXPECT_EQ(memory.index, 2);
  EXPECT_EQ(memory.uniform, 4);
  EXPECT_EQ(memory.offset, 0x1c);
  EXPECT_TRUE(memory.address_is_32_bits);
  EXPECT_EQ(t4::parse_operand("[R7.X16+-0x4]", 0).scale, 16);
  const Operand constant = t4::parse_operand("-|c[0x3][R5+0x10]|", 0);
  EXPECT_EQ(constant.kind, Operand::Kind::constant);
  EXPECT_TRUE(constant.negative && constant.absolute);
  EXPECT_EQ(constant.bank, 3);
  EXPECT_EQ(constant.index, 5);
  const Operand number = t4::parse_operand("c[0x2] [0x70].F32", 0);
  EXPECT_EQ(number.bank, 2);
  EXPECT_EQ(number.offset, 0x70);
  EXPECT_EQ(number.half, Operand::Half::single);
  EXPECT_EQ(t4::parse_operand("-R4.H1_H1", 0).half, Operand::Half::high);
  EXPECT_EQ(t4::parse_operand("R4.B2", 0).part, 2);
  EXPECT_EQ(t4::parse_operand("~R4.reuse", 0).index, 4);
  EXPECT_TRUE(t4::parse_operand("~R4.reuse", 0).inverted);
  EXPECT_EQ(t4::parse_operand("RZ", 0).index, t4::zero_register);
  EXPECT_EQ(t4::parse_operand("!UPT", 0).kind, Operand::Kind::uniform_predicate);
  EXPECT_EQ(t4::parse_operand("-0x2", 0).immediate, 0xfffffffe);
  EXPECT_EQ(t4::parse_operand("+INF", 0x7f800000ull << 32).immediate, 0x7f800000);
  EXPECT_EQ(t4::parse_operand("-QNAN", 0xffc00000ull << 32).immediate, 0xffc00000);
  EXPECT_EQ(t4::parse_operand("SR_TID.X", 0).text, "SR_TID.X");
  EXPECT_EQ(t4::parse_operand("R4 -0x120", 0).offset, -0x120);
  const Operand described = t4::parse_operand("desc[UR6][R20.64+-0x400]", 0);
  EXPECT_EQ(described.kind, Operand::Kind::memory);
  EXPECT_EQ(described.index, 20);
  EXPECT_EQ(described.uniform, t4::zero_uniform);
  EXPECT_EQ(described.offset, -0x400);
  EXPECT_TRUE(described.address_is_64_bits);
  EXPECT_THROW(t4::parse_operand("c[UR4][0x10]", 0), std::runtime_error);
}

}  // namespace
