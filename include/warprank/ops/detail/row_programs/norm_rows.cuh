// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/row_programs.cuh for launches of nothing but layer norms of aligned rows of up to 1,024 columns: a
/// row is loaded once and stays in registers over all passes, and what does not depend on it is loaded beside it. The
/// arithmetic is that of finish_row, in the same order, so that results have the same bits as in other launches.

#include <cmath>
#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/ops/detail/common/row_lanes.cuh"
#include "warprank/ops/detail/common/row_steps.cuh"
#include "warprank/ops/detail/row_programs/descriptor.cuh"

namespace warprank { inline namespace v0 { namespace detail::row_programs {

inline constexpr int max_norm_steps = 8;

/// A lane's columns of a row: vectors of four, each so many columns behind the one before.
template <int Steps>
struct LaneColumns {
  int first, stride, cols;

  WARPRANK_DEVICE int column(int step) const { return first + step * stride; }
  WARPRANK_DEVICE bool has(int step) const { return column(step) < cols; }

  template <class Element>
  WARPRANK_DEVICE void load_as(const unsigned char* row, float (&values)[Steps][row_vector_size]) const {
    device::Vector<Element, row_vector_size> vectors[Steps] = {};
    WARPRANK_UNROLL
    for (int i = 0; i < Steps; ++i) {
      if (has(i)) vectors[i] = device::load_vector<row_vector_size>(reinterpret_cast<const Element*>(row) + column(i));
    }
    WARPRANK_UNROLL
    for (int i = 0; i < Steps; ++i) widen_values(vectors[i], values[i]);
  }
  WARPRANK_DEVICE void load(const unsigned char* row, bool is_half, float (&values)[Steps][row_vector_size]) const {
    if (is_half)
      load_as<float16>(row, values);
    else
      load_as<float>(row, values);
  }
  /// Of a learned vector; `value` where there is none.
  WARPRANK_DEVICE void load_learned(const float* vector, float value, float (&values)[Steps][row_vector_size]) const {
    WARPRANK_UNROLL
    for (int i = 0; i < Steps; ++i) {
      device::Vector<float, row_vector_size> learned{{value, value, value, value}};
      if (vector != nullptr && has(i)) learned = device::load_vector_read_only<row_vector_size>(vector + column(i));
      widen_values(learned, values[i]);
    }
  }
  template <class Out>
  WARPRANK_DEVICE void store_as(unsigned char* row, const float (&values)[Steps][row_vector_size]) const {
    WARPRANK_UNROLL
    for (int i = 0; i < Steps; ++i) {
      if (has(i)) store_values(reinterpret_cast<Out*>(row) + column(i), values[i]);
    }
  }
};

/// That are resident on a multiprocessor: registers hold a row and its learned vectors.
constexpr int blocks_of_norms(int steps) { return steps <= 4 ? min_blocks : steps <= 6 ? 3 : 2; }

/// `HasFolds`: whether a program may make what it norms of several inputs. Those that do not are quicker without.
template <class Source, int Steps, bool HasFolds>
WARPRANK_KERNEL(threads, blocks_of_norms(Steps))
norm_rows_kernel(const WARPRANK_GRID_CONSTANT Source source, const float* const* addresses, int num_programs) {
  using namespace device;  // NOLINT: the vocabulary of kernels
  const int block = static_cast<int>(block_index().x);
  const Program& program = source.template part<Program>(0, source.program_of_block(num_programs, block));
  const Input& input = source.template part<Input>(program.inputs_at, program.result);
  const float* const gamma = program.gamma >= 0 ? load_read_only(addresses + program.gamma) : nullptr;
  const float* const beta = program.beta >= 0 ? load_read_only(addresses + program.beta) : nullptr;
  const int lanes = 1 << program.lanes_log2, rows_at_once = warp_size >> program.lanes_log2;
  const int first_column = (lane_index() & (lanes - 1)) * row_vector_size, stride = lanes * row_vector_size;
  const auto cols = static_cast<float>(program.cols);
  wait_for_previous_launch();

  int64_t end_of_rows = program.max_rows, end_of_reads = program.max_rows;  // as in row_programs_kernel
  if (program.num_rows != nullptr) end_of_rows = load<Order::relaxed, Scope::device>(program.num_rows);
  if (!program.reads_ahead && end_of_rows < end_of_reads) end_of_reads = end_of_rows;

  const int first_unit = (block - program.first_block) * warps + warp_index();
  const int distance = program.num_blocks * warps * rows_at_once;
  for (int64_t first = int64_t{first_unit} * rows_at_once; first < end_of_reads; first += distance) {
    const int64_t n = first + (lane_index() >> program.lanes_log2);
    // Lanes without a row have no columns: they would read one that its lanes may write in place.
    const LaneColumns<Steps> columns{first_column, stride, n < end_of_reads ? program.cols : 0};
    float values[Steps][row_vector_size], factors[Steps][row_vector_size], terms[Steps][row_vector_size];
    columns.load(input.data + n * input.row_bytes, input.is_half(), values);
    columns.load_learned(gamma, 1, factors);
    columns.load_learned(beta, 0, terms);
    if constexpr (HasFolds) {
      WARPRANK_ROLLED
      for (uint32_t fold = program.folds; fold != 0; fold >>= bits_of_fold) {
        const Input& other = source.template part<Input>(program.inputs_at, static_cast<int>(fold & slot_of_fold));
        float others[Steps][row_vector_size];
        columns.load(other.data + n * other.row_bytes, other.is_half(), others);
        WARPRANK_UNROLL
        for (int i = 0; i < Steps; ++i) {
          WARPRANK_UNROLL
          for (int j = 0; j < row_vector_size; ++j) {
            values[i][j] = (fold & fold_is_sum) != 0 ? values[i][j] + others[i][j] : values[i][j] * others[i][j];
          }
        }
      }
    }

    const auto add = [](float a, float b) { return a + b; };
    float sum = 0, squares = 0;
    WARPRANK_UNROLL
    for (int i = 0; i < Steps; ++i) {
      if (!columns.has(i)) continue;
      WARPRANK_UNROLL
      for (const float value : values[i]) sum += value;
    }
    const float mean = combine_lanes(lanes, sum, add) / cols;
    WARPRANK_UNROLL
    for (int i = 0; i < Steps; ++i) {
      if (!columns.has(i)) continue;
      WARPRANK_UNROLL
      for (const float value : values[i]) squares += (value - mean) * (value - mean);
    }
    const float scale = 1 / std::sqrt(combine_lanes(lanes, squares, add) / cols + float_of_bits(program.eps_bits));
    WARPRANK_UNROLL
    for (int i = 0; i < Steps; ++i) {
      WARPRANK_UNROLL
      for (int j = 0; j < row_vector_size; ++j) {
        float& value = values[i][j];
        value = (value - mean) * scale;
        if (gamma != nullptr) value *= factors[i][j];
        if (beta != nullptr) value += terms[i][j];
      }
    }
    if (program.factor >= 0) {
      const Input& factor = source.template part<Input>(program.inputs_at, program.factor);
      columns.load(factor.data + n * factor.row_bytes, factor.is_half(), factors);
      WARPRANK_UNROLL
      for (int i = 0; i < Steps; ++i) {
        WARPRANK_UNROLL
        for (int j = 0; j < row_vector_size; ++j) values[i][j] *= factors[i][j];
      }
    }
    if (n >= end_of_rows) continue;
    unsigned char* const y = program.y + n * program.y_row_bytes;
    if (program.y_is_half)
      columns.template store_as<float16>(y, values);
    else
      columns.template store_as<float>(y, values);
  }
}

}}}  // namespace warprank::v0::detail::row_programs
