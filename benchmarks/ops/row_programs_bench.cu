// SPDX-License-Identifier: Apache-2.0

// Programs over rows: arithmetic against a launch for each instruction, as a framework without fusion has it; softmax
// and layer normalisation of rows; and 60 columns put side by side against a copy for each.

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dense_data.hpp"
#include "measure_cuda.cuh"
#include "policies.cuh"
#include "reference/elementwise.hpp"
#include "reference/layer_norm.hpp"
#include "reference/softmax.hpp"
#include "row_cases.hpp"
#include "row_launches.cuh"

namespace warprank::bench {
namespace {

std::vector<int64_t> row_counts() { return on_gpu ? std::vector<int64_t>{100, 1000, 6400} : std::vector<int64_t>{7}; }

/// Each instruction as a launch that reads and writes floats.
class Unfused {
 public:
  Unfused(Memory& memory, const ElementwiseProgram& program, const std::vector<AxisInput<void>>& inputs,
          const std::vector<const float*>& vectors, FloatMatrix<void> y) {
    std::vector<AxisInput<void>> registers = inputs;
    for (const float* vector : vectors) registers.push_back({Matrix<const float>(vector, 1, y.cols)});
    for (const float constant : program.constants)
      registers.push_back({Matrix<const float>(memory.upload(std::vector<float>{constant}), 1, 1)});
    for (const Instruction& instruction : program.instructions) {
      const int count = arity(instruction.function), operands[] = {instruction.a, instruction.b, instruction.c};
      ElementwiseProgram& step = *programs_.emplace_back(std::make_unique<ElementwiseProgram>());
      std::vector<AxisInput<void>>& used = *inputs_.emplace_back(std::make_unique<std::vector<AxisInput<void>>>());
      Instruction renumbered = instruction;
      int* to[] = {&renumbered.a, &renumbered.b, &renumbered.c};
      for (int i = 0; i < count; ++i) {
        used.push_back(registers[static_cast<size_t>(operands[i])]);
        *to[i] = i;
      }
      step.num_inputs = count;
      step.instructions = {renumbered};
      const bool is_last = &instruction == &program.instructions.back();
      const Matrix<float> result(is_last ? nullptr : memory.allocate<float>(y.rows * y.cols), y.rows, y.cols);
      RowProgram launch;
      launch.program = &step, launch.inputs = used, launch.y = is_last ? y : FloatMatrix<void>(result);
      launches_.push_back(launch);
      registers.push_back({Matrix<const float>(result)});
    }
  }
  const std::vector<RowProgram>& launches() const { return launches_; }

