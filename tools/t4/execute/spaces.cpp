// SPDX-License-Identifier: Apache-2.0
#include "execute/spaces.hpp"

#include <cinttypes>
#include <cstdio>

namespace t4 {
namespace {

constexpr uint64_t window_bits = uint64_t{0xff} << 56, address_bits = 0xffffffff;
constexpr uint64_t most_local_bytes = 512 * 1024;

std::string hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%" PRIx64, value);
  return text;
}

std::string what_is_there(Allocations& memory, uint64_t address) {
  const Allocations::Range closest = memory.closest(address);
  if (closest.end == 0) return "no memory is allocated";
  const uint64_t size = closest.end - closest.begin;
  const std::string place = address >= closest.end    ? std::to_string(address - closest.end) + " behind"
                            : address < closest.begin ? std::to_string(closest.begin - address) + " before"
                                                      : std::to_string(closest.end - address) + " before the end of";
  return place + " the " + std::to_string(size) + " bytes at " + hex(closest.begin);
}

}  // namespace

Space resolve(Space space, uint64_t& address) {
  if (space != Space::generic) return space;
  const uint64_t window = address & window_bits;
  if (window != shared_window && window != local_window) return Space::global;
  address &= address_bits;
  return window == shared_window ? Space::shared : Space::local;
}

uint8_t* access(Context& c, Space space, uint64_t address, int bytes, int lane) {
  space = resolve(space, address);
  const auto size = static_cast<uint64_t>(bytes);
  const auto describe = [&](const char* what) {
    return std::to_string(bytes) + " bytes at " + hex(address) + " of " + what;
  };
  if (address % size != 0)
    c.fail(describe(space == Space::shared  ? "shared memory"
                    : space == Space::local ? "local memory"
                                            : "global memory") +
               " are misaligned",
           lane);
  if (space == Space::shared) {
    std::vector<uint8_t>& memory = c.warp.block->shared;
    if (address + size > memory.size())
      c.fail(describe("shared memory") + " are out of bounds: expected less than " + std::to_string(memory.size()),
             lane);
    return memory.data() + address;
  }
  if (space == Space::local) {
    if (c.warp.local.empty()) c.warp.local.resize(warp_size);
    std::vector<uint8_t>& memory = c.warp.local[static_cast<size_t>(lane)];
    if (address + size > most_local_bytes) c.fail(describe("local memory") + " are out of bounds", lane);
    if (memory.size() < address + size) memory.resize(address + size);
    return memory.data() + address;
  }
  Allocations& memory = *c.warp.block->launch->memory;
  if (!memory.contains(address, size))
    c.fail(describe("global memory") + " are out of bounds: " + what_is_there(memory, address), lane);
  return reinterpret_cast<uint8_t*>(address);
}

uint64_t address_of(Context& c, const Operand& operand, Space space, int lane) {
  const uint64_t address = space == Space::global || space == Space::generic ? c.global_address(operand, lane)
                                                                             : c.shared_address(operand, lane);
  c.note(address);
  return address;
}

}  // namespace t4
