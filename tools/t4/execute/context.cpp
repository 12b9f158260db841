// SPDX-License-Identifier: Apache-2.0
#include "execute/context.hpp"

#include <cstdio>

namespace t4 {
namespace {

using Kind = Operand::Kind;

/// A word of a constant bank; zeros behind its end.
uint32_t constant(const Launch& launch, int bank, int64_t offset) {
  const std::vector<uint8_t>& bytes = bank == 0 ? launch.constants : launch.function->banks[static_cast<size_t>(bank)];
  uint32_t value = 0;
  const auto begin = static_cast<size_t>(offset);
  if (offset >= 0 && begin < bytes.size())
    std::memcpy(&value, bytes.data() + begin, std::min<size_t>(sizeof value, bytes.size() - begin));
  return value;
}

Lanes all(uint32_t value) {
  Lanes result;
  result.fill(value);
  return result;
}

}  // namespace

void Context::fail(const std::string& why, int lane) const {
  const Block& block = *warp.block;
  char address[32];
  std::snprintf(address, sizeof address, "0x%04x", instruction.address);
  std::string message = why + ": " + instruction.text + " at " + address + " of " + block.launch->function->name +
                        ", block (" + std::to_string(block.index.x) + "," + std::to_string(block.index.y) + "," +
                        std::to_string(block.index.z) + ") thread " + std::to_string(warp.index * warp_size + lane);
  if (instruction.file != nullptr) message += ", " + *instruction.file + ":" + std::to_string(instruction.line);
  throw execution_error(message);
}

Lanes Context::bits(const Operand& operand, int plus) const {
  switch (operand.kind) {
    case Kind::reg:
      if (operand.index == zero_register) return all(0);
      return warp.registers[static_cast<size_t>(operand.index + plus)];
    case Kind::uniform:
      return all(operand.index == zero_uniform ? 0 : warp.uniforms[static_cast<size_t>(operand.index + plus)]);
    case Kind::immediate:
      return all(plus == 0 ? operand.immediate : 0);
    case Kind::constant: {
      if (operand.bank >= Function::num_banks) fail("constant bank " + std::to_string(operand.bank) + " is not known");
      int64_t offset = operand.offset + 4 * plus;
      if (operand.uniform != zero_uniform) offset += warp.uniforms[static_cast<size_t>(operand.uniform)];
      const Launch& launch = *warp.block->launch;
      if (operand.index == zero_register) return all(constant(launch, operand.bank, offset));
      const Lanes& base = warp.registers[static_cast<size_t>(operand.index)];
      return map([&](size_t l) {
        return constant(launch, operand.bank, offset + int64_t{static_cast<int32_t>(base[l])} * operand.scale);
      });
    }
    default:
      fail("operand " + operand.text + " has no value");
  }
}

Lanes64 Context::bits64(const Operand& operand) const {
  const Lanes low = bits(operand), high = bits(operand, 1);
  return map64([&](size_t l) { return uint64_t{high[l]} << 32 | low[l]; });
}

Lanes Context::integers(const Operand& operand) const {
  Lanes values = bits(operand);
  if (operand.inverted) values = map([&](size_t l) { return ~values[l]; });
  if (operand.absolute) values = map([&](size_t l) { return values[l] >> 31 ? 0u - values[l] : values[l]; });
  if (operand.negative) values = map([&](size_t l) { return 0u - values[l]; });
  return values;
}

Lanes64 Context::integers64(const Operand& operand) const {
  Lanes64 values = bits64(operand);
  if (operand.kind == Kind::immediate)
    values.fill(static_cast<uint64_t>(int64_t{static_cast<int32_t>(operand.immediate)}));
  if (operand.inverted) values = map64([&](size_t l) { return ~values[l]; });
  if (operand.negative) values = map64([&](size_t l) { return uint64_t{0} - values[l]; });
  return values;
}

Mask Context::predicate(const Operand& operand) const {
  if (!operand.is_predicate()) fail("operand " + operand.text + " is no predicate");
  Mask values = ~Mask{0};
  if (operand.index != true_predicate)
    values = operand.kind == Kind::predicate                       ? warp.predicates[static_cast<size_t>(operand.index)]
             : (warp.uniform_predicates >> operand.index & 1) != 0 ? ~Mask{0}
                                                                   : 0;
  return operand.inverted ? ~values : values;
}

void Context::write(const Operand& operand, const Lanes& values, int plus) {
  if (operand.kind == Kind::uniform) {
    if (operand.index != zero_uniform)
      warp.uniforms[static_cast<size_t>(operand.index + plus)] = values[static_cast<size_t>(first_lane(lanes))];
    return;
  }
  if (operand.kind != Kind::reg) fail("operand " + operand.text + " is no register");
  if (operand.index == zero_register) return;
  Lanes& to = warp.registers[static_cast<size_t>(operand.index + plus)];
  if (lanes == ~Mask{0}) {
    to = values;
  } else {
    for (size_t l = 0; l < warp_size; ++l) to[l] = (lanes >> l & 1) != 0 ? values[l] : to[l];
  }
}

void Context::write64(const Operand& operand, const Lanes64& values) {
  write(operand, map([&](size_t l) { return static_cast<uint32_t>(values[l]); }));
  write(operand, map([&](size_t l) { return static_cast<uint32_t>(values[l] >> 32); }), 1);
}

void Context::write(const Operand& operand, Mask values) {
  if (!operand.is_predicate()) fail("operand " + operand.text + " is no predicate");
  if (operand.index == true_predicate) return;
  if (operand.kind == Kind::uniform_predicate) {
    const auto bit = static_cast<uint8_t>(1u << operand.index);
    const bool value = (values >> first_lane(lanes) & 1) != 0;
    warp.uniform_predicates =
        static_cast<uint8_t>(value ? warp.uniform_predicates | bit : warp.uniform_predicates & ~bit);
    return;
  }
  Mask& to = warp.predicates[static_cast<size_t>(operand.index)];
  to = (to & ~lanes) | (values & lanes);
}

uint64_t Context::shared_address(const Operand& operand, int lane) const {
  uint32_t address = static_cast<uint32_t>(operand.offset);
  if (operand.index != zero_register)
    address += warp.registers[static_cast<size_t>(operand.index)][static_cast<size_t>(lane)] *
               static_cast<uint32_t>(operand.scale);
  if (operand.uniform != zero_uniform) address += warp.uniforms[static_cast<size_t>(operand.uniform)];
  return address;
}

uint64_t Context::global_address(const Operand& operand, int lane) const {
  auto address = static_cast<uint64_t>(operand.offset);
  const bool is_pair = (has(Modifier::E) || operand.address_is_64_bits) && !operand.address_is_32_bits;
  if (operand.index != zero_register) {
    const auto at = static_cast<size_t>(operand.index), l = static_cast<size_t>(lane);
    address += warp.registers[at][l];
    if (is_pair) address += uint64_t{warp.registers[at + 1][l]} << 32;
  }
  if (operand.uniform != zero_uniform) {
    const auto at = static_cast<size_t>(operand.uniform);
    address += warp.uniforms[at] | uint64_t{warp.uniforms[at + 1]} << 32;
  }
  return address;
}

}  // namespace t4
