// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which entry of a cache goes first.

#include <cstddef>
#include <iterator>
#include <list>
#include <optional>
#include <utility>

namespace warprank { inline namespace v0 {

/// The entries of a cache, and the hand of SIEVE: entries go in the order in which they came, but for those that were
/// asked for since the hand passed them last (Zhang, Yang, Yue, Vigfusson and Rashmi, SIEVE is Simpler than LRU, NSDI
/// 2024).
template <class Entry>
class Sieve {
 public:
  using Entries = std::list<Entry>;
  using Place = typename Entries::iterator;  ///< valid until the entry is removed

  Sieve() = default;
  Sieve(const Sieve&) = delete;
  Sieve& operator=(const Sieve&) = delete;

  Place add(Entry entry) {
    entries_.push_front(std::move(entry));
    return entries_.begin();
  }
  /// Moves an entry to the end of `gone`.
  void remove(Place place, Entries& gone) {
    if (hand_ == place) ++hand_;
    gone.splice(gone.end(), entries_, place);
  }
  /// The entry that goes first. `stays(Entry&)` says of an entry whether the hand passes it; where it stays because it
  /// was asked for, it is to forget that. None: all stay, and the hand has passed each twice.
  template <class Stays>
  std::optional<Place> first(Stays&& stays) {
    for (size_t passed = 0; passed < 2 * entries_.size(); ++passed) {
      if (hand_ == entries_.begin()) hand_ = entries_.end();
      const Place place = std::prev(hand_);
      if (!stays(*place)) return place;
      hand_ = place;
    }
    return std::nullopt;
  }

 private:
  Entries entries_;              // the last that came is the first
  Place hand_ = entries_.end();  // the entry before it is asked next
};

}}  // namespace warprank::v0
