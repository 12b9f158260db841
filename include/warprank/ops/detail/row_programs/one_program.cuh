// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/row_programs.cuh for launches of one program that works on each element of aligned rows and loads
/// all its inputs before its first function: what models have most. Half of what the other kernel does for such a
/// launch is to find out what there is to do. Here that is in parameters at positions that the compiler knows, a lane
/// finds the rows of its own inputs, and a learned vector, whose address comes from memory, is requested first. The
/// arithmetic is the same, and so are the loads that depend on one another.

#include <cstddef>
#include <cstdint>

#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/ops/detail/common/row_lanes.cuh"
#include "warprank/ops/detail/row_programs/descriptor.cuh"
#include "warprank/ops/detail/row_programs/functions.cuh"
#include "warprank/ops/detail/row_programs/unit.cuh"

namespace warprank { inline namespace v0 { namespace detail::row_programs {

/// Columns of a lane in its inputs, as they are in memory.
struct LoadedInputs {
  device::Vector<uint32_t, 2> halves[loads_in_flight];
  device::Vector<uint32_t, 4> floats[floats_in_flight];
  uint32_t ones[floats_in_flight];

  /// Of row n, the unit's `row`th. `vectors` is where floats are that are learned vectors.
  template <bool HasAncestors, class AncestorRows>
  WARPRANK_DEVICE void load(const OneProgram& one, uint32_t n, int row, int column, const AncestorRows& ancestor_rows,
                            const unsigned char* const (&vectors)[floats_in_flight]) {
    const auto row_of = [&](const PlainInput& input) {
      if constexpr (!HasAncestors) return input.data + uint64_t{n} * input.row_bytes;
      const int64_t of_input = input.ancestor < 0 ? n : ancestor_rows[input.ancestor][row];
      return input.data + of_input * input.row_bytes;
    };
    for_few<floats_in_flight>(one.num_floats, [&](int i) {
      const bool is_vector = one.floats[i].ancestor == PlainInput::is_vector;
      const unsigned char* const from = is_vector ? vectors[i] : row_of(one.floats[i]);
      floats[i] = device::load_vector<4>(device::global(reinterpret_cast<const uint32_t*>(from)) + column);
    });
    for_few<loads_in_flight>(one.num_halves, [&](int i) {
      halves[i] = device::load_vector<2>(reinterpret_cast<const uint32_t*>(row_of(one.halves[i])) +
                                         static_cast<uint32_t>(column) / 2);
    });
    for_few<floats_in_flight>(one.num_ones, [&](int i) {
      const unsigned char* const from = row_of(one.ones[i]);
      if ((one.halves_of_ones >> i & 1) != 0) {
        ones[i] = device::bits_of_float(device::widen(device::load(reinterpret_cast<const float16*>(from))));
      } else {
        ones[i] = device::load(reinterpret_cast<const uint32_t*>(from));
      }
    });
  }
  WARPRANK_DEVICE void to_slots(const OneProgram& one, const Slots& slots) const {
    float values[row_vector_size];
    for_few<loads_in_flight>(one.num_halves, [&](int i) {
      values[0] = device::widen_low(halves[i][0]), values[1] = device::widen_high(halves[i][0]);
      values[2] = device::widen_low(halves[i][1]), values[3] = device::widen_high(halves[i][1]);
      slots.write(i, values);
    });
    for_few<floats_in_flight>(one.num_floats, [&](int i) {
      WARPRANK_UNROLL
      for (int j = 0; j < row_vector_size; ++j) values[j] = device::float_of_bits(floats[i][j]);
      slots.write(one.num_halves + i, values);
    });
    for_few<floats_in_flight>(one.num_ones, [&](int i) {
      WARPRANK_UNROLL
      for (float& value : values) value = device::float_of_bits(ones[i]);
      slots.write(one.num_halves + one.num_floats + i, values);
    });
  }
};

/// Dynamic shared memory: slots of every thread, as many as the program needs.
WARPRANK_KERNEL(threads, min_blocks)
one_program_kernel(const WARPRANK_GRID_CONSTANT OneProgram one) {
  using device::Order, device::Scope;
  auto& shared = device::static_shared<Storage>();
  const int thread = device::in_register(device::thread_rank());
  const int lane = thread & (device::warp_size - 1), warp_of_block = thread >> 5;
  const int warp = device::in_register(static_cast<int>(device::block_index().x) * warps + warp_of_block);
  const unsigned char* vectors[floats_in_flight];
  for_few<floats_in_flight>(one.num_floats, [&](int i) {
    const PlainInput& input = one.floats[i];
    if (input.ancestor == PlainInput::is_vector)
      vectors[i] = reinterpret_cast<const unsigned char*>(device::load_read_only(one.addresses + input.row_bytes));
  });
  device::wait_for_previous_launch();

  int64_t end_of_rows = one.max_rows;  // as in row_programs_kernel
  int end_of_reads = one.max_rows;
  if (one.num_rows != nullptr && one.reads_ahead) {
    end_of_rows = device::load<Order::relaxed, Scope::device>(one.num_rows);
  } else if (one.num_rows != nullptr) {
    const int64_t num_rows = device::load<Order::relaxed, Scope::device>(one.num_rows);
    if (num_rows < end_of_reads) end_of_reads = static_cast<int>(num_rows);
  }

  auto& ancestor_rows = shared.ancestor_rows[warp_of_block];
  const Slots slots{device::dynamic_shared<Slots::Values>() + thread};
  const int part = warp & ((1 << one.parts_log2) - 1), at_once = row_vector_size << one.lanes_log2;
  const int first_column = part * at_once + (lane & ((1 << one.lanes_log2) - 1)) * row_vector_size;
  for (int begin = (warp >> one.parts_log2) * one.rows_per_unit; begin < end_of_reads; begin += one.distance) {
    const int rest = end_of_reads - begin, num_rows = rest < one.rows_per_unit ? rest : one.rows_per_unit;
    find_ancestors(one, offsetof(OneProgram, ancestors), one.num_ancestors, begin, num_rows, ancestor_rows);
    for (int row = lane >> one.lanes_log2; row < num_rows; row += device::warp_size >> one.lanes_log2) {
      const auto n = static_cast<uint32_t>(begin + row);
      for (int column = first_column; column < one.cols; column += at_once << one.parts_log2) {
        // Requested before the inputs: an address that the compiler knows would be waited for where it is used.
        const auto at = static_cast<uint32_t>(device::in_register(static_cast<int>(offsetof(OneProgram, functions))));
        const PackedOperation first = read_operation(one, at);
        LoadedInputs inputs;
        if (one.num_ancestors == 0) {
          inputs.load<false>(one, n, row, column, ancestor_rows, vectors);
        } else {
          inputs.load<true>(one, n, row, column, ancestor_rows, vectors);
        }
        inputs.to_slots(one, slots);
        float values[row_vector_size] = {};
        run_functions(one, at, one.num_functions, first, slots, values);
        if (int64_t{n} < end_of_rows) {
          unsigned char* const y = one.y + uint64_t{n} * one.y_row_bytes;
          if (one.y_is_half) {
            store_values(reinterpret_cast<float16*>(y) + column, values);
          } else {
            store_values(reinterpret_cast<float*>(y) + column, values);
          }
        }
        if (one.has_one_step) return;
      }
    }
  }
}

}}}  // namespace warprank::v0::detail::row_programs
