// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/row_programs.cuh. A block has rows of one program; each of its warps takes units of up to 32
/// neighbouring rows. First its lanes find the ancestors of a row each, then a few lanes work on each row: they copy
/// it, or interpret the program on some columns at a time.

#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sorted.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/ops/detail/axis_input.cuh"
#include "warprank/ops/detail/descriptors.cuh"
#include "warprank/ops/detail/elementwise_program.cuh"
#include "warprank/ops/detail/row_lanes.cuh"
#include "warprank/ops/detail/row_steps.cuh"

namespace warprank::detail::row_programs {

using elementwise::num_slots;
using elementwise::SlotOperation;

inline constexpr int threads = 128, min_blocks = 6;
inline constexpr int max_ancestors = 6;  // of a program: different axes, whatever the number of inputs
inline constexpr int rows_per_unit_max = device::warp_size;
inline constexpr int copies_in_flight = 4;  // loads of a lane

/// An axis above the program's.
struct alignas(16) Ancestor {
  const int64_t* offsets;
  const int64_t* num_segments;
  int64_t max_segments;
};

struct alignas(16) Input {
  const unsigned char* data;
  int64_t row_bytes;  // from a row to the next; 0 where one serves all
  int ancestor;       // -1: the program's own axis
  bool is_half, is_one_column;
};

/// A program as it lies in device memory. The parts of variable length are further back; positions count bytes from the
/// first descriptor.
struct alignas(16) Program {
  unsigned char* y;
  int64_t y_row_bytes;
  const int64_t* num_rows;
  int64_t max_rows;
  int64_t cols;
  int64_t first_block;
  RowStep step;
  int num_blocks;
  int rows_per_unit;  // a multiple of what a warp has at a time
  int num_ancestors, num_operations;
  uint32_t ancestors_at, inputs_at, vectors_at, operations_at;
  uint8_t lanes;        // of a row: a power of two
  uint8_t vector_size;  // columns of a lane at a time
  bool y_is_half;
  bool is_copy;  // of one input
};

template <class Part>
WARPRANK_DEVICE const Part* part_at(const unsigned char* programs, uint32_t position) {
  return reinterpret_cast<const Part*>(programs + position);
}

struct Storage {
  Program program;
  int64_t ancestor_rows[threads / device::warp_size][max_ancestors][rows_per_unit_max];
};

/// What a warp works on.
struct Unit {
  const unsigned char* programs;
  const Program& program;
  const int64_t (*ancestor_rows)[rows_per_unit_max];  // [ancestor][row]
  int64_t first_row;
  int num_rows;

