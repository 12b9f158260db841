// SPDX-License-Identifier: Apache-2.0
#pragma once

/// That row programs are right: what is refused before anything is launched.

#include <algorithm>
#include <cstdint>
#include <string>

#include "warprank/core/error.hpp"
#include "warprank/core/float_matrix.hpp"
#include "warprank/core/view.hpp"
#include "warprank/ops/axis_input.hpp"
#include "warprank/ops/detail/common/check_float_matrix.hpp"
#include "warprank/ops/detail/common/check_matrix.hpp"
#include "warprank/ops/detail/common/row_steps.cuh"
#include "warprank/ops/detail/row_programs/descriptor.cuh"
#include "warprank/ops/detail/row_programs/program.cuh"

namespace warprank { inline namespace v0 { namespace detail::row_programs {

template <class RowProgram>
bool has_factor(const RowProgram& program) {
  return program.factor.values.data != nullptr;
}

/// The columns of v.
template <class RowProgram>
int64_t columns_of(const RowProgram& program) {
  int64_t cols = program.step.kind == RowStep::Kind::reduce ? 0 : program.y.cols;
  if (program.step.kind != RowStep::Kind::reduce) return cols;
  for (const auto& input : program.inputs) cols = std::max(cols, input.values.cols);
  return cols;
}

inline void check_input(const AxisInput<void>& input, const std::string& what, int64_t rows, int64_t cols,
                        Problems& problems) {
  const FloatMatrix<const void>& values = input.values;
  check_matrix(what, values, values.rows, values.cols, problems);
  if (input.offsets == nullptr && values.rows != 1 && values.rows < rows) {
    problems.add(what, std::to_string(rows) + " rows", std::to_string(values.rows));
  }
  if (input.offsets == nullptr && input.num_segments != nullptr) problems.add(what, "offsets of its segments", "none");
  if (input.offsets != nullptr && values.rows == 0 && rows > 0) problems.add(what, "at least 1 row", "0");
  if (values.cols != 1 && values.cols != cols) {
    problems.add(what, "1 or " + std::to_string(cols) + " columns", std::to_string(values.cols));
  }
}

template <class RowProgram>
void check_function(const RowProgram& program, const std::string& what, Problems& problems) {
  const auto expect_count = [&](const char* name, int64_t expected, int64_t got) {
    if (got != expected) problems.add(what + "'s " + name, std::to_string(expected), std::to_string(got));
  };
  for (const float* vector : program.vectors) check_pointer(what + "'s vector", vector, sizeof(float), problems);
  if (program.program == nullptr) {
    expect_count("inputs", 1 + program.folds.size(), program.inputs.size());
    expect_count("vectors", 0, program.vectors.size());
    bool are_known = program.folds.size() <= max_folds;
    for (const ElementwiseFunction fold : program.folds)
      are_known = are_known && (fold == ElementwiseFunction::add || fold == ElementwiseFunction::mul);
    if (!are_known || (!program.folds.empty() && program.step.kind != RowStep::Kind::layer_norm))
      problems.add(what + "'s folds", "at most three sums and products, of a layer norm", "others");
    return;
  }
  expect_count("folds", 0, program.folds.size());
  Problems of_program;
  validate(*program.program, what, of_program);
  for (const Problem& problem : of_program.list()) problems.add(problem);
  if (!of_program.empty()) return;
  expect_count("inputs", program.program->num_inputs, program.inputs.size());
  expect_count("vectors", program.program->num_vectors, program.vectors.size());
  if (slot_operations(*program.program).empty()) {
    problems.add(what, "at most " + std::to_string(num_slots) + " values alive at once", "more");
  }
}

template <class RowProgram>
void check_program(const RowProgram& program, const std::string& what, Problems& problems) {
  const int64_t cols = columns_of(program), rows = program.y.rows;
  const bool reduces = program.step.kind == RowStep::Kind::reduce;
  check_matrix(what + "'s y", program.y, rows, reduces ? 1 : program.y.cols, problems);
  constexpr int64_t max_cols = int64_t{1} << 30;
  if (cols > max_cols) problems.add(what, "at most " + std::to_string(max_cols) + " columns", std::to_string(cols));
  check_row_step(program.step, what, problems);
  for (int64_t i = 0; i < program.inputs.size(); ++i) {
    check_input(program.inputs[i], what + "'s input " + std::to_string(i), rows, cols, problems);
  }
  check_function(program, what, problems);
  if (!has_factor(program)) return;
  check_input(program.factor, what + "'s factor", rows, cols, problems);
  const bool normalises = program.step.kind == RowStep::Kind::softmax || program.step.kind == RowStep::Kind::layer_norm;
  if (program.program != nullptr || !normalises)
    problems.add(what + "'s factor", "a softmax or a layer norm, without a program", "another");
}

/// That no program writes what it or another of the launch reads or writes, but for its own input in place.
template <class RowProgram>
void check_overlaps(Span<const RowProgram> programs, Problems& problems) {
  for (int64_t i = 0; i < programs.size(); ++i) {
    const Region y = region_of(programs[i].y);
    for (int64_t j = 0; j < programs.size(); ++j) {
      const auto refuse = [&](const std::string& name) {
        problems.add("y of row program " + std::to_string(i), "memory of its own",
                     "an overlap with " + name + " of program " + std::to_string(j));
      };
      if (i < j && overlap(y, region_of(programs[j].y))) refuse("y");
      const auto check = [&](const AxisInput<void>& input, const char* name) {
        const Region region = region_of(input.values);
        const bool in_place = i == j && y == region && input.offsets == nullptr;
        if (overlap(y, region) && !in_place) refuse(name);
      };
      for (const auto& input : programs[j].inputs) check(input, "an input");
      if (has_factor(programs[j])) check(programs[j].factor, "the factor");
    }
  }
}

}}}  // namespace warprank::v0::detail::row_programs
