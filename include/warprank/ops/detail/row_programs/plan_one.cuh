// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What launches one_program_kernel takes, and how they are described to it.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "warprank/device/index.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/detail/common/axis_input.cuh"
#include "warprank/ops/detail/row_programs/descriptor.cuh"
#include "warprank/ops/detail/row_programs/program.cuh"

namespace warprank { inline namespace v0 { namespace detail::row_programs {

template <class Part>
const Part* parts_at(const std::vector<unsigned char>& programs, uint32_t position) {
  return reinterpret_cast<const Part*>(programs.data() + position);
}

/// Describes the one program of a launch; false where it is not as one_program_kernel takes it.
inline bool describe_one(const std::vector<unsigned char>& programs, OneProgram& to) {
  const Program& program = *parts_at<Program>(programs, 0);
  const auto is_narrow = [](int64_t row_bytes) { return row_bytes >= 0 && row_bytes <= INT32_MAX; };
  if (program.step != RowStep::Kind::each_element || program.is_copy || program.vector_size != row_vector_size ||
      program.max_rows > max_rows_of_warps || !is_narrow(program.y_row_bytes))
    return false;
  const auto* const loads = parts_at<SlotOperation>(programs, program.operations_at);
  const auto num_functions = static_cast<int>(loads->number_bits);
  if (num_functions == 0 || num_functions > OneProgram::max_functions || num_functions + 1 != program.num_operations)
    return false;

  const auto* input = parts_at<Input>(programs, program.inputs_at);
  bool are_narrow = true;
  const auto take = [&](int count, PlainInput* plain) {
    for (; count > 0; --count, ++input, ++plain) {
      const bool is_vector = input->vector >= 0;
      are_narrow = are_narrow && is_narrow(input->row_bytes);
      plain->data = input->data;
      plain->row_bytes = static_cast<uint32_t>(is_vector ? input->vector : input->row_bytes);
      plain->ancestor = is_vector ? PlainInput::is_vector : input->ancestor;
    }
  };
  to.num_halves = loads->a, to.num_floats = loads->b, to.num_ones = loads->c;
  take(to.num_halves, to.halves);
  take(to.num_floats, to.floats);
  for (int i = 0; i < to.num_ones; ++i)
    to.halves_of_ones = static_cast<uint8_t>(to.halves_of_ones | (input[i].is_half() ? 1 << i : 0));
  take(to.num_ones, to.ones);

  to.y = program.y, to.num_rows = program.num_rows;
  to.y_row_bytes = static_cast<uint32_t>(program.y_row_bytes);
  to.max_rows = static_cast<int>(program.max_rows), to.cols = program.cols;
  to.distance = (program.num_blocks * warps >> program.parts_log2) * program.rows_per_unit;
  to.num_functions = num_functions, to.num_ancestors = program.num_ancestors;
  to.lanes_log2 = program.lanes_log2, to.parts_log2 = program.parts_log2, to.rows_per_unit = program.rows_per_unit;
  to.y_is_half = program.y_is_half, to.reads_ahead = program.reads_ahead;
  to.has_one_step = to.distance >= to.max_rows && to.rows_per_unit == device::warp_size >> to.lanes_log2 &&
                    to.cols <= row_vector_size << to.lanes_log2 << to.parts_log2;
  std::copy_n(parts_at<Ancestor>(programs, program.ancestors_at), to.num_ancestors, to.ancestors);
  std::copy_n(loads + 1, num_functions, to.functions);
  return are_narrow;
}

}}}  // namespace warprank::v0::detail::row_programs