  WARPRANK_DEVICE const unsigned char* input_row(const Input& input, int row) const {
    const int64_t n = input.ancestor < 0 ? first_row + row : ancestor_rows[input.ancestor][row];
    return input.data + n * input.row_bytes;
  }
  WARPRANK_DEVICE unsigned char* y_row(int row) const { return program.y + (first_row + row) * program.y_row_bytes; }
};

/// Of each row of the unit, what row of each ancestor serves it.
WARPRANK_DEVICE void find_ancestors(const Unit& unit, int64_t (*rows)[rows_per_unit_max]) {
  if (unit.program.num_ancestors == 0) return;
  const auto* ancestors = part_at<Ancestor>(unit.programs, unit.program.ancestors_at);
  const int lane = device::lane_index();
  device::sync_warp();  // the unit before is done with them
  for (int a = 0; a < unit.program.num_ancestors && lane < unit.num_rows; ++a) {
    const Ancestor ancestor = read_descriptor(ancestors + a);
    const int64_t count = device::true_count(ancestor.num_segments, ancestor.max_segments);
    rows[a][lane] = device::last_not_above(ancestor.offsets, count, unit.first_row + lane);
  }
  device::sync_warp();
}

template <int VecSize, class To, class From>
WARPRANK_DEVICE void copy_columns(const Unit& unit, const Input& input) {
  const int lanes = unit.program.lanes, rank = device::lane_index() % lanes, rows_at_once = device::warp_size / lanes;
  for (int64_t column = rank * VecSize; column < unit.program.cols; column += int64_t{lanes} * VecSize) {
    for (int row = device::lane_index() / lanes; row < unit.num_rows; row += copies_in_flight * rows_at_once) {
      device::Vector<From, VecSize> values[copies_in_flight];
      WARPRANK_UNROLL
      for (int i = 0; i < copies_in_flight; ++i) {
        const int at = row + i * rows_at_once;
        if (at >= unit.num_rows) continue;
        const auto* from = reinterpret_cast<const From*>(unit.input_row(input, at));
        if (input.is_one_column) {
          const From value = device::load(from);
          WARPRANK_UNROLL
          for (int j = 0; j < VecSize; ++j) values[i][j] = value;
        } else {
          values[i] = device::load_vector<VecSize>(from + column);
        }
      }
      WARPRANK_UNROLL
      for (int i = 0; i < copies_in_flight; ++i) {
        const int at = row + i * rows_at_once;
        if (at >= unit.num_rows) continue;
        device::Vector<To, VecSize> converted;
        WARPRANK_UNROLL
        for (int j = 0; j < VecSize; ++j) converted[j] = device::narrow<To>(device::widen(values[i][j]));
        device::store_vector(reinterpret_cast<To*>(unit.y_row(at)) + column, converted);
      }
    }
  }
}

template <int VecSize>
WARPRANK_DEVICE void copy_any(const Unit& unit, const Input& input) {
  if (unit.program.y_is_half) {
    if (input.is_half) {
      copy_columns<VecSize, half, half>(unit, input);
    } else {
      copy_columns<VecSize, half, float>(unit, input);
    }
  } else if (input.is_half) {
    copy_columns<VecSize, float, half>(unit, input);
  } else {
    copy_columns<VecSize, float, float>(unit, input);
  }
}

WARPRANK_DEVICE void copy_rows(const Unit& unit, const Input& input) {
  if (unit.program.vector_size == 8) {
    copy_columns<8, half, half>(unit, input);
  } else if (unit.program.vector_size == row_vector_size) {
    copy_any<row_vector_size>(unit, input);
  } else {
    copy_any<1>(unit, input);
  }
}

template <int VecSize, class Value>
WARPRANK_DEVICE void load_input(const unsigned char* row, bool is_one_column, int64_t column, float (&to)[VecSize]) {
  const auto* values = reinterpret_cast<const Value*>(row);  // y may be the input: no read-only loads
  if (is_one_column) {
    const float value = device::widen(device::load(values));
    WARPRANK_UNROLL
    for (int j = 0; j < VecSize; ++j) to[j] = value;
    return;
  }
  widen_values(device::load_vector<VecSize>(values + column), to);
}

/// The program's result for columns [column, column + VecSize) of a row. Slots are in shared memory, one vector of each
/// thread beside that of the next.
template <int VecSize>
WARPRANK_DEVICE void evaluate(const Unit& unit, int row, int64_t column, float (&result)[VecSize]) {
  const Program& program = unit.program;
  auto* slots = device::dynamic_shared<device::Vector<float, VecSize>>() + device::thread_rank();
  const auto* operations = part_at<SlotOperation>(unit.programs, program.operations_at);
  const auto read = [&](int slot, float(&to)[VecSize]) { widen_values(slots[slot * threads], to); };
  for (int i = 0; i < program.num_operations; ++i) {
    const SlotOperation operation = read_descriptor(operations + i);
    if (operation.kind == SlotOperation::Kind::function) {
      float a[VecSize], b[VecSize], c[VecSize];
      read(operation.a, a);
      read(operation.b, b);
      read(operation.c, c);
      elementwise::apply_function(operation.function, operation.number, a, b, c, result);
    } else if (operation.kind == SlotOperation::Kind::load_input) {
      const Input input = read_descriptor(part_at<Input>(unit.programs, program.inputs_at) + operation.index);
      const unsigned char* from = unit.input_row(input, row);
      if (input.is_half) {
        load_input<VecSize, half>(from, input.is_one_column, column, result);
      } else {
        load_input<VecSize, float>(from, input.is_one_column, column, result);
      }
    } else if (operation.kind == SlotOperation::Kind::load_vector) {
      const float* vector =
          device::load_read_only(part_at<const float*>(unit.programs, program.vectors_at) + operation.index);
      widen_values(device::load_vector_read_only<VecSize>(vector + column), result);
    } else {
      WARPRANK_UNROLL
      for (int j = 0; j < VecSize; ++j) result[j] = operation.number;
    }
    WARPRANK_UNROLL
    for (int j = 0; j < VecSize; ++j) slots[operation.to * threads][j] = result[j];
  }
}

template <int VecSize>
WARPRANK_DEVICE void run_rows(const Unit& unit) {
  const Program& program = unit.program;
  const int lanes = program.lanes, lane = device::lane_index();
  // All lanes of a warp leave the loop together: those of a row that is none help to reduce.
  for (int row = lane / lanes; row - lane / lanes < unit.num_rows; row += device::warp_size / lanes) {
    const RowLanes<VecSize> of_row{lanes, lane % lanes, program.cols, row < unit.num_rows};
    const auto values_at = [&](int64_t column, float(&values)[VecSize]) { evaluate(unit, row, column, values); };
    const auto store = [&](int64_t column, const auto& values) {
      if (program.y_is_half) {
        store_values(reinterpret_cast<half*>(unit.y_row(row)) + column, values);
      } else {
        store_values(reinterpret_cast<float*>(unit.y_row(row)) + column, values);
      }
    };
    elementwise::finish_row(program.step, of_row, values_at, store);
  }
}

/// Dynamic shared memory: slots of every thread, as many as any of the programs needs.
template <class = void>
WARPRANK_KERNEL(threads, min_blocks)
row_programs_kernel(const FirstBlock* first_blocks, const Program* programs, int num_programs) {
  auto& shared = device::static_shared<Storage>();
  const int64_t block = device::block_index().x;
  read_descriptors(programs + problem_of_block(first_blocks, num_programs, block), 1, &shared.program);
  const Program& program = shared.program;
  const auto* bytes = reinterpret_cast<const unsigned char*>(programs);
  Input copied{};
  if (program.is_copy) copied = read_descriptor(part_at<Input>(bytes, program.inputs_at));

  constexpr int warps = threads / device::warp_size;
  auto& ancestor_rows = shared.ancestor_rows[device::warp_index()];
  const int64_t num_rows = device::true_count(program.num_rows, program.max_rows);
  const int64_t distance = int64_t{program.num_blocks} * warps * program.rows_per_unit;
  const int64_t first_unit = (block - program.first_block) * warps + device::warp_index();
  for (int64_t row = first_unit * program.rows_per_unit; row < num_rows; row += distance) {
    const int64_t rest = num_rows - row;
    const Unit unit{bytes, program, ancestor_rows, row,
                    rest < program.rows_per_unit ? static_cast<int>(rest) : program.rows_per_unit};
    find_ancestors(unit, ancestor_rows);
    if (program.is_copy) {
      copy_rows(unit, copied);
    } else if (program.vector_size == row_vector_size) {
      run_rows<row_vector_size>(unit);
    } else {
      run_rows<1>(unit);
    }
  }
}

}  // namespace warprank::detail::row_programs
