// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Row programs as kernels take them: their descriptors, with the operations in the order in which they are done.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "warprank/core/float_matrix.hpp"
#include "warprank/core/view.hpp"
#include "warprank/ops/axis_input.hpp"
#include "warprank/ops/detail/common/row_lanes.cuh"
#include "warprank/ops/detail/common/row_steps.cuh"
#include "warprank/ops/detail/row_programs/check.cuh"
#include "warprank/ops/detail/row_programs/descriptor.cuh"
#include "warprank/ops/detail/row_programs/norm_rows.cuh"
#include "warprank/ops/detail/row_programs/program.cuh"
#include "warprank/ops/launch_policies.hpp"

namespace warprank { inline namespace v0 { namespace detail::row_programs {

/// Appends parts to bytes; returns the position of the first.
template <class Part>
uint32_t append(std::vector<unsigned char>& bytes, const std::vector<Part>& parts) {
  const size_t at = bytes.size(), size = parts.size() * sizeof(Part);
  bytes.resize(at + (size + 7) / 8 * 8);
  if (size > 0) std::memcpy(bytes.data() + at, parts.data(), size);
  return static_cast<uint32_t>(at);
}

inline std::vector<Input> describe_inputs(Span<const AxisInput<void>> inputs, std::vector<Ancestor>& ancestors) {
  std::vector<Input> described;
  for (const AxisInput<void>& input : inputs) {
    const FloatMatrix<const void>& values = input.values;
    const bool serves_all = values.rows == 1;  // also of an ancestor: the last segment serves what has none
    const bool is_half = values.type == DType::f16, is_one = values.cols == 1;
    Input& to = described.emplace_back();
    to.data = static_cast<const unsigned char*>(values.data);
    to.row_bytes = serves_all ? 0 : values.stride * size_of(values.type);
    to.ancestor = to.vector = -1;
    to.kind = is_one    ? is_half ? InputKind::one_half : InputKind::one_float
              : is_half ? InputKind::halves
                        : InputKind::floats;
    to.column_bytes = static_cast<uint8_t>(is_one ? 0 : to.element_bytes());
    if (input.offsets != nullptr && !serves_all) {
      const auto is_same = [&](const Ancestor& a) {
        return a.offsets == input.offsets && a.num_segments == input.num_segments && a.max_segments == values.rows;
      };
      const auto found = std::find_if(ancestors.begin(), ancestors.end(), is_same);
      to.ancestor = static_cast<int8_t>(found - ancestors.begin());
      if (found == ancestors.end()) ancestors.push_back({input.offsets, input.num_segments, values.rows});
    }
  }
  return described;
}

/// A learned vector, the `index`-th in the list of addresses.
inline Input describe_vector(size_t index) {
  Input to{};
  to.vector = static_cast<int>(index);
  to.kind = InputKind::floats;
  to.column_bytes = sizeof(float);
  to.ancestor = -1;
  return to;
}

/// Where there is no program: the slot of what is folded; the factor comes behind the inputs.
inline constexpr uint8_t slot_of_input = 0;
template <class RowProgram>
uint8_t slot_of_factor(const RowProgram& program) {
  return static_cast<uint8_t>(program.inputs.size());
}

/// Puts inputs in the order in which they are loaded, and makes one operation of loads that are in flight together:
/// halves first, then floats and, where columns are vectors, what has one column. Their slots follow one another, so
/// where not all loads come first each is an operation of its own. Returns the new slots, by the old ones.
inline std::array<uint8_t, num_slots> order_loads(bool has_vectors, std::vector<Input>& inputs,
                                                  std::vector<SlotOperation>& operations) {
  const auto is_load = [](const SlotOperation& operation) { return operation.kind == SlotOperation::Kind::load; };
  const auto group_of = [&](const SlotOperation& load) {
    const Input& input = inputs[load.index];
    if (has_vectors && input.column_bytes == 0) return 2;
    return input.is_half() ? 0 : 1;
  };
  const auto end_of_loads = std::find_if_not(operations.begin(), operations.end(), is_load);
  const bool all_first = std::none_of(end_of_loads, operations.end(), is_load);
  std::vector<Input> ordered;
  std::vector<SlotOperation> merged;
  size_t load_of_functions = 0;  // the last
  std::array<uint8_t, num_slots> slot_of{};
  std::iota(slot_of.begin(), slot_of.end(), uint8_t{0});
  for (auto next = operations.begin(); next != operations.end();) {
    const auto begin = next;
    if (!is_load(*begin) && !merged.empty()) {
      merged.push_back(*next++);
      ++merged[load_of_functions].number_bits;
      continue;
    }
    load_of_functions = merged.size();
    int counts_of[3] = {};
    while (next != operations.end() && is_load(*next) && next - begin < (all_first ? loads_in_flight : 1)) {
      const int group = group_of(*next);
      if (group > 0 && counts_of[group] == floats_in_flight) break;
      ++counts_of[group];
      ++next;
    }
    const uint8_t first_slot = begin->to;
    std::stable_sort(begin, next,
                     [&](const SlotOperation& a, const SlotOperation& b) { return group_of(a) < group_of(b); });
    SlotOperation loads{};
    loads.kind = SlotOperation::Kind::load;
    loads.to = first_slot;
    loads.index = static_cast<uint16_t>(ordered.size());
    loads.a = static_cast<uint8_t>(counts_of[0]);
    loads.b = static_cast<uint8_t>(counts_of[1]);
    loads.c = static_cast<uint8_t>(counts_of[2]);
    for (auto load = begin; load != next; ++load) {
      slot_of[load->to] = static_cast<uint8_t>(first_slot + (load - begin));
      ordered.push_back(inputs[load->index]);
    }
    merged.push_back(loads);
  }
  for (SlotOperation& operation : merged) {
    if (is_load(operation)) continue;
    for (uint8_t* slot : {&operation.to, &operation.a, &operation.b, &operation.c}) *slot = slot_of[*slot];
  }
  inputs = std::move(ordered);
  operations = std::move(merged);
  return slot_of;
}

/// How many columns a lane takes at a time.
template <class RowProgram>
int vector_size_of(const RowProgram& program, int64_t cols, bool is_copy) {
  const bool reduces = program.step.kind == RowStep::Kind::reduce;
  const auto fits = [&](int64_t size) {
    bool aligned = cols % size == 0 && (reduces || rows_are_aligned(program.y, size));
    for (const auto& input : program.inputs) aligned &= input.values.cols == 1 || rows_are_aligned(input.values, size);
    if (has_factor(program))
      aligned &= program.factor.values.cols == 1 || rows_are_aligned(program.factor.values, size);
    for (const float* vector : program.vectors) aligned &= reinterpret_cast<uintptr_t>(vector) % 16 == 0;
    return aligned;
  };
  const bool is_half =
      program.y.type == DType::f16 && program.inputs.size() > 0 && program.inputs[0].values.type == DType::f16;
  if (is_copy && is_half && fits(8)) return 8;
  return fits(row_vector_size) ? row_vector_size : 1;
}

/// Whether a program is nothing but a copy of vectors, or of elements without a change.
template <class RowProgram>
bool is_copy(const RowProgram& program, int64_t cols) {
  if (program.program != nullptr || program.step.kind != RowStep::Kind::each_element) return false;
  const FloatMatrix<const void>& values = program.inputs[0].values;
  if (values.cols != cols) return false;
  return values.type == program.y.type || vector_size_of(program, cols, false) == row_vector_size;
}

/// Everything but the parts of variable length and the first block.
template <class RowProgram>
Program describe(const RowProgram& program, int64_t num_multiprocessors, const LaunchPolicies& policies) {
  Program to{};
  to.y = static_cast<unsigned char*>(program.y.data);
  to.y_row_bytes = program.y.stride * size_of(program.y.type);
  to.num_rows = program.num_rows;
  to.max_rows = program.y.rows;
  const int64_t cols = columns_of(program);
  to.cols = static_cast<int>(cols);
  to.step = program.step.kind;
  to.pooling = static_cast<uint8_t>(program.step.pooling);
  to.eps_bits = float_bits(program.step.layer_norm.eps);
  to.gamma = to.beta = -1;
  to.y_is_half = program.y.type == DType::f16;
  to.is_copy = is_copy(program, cols);
  const int vector_size = vector_size_of(program, cols, to.is_copy);
  to.vector_size = static_cast<uint8_t>(vector_size);
  const int lanes = lanes_for(cols / vector_size), rows_at_once = device::warp_size / lanes;
  while (1 << to.lanes_log2 < lanes) ++to.lanes_log2;

  // Few rows: enough warps for the card. Many: a warp has enough rows to find their ancestors together.
  // Copies gain nothing from more blocks than two of a multiprocessor (row_program_blocks in benchmarks/results/).
  const int64_t blocks_of_one = to.is_copy ? std::min(policies.row_program_blocks, 2) : policies.row_program_blocks;
  const int64_t share = to.max_rows / (num_multiprocessors * blocks_of_one * warps);
  int rows_per_unit = rows_at_once;
  while (rows_per_unit < rows_per_unit_max && rows_per_unit < share) rows_per_unit *= 2;
  to.rows_per_unit = static_cast<uint8_t>(rows_per_unit);
  const int64_t units = (to.max_rows + rows_per_unit - 1) / rows_per_unit;
  const auto blocks_for = [&](int parts_log2) {
    return cols == 0 && program.y.cols == 0 ? 0 : ((units << parts_log2) + warps - 1) / warps;
  };
  // Few wide rows: other warps take some of the columns.
  const bool can_be_divided = to.step == RowStep::Kind::each_element && !to.is_copy;
  while (can_be_divided && to.parts_log2 < max_parts_log2 && cols > int64_t{lanes} * row_vector_size << to.parts_log2 &&
         blocks_for(to.parts_log2 + 1) <= 2 * num_multiprocessors)
    ++to.parts_log2;
  const int64_t blocks = blocks_for(to.parts_log2);
  to.num_blocks = static_cast<int>(std::min(blocks, num_multiprocessors * min_blocks));
  // Many blocks without rows would read for nothing, and those with rows hide each other's latency.
  to.reads_ahead = to.num_rows != nullptr && blocks <= num_multiprocessors;
  return to;
}

/// Gives learned vectors a place in the list of addresses, and appends all that a program refers to.
template <class RowProgram>
void append_parts(const RowProgram& program, std::vector<SlotOperation> operations, std::vector<Ancestor>& ancestors,
                  Program& to, std::vector<const float*>& addresses, std::vector<unsigned char>& bytes) {
  std::vector<AxisInput<void>> all(program.inputs.begin(), program.inputs.end());
  if (has_factor(program)) all.push_back(program.factor);
  std::vector<Input> inputs = describe_inputs(all, ancestors);
  for (const float* vector : program.vectors) {
    inputs.push_back(describe_vector(addresses.size()));
    addresses.push_back(vector);
  }
  to.factor = -1;
  if (!operations.empty()) {
    const uint8_t result = program.program == nullptr ? slot_of_input : operations.back().to;
    const auto slot_of = order_loads(to.vector_size != 1, inputs, operations);
    to.result = slot_of[result];
    to.ends_with_function = operations.back().kind != SlotOperation::Kind::load;
    keep_in_registers(operations);
    if (has_factor(program)) to.factor = static_cast<int8_t>(slot_of[slot_of_factor(program)]);
    for (int64_t i = 0; i < program.folds.size(); ++i) {
      const uint32_t kind = program.folds[i] == ElementwiseFunction::mul ? fold_is_product : fold_is_sum;
      to.folds |= (slot_of[static_cast<size_t>(i + 1)] | kind) << (bits_of_fold * i);
    }
  }
  const auto add = [&](const float* learned, int& index) {
    if (to.step != RowStep::Kind::layer_norm || learned == nullptr) return;
    index = static_cast<int>(addresses.size());
    addresses.push_back(learned);
  };
  add(program.step.layer_norm.gamma, to.gamma);
  add(program.step.layer_norm.beta, to.beta);
  to.num_ancestors = static_cast<int>(ancestors.size());
  to.num_operations = static_cast<int>(operations.size());
  to.num_inputs = static_cast<int>(inputs.size());
  to.inputs_at = append(bytes, inputs);
  to.operations_at = append(bytes, operations);
  to.ancestors_at = append(bytes, ancestors);
}

/// What a program does, nothing of a copy. Where there is no program: loads the inputs, and the factor if there is one,
/// and folds.
template <class RowProgram>
std::vector<SlotOperation> operations_of(const RowProgram& program, bool is_copy) {
  if (program.program != nullptr) return slot_operations(*program.program);
  if (is_copy) return {};
  std::vector<SlotOperation> operations;
  const int64_t num_loads = program.inputs.size() + (has_factor(program) ? 1 : 0);
  for (int64_t i = 0; i < num_loads; ++i) {
    SlotOperation load;
    load.kind = SlotOperation::Kind::load;
    load.to = static_cast<uint8_t>(i);
    load.index = static_cast<uint16_t>(i);
    operations.push_back(load);
  }
  for (int64_t i = 0; i < program.folds.size(); ++i) {
    SlotOperation fold;
    fold.function = static_cast<uint8_t>(program.folds[i]);
    fold.to = fold.a = slot_of_input;
    fold.b = static_cast<uint8_t>(i + 1);
    operations.push_back(fold);
  }
  return operations;
}

/// What a lane of norm_rows_kernel has of a row, in vectors; 0 where that kernel does not take the program.
template <class RowProgram>
int norm_steps_of(const RowProgram& program, const Program& described) {
  const auto is_plain = [&](const AxisInput<void>& input) {
    return input.offsets == nullptr && input.values.cols == described.cols;
  };
  const auto is_aligned = [](const float* vector) { return reinterpret_cast<uintptr_t>(vector) % 16 == 0; };
  const LayerNormOfRow& norm = program.step.layer_norm;
  if (program.step.kind != RowStep::Kind::layer_norm || program.program != nullptr ||
      !std::all_of(program.inputs.begin(), program.inputs.end(), is_plain) ||
      (has_factor(program) && !is_plain(program.factor)) || described.vector_size != row_vector_size ||
      !is_aligned(norm.gamma) || !is_aligned(norm.beta))
    return 0;
  const int at_once = row_vector_size << described.lanes_log2, steps = (described.cols + at_once - 1) / at_once;
  return steps <= max_norm_steps ? steps : 0;
}

}}}  // namespace warprank::v0::detail::row_programs
