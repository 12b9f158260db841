// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Slot-coded ids: a feature and one of its values in one 64-bit number, so that many features share one hashed table.
/// As in Meituan's report on large models for advertisements (2021).
///
///     constexpr ids::Slot city{"city", 12}, city_hour{"city x hour", 13};
///     request.ids(city_id, {ids::encode(city, "Berlin")})
///            .ids(city_hour_id, {ids::encode(city_hour, ids::cross({"Berlin", 17}))});

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "warprank/core/error.hpp"
#include "warprank/core/host_device.hpp"
#include "warprank/ids/fingerprint.hpp"

namespace warprank { inline namespace v0 { namespace ids {

/// An id is `slot << 44 | hash`: 20 bits and 44 bits. Slots from 2^19 on give negative int64_t, which are legal keys.
inline constexpr int slot_bits = 20;
inline constexpr int hash_bits = 44;
inline constexpr int32_t num_slots = int32_t{1} << slot_bits;

/// A feature's place in the ids. Throws invalid_argument for a number out of range; a constant with such an error does
/// not compile. Kernels take it by value.
struct Slot {
  std::string_view name;  ///< for messages; not part of the ids
  int32_t number;         ///< 0 to num_slots - 1, one for each feature of a table

  constexpr Slot(std::string_view name, int64_t number) : name(name), number(static_cast<int32_t>(number)) {
    if (number < 0 || number >= num_slots)
      throw invalid_argument("slot '" + std::string(name) + "'", "a number from 0 to " + std::to_string(num_slots - 1),
                             std::to_string(number));
  }
};

/// The slot's number above the lowest 44 bits of `bits`. Integers below 2^44 stay unchanged, so that no two of them
/// ever share an id; hashes cannot promise this. All ids of one slot come either from here or from encode.
WARPRANK_HOST_DEVICE constexpr int64_t pack(const Slot& slot, uint64_t bits) {
  return static_cast<int64_t>(static_cast<uint64_t>(slot.number) << hash_bits |
                              (bits & ((uint64_t{1} << hash_bits) - 1)));
}

/// The id of a value: the slot's number above the lowest 44 bits of the value's fingerprint.
WARPRANK_HOST_DEVICE constexpr int64_t encode(const Slot& slot, Fingerprint value) { return pack(slot, value.value()); }

/// The parts of an id.
struct Decoded {
  int32_t slot;   ///< the slot's number
  uint64_t hash;  ///< the lowest 44 bits
};
WARPRANK_HOST_DEVICE constexpr Decoded decode(int64_t id) {
  const auto bits = static_cast<uint64_t>(id);
  return {static_cast<int32_t>(bits >> hash_bits), bits & ((uint64_t{1} << hash_bits) - 1)};
}

/// Throws invalid_argument with every slot whose number an earlier slot has: values of the two features would get each
/// other's rows.
inline void check_distinct(std::initializer_list<Slot> slots) {
  Problems problems;
  for (const Slot* slot = slots.begin(); slot != slots.end(); ++slot) {
    for (const Slot* other = slots.begin(); other != slot; ++other) {
      if (other->number != slot->number) continue;
      problems.add("slot '" + std::string(slot->name) + "'", "a number of its own",
                   std::to_string(slot->number) + ", which is that of '" + std::string(other->name) + "'");
      break;
    }
  }
  problems.throw_if_any();
}

}}}  // namespace warprank::v0::ids
