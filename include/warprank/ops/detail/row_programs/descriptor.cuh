// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Row programs as a launch describes them. No padding: launches are compared by their bytes.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/ops/detail/common/descriptors.cuh"
#include "warprank/ops/detail/common/row_steps.cuh"
#include "warprank/ops/detail/row_programs/program.cuh"

namespace warprank { inline namespace v0 { namespace detail::row_programs {

inline constexpr int threads = 128, min_blocks = 4, warps = threads / device::warp_size;
inline constexpr int max_ancestors = 6;  // of a program: different axes, whatever the number of inputs
inline constexpr int rows_per_unit_max = device::warp_size;
inline constexpr int max_parts_log2 = 3;
inline constexpr int copies_in_flight = 4;        // loads of a lane
inline constexpr int floats_in_flight = 4;        // of them vectors of floats, and single ones
inline constexpr int64_t parameter_bytes = 3968;  // with the other parameters less than the 4 KB that all cards take

/// An axis above the program's.
struct Ancestor {
  const int64_t* offsets;
  const int64_t* num_segments;
  int64_t max_segments;
};

/// How an input, or a learned vector, is loaded: odd ones are halves.
enum class InputKind : uint8_t { floats, halves, one_float, one_half };

/// An input or a learned vector, in the order in which they are loaded.
struct Input {
  const unsigned char* data;  // null of a learned vector, whose address depends on the model
  int64_t row_bytes;          // from a row to the next; 0 where one serves all
  int vector;                 // its place in the list of addresses; -1: an input
  InputKind kind;
  uint8_t column_bytes;  // from a column to the next; 0 where one serves all
  int8_t ancestor;       // -1: the program's own axis
  uint8_t unused;

  constexpr WARPRANK_HOST_DEVICE bool is_half() const { return (static_cast<int>(kind) & 1) != 0; }
  constexpr WARPRANK_HOST_DEVICE int element_bytes() const { return is_half() ? 2 : 4; }
};

inline constexpr int max_folds = 3;

/// With what the first input of a layer norm without a program is summed or multiplied: a byte of Program::folds, the
/// first one the lowest.
inline constexpr int bits_of_fold = 8;
inline constexpr uint32_t fold_is_sum = 0x40, fold_is_product = 0x80, slot_of_fold = 0x3f;

/// Positions of what has a variable length count bytes from the first program.
struct Program {
  unsigned char* y;
  int64_t y_row_bytes;
  const int64_t* num_rows;  // null: max_rows
  int64_t max_rows;
  int cols;
  int first_block, num_blocks;
  int num_ancestors, num_operations;
  int num_inputs;
  uint32_t ancestors_at, inputs_at, operations_at;
  int gamma, beta;  // in the list of addresses; -1: none
  uint32_t eps_bits;
  RowStep::Kind step;
  uint8_t pooling;
  uint8_t lanes_log2;     // of a row
  uint8_t vector_size;    // columns of a lane at a time
  uint8_t rows_per_unit;  // a multiple of what a warp has at a time
  uint8_t parts_log2;     // of a row, among which its columns are divided: units of their own
  bool y_is_half;
  bool is_copy;             // of one input
  bool reads_ahead;         // rows behind the number of rows; then a warp has one unit
  uint8_t result;           // the slot of the program's values
  int8_t factor;            // the slot of what the step's results are multiplied by; -1: nothing
  bool ends_with_function;  // whose result needs no slot
  uint32_t folds;           // 0: none
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
    using namespace device;  // NOLINT: a device function
    int begun = 1;
    for (int first = 1; first < num_programs; first += warp_size) {
      const int i = first + lane_index();
      begun += count_bits(ballot(full_warp, i < num_programs && part<Program>(0, i).first_block <= block));
    }
    return begun - 1;
  }
};

/// An input of OneProgram.
struct PlainInput {
  static constexpr int is_own = -1, is_vector = -2;
  const unsigned char* data;
  uint32_t row_bytes;  // of a learned vector: its place in the list of addresses
  int ancestor;        // or one of these
};

/// One program as the parameter of one_program_kernel. What is read first is first: constants come in lines of 64
/// bytes.
struct OneProgram {
  static constexpr int max_functions = 32;
  unsigned char* y;
  const int64_t* num_rows;  // null: max_rows
  const float* const* addresses;
  uint32_t y_row_bytes;
  int max_rows, cols;
  int distance;  // in rows, from a warp's unit to its next
  int num_halves, num_floats, num_ones, num_functions, num_ancestors;
  uint8_t lanes_log2, parts_log2, rows_per_unit;
  uint8_t halves_of_ones;  // bits
  bool y_is_half, reads_ahead;
  bool has_one_step;  // a lane has one row, and no more columns of it than it takes at a time
  uint8_t unused[5];
  PlainInput halves[loads_in_flight], floats[floats_in_flight], ones[floats_in_flight];
  Ancestor ancestors[max_ancestors];
  SlotOperation functions[max_functions];

  template <class Part>
  WARPRANK_DEVICE const Part& part(uint32_t position, int i = 0) const {
    return reinterpret_cast<const Part*>(reinterpret_cast<const unsigned char*>(this) + position)[i];
  }
};
static_assert(std::has_unique_object_representations_v<OneProgram>);

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

}}}  // namespace warprank::v0::detail::row_programs
