// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The operations and modifiers of sm_75 and sm_90 that are known by name. Any other can be read, and fails where it is
/// executed.

#include <cstdint>
#include <string_view>

namespace t4 {

// clang-format off
#define T4_OPCODES(X) \
  X(ATOM) X(ATOMG) X(ATOMS) X(B2R) X(BAR) X(BMOV) X(BMSK) X(BPT) X(BRA) X(BREAK) X(BREV) X(BRX) X(BSSY) X(BSYNC) \
  X(CALL) X(CCTL) X(CS2R) X(DADD) X(DEPBAR) X(DFMA) X(DMUL) X(DSETP) X(ERRBAR) X(EXIT) X(F2F) X(F2I) X(FADD) X(FCHK) \
  X(FFMA) X(FLO) X(FMNMX) X(FMUL) X(FRND) X(FSEL) X(FSET) X(FSETP) X(HADD2) X(HFMA2) X(HMMA) X(HMUL2) X(HSET2) \
  X(HSETP2) X(I2F) X(I2I) X(IABS) X(IADD3) X(IDP) X(IMAD) X(IMMA) X(IMNMX) X(ISETP) X(KILL) X(LD) X(LDC) X(LDG) \
  X(LDL) X(LDS) X(LDSM) X(LEA) X(LOP3) X(MATCH) X(MEMBAR) X(MOV) X(MOVM) X(MUFU) X(NANOSLEEP) X(NOP) X(P2R) X(PLOP3) \
  X(POPC) X(PRMT) X(QSPC) X(R2P) X(R2UR) X(RED) X(RET) X(S2R) X(S2UR) X(SEL) X(SGXT) X(SHF) X(SHFL) X(ST) X(STG) \
  X(STL) X(STS) X(UBMSK) X(UBREV) X(UFLO) X(UIADD3) X(UIMAD) X(UISETP) X(ULDC) X(ULEA) X(ULOP3) X(UMOV) X(UPLOP3) \
  X(UPOPC) X(UPRMT) X(USEL) X(USGXT) X(USHF) X(VOTE) X(VOTEU) X(WARPSYNC) X(YIELD) \
  /* of sm_90 */ \
  X(ACQBULK) X(CGAERRBAR) X(ENDCOLLECTIVE) X(F2FP) X(I2FP) X(LDGDEPBAR) X(LDGSTS) X(PREEXIT) X(REDG) X(REDUX) \
  X(VIADD) X(VIADDMNMX) X(VIMNMX) X(VIMNMX3)

// Those that nvdisasm writes with a digit first have a name with an M. The last ones, from ARRIVES on, are without a
// meaning for what is computed.
#define T4_MODIFIERS(X) \
  X(ADD, "ADD") X(ALL, "ALL") X(AND, "AND") X(ANY, "ANY") X(ARV, "ARV") X(B1, "B1") X(B2, "B2") X(B3, "B3") \
  X(BF, "BF") X(BFLY, "BFLY") X(BM, "BM") X(CAS, "CAS") X(CAST, "CAST") X(CEIL, "CEIL") X(CLEAR, "CLEAR") \
  X(CONSTANT, "CONSTANT") X(CONV, "CONV") X(COS, "COS") X(CTA, "CTA") X(DEC, "DEC") X(DIV, "DIV") X(DOWN, "DOWN") \
  X(E, "E") X(EQ, "EQ") X(EQU, "EQU") X(EX, "EX") X(EX2, "EX2") X(EXCH, "EXCH") X(F16, "F16") X(F16x2, "F16x2") \
  X(F32, "F32") X(F64, "F64") X(FLOOR, "FLOOR") X(FTZ, "FTZ") X(GE, "GE") X(GEU, "GEU") X(GPU, "GPU") X(GT, "GT") \
  X(GTU, "GTU") X(HI, "HI") X(IADD, "IADD") X(IDX, "IDX") X(INC, "INC") X(L, "L") X(LE, "LE") X(LEU, "LEU") \
  X(LG2, "LG2") X(LT, "LT") X(LTU, "LTU") X(LU, "LU") X(LUT, "LUT") X(M16, "16") X(M1688, "1688") X(M2, "2") \
  X(M32, "32") X(M4, "4") X(M4A, "4A") X(M64, "64") X(M8816, "8816") X(M88, "M88") X(M128, "128") X(MAX, "MAX") \
  X(MIN, "MIN") X(MMA, "MMA") X(MOV, "MOV") X(MT88, "MT88") X(NAN_, "NAN") X(NE, "NE") X(NEU, "NEU") \
  X(NODEC, "NODEC") X(NOINC, "NOINC") X(NTZ, "NTZ") X(NUM, "NUM") X(OR, "OR") X(PAND, "PAND") X(POPC, "POPC") \
  X(R, "R") X(RCP, "RCP") X(RCP64H, "RCP64H") X(RED, "RED") X(REL, "REL") X(RM, "RM") X(RN, "RN") X(RP, "RP") \
  X(RSQ, "RSQ") X(RSQ64H, "RSQ64H") X(RZ, "RZ") X(S, "S") X(S16, "S16") X(S32, "S32") X(S64, "S64") X(S8, "S8") \
  X(SAT, "SAT") X(SH, "SH") X(SHL, "SHL") X(SIN, "SIN") X(SPIN, "SPIN") X(SQRT, "SQRT") X(STRONG, "STRONG") \
  X(SX32, "SX32") X(SYNC, "SYNC") X(SYS, "SYS") X(TANH, "TANH") X(TRUNC, "TRUNC") X(U, "U") X(U16, "U16") \
  X(U32, "U32") X(U64, "U64") X(U8, "U8") X(UP, "UP") X(W, "W") X(WIDE, "WIDE") X(X_, "X") X(XOR, "XOR") \
  X(ARRIVES, "ARRIVES") X(DEFER_BLOCKING, "DEFER_BLOCKING") X(EF, "EF") X(EL, "EL") X(IVALL, "IVALL") X(NA, "NA") \
  X(MMIO, "MMIO") X(RESULT, "RESULT") X(PF1, "PF1") X(PF2, "PF2") X(RED_, "REDUCE") X(SC, "SC") X(VC, "VC") \
  X(VM, "VM") X(WEAK, "WEAK") X(ABS, "ABS") X(LL, "LL") X(LTC128B, "LTC128B") X(LTC64B, "LTC64B") X(INT, "INT") \
  X(TRAP, "TRAP") X(PRIVATE, "PRIVATE") X(M16816, "16816") X(PACK_AB, "PACK_AB") X(BYPASS, "BYPASS") \
  X(COLLECTIVE, "COLLECTIVE") X(SUM, "SUM") X(SATFINITE, "SATFINITE") X(RELU, "RELU")
// clang-format on

enum class Opcode : uint8_t {
#define T4_OPCODE(name) name,
  T4_OPCODES(T4_OPCODE)
#undef T4_OPCODE
      unknown
};
enum class Modifier : uint8_t {
#define T4_MODIFIER(name, text) name,
  T4_MODIFIERS(T4_MODIFIER)
#undef T4_MODIFIER
      unknown
};
inline constexpr int num_modifiers = static_cast<int>(Modifier::unknown) + 1;

/// `unknown` for any other text.
Opcode opcode_of(std::string_view text);
Modifier modifier_of(std::string_view text);

}  // namespace t4
