// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A program's functions as a lane does them, on four columns.

#include <cstdint>

#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/ops/detail/common/row_lanes.cuh"
#include "warprank/ops/detail/row_programs/descriptor.cuh"
#include "warprank/ops/detail/row_programs/program.cuh"

namespace warprank { inline namespace v0 { namespace detail::row_programs {

/// Slots of a thread, in shared memory: one vector of each thread beside that of the next.
struct Slots {
  using Values = device::Vector<float, row_vector_size>;
  Values* of_thread;

  WARPRANK_DEVICE void read(int slot, float (&to)[row_vector_size]) const {
    widen_values(of_thread[slot * threads], to);
  }
  WARPRANK_DEVICE void write(int slot, const float (&from)[row_vector_size]) const {
    Values values;
    WARPRANK_UNROLL
    for (int j = 0; j < row_vector_size; ++j) values[j] = from[j];
    of_thread[slot * threads] = values;
  }
};

WARPRANK_DEVICE Slots::Values* slots_of_warp() {
  return device::dynamic_shared<Slots::Values>() + device::warp_index() * device::warp_size;
}

/// Calls f(i) for i < count, with copies for up to Most.
template <int Most, class Function>
WARPRANK_DEVICE void for_few(int count, Function f) {
  WARPRANK_UNROLL
  for (int i = 0; i < Most; ++i) {
    if (i >= count) break;
    f(i);
  }
}

template <class Source>
WARPRANK_DEVICE PackedOperation read_operation(const Source& source, uint32_t at) {
  return source.template part<PackedOperation>(at + PackedOperation::position);
}

/// Does `count` functions, which are at a position of the source; `result` is that of the last. The next one is read
/// while one is done, the first was before. The result of the one before is still in registers.
template <class Source>
WARPRANK_DEVICE void run_functions(const Source& source, uint32_t at, int count, PackedOperation next,
                                   const Slots& slots, float (&result)[row_vector_size]) {
  WARPRANK_ROLLED
  for (int left = count; left > 0; --left) {
    const PackedOperation operation = next;
    const uint32_t present = at;
    at += static_cast<uint32_t>(sizeof(SlotOperation));
    if (left > 1) next = read_operation(source, at);
    const int slot = device::in_register(operation.to());
    float b[row_vector_size];
    if (!operation.reads_last()) slots.read(operation.a(), result);
    slots.read(operation.b(), b);
    const auto read_number = [&] {
      return device::float_of_bits(source.template part<SlotOperation>(present).number_bits);
    };
    const auto read_third = [&](float(&c)[row_vector_size]) { slots.read(operation.c(), c); };
    apply_function(static_cast<ElementwiseFunction>(operation.function()), read_number, result, b, read_third, result);
    slots.write(slot, result);
  }
}

}}}  // namespace warprank::v0::detail::row_programs
