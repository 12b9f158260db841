// SPDX-License-Identifier: Apache-2.0
#include "program/opcode.hpp"

#include <unordered_map>

namespace t4 {

Opcode opcode_of(std::string_view text) {
  static const std::unordered_map<std::string_view, Opcode> all = {
#define T4_OPCODE(name) {#name, Opcode::name},
      T4_OPCODES(T4_OPCODE)
#undef T4_OPCODE
  };
  const auto found = all.find(text);
  return found == all.end() ? Opcode::unknown : found->second;
}

Modifier modifier_of(std::string_view text) {
  static const std::unordered_map<std::string_view, Modifier> all = {
#define T4_MODIFIER(name, text) {text, Modifier::name},
      T4_MODIFIERS(T4_MODIFIER)
#undef T4_MODIFIER
  };
  const auto found = all.find(text);
  return found == all.end() ? Modifier::unknown : found->second;
}

}  // namespace t4
