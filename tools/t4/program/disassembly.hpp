// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <istream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "program/instruction.hpp"

namespace t4 {

struct Code {
  std::vector<Instruction> instructions;
  int num_registers = 0;
};
struct Disassembly {
  std::map<std::string, Code> functions;
  std::shared_ptr<std::set<std::string>> files;  ///< the names that instructions point to
};

/// Reads what `nvdisasm -c -hex -g` writes for a cubin. Throws std::runtime_error for a label that is nowhere.
Disassembly parse_disassembly(std::istream& text);

}  // namespace t4
