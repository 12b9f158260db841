// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Kernels for tests, written as nvdisasm writes code.

#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "execute/handlers.hpp"
#include "execute/launch.hpp"
#include "program/disassembly.hpp"

namespace t4_testing {

/// One instruction a line; "name:" is a label; "FADD R0, R1, 1 # 3f800000" has the bits of its number behind it, and
/// "FADD R0, R1, R2 ! 4" stalls 4 cycles; "! 2 w0" sets the write barrier 0 too, and "! 1 u3" waits for 0 and 1.
inline t4::Function assemble(const std::string& lines, int num_registers = 64) {
  std::ostringstream text;
  text << "\t.section .text.kernel,\"ax\",@progbits\n\t.sectioninfo @\"SHI_REGISTERS=" << num_registers << "\"\n";
  std::istringstream in(lines);
  std::string line;
  int address = 0;
  while (std::getline(in, line)) {
    if (line.find_first_not_of(' ') == std::string::npos) continue;
    if (line.back() == ':') {
      text << line << "\n";
      continue;
    }
    const size_t number = line.find('#');
    const bool has_control = line.find("! ") != std::string::npos;
    const std::string code = line.substr(0, has_control ? line.find("! ") : number);
    const std::string bits = number == std::string::npos ? "0" : line.substr(line.find_first_not_of(' ', number + 1));
    unsigned stall = 1, write_barrier = t4::Control::no_barrier, waits = 0;
    if (has_control) {
      const std::string rest = line.substr(line.find("! ") + 2);
      stall = static_cast<unsigned>(std::stoul(rest));
      if (const size_t w = rest.find('w'); w != std::string::npos)
        write_barrier = static_cast<unsigned>(rest[w + 1] - '0');
      if (const size_t u = rest.find('u'); u != std::string::npos) waits = static_cast<unsigned>(rest[u + 1] - '0');
    }
    const uint64_t upper = uint64_t{stall | write_barrier << 5 | 7 << 8 | waits << 11} << 41;
    char encoded[128];
    std::snprintf(encoded, sizeof encoded, " ; /* 0x%08lx00000000 */\n/* 0x%016lx */\n", std::stoul(bits, nullptr, 16),
                  upper);
    char place[32];
    std::snprintf(place, sizeof place, "/*%04x*/ ", address);
    text << place << code << encoded;
    address += t4::instruction_bytes;
  }
  std::istringstream all(text.str());
  t4::Disassembly parsed = t4::parse_disassembly(all);
  t4::Function function;
  function.name = "kernel";
  function.code = std::move(parsed.functions.at("kernel"));
  static std::vector<std::shared_ptr<std::set<std::string>>> files;  // as long as instructions may name them
  files.push_back(parsed.files);
  for (t4::Instruction& instruction : function.code.instructions) t4::find_handler(instruction);
  return function;
}

/// A launch of it, block by block or at once.
struct Kernel {
  t4::Function function;
  t4::Allocations memory;
  t4::Launch launch;

  explicit Kernel(const std::string& lines, t4::Dim3 grid = {}, t4::Dim3 block = {32, 1, 1}, uint32_t shared_bytes = 0)
      : function(assemble(lines)), launch(t4::make_launch(function, grid, block, shared_bytes, {}, memory)) {}
  Kernel(const Kernel&) = delete;
};

/// One warp, whose registers a test sets and reads.
struct OneWarp : Kernel {
  std::unique_ptr<t4::Block> block;

  explicit OneWarp(const std::string& lines, uint32_t shared_bytes = 0)
      : Kernel(lines + "\nEXIT", {}, {32, 1, 1}, shared_bytes), block(t4::begin_block(launch, 0)) {}
  t4::Warp& warp() { return block->warps[0]; }
  t4::Lanes& reg(size_t index) { return warp().registers[index]; }
  void set64(size_t index, size_t lane, uint64_t value) {
    reg(index)[lane] = static_cast<uint32_t>(value), reg(index + 1)[lane] = static_cast<uint32_t>(value >> 32);
  }
  uint64_t get64(size_t index, size_t lane) { return uint64_t{reg(index + 1)[lane]} << 32 | reg(index)[lane]; }
  void run() {
    t4::Step step;
    while (warp().can_run()) t4::execute_next(warp(), step);
  }
  /// Once more, with the registers as they are.
  void restart() {
    warp().alive = warp().all;
    block->alive = t4::warp_size;
    warp().groups = {{0, warp().all}};
  }
};

/// The message of what fails, or nothing.
template <class Function>
std::string error_of(const Function& function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace t4_testing
