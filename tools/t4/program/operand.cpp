// SPDX-License-Identifier: Apache-2.0
#include "program/operand.hpp"

#include <cctype>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "program/text.hpp"

namespace t4 {
namespace {

using Kind = Operand::Kind;

bool is_digit(const std::string& text, size_t at) {
  return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0;
}
/// R7, RZ, UR7, URZ, P7, PT, UP7, UPT, B7.
bool parse_named(const std::string& text, Operand& operand) {
  const std::pair<const char*, Kind> names[] = {{"UR", Kind::uniform},
                                                {"UP", Kind::uniform_predicate},
                                                {"R", Kind::reg},
                                                {"P", Kind::predicate},
                                                {"B", Kind::barrier}};
  for (const auto& [name, kind] : names) {
    if (!begins_with(text, name)) continue;
    const std::string rest = text.substr(std::string_view(name).size());
    const bool is_zero = rest == "Z" && (kind == Kind::reg || kind == Kind::uniform);
    const bool is_true = rest == "T" && (kind == Kind::predicate || kind == Kind::uniform_predicate);
    if (!is_zero && !is_true && (rest.empty() || rest.find_first_not_of("0123456789") != std::string::npos)) continue;
    operand.kind = kind;
    operand.index = is_true   ? true_predicate
                    : is_zero ? (kind == Kind::reg ? zero_register : zero_uniform)
                              : std::atoi(rest.c_str());
    return true;
  }
  return false;
}

void take_absolute(std::string& text, Operand& operand) {
  if (text.empty() || text[0] != '|') return;
  operand.absolute = true;
  const size_t end = text.find('|', 1);
  text = text.substr(1, end - 1) + text.substr(end + 1);
}
void take_signs(std::string& text, Operand& operand) {
  if (text[0] == '!' || text[0] == '~') {
    operand.inverted = true;
    text = trim(text.substr(1));
  }
  const bool is_number = is_digit(text, 1) || begins_with(text, "-INF") || begins_with(text, "-QNAN") ||
                         begins_with(text, "-SNAN") || begins_with(text, "-.");
  if (text[0] == '-' && !is_number) {
    operand.negative = true;
    text = text.substr(1);
  }
  take_absolute(text, operand);
}
void take_suffixes(std::string& text, Operand& operand) {
  const std::pair<const char*, Operand::Half> halves[] = {{".H0_H0", Operand::Half::low},
                                                          {".H1_H1", Operand::Half::high},
                                                          {".H1_H0", Operand::Half::both},
                                                          {".F32", Operand::Half::single}};
  const char* parts[] = {".B0", ".B1", ".B2", ".B3", ".H0", ".H1"};
  const char* without_meaning[] = {".reuse", ".64", ".ROW", ".COL"};
  for (bool again = true; again;) {
    again = false;
    for (const auto& [suffix, half] : halves)
      if (take_suffix(text, suffix)) operand.half = half, again = true;
    for (int part = 0; part < 6; ++part)
      if (take_suffix(text, parts[part])) operand.part = part, again = true;
    for (const char* suffix : without_meaning)
      if (take_suffix(text, suffix)) again = true;
  }
  take_absolute(text, operand);
}

/// A register of an address with its suffixes: R2.64, R2.U32, R2.X4, UR4.
void parse_base(const std::string& text, Operand& operand) {
  const size_t dot = text.find('.');
  const std::string suffixes = dot == std::string::npos ? "" : text.substr(dot);
  Operand base;
  if (!parse_named(text.substr(0, dot), base)) throw std::runtime_error("unknown register in an address: " + text);
  if (base.kind == Kind::uniform) {
    operand.uniform = base.index;
  } else {
    operand.index = base.index;
  }
  if (suffixes.find(".64") != std::string::npos) operand.address_is_64_bits = true;
  if (suffixes.find(".U32") != std::string::npos) operand.address_is_32_bits = true;
  const size_t scale = suffixes.find(".X");
  if (scale != std::string::npos) operand.scale = std::atoi(suffixes.c_str() + scale + 2);
}
void parse_address(const std::string& text, Operand& operand) {
  for (size_t at = 0; at < text.size();) {
    const size_t plus = text.find('+', at);
    const std::string term = trim(text.substr(at, plus == std::string::npos ? plus : plus - at));
    at = plus == std::string::npos ? text.size() : plus + 1;
    if (term[0] == 'R' || term[0] == 'U') {
      parse_base(term, operand);
    } else {
      operand.offset += std::strtoll(term.c_str(), nullptr, 0);
    }
  }
}
void parse_constant(const std::string& text, Operand& operand) {
  operand.kind = Kind::constant;
  const size_t open = text.find('['), close = text.find(']');
  const std::string bank = text.substr(open + 1, close - open - 1);
  if (bank.empty() || std::isdigit(static_cast<unsigned char>(bank[0])) == 0)
    throw std::runtime_error("a constant bank without a number is not known: " + text);
  operand.bank = static_cast<int>(std::strtol(bank.c_str(), nullptr, 0));
  const size_t begin = text.find('[', close) + 1;  // some instructions have a space before it
  parse_address(text.substr(begin, text.rfind(']') - begin), operand);
}

}  // namespace

Operand parse_operand(std::string text, uint64_t encoding) {
  Operand operand;
  text = trim(text);
  operand.text = text;
  const auto upper_word = static_cast<uint32_t>(encoding >> 32);
  if (text[0] == '`') {
    operand.kind = Kind::label;
    const size_t begin = text.find('(') + 1;
    operand.text = text.substr(begin, text.rfind(')') - begin);
    return operand;
  }
  if (text.find("@lo(") != std::string::npos || text.find("@hi(") != std::string::npos ||
      text.find("fun@") != std::string::npos) {  // an address that was known when it was linked
    operand.immediate = upper_word;
    return operand;
  }
  take_signs(text, operand);
  if (begins_with(text, "desc[")) text = text.substr(text.find(']') + 1);  // sm_90 says how, which nothing here asks
  if (text[0] == '[') {
    operand.kind = Kind::memory;
    parse_address(text.substr(1, text.find(']') - 1), operand);
    return operand;
  }
  if (begins_with(text, "c[")) {
    take_suffixes(text, operand);
    parse_constant(text, operand);
    return operand;
  }
  if (begins_with(text, "0x") || begins_with(text, "-0x")) {
    operand.immediate = static_cast<uint32_t>(std::strtoll(text.c_str(), nullptr, 0));
    return operand;
  }
  if (is_digit(text, 0) || text[0] == '-' || text[0] == '+' || text[0] == '.') {
    operand.immediate = upper_word;
    return operand;
  }
  take_suffixes(text, operand);
  if (text == "PR") {
    operand.kind = Kind::all_predicates;
    return operand;
  }
  const size_t space = text.find(' ');  // BRX R4 -0x120
  if (space != std::string::npos) operand.offset = std::strtoll(text.c_str() + space + 1, nullptr, 0);
  if (parse_named(text.substr(0, space), operand)) return operand;
  operand.kind = Kind::special;
  operand.text = text;
  return operand;
}

}  // namespace t4
