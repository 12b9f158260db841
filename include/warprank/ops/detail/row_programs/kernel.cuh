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
/// A lane has up to 6 loads in flight, 4 of them of 16 bytes. The prototype of this kernel took 1.8 us on an H100 for
/// a concat of 3, and 2.0 us for a program of 4 operations with 3 inputs and a vector, of which interpreting them is
/// 0.25 us: code of their own for programs would not pay. Launches of one program are one_program_kernel's.
///
/// Where rows of inputs are is found by a lane for each input and row, and not by each lane of a row for all inputs:
/// what is said of an input are constants that wait for one another. Functions are in the kernel once, for four
/// columns: neighbours, or where rows are not aligned columns that are as far apart as a row has lanes. Registers that
/// one path loads are set to 0 before: else they are alive, for ptxas, in all loops around.

#include <cstdint>
#include <type_traits>

#include "warprank/core/dtype.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/ops/detail/common/row_lanes.cuh"
#include "warprank/ops/detail/common/row_steps.cuh"
#include "warprank/ops/detail/row_programs/copy_rows.cuh"
#include "warprank/ops/detail/row_programs/descriptor.cuh"
#include "warprank/ops/detail/row_programs/functions.cuh"
#include "warprank/ops/detail/row_programs/program.cuh"
#include "warprank/ops/detail/row_programs/unit.cuh"

namespace warprank { inline namespace v0 { namespace detail::row_programs {

/// The lanes that share a row of a program. Each has up to four columns at a time: neighbours where all is aligned,
/// else as far apart as there are lanes. All of a warp go through them together, also those that have none.
struct ProgramLanes {
  static constexpr int size = row_vector_size;
  int lanes, rank, cols;
  bool exists, has_vectors;
  int part = 0, parts_log2 = 0;

  template <class Function>
  WARPRANK_DEVICE void for_each(Function f) const {
    const int first = has_vectors ? rank * size : rank, at_once = lanes * size;
    for (int begin = part * at_once; begin < cols; begin += at_once << parts_log2) f(begin + first);
  }
  WARPRANK_DEVICE int distance() const { return has_vectors ? 1 : lanes; }
  WARPRANK_DEVICE int column_of(int first, int j) const { return first + j * distance(); }
  WARPRANK_DEVICE bool has(int first, int j) const { return exists && column_of(first, j) < cols; }
};

/// What a load operation says: so many inputs of each kind, which follow one another, and so do their slots; and how
/// many operations of other kinds follow. Every program begins with one, maybe of nothing.
struct Loads {
  int first, slot, halves, floats, ones, functions;

