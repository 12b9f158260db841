// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Buckets and places of values in columns: what hashes and vocabularies of transforms are made of.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "warprank/ids/detail/fingerprint64.hpp"
#include "warprank/ids/detail/siphash.hpp"

namespace warprank { inline namespace v0 { namespace ids::detail {

/// Of text its bytes, of an integer its decimal text.
class ValueHash {
 public:
  ValueHash() = default;
  explicit ValueHash(const std::vector<int64_t>& key) : has_key_(!key.empty()) {
    if (has_key_) key_ = {static_cast<uint64_t>(key[0]), static_cast<uint64_t>(key[1])};
  }

  uint64_t operator()(std::string_view text) const {
    return has_key_ ? siphash(key_, text) : fingerprint64(text.data(), static_cast<int64_t>(text.size()));
  }
  uint64_t operator()(int64_t integer) const {
    return has_key_ ? siphash(key_, std::to_string(integer)) : Decimal(integer).fingerprint();
  }

 private:
  bool has_key_ = false;
  SipKey key_{0, 0};
};

/// The places of distinct values in a list: open addressing, at most half full.
template <class Value>
class Places {
 public:
  /// Keeps a reference to the values. `twice` becomes the place of one that is there before, if there is any.
  Places(const std::vector<Value>& values, int64_t& twice) : values_(&values) {
    size_t slots = 2;
    while (slots < 2 * values.size()) slots *= 2;
    slots_.assign(slots, 0);
    twice = -1;
    for (size_t i = 0; i < values.size(); ++i) {
      size_t& slot = slots_[slot_of(values[i])];
      if (slot != 0) twice = static_cast<int64_t>(i);
      slot = i + 1;
    }
  }

  /// -1: none.
  template <class Given>
  int64_t find(const Given& value) const {
    return static_cast<int64_t>(slots_[slot_of(value)]) - 1;
  }

 private:
  static uint64_t hash(std::string_view text) { return fingerprint64(text.data(), static_cast<int64_t>(text.size())); }
  static uint64_t hash(int64_t integer) { return fold(static_cast<uint64_t>(integer) * k2); }

  /// Where the value is, or would be.
  template <class Given>
  size_t slot_of(const Given& value) const {
    const size_t mask = slots_.size() - 1;
    size_t slot = static_cast<size_t>(hash(value)) & mask;
    while (slots_[slot] != 0 && (*values_)[slots_[slot] - 1] != value) slot = (slot + 1) & mask;
    return slot;
  }

  const std::vector<Value>* values_;
  std::vector<size_t> slots_;  ///< 1 + the place
};

}}}  // namespace warprank::v0::ids::detail
