// SPDX-License-Identifier: Apache-2.0
#include "execute/allocations.hpp"

#include <iterator>

namespace t4 {

void Allocations::add(const void* begin, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<uint64_t>(begin);
  ends_[address] = address + bytes;
}

void Allocations::remove(const void* begin) {
  const std::lock_guard lock(mutex_);
  ends_.erase(reinterpret_cast<uint64_t>(begin));
  last_ = {};
}

Allocations::Range Allocations::find(uint64_t address) {
  const std::lock_guard lock(mutex_);
  auto next = ends_.upper_bound(address);
  if (next == ends_.begin()) return {};
  --next;
  return address < next->second ? Range{next->first, next->second} : Range{};
}

bool Allocations::contains(uint64_t address, uint64_t bytes) {
  if (last_.contains(address, bytes)) return true;
  const Range found = find(address);
  if (!found.contains(address, bytes)) return false;
  last_ = found;
  return true;
}

Allocations::Range Allocations::closest(uint64_t address) {
  const std::lock_guard lock(mutex_);
  auto next = ends_.upper_bound(address);
  if (ends_.empty()) return {};
  if (next == ends_.end()) return {std::prev(next)->first, std::prev(next)->second};
  if (next == ends_.begin()) return {next->first, next->second};
  const auto before = std::prev(next);
  const bool is_before = address - before->second < next->first - address;
  const auto& chosen = is_before ? *before : *next;
  return {chosen.first, chosen.second};
}

}  // namespace t4