  WARPRANK_DEVICE Loads(const PackedOperation& operation, uint32_t number_bits)
      : first(operation.index()),
        slot(operation.to()),
        halves(operation.a()),
        floats(operation.b()),
        ones(operation.c()),
        functions(static_cast<int>(number_bits)) {}
  WARPRANK_DEVICE int count() const { return halves + floats + ones; }
};

/// Where the rows of inputs are that a warp has at a time: found by a lane for each input and row, and left where the
/// first lane of the row will have the input's values. All of the warp call.
template <class Source>
WARPRANK_DEVICE void find_rows(const Unit<Source>& unit, const Loads& loads, int first_row, uint64_t* of_warp) {
  using namespace device;  // NOLINT: a device function
  const Program& program = unit.program;
  const int rows_log2 = unit.rows_at_once_log2(), count = loads.count(),
            inputs_at = in_register(static_cast<int>(program.inputs_at));
  sync_warp();
  WARPRANK_ROLLED
  for (int first = 0; first < count << rows_log2; first += warp_size) {
    const int at = first + lane_index(), i = at >> rows_log2, row = at & (unit.rows_at_once() - 1);
    const int number = loads.first + i, last = unit.num_rows - 1;
    const uint64_t address = shuffle(full_warp, unit.address, number & (warp_size - 1));
    if (i >= count) continue;
    const Input& input = unit.source.template part<Input>(static_cast<uint32_t>(inputs_at), number);
    auto of_row = reinterpret_cast<uint64_t>(unit.row_of(input, first_row + row < last ? first_row + row : last));
    if (input.vector >= 0) of_row = address;
    if (input.vector >= 0 && number >= warp_size)
      of_row = reinterpret_cast<uint64_t>(load_read_only(unit.addresses + input.vector));
    of_warp[((loads.slot + i) * threads + (row << unit.lanes_log2)) * 2] = of_row;
  }
  sync_warp();
}

/// Loads columns of inputs to slots, zeros where the lane has none. All are requested before one is waited for. Loads
/// of different widths have registers of their own: two into one would wait for each other, also where a predicate
/// skips one.
template <class Source>
WARPRANK_DEVICE void load_vectors(const Unit<Source>& unit, const Loads& loads, int column, bool exists,
                                  const Slots& slots, const uint64_t* rows) {
  using device::Vector;
  const auto row = [&](int i) { return device::global(reinterpret_cast<const uint32_t*>(rows[i * threads * 2])); };
  Vector<uint32_t, 2> halves[loads_in_flight] = {};
  Vector<uint32_t, 4> floats[floats_in_flight] = {};
  uint32_t ones[floats_in_flight] = {};
  if (exists) {
    const uint32_t* next = loads.halves > 0 ? row(0) : nullptr;  // read while the one before is requested
    for_few<loads_in_flight>(loads.halves, [&](int i) {
      const uint32_t* const present = next;
      if (i + 1 < loads.halves) next = row(i + 1);
      halves[i] = device::load_vector<2>(present + column / 2);
    });
    for_few<floats_in_flight>(loads.floats,
                              [&](int i) { floats[i] = device::load_vector<4>(row(loads.halves + i) + column); });
    for_few<floats_in_flight>(loads.ones, [&](int i) {
      const int number = loads.halves + loads.floats + i;
      if (unit.source.template part<Input>(unit.program.inputs_at, loads.first + number).is_half()) {
        ones[i] = device::bits_of_float(device::widen(device::load(reinterpret_cast<const float16*>(row(number)))));
      } else {
        ones[i] = device::load(row(number));
      }
    });
  }
  device::sync_warp();  // all have read where rows are
  float values[row_vector_size];
  for_few<loads_in_flight>(loads.halves, [&](int i) {
    values[0] = device::widen_low(halves[i][0]), values[1] = device::widen_high(halves[i][0]);
    values[2] = device::widen_low(halves[i][1]), values[3] = device::widen_high(halves[i][1]);
    slots.write(loads.slot + i, values);
  });
  for_few<floats_in_flight>(loads.floats, [&](int i) {
    WARPRANK_UNROLL
    for (int j = 0; j < row_vector_size; ++j) values[j] = device::float_of_bits(floats[i][j]);
    slots.write(loads.slot + loads.halves + i, values);
  });
  for_few<floats_in_flight>(loads.ones, [&](int i) {
    WARPRANK_UNROLL
    for (float& value : values) value = device::float_of_bits(ones[i]);
    slots.write(loads.slot + loads.halves + loads.floats + i, values);
  });
}

/// The same, of columns that are as far apart as there are lanes.
template <class Source>
WARPRANK_DEVICE void load_columns(const Unit<Source>& unit, const Loads& loads, int column, const ProgramLanes& lanes,
                                  const Slots& slots, const uint64_t* rows) {
  constexpr int at_once = 3;
  column = device::in_register(column);  // or whether there are columns would be found before the loop over operations
  WARPRANK_ROLLED
  for (int begin = 0; begin < loads.count(); begin += at_once) {
    float values[at_once][row_vector_size] = {};
    WARPRANK_UNROLL
    for (int k = 0; k < at_once; ++k) {
      if (begin + k >= loads.count()) continue;
      const Input& input = unit.source.template part<Input>(unit.program.inputs_at, loads.first + begin + k);
      const unsigned char* const row =
          device::global(reinterpret_cast<const unsigned char*>(rows[(begin + k) * threads * 2]));
      WARPRANK_UNROLL
      for (int j = 0; j < row_vector_size; ++j) {
        if (!lanes.has(column, j)) continue;
        const unsigned char* const at = row + int64_t{lanes.column_of(column, j)} * input.column_bytes;
        if (input.is_half()) {
          values[k][j] = device::widen(device::load(reinterpret_cast<const float16*>(at)));
        } else {
          values[k][j] = device::load(reinterpret_cast<const float*>(at));
        }
      }
    }
    device::sync_warp();  // all have read where these rows are
    WARPRANK_UNROLL
    for (int k = 0; k < at_once; ++k) {
      if (begin + k < loads.count()) slots.write(loads.slot + begin + k, values[k]);
    }
  }
}

/// The program's result for a lane's columns of a row. All of a warp call.
template <class Source>
WARPRANK_DEVICE void evaluate(const Unit<Source>& unit, int first_row, int column, const ProgramLanes& lanes,
                              float (&result)[row_vector_size]) {
  Slots::Values* const of_warp = slots_of_warp();
  const Slots slots{of_warp + device::lane_index()};
  const auto& source = unit.source;
  const auto bytes = static_cast<uint32_t>(unit.program.num_operations) * static_cast<uint32_t>(sizeof(SlotOperation));
  const auto begin = static_cast<uint32_t>(device::in_register(static_cast<int>(unit.program.operations_at)));
  WARPRANK_ROLLED
  for (uint32_t at = begin; at < begin + bytes;) {
    const Loads loads(read_operation(source, at), source.template part<SlotOperation>(at).number_bits);
    at += static_cast<uint32_t>(sizeof(SlotOperation));
    if (loads.count() > 0) {
      find_rows(unit, loads, first_row, reinterpret_cast<uint64_t*>(of_warp));
      const auto* const rows =
          reinterpret_cast<const uint64_t*>(of_warp + loads.slot * threads + device::lane_index() - lanes.rank);
      if (lanes.has_vectors) {
        load_vectors(unit, loads, column, lanes.has(column, 0), slots, rows);
      } else {
        load_columns(unit, loads, column, lanes, slots, rows);
      }
    }
    WARPRANK_UNROLL
    for (float& value : result) value = 0;  // or it were alive, for ptxas, while inputs are loaded
    if (loads.functions == 0) continue;
    run_functions(source, at, loads.functions, read_operation(source, at), slots, result);
    at += static_cast<uint32_t>(loads.functions) * static_cast<uint32_t>(sizeof(SlotOperation));
  }
  if (!unit.program.ends_with_function) slots.read(unit.program.result, result);
}

template <class Source>
WARPRANK_DEVICE void run_rows(const Unit<Source>& unit, const RowStep& step, int part) {
  const Program& program = unit.program;
  const int cols = device::in_register(program.cols);
  const bool has_vectors = program.vector_size != 1;
  // All lanes of a warp leave the loop together: those of a row that is none help with the others.
  for (int first = 0; first < unit.num_rows; first += unit.rows_at_once()) {
    const int row = first + unit.row_of_lane();
    const ProgramLanes lanes{unit.lanes(), unit.rank_of_lane(), cols, row < unit.num_rows, has_vectors,
                             part,         program.parts_log2};
    const auto values_at = [&](int column, float(&values)[row_vector_size]) {
      evaluate(unit, first, column, lanes, values);
    };
    const auto store = [&](int column, float(&values)[row_vector_size]) {
      if (!unit.is_stored(row) || !lanes.has(column, 0)) return;
      if (step.kind != RowStep::Kind::each_element && program.factor >= 0) {
        float factor[row_vector_size];
        Slots{slots_of_warp() + device::lane_index()}.read(program.factor, factor);
        WARPRANK_UNROLL
        for (int j = 0; j < row_vector_size; ++j) values[j] *= factor[j];
      }
      const auto store_as = [&](auto* y) {
        using Out = std::remove_pointer_t<decltype(y)>;
        if (lanes.has_vectors) return store_values(y + column, values);
        WARPRANK_UNROLL
        for (int j = 0; j < row_vector_size; ++j) {
          if (lanes.has(column, j)) device::store(y + lanes.column_of(column, j), device::narrow<Out>(values[j]));
        }
      };
      if (program.y_is_half) {
        store_as(reinterpret_cast<float16*>(unit.y_row(row)));
      } else {
        store_as(reinterpret_cast<float*>(unit.y_row(row)));
      }
    };
    const auto store_one = [&](float value) {
      if (!unit.is_stored(row)) return;
      if (program.y_is_half) {
        device::store(reinterpret_cast<float16*>(unit.y_row(row)), device::narrow<float16>(value));
      } else {
        device::store(reinterpret_cast<float*>(unit.y_row(row)), value);
      }
    };
    finish_row(step, lanes, values_at, store, store_one);
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

/// What a launch has at most: what it has not is not in its kernel.
enum class Contents { copies, elements, steps };

/// `addresses`: of learned vectors, in device memory. Dynamic shared memory: slots of every thread, as many as any of
/// the programs needs.
template <class Source, Contents Most>
WARPRANK_KERNEL(threads, min_blocks)
row_programs_kernel(const WARPRANK_GRID_CONSTANT Source source, const float* const* addresses, int num_programs) {
  auto& shared = device::static_shared<Storage>();
  const int block = static_cast<int>(device::block_index().x);
  const Program& program = source.template part<Program>(0, source.program_of_block(num_programs, block));
  uint64_t address = 0;
  if (Most != Contents::copies && device::lane_index() < program.num_inputs) {
    const int vector = source.template part<Input>(program.inputs_at, device::lane_index()).vector;
    if (vector >= 0) address = reinterpret_cast<uint64_t>(device::load_read_only(addresses + vector));
  }
  device::wait_for_previous_launch();

  // Where rows are read ahead the number is first used behind their loads, so it must not be loaded there: an ordered
  // load stays where it is. The other has a register of its own: a predicate on its use would wait for this one, too.
  using device::Order, device::Scope;
  int64_t end_of_rows = program.max_rows, end_of_reads = program.max_rows;
  if (program.num_rows != nullptr && program.reads_ahead) {
    end_of_rows = device::load<Order::relaxed, Scope::device>(program.num_rows);
  } else if (program.num_rows != nullptr) {
    const int64_t num_rows = device::load<Order::relaxed, Scope::device>(program.num_rows);
    if (num_rows < end_of_reads) end_of_reads = num_rows;
  }

  auto& ancestor_rows = shared.ancestor_rows[device::warp_index()];
  const int warp = (block - program.first_block) * warps + device::warp_index();
  const int first_unit = warp >> program.parts_log2, part = warp & ((1 << program.parts_log2) - 1);
  const int distance = (program.num_blocks * warps >> program.parts_log2) * program.rows_per_unit;
  const int lanes_log2 = device::in_register(program.lanes_log2);
  for (int64_t row = first_unit * program.rows_per_unit; row < end_of_reads; row += distance) {
    const int64_t rest = end_of_reads - row;
    const int num_rows = rest < program.rows_per_unit ? static_cast<int>(rest) : program.rows_per_unit;
    const Unit<Source> unit{source, addresses, address, program, ancestor_rows, row, num_rows, end_of_rows, lanes_log2};
    find_ancestors(source, program.ancestors_at, program.num_ancestors, row, num_rows, ancestor_rows);
    if (Most == Contents::copies || program.is_copy) {
      copy_rows(unit);
    } else if constexpr (Most == Contents::elements) {
      run_rows(unit, EachElement{}, part);
    } else if constexpr (Most == Contents::steps) {
      run_rows(unit, step_of(program, addresses), part);
    }
  }
}

}}}  // namespace warprank::v0::detail::row_programs
