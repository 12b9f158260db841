// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/row_programs.cuh. A block has rows of one program; each of its warps takes units of up to 32
/// neighbouring rows, a few lanes each row: they copy it, or interpret the program on some columns at a time.
///
/// What a block does is found from the kernel's parameters; only programs that do not fit there are in device memory,
/// where every part of them costs a trip. Nothing is searched by one thread, there is no barrier, and the number of
/// rows is not waited for where few rows are expected: rows behind it are read and not stored. So loads that depend on
/// one another, from launch to store:
///
///     the number of rows, rows of the own axis, addresses of learned vectors -> learned vectors             1 or 2
///     with inputs on ancestors of more than one row, each: its count, up to 65 offsets -> rows             2 or more
///
/// A lane has up to 6 loads of 16 bytes in flight, of a copy 4. The prototype of this kernel took 1.8 us on an H100 for
/// a concat of 3, and 2.0 us for a program of 4 operations with 3 inputs and a vector, of which interpreting them is
/// 0.25 us: code of their own for programs would not pay.

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "warprank/core/dtype.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/ops/detail/common/axis_input.cuh"
#include "warprank/ops/detail/common/descriptors.cuh"
#include "warprank/ops/detail/common/row_lanes.cuh"
#include "warprank/ops/detail/common/row_steps.cuh"
#include "warprank/ops/detail/row_programs/program.cuh"

namespace warprank::detail::row_programs {

using elementwise::loads_in_flight;
using elementwise::num_slots;
using elementwise::SlotOperation;

inline constexpr int threads = 128, min_blocks = 4, warps = threads / device::warp_size;
inline constexpr int max_ancestors = 6;  // of a program: different axes, whatever the number of inputs
inline constexpr int rows_per_unit_max = device::warp_size;
inline constexpr int copies_in_flight = 4;        // loads of a lane
inline constexpr int64_t parameter_bytes = 3968;  // with the other parameters less than the 4 KB that all cards take

// ---- Descriptors, without padding: launches are compared by their bytes

/// An axis above the program's.
struct Ancestor {
  const int64_t* offsets;
  const int64_t* num_segments;
  int64_t max_segments;
};

/// An input, or behind a program's inputs a learned vector.
struct Input {
  const unsigned char* data;  // of a vector null: its address depends on the model
  int64_t row_bytes;          // from a row to the next; 0 where one serves all
  int ancestor;               // -1: the program's own axis
  int vector;                 // in the list of addresses
  int element_bytes;          // 2: half, 4: float
  int is_one_column;
};

/// Positions of what has a variable length count bytes from the first program.
struct Program {
  unsigned char* y;
  int64_t y_row_bytes;
  const int64_t* num_rows;  // null: max_rows
  int64_t max_rows;
  int64_t cols;
  int first_block, num_blocks;
  int num_ancestors, num_operations;
  uint32_t ancestors_at, inputs_at, operations_at;
  int gamma, beta;  // in the list of addresses; -1: none
  uint32_t eps_bits;
  RowStep::Kind step;
  uint8_t pooling;
  uint8_t lanes;          // of a row: a power of two
  uint8_t vector_size;    // columns of a lane at a time
  uint8_t rows_per_unit;  // a multiple of what a warp has at a time
  bool y_is_half;
  bool is_copy;      // of one input
  bool reads_ahead;  // rows behind the number of rows; then a warp has one unit
};
static_assert(std::has_unique_object_representations_v<Ancestor> && std::has_unique_object_representations_v<Input> &&
              std::has_unique_object_representations_v<Program>);

/// Programs as a kernel's parameter.
struct InParameters {
  alignas(16) unsigned char bytes[parameter_bytes];

  template <class Part>
  WARPRANK_DEVICE const Part& part(uint32_t position, int i = 0) const {
    return reinterpret_cast<const Part*>(bytes + position)[i];
  }
  WARPRANK_DEVICE int program_of_block(int num_programs, int block) const {
    int begun = 1;
    while (begun < num_programs && part<Program>(0, begun).first_block <= block) ++begun;
    return begun - 1;
  }
};

/// Programs in device memory.
struct InMemory {
  const unsigned char* bytes;

