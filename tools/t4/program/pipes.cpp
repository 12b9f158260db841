// SPDX-License-Identifier: Apache-2.0
#include "program/pipes.hpp"

namespace t4 {

Pipe pipe_of(Opcode opcode) {
  switch (opcode) {
    case Opcode::IMAD:
    case Opcode::FADD:
    case Opcode::FMUL:
    case Opcode::FFMA:
      return Pipe::fma;
    case Opcode::HADD2:
    case Opcode::HMUL2:
    case Opcode::HFMA2:
    case Opcode::HSETP2:
    case Opcode::HSET2:
      return Pipe::half;
    case Opcode::MUFU:
    case Opcode::F2F:
    case Opcode::F2I:
    case Opcode::I2F:
    case Opcode::I2I:
    case Opcode::FRND:
    case Opcode::POPC:
    case Opcode::FLO:
    case Opcode::BREV:
    case Opcode::FCHK:
      return Pipe::function;
    case Opcode::LDG:
    case Opcode::LDS:
    case Opcode::LDL:
    case Opcode::LD:
    case Opcode::STG:
    case Opcode::STS:
    case Opcode::STL:
    case Opcode::ST:
    case Opcode::ATOMG:
    case Opcode::ATOM:
    case Opcode::ATOMS:
    case Opcode::RED:
    case Opcode::REDG:
    case Opcode::LDSM:
    case Opcode::SHFL:
    case Opcode::S2R:
    case Opcode::LDC:
    case Opcode::MATCH:
    case Opcode::CCTL:
    case Opcode::MOVM:
    case Opcode::S2UR:
    case Opcode::R2UR:
    case Opcode::LDGSTS:
    case Opcode::LDGDEPBAR:
    case Opcode::REDUX:
      return Pipe::memory;
    case Opcode::HMMA:
    case Opcode::IMMA:
      return Pipe::tensor;
    case Opcode::DADD:
    case Opcode::DMUL:
    case Opcode::DFMA:
    case Opcode::DSETP:
      return Pipe::fp64;
    case Opcode::BRA:
    case Opcode::BRX:
    case Opcode::CALL:
    case Opcode::RET:
    case Opcode::BSSY:
    case Opcode::BSYNC:
    case Opcode::BREAK:
    case Opcode::EXIT:
    case Opcode::WARPSYNC:
    case Opcode::BAR:
    case Opcode::NOP:
    case Opcode::YIELD:
    case Opcode::MEMBAR:
    case Opcode::DEPBAR:
    case Opcode::NANOSLEEP:
    case Opcode::PREEXIT:
    case Opcode::ACQBULK:
    case Opcode::CGAERRBAR:
    case Opcode::ENDCOLLECTIVE:
      return Pipe::branch;
    default:
      return Pipe::alu;
  }
}

}  // namespace t4
