// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Operations that the lanes of a warp do together. Every lane named in a mask must make the same call with the same
/// mask; the caller must be in it, and a value is read only from lanes in it. None of these orders memory (see
/// sync_warp).

#include <cstdint>
#include <type_traits>

#include "warprank/device/backend.hpp"
#include "warprank/device/index.hpp"

namespace warprank { inline namespace v0 { namespace device {

/// The value of lane `source`. With a `width` of 2, 4, 8 or 16 the warp is cut into groups of that many lanes and
/// `source` counts within the caller's group. Values of 4 or 8 bytes.
template <class Value>
WARPRANK_DEVICE Value shuffle(uint32_t mask, Value value, int source, int width = warp_size,
                              Here here = Here::current()) {
  return backend::shuffle<backend::Shuffle::from>(mask, value, source, width, here);
}
/// The value of the lane `delta` below; a lane without one in its group keeps its own.
template <class Value>
WARPRANK_DEVICE Value shuffle_up(uint32_t mask, Value value, int delta, int width = warp_size,
                                 Here here = Here::current()) {
  return backend::shuffle<backend::Shuffle::up>(mask, value, delta, width, here);
}
/// The value of the lane `delta` above; a lane without one in its group keeps its own.
template <class Value>
WARPRANK_DEVICE Value shuffle_down(uint32_t mask, Value value, int delta, int width = warp_size,
                                   Here here = Here::current()) {
  return backend::shuffle<backend::Shuffle::down>(mask, value, delta, width, here);
}
/// The value of the lane whose number differs in the bits of `lane_mask`.
template <class Value>
WARPRANK_DEVICE Value shuffle_xor(uint32_t mask, Value value, int lane_mask, int width = warp_size,
                                  Here here = Here::current()) {
  return backend::shuffle<backend::Shuffle::butterfly>(mask, value, lane_mask, width, here);
}

/// Bit i is set when lane i is in the mask and its `predicate` is true.
WARPRANK_DEVICE uint32_t ballot(uint32_t mask, bool predicate, Here here = Here::current()) {
  return backend::ballot(mask, predicate, here);
}
/// Whether `predicate` is true in any lane of the mask; `all`: in all of them.
WARPRANK_DEVICE bool any(uint32_t mask, bool predicate, Here here = Here::current()) {
  return backend::ballot(mask, predicate, here) != 0;
}
WARPRANK_DEVICE bool all(uint32_t mask, bool predicate, Here here = Here::current()) {
  return backend::ballot(mask, !predicate, here) == 0;
}
/// The lanes of the mask that hold the same value.
template <class Value>
WARPRANK_DEVICE uint32_t match(uint32_t mask, Value value, Here here = Here::current()) {
  static_assert(std::is_integral_v<Value> && (sizeof(Value) == 4 || sizeof(Value) == 8));
  return backend::match(mask, value, here);
}

/// How many bits are set.
WARPRANK_DEVICE int count_bits(uint32_t bits) { return backend::count_bits(bits); }
/// The number of the lowest set bit; `bits` is not 0.
WARPRANK_DEVICE int first_bit(uint32_t bits) { return backend::first_bit(bits); }

/// Lanes that work together: `Size` (2, 4, 8, 16 or 32) neighbours, aligned to their number. All lanes of a tile must
/// arrive together; the tiles of a warp need not.
template <int Size>
struct Tile {
  static_assert(Size == 2 || Size == 4 || Size == 8 || Size == 16 || Size == 32);
  static constexpr int size = Size;

  /// The caller's place in its tile.
  static WARPRANK_DEVICE int rank() { return lane_index() % Size; }
  /// The caller's tile in its warp.
  static WARPRANK_DEVICE int index() { return lane_index() / Size; }
  /// The lanes of the caller's tile.
  static WARPRANK_DEVICE uint32_t mask() { return (full_warp >> (warp_size - Size)) << (lane_index() / Size * Size); }
  template <class Value>
  static WARPRANK_DEVICE Value shuffle(Value value, int source, Here here = Here::current()) {
    return device::shuffle(mask(), value, source, Size, here);
  }
  /// Bit i is set when the tile's i-th lane has a true `predicate`.
  static WARPRANK_DEVICE uint32_t ballot(bool predicate, Here here = Here::current()) {
    return device::ballot(mask(), predicate, here) >> (lane_index() / Size * Size);
  }
  static WARPRANK_DEVICE bool any(bool predicate, Here here = Here::current()) {
    return device::any(mask(), predicate, here);
  }
  static WARPRANK_DEVICE bool all(bool predicate, Here here = Here::current()) {
    return device::all(mask(), predicate, here);
  }
  static WARPRANK_DEVICE void sync(Here here = Here::current()) { backend::sync_warp(mask(), here); }

  /// Combines the tile's values in the order of a butterfly, the same for every lane and on every target; all lanes get
  /// the result. `combine` is associative and commutative up to rounding.
  template <class Value, class Combine>
  static WARPRANK_DEVICE Value reduce(Value value, Combine combine, Here here = Here::current()) {
    WARPRANK_UNROLL
    for (int distance = Size / 2; distance > 0; distance /= 2) {
      value = combine(value, shuffle_xor(mask(), value, distance, Size, here));
    }
    return value;
  }
  template <class Value>
  static WARPRANK_DEVICE Value sum(Value value, Here here = Here::current()) {
    return reduce(value, Add{}, here);
  }
  template <class Value>
  static WARPRANK_DEVICE Value max(Value value, Here here = Here::current()) {
    return reduce(value, Max{}, here);
  }

 private:
  struct Add {
    template <class Value>
    WARPRANK_DEVICE Value operator()(Value a, Value b) const {
      return a + b;
    }
  };
  struct Max {
    template <class Value>
    WARPRANK_DEVICE Value operator()(Value a, Value b) const {
      return a < b ? b : a;
    }
  };
};

/// A whole warp as a tile.
using Warp = Tile<warp_size>;

/// The sum over the lanes of any mask, modulo 2^32. One instruction on sm_80 and later, shuffles before.
WARPRANK_DEVICE uint32_t reduce_add(uint32_t mask, uint32_t value, Here here = Here::current()) {
  return backend::reduce_add(mask, value, here);
}

}}}  // namespace warprank::v0::device
