// SPDX-License-Identifier: Apache-2.0
#include "program/disassembly.hpp"

#include <cstdlib>
#include <stdexcept>
#include <unordered_map>

#include "program/operand.hpp"
#include "program/text.hpp"

namespace t4 {
namespace {

Control parse_control(uint64_t upper_half) {
  const auto bits = static_cast<uint32_t>(upper_half >> 41);
  Control control;
  control.stall = static_cast<int>(bits & 15);
  control.write_barrier = static_cast<int>(bits >> 5 & 7);
  control.read_barrier = static_cast<int>(bits >> 8 & 7);
  control.waits = bits >> 11 & 63;
  return control;
}

/// LDG.E.128.SYS
void parse_name(const std::string& name, Instruction& instruction) {
  size_t begin = name.find('.');
  instruction.opcode = opcode_of(name.substr(0, begin));
  instruction.pipe = pipe_of(instruction.opcode);
  while (begin != std::string::npos) {
    const size_t end = name.find('.', begin + 1);
    const Modifier modifier = modifier_of(name.substr(begin + 1, end == std::string::npos ? end : end - begin - 1));
    instruction.modifiers.push_back(modifier);
    instruction.has_modifier.set(static_cast<size_t>(modifier));
    begin = end;
  }
  const auto has = [&](Modifier modifier) { return instruction.has(modifier); };
  instruction.width = has(Modifier::M128)                        ? 16
                      : has(Modifier::M64)                       ? 8
                      : has(Modifier::U16) || has(Modifier::S16) ? 2
                      : has(Modifier::U8) || has(Modifier::S8)   ? 1
                                                                 : 4;
}

/// Separated by commas that are not within brackets.
void parse_operands(const std::string& text, Instruction& instruction) {
  int depth = 0;
  std::string one;
  const auto finish = [&] {
    if (!trim(one).empty()) instruction.operands.push_back(parse_operand(one, instruction.encoding));
    one.clear();
  };
  for (const char c : text) {
    depth += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
    if (c == ',' && depth == 0) {
      finish();
    } else {
      one += c;
    }
  }
  finish();
}

/// A pair of halves is written as two numbers, and encoded as one word.
void join_pairs_of_halves(Instruction& instruction) {
  const Opcode opcode = instruction.opcode;
  if (opcode != Opcode::HADD2 && opcode != Opcode::HMUL2 && opcode != Opcode::HFMA2 && opcode != Opcode::HSETP2 &&
      opcode != Opcode::HSET2)
    return;
  auto& operands = instruction.operands;
  for (size_t i = 0; i + 1 < operands.size(); ++i) {
    if (operands[i].kind != Operand::Kind::immediate || operands[i + 1].kind != Operand::Kind::immediate) continue;
    operands[i].immediate = static_cast<uint32_t>(instruction.encoding >> 32);
    operands.erase(operands.begin() + static_cast<long>(i) + 1);
  }
}

/// /*0040*/  @!P0 IADD3 R4, R2, 0x1, RZ ;  /* 0x... */
bool parse_instruction(const std::string& line, Instruction& instruction) {
  const size_t end_of_address = line.find("*/"), encoding = line.rfind("/*");
  if (end_of_address == std::string::npos || encoding <= end_of_address) return false;
  instruction.address = static_cast<uint32_t>(std::strtoul(line.c_str() + 2, nullptr, 16));
  instruction.encoding = std::strtoull(trim(line.substr(encoding + 2)).c_str(), nullptr, 16);
  std::string body = line.substr(end_of_address + 2, encoding - end_of_address - 2);
  const size_t comment = body.find("(*\"");  // (*"SpillRefill"*)
  body = trim(body.substr(0, std::min(body.rfind(';'), comment)));
  instruction.text = body;
  if (body[0] == '@') {
    const size_t space = body.find(' ');
    std::string guard = body.substr(1, space - 1);
    if (guard[0] == '!') instruction.guard_negative = true, guard.erase(0, 1);
    if (guard[0] == 'U') instruction.guard_uniform = true, guard.erase(0, 1);
    instruction.guard = guard == "PT" ? true_predicate : std::atoi(guard.c_str() + 1);
    body = trim(body.substr(space));
  }
  const size_t space = body.find_first_of(" \t");
  parse_name(body.substr(0, space), instruction);
  if (space != std::string::npos) parse_operands(body.substr(space), instruction);
  join_pairs_of_halves(instruction);
  return true;
}

/// The lines of one function, until the next section.
class FunctionReader {
 public:
  FunctionReader(std::string name, Code& code, std::set<std::string>& files)
      : name_(std::move(name)), code_(code), files_(files) {}

  void read(const std::string& line) {
    if (begins_with(line, ".sectioninfo")) {
      const size_t at = line.find("SHI_REGISTERS=");
      if (at != std::string::npos) code_.num_registers = std::atoi(line.c_str() + at + 14);
    } else if (begins_with(line, "//## File \"")) {
      read_place(line);
    } else if (begins_with(line, "/* 0x")) {
      if (!code_.instructions.empty())
        code_.instructions.back().control = parse_control(std::strtoull(line.c_str() + 3, nullptr, 16));
    } else if (begins_with(line, "/*")) {
      Instruction instruction;
      if (!parse_instruction(line, instruction)) return;
      instruction.file = file_, instruction.line = line_;
      code_.instructions.push_back(std::move(instruction));
    } else if (!line.empty() && line.back() == ':') {
      labels_[line.substr(0, line.size() - 1)] = static_cast<int>(code_.instructions.size());
    }
  }
  void finish() {
    for (Instruction& instruction : code_.instructions)
      for (Operand& operand : instruction.operands) {
        if (operand.kind != Operand::Kind::label) continue;
        const auto found = labels_.find(operand.text);
        if (found == labels_.end())
          throw std::runtime_error("label " + operand.text + " of " + name_ + " is nowhere: " + instruction.text);
        operand.target = found->second;
      }
  }

 private:
  /// //## File "/home/me/fm.cuh", line 94 inlined at ...
  void read_place(const std::string& line) {
    const size_t begin = line.find('"') + 1, end = line.find('"', begin), number = line.find("line ", end);
    if (end == std::string::npos || number == std::string::npos) return;
    file_ = &*files_.insert(line.substr(begin, end - begin)).first;
    line_ = std::atoi(line.c_str() + number + 5);
  }

  std::string name_;
  Code& code_;
  std::set<std::string>& files_;
  std::unordered_map<std::string, int> labels_;
  const std::string* file_ = nullptr;
  int line_ = 0;
};

}  // namespace

Disassembly parse_disassembly(std::istream& text) {
  Disassembly result;
  result.files = std::make_shared<std::set<std::string>>();
  std::unique_ptr<FunctionReader> reader;
  std::string raw;
  while (std::getline(text, raw)) {
    const std::string line = trim(raw);
    if (!begins_with(line, ".section\t") && !begins_with(line, ".section ")) {
      if (reader) reader->read(line);
      continue;
    }
    if (reader) reader->finish();
    reader.reset();
    constexpr std::string_view text_section = ".text.";
    const size_t at = line.find(text_section);
    if (at == std::string::npos) continue;
    const size_t begin = at + text_section.size();
    const std::string name = line.substr(begin, line.find(',', begin) - begin);
    reader = std::make_unique<FunctionReader>(name, result.functions[name], *result.files);
  }
  if (reader) reader->finish();
  return result;
}

}  // namespace t4
