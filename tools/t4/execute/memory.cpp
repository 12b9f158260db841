// SPDX-License-Identifier: Apache-2.0
//
// Loads and stores.

#include "execute/handlers.hpp"
#include "execute/spaces.hpp"

namespace t4 {
namespace {

void write_loaded(Context& c, const Operand& to, const uint8_t* from, int lane) {
  const auto l = static_cast<size_t>(lane);
  const int width = c.instruction.width;
  if (to.index == zero_register) return;
  Lanes* registers = &c.warp.registers[static_cast<size_t>(to.index)];
  if (width >= 4) {
    for (int word = 0; word < width / 4; ++word) std::memcpy(&registers[word][l], from + 4 * word, 4);
    return;
  }
  const bool is_signed = c.has(Modifier::S8) || c.has(Modifier::S16);
  uint32_t value = 0;
  std::memcpy(&value, from, static_cast<size_t>(width));
  const int shift = 32 - 8 * width;
  registers[0][l] = is_signed ? static_cast<uint32_t>(static_cast<int32_t>(value << shift) >> shift) : value;
}

// LDG.E.128 R0, [R4]; LDG.E P0, R0, [R4] too. All addresses before the first result: it may be in their registers.
template <Space space>
void load(Context& c) {
  const Operand* memory = c.instruction.memory();
  size_t to = 0;
  while (to < c.num_operands() && !c.operand(to).is_register()) ++to;
  if (memory == nullptr || to == c.num_operands()) c.fail("the operands are not known");
  for_each_lane(c.lanes, [&](int lane) { address_of(c, *memory, space, lane); });
  size_t i = 0;
  for_each_lane(c.lanes, [&](int lane) {
    write_loaded(c, c.operand(to), access(c, space, c.step.addresses[i++], c.instruction.width, lane), lane);
  });
}

// STG.E.128 [R4], R0
template <Space space>
void store(Context& c) {
  const Operand* memory = c.instruction.memory();
  if (memory == nullptr) c.fail("the operands are not known");
  const Operand& from = c.operand(1);
  const int width = c.instruction.width;
  ++c.warp.block->launch->changes;
  for_each_lane(c.lanes, [&](int lane) {
    uint8_t* to = access(c, space, address_of(c, *memory, space, lane), width, lane);
    const auto l = static_cast<size_t>(lane);
    const bool is_zero = from.index == zero_register;
    const Lanes* registers = is_zero ? nullptr : &c.warp.registers[static_cast<size_t>(from.index)];
    for (int word = 0; word < (width + 3) / 4; ++word) {
      const uint32_t value = is_zero ? 0 : registers[word][l];
      std::memcpy(to + 4 * word, &value, static_cast<size_t>(std::min(width, 4)));
    }
  });
}

// LDGSTS.E.BYPASS.128 [R0], desc[UR4][R2.64]: from global to shared memory, here at once. The step has the addresses in
// global memory.
void ldgsts(Context& c) {
  const Operand& to = c.operand(0);
  const Operand& from = c.operand(1);
  if (c.num_operands() != 2) c.fail("the operands are not known");
  ++c.warp.block->launch->changes;
  for_each_lane(c.lanes, [&](int lane) {
    const int width = c.instruction.width;
    const uint8_t* const source = access(c, Space::global, address_of(c, from, Space::global, lane), width, lane);
    std::memcpy(access(c, Space::shared, c.shared_address(to, lane), width, lane), source, static_cast<size_t>(width));
  });
}

// LDSM.16.M88.4 R0, [R4]: matrices of 8 x 8 halves, a row from the address of each lane; .MT88: transposed.
void ldsm(Context& c) {
  const int num_matrices = c.has(Modifier::M4) ? 4 : c.has(Modifier::M2) ? 2 : 1;
  const bool transposes = c.has(Modifier::MT88);
  const Operand* memory = c.instruction.memory();
  if (c.group != ~Mask{0} || memory == nullptr) c.fail("the warp has diverged");
  constexpr int row_bytes = 16, rows = 8;
  uint16_t values[4][rows][rows];
  for_each_lane(c.lanes, [&](int lane) {
    const uint64_t address = address_of(c, *memory, Space::shared, lane);
    if (lane < rows * num_matrices)
      std::memcpy(values[lane / rows][lane % rows], access(c, Space::shared, address, row_bytes, lane), row_bytes);
  });
  for (int matrix = 0; matrix < num_matrices; ++matrix)
    c.write(c.operand(0), map([&](size_t lane) {
              uint32_t pair = 0;
              for (size_t i = 0; i < 2; ++i) {
                const size_t outer = lane / 4, inner = lane % 4 * 2 + i;
                pair |= uint32_t{transposes ? values[matrix][inner][outer] : values[matrix][outer][inner]} << 16 * i;
              }
              return pair;
            }),
            matrix);
}

// QSPC.E.S P0, R0, [R2]: whether an address is shared memory's.
void qspc(Context& c) {
  const Operand* memory = c.instruction.memory();
  if (memory == nullptr) c.fail("the operands are not known");
  Mask values = 0;
  for_each_lane(c.lanes, [&](int lane) {
    uint64_t address = c.global_address(*memory, lane);
    const Space space = resolve(Space::generic, address);
    const Space asked = c.has(Modifier::S) ? Space::shared : c.has(Modifier::L) ? Space::local : Space::global;
    values |= static_cast<Mask>(space == asked) << lane;
  });
  for (size_t i = 0; i + 1 < c.num_operands(); ++i) {
    if (c.operand(i).is_predicate()) {
      c.write(c.operand(i), values);
    } else if (c.operand(i).is_register()) {
      c.write(c.operand(i), map([&](size_t l) { return values >> l & 1; }));
    }
  }
}

}  // namespace

Handler memory_handler(Opcode opcode) {
  switch (opcode) {
    case Opcode::LDG:
      return load<Space::global>;
    case Opcode::LD:
      return load<Space::generic>;
    case Opcode::LDS:
      return load<Space::shared>;
    case Opcode::LDL:
      return load<Space::local>;
    case Opcode::STG:
      return store<Space::global>;
    case Opcode::ST:
      return store<Space::generic>;
    case Opcode::STS:
      return store<Space::shared>;
    case Opcode::STL:
      return store<Space::local>;
    case Opcode::LDGSTS:
      return ldgsts;
    case Opcode::LDSM:
      return ldsm;
    case Opcode::QSPC:
      return qspc;
    default:
      return nullptr;
  }
}

}  // namespace t4
