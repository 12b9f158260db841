// SPDX-License-Identifier: Apache-2.0
#include "program/cubin.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "execute/handlers.hpp"
#include "program/nvdisasm.hpp"
#include "program/text.hpp"

namespace t4 {
namespace {

/// Attributes of .nv.info sections.
enum Attribute : uint8_t {
  parameter_base = 0x0a,
  parameter_information = 0x17,
  most_threads = 0x05,
  register_count = 0x2f
};
constexpr uint32_t reserved_shared_bytes = 1024;  // of a block, where the card is newer than sm_75
constexpr uint8_t format_of_sized_value = 4;

template <class T>
T read_as(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

class Elf {
 public:
  explicit Elf(const uint8_t* bytes)
      : bytes_(bytes),
        header_(reinterpret_cast<const Elf64_Ehdr*>(bytes)),
        sections_(reinterpret_cast<const Elf64_Shdr*>(bytes + header_->e_shoff)) {
    for (int i = 0; i < size(); ++i)
      if (sections_[i].sh_type == SHT_SYMTAB) symbols_ = i;
  }

  int size() const { return header_->e_shnum; }
  const Elf64_Shdr& section(int i) const { return sections_[i]; }
  std::string name(int i) const {
    return reinterpret_cast<const char*>(data(header_->e_shstrndx)) + sections_[i].sh_name;
  }
  const uint8_t* data(int i) const { return bytes_ + sections_[i].sh_offset; }
  uint64_t bytes(int i) const { return sections_[i].sh_size; }

  size_t num_symbols() const { return symbols_ < 0 ? 0 : bytes(symbols_) / sizeof(Elf64_Sym); }
  const Elf64_Sym& symbol(size_t i) const { return reinterpret_cast<const Elf64_Sym*>(data(symbols_))[i]; }
  std::string symbol_name(size_t i) const {
    return reinterpret_cast<const char*>(data(static_cast<int>(sections_[symbols_].sh_link))) + symbol(i).st_name;
  }

 private:
  const uint8_t* bytes_;
  const Elf64_Ehdr* header_;
  const Elf64_Shdr* sections_;
  int symbols_ = -1;
};

void read_information(const uint8_t* data, uint64_t bytes, Function& function) {
  for (uint64_t at = 0; at + 4 <= bytes;) {
    const uint8_t format = data[at], attribute = data[at + 1];
    const uint8_t* value = data + at + 4;
    if (format == format_of_sized_value && attribute == parameter_information) {
      const auto ordinal = read_as<uint16_t>(value + 4);
      if (function.parameters.size() <= ordinal) function.parameters.resize(ordinal + 1u);
      function.parameters[ordinal] = {read_as<uint16_t>(value + 6),
                                      static_cast<int>(read_as<uint32_t>(value + 8) >> 18)};
    } else if (format == format_of_sized_value && attribute == parameter_base) {
      function.parameter_base = read_as<uint16_t>(value + 4);
    } else if (format == format_of_sized_value && attribute == most_threads) {
      function.most_threads =
          static_cast<int>(read_as<uint32_t>(value) * read_as<uint32_t>(value + 4) * read_as<uint32_t>(value + 8));
    }
    at += 4 + (format == format_of_sized_value ? read_as<uint16_t>(data + at + 2) : 0);
  }
}

/// Of all functions: the registers of a thread.
void read_registers(const Elf& elf, int i, Module& module) {
  const uint8_t* const data = elf.data(i);
  for (uint64_t at = 0; at + 4 <= elf.bytes(i);) {
    const uint8_t format = data[at], attribute = data[at + 1];
    if (format == format_of_sized_value && attribute == register_count) {
      const auto found = module.functions.find(elf.symbol_name(read_as<uint32_t>(data + at + 4)));
      if (found != module.functions.end())
        found->second.code.num_registers = static_cast<int>(read_as<uint32_t>(data + at + 8));
    }
    at += 4 + (format == format_of_sized_value ? read_as<uint16_t>(data + at + 2) : 0);
  }
}

/// Puts the variables into memory, and says where each section of them is.
std::map<int, uint8_t*> place_variables(const Elf& elf, Module& module) {
  constexpr uint64_t alignment = 256;
  std::map<int, uint8_t*> placed;
  for (int i = 0; i < elf.size(); ++i) {
    const std::string name = elf.name(i);
    if (name != ".nv.global" && name != ".nv.global.init") continue;
    auto memory = std::make_unique<std::vector<uint8_t>>(elf.bytes(i) + alignment);
    const auto begin = reinterpret_cast<uint64_t>(memory->data());
    auto* const address = reinterpret_cast<uint8_t*>((begin + alignment - 1) / alignment * alignment);
    if (elf.section(i).sh_type != SHT_NOBITS) std::memcpy(address, elf.data(i), elf.bytes(i));
    placed[i] = address;
    module.memory.push_back(std::move(memory));
  }
  for (size_t i = 0; i < elf.num_symbols(); ++i) {
    const Elf64_Sym& symbol = elf.symbol(i);
    const auto section = placed.find(symbol.st_shndx);
    if (section != placed.end() && ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT)
      module.variables[elf.symbol_name(i)] = {section->second + symbol.st_value, symbol.st_size};
  }
  return placed;
}

void read_section(const Elf& elf, int i, Module& module) {
  const std::string name = elf.name(i);
  const auto function_of = [&](const std::string& prefix) -> Function* {
    if (!begins_with(name, prefix)) return nullptr;
    const auto found = module.functions.find(name.substr(prefix.size()));
    return found == module.functions.end() ? nullptr : &found->second;
  };
  if (Function* function = function_of(".nv.shared."))
    function->static_shared_bytes = static_cast<uint32_t>(elf.bytes(i)) - function->reserved_shared_bytes;
  if (name == ".nv.info") read_registers(elf, i, module);
  if (Function* function = function_of(".nv.info.")) read_information(elf.data(i), elf.bytes(i), *function);
  for (int bank = 0; bank < Function::num_banks; ++bank) {
    const std::string prefix = ".nv.constant" + std::to_string(bank);
    for (auto& [key, function] : module.functions)
      if (name == prefix || name == prefix + "." + key)
        function.banks[bank].assign(elf.data(i), elf.data(i) + elf.bytes(i));
  }
}

/// Addresses of variables in constants, and in variables.
void relocate(const Elf& elf, int i, const std::map<int, uint8_t*>& placed, Module& module) {
  const bool has_addend = elf.section(i).sh_type == SHT_RELA;
  if (!has_addend && elf.section(i).sh_type != SHT_REL) return;
  const auto to = static_cast<int>(elf.section(i).sh_info);
  const std::string target = elf.name(to);
  const bool is_bank = begins_with(target, ".nv.constant4");
  if (!is_bank && target != ".nv.global.init") return;
  const size_t entry = has_addend ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
  for (uint64_t at = 0; at + entry <= elf.bytes(i); at += entry) {
    const auto* relocation = reinterpret_cast<const Elf64_Rela*>(elf.data(i) + at);
    const Elf64_Sym& symbol = elf.symbol(ELF64_R_SYM(relocation->r_info));
    const auto section = placed.find(symbol.st_shndx);
    if (section == placed.end())
      throw std::runtime_error("symbol " + elf.symbol_name(ELF64_R_SYM(relocation->r_info)) + " is nowhere");
    uint64_t address = reinterpret_cast<uint64_t>(section->second) + symbol.st_value;
    if (has_addend) address += static_cast<uint64_t>(relocation->r_addend);
    if (!is_bank) std::memcpy(placed.at(to) + relocation->r_offset, &address, sizeof address);
    for (auto& [key, function] : module.functions) {
      auto& bank = function.banks[4];
      if ((target == ".nv.constant4" || target == ".nv.constant4." + key) &&
          bank.size() >= relocation->r_offset + sizeof address)
        std::memcpy(bank.data() + relocation->r_offset, &address, sizeof address);
    }
  }
}

}  // namespace

int capability_of(const uint8_t* cubin) {
  const Elf64_Word flags = reinterpret_cast<const Elf64_Ehdr*>(cubin)->e_flags;
  const bool is_new = cubin[EI_ABIVERSION] >= 8;  // since CUDA 13 in the second byte
  return static_cast<int>(is_new ? flags >> 8 & 0xff : flags & 0xff);
}

uint64_t size_of(const uint8_t* cubin) {
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(cubin);
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(cubin + header->e_shoff);
  uint64_t size = std::max<uint64_t>(header->e_shoff + uint64_t{header->e_shnum} * header->e_shentsize,
                                     header->e_phoff + uint64_t{header->e_phnum} * header->e_phentsize);
  for (int i = 0; i < header->e_shnum; ++i)
    if (sections[i].sh_type != SHT_NOBITS) size = std::max<uint64_t>(size, sections[i].sh_offset + sections[i].sh_size);
  return size;
}

Module load_cubin(const std::vector<uint8_t>& cubin) {
  Module module;
  Disassembly disassembly = disassemble(cubin);
  module.files = disassembly.files;
  for (auto& [name, code] : disassembly.functions) {
    for (Instruction& instruction : code.instructions) find_handler(instruction);
    Function& function = module.functions[name];
    function.name = name;
    function.code = std::move(code);
    function.reserved_shared_bytes = capability_of(cubin.data()) > 75 ? reserved_shared_bytes : 0;
  }
  const Elf elf(cubin.data());
  const auto placed = place_variables(elf, module);
  for (int i = 0; i < elf.size(); ++i) read_section(elf, i, module);
  for (int i = 0; i < elf.size(); ++i) relocate(elf, i, placed, module);
  return module;
}

}  // namespace t4