 private:
  std::vector<std::unique_ptr<ElementwiseProgram>> programs_;
  std::vector<std::unique_ptr<std::vector<AxisInput<void>>>> inputs_;
  std::vector<RowProgram> launches_;
};

void elementwise(Run& run, const ElementwiseProgram& program, int64_t rows, int64_t cols,
                 const PolicySweep* sweep = nullptr) {
  std::vector<std::vector<float16>> values;
  std::vector<AxisInput<void>> inputs;
  for (int i = 0; i < program.num_inputs; ++i) {
    values.push_back(random_halves(rows * cols, i + 1));
    inputs.push_back({Matrix<const float16>(run.upload(values.back()), rows, cols)});
  }
  std::vector<std::vector<float>> learned;
  std::vector<const float*> vectors, on_host;
  for (int i = 0; i < program.num_vectors; ++i) {
    learned.push_back(to_floats(random_halves(cols, 10 + i)));
    vectors.push_back(run.upload(learned.back()));
  }
  for (const auto& vector : learned) on_host.push_back(vector.data());
  const auto result = [&] { return Matrix<float16>(run.allocate<float16>(rows * cols), rows, cols); };

  const std::vector<int64_t> some = some_rows(rows);
  std::vector<std::vector<float>> selected;
  std::vector<SegmentedInput> views;
  for (const auto& of_input : values) selected.push_back(select_rows(of_input, cols, some));
  for (const auto& of_input : selected) views.push_back({{of_input.data(), static_cast<int64_t>(some.size()), cols}});
  const auto expected = reference::elementwise(program, views, on_host, static_cast<int64_t>(some.size()), cols);
  const auto check = [&](Matrix<float16> to) {
    return [&, to] {
      expect_within<float16>("elementwise", expected, select_rows(run.read(to.data, rows * cols), cols, some), 1);
    };
  };
  const auto call_by = [&](const LaunchPolicies& policies) -> Call {
    const Matrix<float16> y = result();
    RowProgram fused;
    fused.program = &program, fused.inputs = inputs, fused.vectors = vectors, fused.y = y;
    return {queue_row_programs(run, {fused}, policies), check(y)};
  };
  if (sweep != nullptr) return compare_policies(run, *sweep, call_by);

  const Matrix<float16> by_steps = result();
  const Unfused unfused(run, program, inputs, vectors, by_steps);
  const double bytes = 2.0 * static_cast<double>((program.num_inputs + 1) * rows * cols) +
                       4.0 * static_cast<double>(program.num_vectors * cols);
  std::vector<Baseline> baselines;
  if (program.instructions.size() > 1)
    baselines.push_back({"unfused", {queue_one_by_one(run, unfused.launches()), check(by_steps)}});
  run.measure({bytes}, call_by(usual_policies()), baselines);
}

void row_step(Run& run, RowStep step, int64_t rows, int64_t cols) {
  const std::vector<float16> values = random_halves(rows * cols, 1, 4);
  const AxisInput<void> input{Matrix<const float16>(run.upload(values), rows, cols)};
  const Matrix<float16> y(run.allocate<float16>(rows * cols), rows, cols);
  RowProgram program;
  program.inputs = {&input, 1}, program.step = step, program.y = y;
  const std::vector<int64_t> some = some_rows(rows);
  const std::vector<float> selected = select_rows(values, cols, some);
  const Matrix<const float> x(selected.data(), static_cast<int64_t>(some.size()), cols);
  const auto expected = step.kind == RowStep::Kind::softmax ? reference::softmax(x)
                                                            : reference::layer_norm(x, step.layer_norm.eps, {}, {});
  run.measure({4.0 * static_cast<double>(rows * cols)},
              {queue_row_programs(run, {program}), [&] {
                 expect_within<float16>("row step", expected, select_rows(run.read(y.data, rows * cols), cols, some),
                                        2);
               }});
}

/// `parts` matrices of `cols` columns side by side.
void concat(Run& run, int64_t rows, int64_t parts, int64_t cols, const PolicySweep* sweep = nullptr) {
  std::vector<std::vector<float16>> values;
  std::vector<AxisInput<void>> inputs;
  for (int64_t p = 0; p < parts; ++p) {
    values.push_back(random_halves(rows * cols, static_cast<uint64_t>(p)));
    inputs.push_back({Matrix<const float16>(run.upload(values.back()), rows, cols)});
  }
  const int64_t width = parts * cols;
  const auto copies_to = [&](Matrix<float16> y) {
    std::vector<RowProgram> copies(static_cast<size_t>(parts));
    for (int64_t p = 0; p < parts; ++p) {
      copies[static_cast<size_t>(p)].inputs = {&inputs[static_cast<size_t>(p)], 1};
      copies[static_cast<size_t>(p)].y = y.columns(p * cols, cols);
    }
    return copies;
  };
  const auto result = [&] { return Matrix<float16>(run.allocate<float16>(rows * width), rows, width); };
  const auto check = [&](Matrix<float16> to) {
    return [&, to] {
      const auto got = run.read(to.data, rows * width);
      for (int64_t i = 0; i < rows * width; ++i) {
        const int64_t part = i % width / cols, from = i / width * cols + i % cols;
        if (got[static_cast<size_t>(i)].bits != values[static_cast<size_t>(part)][static_cast<size_t>(from)].bits)
          throw WrongResult("concat: another element at " + std::to_string(i));
      }
    };
  };
  const auto call_by = [&](const LaunchPolicies& policies) -> Call {
    const Matrix<float16> y = result();
    return {queue_row_programs(run, copies_to(y), policies), check(y)};
  };
  if (sweep != nullptr) return compare_policies(run, *sweep, call_by);
  const Matrix<float16> one_by_one = result();
  run.measure({4.0 * static_cast<double>(rows * width)}, call_by(usual_policies()),
              {{"unfused", {queue_one_by_one(run, copies_to(one_by_one)), check(one_by_one)}}});
}

/// As RankMixer ends: so many tokens added one after the other.
ElementwiseProgram mean_of(int count) {
  ElementwiseProgram program{count, 0, {1 / static_cast<float>(count)}, {}};
  for (int i = 1; i < count; ++i)
    program.instructions.push_back({ElementwiseFunction::add, i == 1 ? 0 : count + i - 1, i});
  program.instructions.push_back({ElementwiseFunction::mul, 2 * count - 1, count});
  return program;
}

}  // namespace

void add_benchmarks() {
  const auto add_rows = [](const std::string& name, int64_t cols, auto body) {
    for (const int64_t rows : row_counts())
      add("row_programs/" + name + "/rows:" + std::to_string(rows) + "/cols:" + std::to_string(cols),
          [=](Run& run) { body(run, rows, cols); });
  };
  for (const NamedProgram& named : elementwise_programs())
    add_rows(named.name, 256, [program = named.program](Run& run, int64_t rows, int64_t cols) {
      elementwise(run, program, rows, cols);
    });
  add_rows("mean_of_16", 768, [](Run& run, int64_t rows, int64_t cols) { elementwise(run, mean_of(16), rows, cols); });
  add_rows("softmax", 64, [](Run& run, int64_t rows, int64_t cols) { row_step(run, SoftmaxOfRow{}, rows, cols); });
  for (const int64_t cols : {256, 768})
    add_rows("layer_norm", cols,
             [](Run& run, int64_t rows, int64_t cols) { row_step(run, LayerNormOfRow{}, rows, cols); });
  add_rows("concat_60", 16, [](Run& run, int64_t rows, int64_t cols) { concat(run, rows, 60, cols); });

  const PolicySweep blocks{"row_program_blocks", &LaunchPolicies::row_program_blocks, {1, 2, 4, 8, 16}};
  for (const int64_t rows : row_counts()) {
    const std::string of_rows = "/rows:" + std::to_string(rows);
    for (const NamedProgram& named : elementwise_programs())
      add_policy(blocks, "row_programs/" + named.name + of_rows + "/cols:64",
                 [=, program = named.program](Run& run, const PolicySweep* sweep) {
                   elementwise(run, program, rows, 64, sweep);
                 });
    add_policy(blocks, "row_programs/concat_60" + of_rows + "/cols:16",
               [=](Run& run, const PolicySweep* sweep) { concat(run, rows, 60, 16, sweep); });
  }
}

}  // namespace warprank::bench
