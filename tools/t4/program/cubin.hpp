// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What an ELF file has beside code: how kernels take their parameters, constants, shared memory, variables.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "program/disassembly.hpp"

namespace t4 {

struct Parameter {
  int offset = 0, bytes = 0;
};

struct Function {
  static constexpr int num_banks = 5;

  std::string name;
  Code code;
  uint32_t static_shared_bytes = 0;
  uint32_t reserved_shared_bytes = 0;  ///< before it: 1 KB of newer cards
  uint32_t local_bytes = 0;            ///< of a thread
  int most_threads = 1024;
  int parameter_base = 0x160;  ///< in bank 0
  std::vector<Parameter> parameters;
  std::vector<uint8_t> banks[num_banks];  ///< constants; bank 0 without the parameters
};

struct Variable {
  uint8_t* address = nullptr;
  uint64_t bytes = 0;
};

/// Code that is loaded; its variables are in memory of its own.
struct Module {
  std::map<std::string, Function> functions;
  std::map<std::string, Variable> variables;
  std::vector<std::unique_ptr<std::vector<uint8_t>>> memory;
  std::shared_ptr<std::set<std::string>> files;
};

/// The compute capability that an ELF file is for, as 75.
int capability_of(const uint8_t* cubin);
/// How long it is: what holds it may be longer.
uint64_t size_of(const uint8_t* cubin);
/// Throws std::runtime_error: no nvdisasm, a symbol that is nowhere.
Module load_cubin(const std::vector<uint8_t>& cubin);

}  // namespace t4