  template <class Part>
  WARPRANK_DEVICE Part part(uint32_t position, int i = 0) const {
    constexpr int num_words = static_cast<int>(sizeof(Part) / sizeof(uint32_t));
    const auto* from = reinterpret_cast<const uint32_t*>(bytes + position) + i * num_words;
    uint32_t words[num_words];
    WARPRANK_UNROLL
    for (int w = 0; w < num_words; ++w) words[w] = device::load_read_only(from + w);
    Part to;
    memcpy(static_cast<void*>(&to), words, sizeof to);
    return to;
  }
  WARPRANK_DEVICE int program_of_block(int num_programs, int block) const {
    return problem_of_block(reinterpret_cast<const Program*>(bytes), num_programs, block);
  }
};

// ---- The kernel

struct Storage {
  int64_t ancestor_rows[warps][max_ancestors][rows_per_unit_max];
};

/// What a warp works on.
template <class Source>
struct Unit {
  const Source& source;
  const float* const* addresses;  // of what learned vectors there are
  const Program& program;
  const int64_t (*ancestor_rows)[rows_per_unit_max];  // [ancestor][row]
  int64_t first_row;
  int num_rows;         // that are read
  int64_t end_of_rows;  // behind the last that is stored

  WARPRANK_DEVICE const unsigned char* input_row(const Input& input, int row) const {
    const unsigned char* data = input.data;
    if (data == nullptr)
      data = reinterpret_cast<const unsigned char*>(device::load_read_only(addresses + input.vector));
    const int64_t n = input.ancestor < 0 ? first_row + row : ancestor_rows[input.ancestor][row];
    return data + n * input.row_bytes;
  }
  WARPRANK_DEVICE unsigned char* y_row(int row) const { return program.y + (first_row + row) * program.y_row_bytes; }
  WARPRANK_DEVICE bool is_stored(int row) const { return first_row + row < end_of_rows; }
};

/// Of each row of the unit, what row of each ancestor serves it.
template <class Source>
WARPRANK_DEVICE void find_ancestors(const Unit<Source>& unit, int64_t (*rows)[rows_per_unit_max]) {
  const int num_ancestors = unit.program.num_ancestors, lane = device::lane_index();
  if (num_ancestors == 0) return;
  const int64_t last = unit.first_row + unit.num_rows - 1, n = unit.first_row + lane;
  device::sync_warp();  // the unit before is done with them
  for (int a = 0; a < num_ancestors; ++a) {
    const Ancestor& ancestor = unit.source.template part<Ancestor>(unit.program.ancestors_at, a);
    SegmentsOfLanes segments(ancestor.offsets, ancestor.num_segments, ancestor.max_segments);
    rows[a][lane] = segments.row_serving(n < last ? n : last, unit.first_row, last);
  }
  device::sync_warp();
}

template <int VecSize, class To, class From, class Source>
WARPRANK_DEVICE void copy_columns(const Unit<Source>& unit, const Input& input) {
  const int lanes = unit.program.lanes, rank = rank_in_row(lanes), rows_at_once = rows_of_warp(lanes);
  for (int64_t column = rank * VecSize; column < unit.program.cols; column += int64_t{lanes} * VecSize) {
    for (int row = row_in_warp(lanes); row < unit.num_rows; row += copies_in_flight * rows_at_once) {
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
        if (at >= unit.num_rows || !unit.is_stored(at)) continue;
        device::Vector<To, VecSize> converted;
        WARPRANK_UNROLL
        for (int j = 0; j < VecSize; ++j) converted[j] = device::narrow<To>(device::widen(values[i][j]));
        device::store_vector(reinterpret_cast<To*>(unit.y_row(at)) + column, converted);
      }
    }
  }
}

template <int VecSize, class Source>
WARPRANK_DEVICE void copy_any(const Unit<Source>& unit, const Input& input) {
  const bool is_half = input.element_bytes == sizeof(half);
  if (unit.program.y_is_half) {
    if (is_half) {
      copy_columns<VecSize, half, half>(unit, input);
    } else {
      copy_columns<VecSize, half, float>(unit, input);
    }
  } else if (is_half) {
    copy_columns<VecSize, float, half>(unit, input);
  } else {
    copy_columns<VecSize, float, float>(unit, input);
  }
}

template <class Source>
WARPRANK_DEVICE void copy_rows(const Unit<Source>& unit) {
  const Input& input = unit.source.template part<Input>(unit.program.inputs_at);
  if (unit.program.vector_size == 8) {
    copy_columns<8, half, half>(unit, input);
  } else if (unit.program.vector_size == row_vector_size) {
    copy_any<row_vector_size>(unit, input);
  } else {
    copy_any<1>(unit, input);
  }
}

