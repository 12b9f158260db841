// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Programs that copy rows, to the other type or as they are.

#include <cstdint>

#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/ops/detail/common/row_lanes.cuh"
#include "warprank/ops/detail/row_programs/unit.cuh"

namespace warprank { inline namespace v0 { namespace detail::row_programs {

/// 16, 8, 4 or 2 bytes, by one instruction.
WARPRANK_DEVICE void load_some(const unsigned char* from, int bytes, device::Vector<uint32_t, 4>& to) {
  if (bytes == 16) to = device::load_vector<4>(reinterpret_cast<const uint32_t*>(from));
  if (bytes == 8) {
    const auto two = device::load_vector<2>(reinterpret_cast<const uint32_t*>(from));
    to[0] = two[0], to[1] = two[1];
  }
  if (bytes == 4) to[0] = device::load(reinterpret_cast<const uint32_t*>(from));
  if (bytes == 2) to[0] = device::load(reinterpret_cast<const uint16_t*>(from));
}
WARPRANK_DEVICE void store_some(unsigned char* to, int bytes, const device::Vector<uint32_t, 4>& from) {
  if (bytes == 16) device::store_vector(reinterpret_cast<uint32_t*>(to), from);
  if (bytes == 8) {
    device::Vector<uint32_t, 2> two;
    two[0] = from[0], two[1] = from[1];
    device::store_vector(reinterpret_cast<uint32_t*>(to), two);
  }
  if (bytes == 4) device::store(reinterpret_cast<uint32_t*>(to), from[0]);
  if (bytes == 2) device::store(reinterpret_cast<uint16_t*>(to), static_cast<uint16_t>(from[0]));
}

/// Copies rows without a change, `bytes` of a lane at a time.
template <int InFlight, class Source>
WARPRANK_DEVICE void copy_bytes(const Unit<Source>& unit, const Input& input, int bytes) {
  const int lanes = unit.lanes(), rows_at_once = unit.rows_at_once();
  const int64_t end = int64_t{unit.program.cols} * input.element_bytes();
  for (int64_t at = unit.rank_of_lane() * bytes; at < end; at += lanes * bytes) {
    for (int row = unit.row_of_lane(); row < unit.num_rows; row += InFlight * rows_at_once) {
      device::Vector<uint32_t, 4> words[InFlight];
      WARPRANK_UNROLL
      for (int i = 0; i < InFlight; ++i) {
        if (row + i * rows_at_once < unit.num_rows)
          load_some(unit.row_of(input, row + i * rows_at_once) + at, bytes, words[i]);
      }
      WARPRANK_UNROLL
      for (int i = 0; i < InFlight; ++i) {
        const int to = row + i * rows_at_once;
        if (to < unit.num_rows && unit.is_stored(to)) store_some(unit.y_row(to) + at, bytes, words[i]);
      }
    }
  }
}

/// Copies rows to the other type, vectors of columns.
template <class To, class From, class Source>
WARPRANK_DEVICE void convert_rows(const Unit<Source>& unit, const Input& input) {
  const int lanes = unit.lanes(), rows_at_once = unit.rows_at_once();
  for (int column = unit.rank_of_lane() * row_vector_size; column < unit.program.cols;
       column += lanes * row_vector_size) {
    for (int row = unit.row_of_lane(); row < unit.num_rows; row += copies_in_flight * rows_at_once) {
      device::Vector<From, row_vector_size> loaded[copies_in_flight];
      WARPRANK_UNROLL
      for (int i = 0; i < copies_in_flight; ++i) {
        const int at = row + i * rows_at_once;
        if (at < unit.num_rows)
          loaded[i] =
              device::load_vector<row_vector_size>(reinterpret_cast<const From*>(unit.row_of(input, at)) + column);
      }
      WARPRANK_UNROLL
      for (int i = 0; i < copies_in_flight; ++i) {
        const int at = row + i * rows_at_once;
        if (at >= unit.num_rows || !unit.is_stored(at)) continue;
        float values[row_vector_size];
        widen_values(loaded[i], values);
        store_values(reinterpret_cast<To*>(unit.y_row(at)) + column, values);
      }
    }
  }
}

template <class Source>
WARPRANK_DEVICE void copy_rows(const Unit<Source>& unit) {
  const Program& program = unit.program;
  const Input& input = unit.source.template part<Input>(program.inputs_at);
  const int bytes = program.vector_size * input.element_bytes();
  if (program.y_is_half != (input.is_half())) {
    if (program.y_is_half) return convert_rows<float16, float>(unit, input);
    return convert_rows<float, float16>(unit, input);
  }
  if (program.rows_per_unit == unit.rows_at_once()) return copy_bytes<1>(unit, input, bytes);
  copy_bytes<copies_in_flight>(unit, input, bytes);
}

}}}  // namespace warprank::v0::detail::row_programs