/// Columns of an input, as they are in memory: one when it has one column, else VecSize.
template <int VecSize>
struct Loaded {
  uint32_t bits[VecSize];

  /// y may be the input: no read-only loads.
  WARPRANK_DEVICE void load(const Input& input, const unsigned char* row, int64_t column) {
    const bool is_half = input.element_bytes == sizeof(half);
    if (input.is_one_column) column = 0;
    const unsigned char* from = row + column * input.element_bytes;
    if (VecSize == 1 || input.is_one_column) {
      bits[0] = is_half ? device::load(reinterpret_cast<const uint16_t*>(from))
                        : device::load(reinterpret_cast<const uint32_t*>(from));
    } else if (is_half) {
      load_words<(VecSize + 1) / 2>(from);
    } else {
      load_words<VecSize>(from);
    }
  }
  WARPRANK_DEVICE void widen(const Input& input, float (&values)[VecSize]) const {
    const bool is_half = input.element_bytes == sizeof(half);
    WARPRANK_UNROLL
    for (int j = 0; j < VecSize; ++j) {
      const uint32_t pair = input.is_one_column ? bits[0] : bits[j / 2] >> j % 2 * 16;
      const uint32_t word = input.is_one_column ? bits[0] : bits[j];
      values[j] = is_half ? device::widen(device::low_half(pair)) : device::float_of_bits(word);
    }
  }

 private:
  template <int Words>
  WARPRANK_DEVICE void load_words(const unsigned char* from) {
    const auto words = device::load_vector<Words>(reinterpret_cast<const uint32_t*>(from));
    WARPRANK_UNROLL
    for (int w = 0; w < Words; ++w) bits[w] = words[w];
  }
};

/// Slots of a thread, in shared memory: one vector of each thread beside that of the next.
template <int VecSize>
struct Slots {
  device::Vector<float, VecSize>* of_thread;

  WARPRANK_DEVICE void read(int slot, float (&to)[VecSize]) const { widen_values(of_thread[slot * threads], to); }
  WARPRANK_DEVICE void write(int slot, const float (&from)[VecSize]) const {
    WARPRANK_UNROLL
    for (int j = 0; j < VecSize; ++j) of_thread[slot * threads][j] = from[j];
  }
};

/// All `count` loads, which follow one another, are requested before the first is waited for. Returns the last values.
template <int VecSize, class Source>
WARPRANK_DEVICE void load_inputs(const Unit<Source>& unit, int first, int count, int row, int64_t column,
                                 const Slots<VecSize>& slots, float (&values)[VecSize]) {
  const auto operation = [&](int i) -> decltype(auto) {
    return unit.source.template part<SlotOperation>(unit.program.operations_at, first + i);
  };
  const auto input_of = [&](int i) -> decltype(auto) {
    return unit.source.template part<Input>(unit.program.inputs_at, operation(i).index);
  };
  const unsigned char* rows[loads_in_flight];
  WARPRANK_UNROLL
  for (int i = 0; i < loads_in_flight; ++i) {
    if (i < count) rows[i] = unit.input_row(input_of(i), row);
  }
  Loaded<VecSize> loaded[loads_in_flight];
  WARPRANK_UNROLL
  for (int i = 0; i < loads_in_flight; ++i) {
    if (i < count) loaded[i].load(input_of(i), rows[i], column);
  }
  WARPRANK_UNROLL
  for (int i = 0; i < loads_in_flight; ++i) {
    if (i >= count) continue;
    loaded[i].widen(input_of(i), values);
    slots.write(operation(i).to, values);
  }
}

/// The program's result for columns [column, column + VecSize) of a row.
template <int VecSize, class Source>
WARPRANK_DEVICE void evaluate(const Unit<Source>& unit, int row, int64_t column, float (&result)[VecSize]) {
  const Slots<VecSize> slots{device::dynamic_shared<device::Vector<float, VecSize>>() + device::thread_rank()};
  const int num_operations = unit.program.num_operations;
  for (int i = 0; i < num_operations;) {
    const SlotOperation& operation = unit.source.template part<SlotOperation>(unit.program.operations_at, i);
    if (operation.kind == SlotOperation::Kind::load) {
      load_inputs(unit, i, operation.a, row, column, slots, result);
      i += operation.a;
      continue;
    }
    const float number = device::float_of_bits(operation.number_bits);
    if (operation.kind == SlotOperation::Kind::function) {
      float a[VecSize], b[VecSize], c[VecSize];
      slots.read(operation.a, a);
      slots.read(operation.b, b);
      slots.read(operation.c, c);
      elementwise::apply_function(static_cast<ElementwiseFunction>(operation.function), number, a, b, c, result);
    } else {
      WARPRANK_UNROLL
      for (int j = 0; j < VecSize; ++j) result[j] = number;
    }
    slots.write(operation.to, result);
    ++i;
  }
}

template <int VecSize, class Source>
WARPRANK_DEVICE void run_rows(const Unit<Source>& unit, const RowStep& step) {
  const Program& program = unit.program;
  const int lanes = program.lanes;
  // All lanes of a warp leave the loop together: those of a row that is none help to reduce.
  for (int first = 0; first < unit.num_rows; first += rows_of_warp(lanes)) {
    const int row = first + row_in_warp(lanes);
    const RowLanes<VecSize> of_row{lanes, rank_in_row(lanes), program.cols, row < unit.num_rows};
    const auto values_at = [&](int64_t column, float(&values)[VecSize]) { evaluate(unit, row, column, values); };
    const auto store = [&](int64_t column, const auto& values) {
      if (!unit.is_stored(row)) return;
      if (program.y_is_half) {
        store_values(reinterpret_cast<half*>(unit.y_row(row)) + column, values);
      } else {
        store_values(reinterpret_cast<float*>(unit.y_row(row)) + column, values);
      }
    };
    elementwise::finish_row(step, of_row, values_at, store);
  }
}

/// The step of a program, with the addresses that it has now.
WARPRANK_DEVICE RowStep step_of(const Program& program, const float* const* addresses) {
  RowStep step;
  step.kind = program.step;
  step.pooling = static_cast<Pooling>(program.pooling);
  step.layer_norm.eps = device::float_of_bits(program.eps_bits);
  if (program.gamma >= 0) step.layer_norm.gamma = device::load_read_only(addresses + program.gamma);
  if (program.beta >= 0) step.layer_norm.beta = device::load_read_only(addresses + program.beta);
  return step;
}

/// `addresses`: of learned vectors, in device memory. Dynamic shared memory: slots of every thread, as many as any of
/// the programs needs.
template <class Source>
WARPRANK_KERNEL(threads, min_blocks)
row_programs_kernel(const WARPRANK_GRID_CONSTANT Source source, const float* const* addresses, int num_programs) {
  auto& shared = device::static_shared<Storage>();
  const int block = static_cast<int>(device::block_index().x);
  const Program& program = source.template part<Program>(0, source.program_of_block(num_programs, block));
  const RowStep step = step_of(program, addresses);
  device::wait_for_previous_launch();

  // The number is first used behind the rows' loads, so it must not be loaded there: an ordered load stays where it is.
  using device::Order, device::Scope;
  int64_t end_of_rows = program.max_rows;
  if (program.num_rows != nullptr) end_of_rows = device::load<Order::relaxed, Scope::device>(program.num_rows);
  int64_t end_of_reads = program.max_rows;
  if (!program.reads_ahead && end_of_rows < end_of_reads) end_of_reads = end_of_rows;

  auto& ancestor_rows = shared.ancestor_rows[device::warp_index()];
  const int64_t first_unit = (block - program.first_block) * warps + device::warp_index();
  const int64_t distance = int64_t{program.num_blocks} * warps * program.rows_per_unit;
  for (int64_t row = first_unit * program.rows_per_unit; row < end_of_reads; row += distance) {
    const int64_t rest = end_of_reads - row;
    const int num_rows = rest < program.rows_per_unit ? static_cast<int>(rest) : program.rows_per_unit;
    const Unit<Source> unit{source, addresses, program, ancestor_rows, row, num_rows, end_of_rows};
    find_ancestors(unit, ancestor_rows);
    if (program.is_copy) {
      copy_rows(unit);
    } else if (program.vector_size == row_vector_size) {
      run_rows<row_vector_size>(unit, step);
    } else {
      run_rows<1>(unit, step);
    }
  }
}

}  // namespace warprank::detail::row_programs
