// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reference/elementwise.hpp"
#include "reference/layer_norm.hpp"
#include "reference/reduce.hpp"
#include "reference/softmax.hpp"
#include "support/axis_input_testing.hpp"
#include "support/counts.hpp"
#include "support/golden_tensors.hpp"
#include "support/kernel_testing.hpp"
#include "support/policy_testing.hpp"
#include "warprank/ops/row_programs.cuh"
#if !defined(__CUDACC__)
#include "warprank/ops/host/elementwise.hpp"
#endif

namespace {

using namespace kernel_testing;  // NOLINT
using warprank::AxisInput;
using warprank::DType;
using warprank::EachElement;
using warprank::ElementwiseProgram;
using warprank::FloatMatrix;
using warprank::LaunchPolicies;
using warprank::LayerNormOfRow;
using warprank::Matrix;
using warprank::Pooling;
using warprank::ReduceRow;
using warprank::RowProgram;
using warprank::RowProgramLaunch;
using warprank::RowStep;
using warprank::SegmentedInput;
using warprank::SoftmaxOfRow;
using warprank::Span;
using warprank::reference::Bounded;
using Function = warprank::ElementwiseFunction;
using Half = warprank::float16;

constexpr double underflow = 0x1p-118;  // of the exponentials in activations
const std::vector<DType> types = {DType::f32, DType::f16};

// ---- Programs on the host and on the device

struct Input {
  AxisValues values;
  DType type = DType::f32;
};

/// Normally distributed, and numbers that the type has.
Input random_input(DType type, int64_t rows, int64_t cols, uint32_t seed, std::vector<int64_t> offsets = {},
                   float scale = 1) {
  return {type == DType::f16 ? random_values<Half>(rows, cols, seed, scale, std::move(offsets))
                             : random_values<float>(rows, cols, seed, scale, std::move(offsets)),
          type};
}

std::vector<AxisValues> values_of(const std::vector<Input>& inputs) {
  std::vector<AxisValues> values;
  for (const Input& input : inputs) values.push_back(input.values);
  return values;
}

struct Program {
  const ElementwiseProgram* program = nullptr;
  std::vector<Input> inputs;
  std::vector<std::vector<float>> vectors;
  std::vector<Function> folds;
  std::optional<Input> factor;
  RowStep step;
  int64_t rows = 0, cols = 0;  // of y
  DType y_type = DType::f32;
  Placement placement;
  int64_t spare_rows = 0;   // capacity beyond the rows
  int64_t vector_skip = 0;  // elements before the first of each vector
};

/// A matrix of either type.
class AnyMatrix {
 public:
  AnyMatrix(DType type, int64_t rows, int64_t cols, Placement placement) {
    if (type == DType::f16) {
      half_ = std::make_unique<DeviceMatrix<Half>>(rows, cols, cols + placement.gap, placement.skip);
    } else {
      float_ = std::make_unique<DeviceMatrix<float>>(rows, cols, cols + placement.gap, placement.skip);
    }
  }
  FloatMatrix<void> view() { return half_ ? FloatMatrix<void>(half_->view()) : FloatMatrix<void>(float_->view()); }
  std::vector<float> read() const {
    if (float_) return float_->read();
    std::vector<float> values;
    for (const Half value : half_->read()) values.push_back(warprank::to_float(value));
    return values;
  }

 private:
  std::unique_ptr<DeviceMatrix<Half>> half_;
  std::unique_ptr<DeviceMatrix<float>> float_;
};

/// Everything that a program points to.
class OnDevice {
 public:
  explicit OnDevice(const Program& program)
      : y_(program.y_type, program.rows + program.spare_rows, program.cols, program.placement), num_rows_(1) {
    num_rows_.write({program.rows});
    for (const Input& input : program.inputs) inputs_.push_back(added(input, program.placement));
    if (program.factor) view_.factor = added(*program.factor, program.placement);
    for (const std::vector<float>& vector : program.vectors) {
      std::vector<float> values(static_cast<size_t>(program.vector_skip), NAN);
      values.insert(values.end(), vector.begin(), vector.end());
      vectors_.push_back(std::make_unique<DeviceArray<float>>(values));
      pointers_.push_back(vectors_.back()->data() + program.vector_skip);
    }
    view_.program = program.program;
    view_.folds = program.folds;
    view_.step = program.step;
    view_.y = y_.view();
    if (program.spare_rows > 0) view_.num_rows = num_rows_.data();
  }
  RowProgram view() const {
    RowProgram view = view_;
    view.inputs = inputs_;
    view.vectors = pointers_;
    return view;
  }
  std::vector<float> read() const { return y_.read(); }

 private:
  AxisInput<void> added(const Input& input, Placement placement) {
    const auto take = [&](auto& list, auto made) -> AxisInput<void> {
      const auto view = made->view();
      list.push_back(std::move(made));
      return {FloatMatrix<const void>(view.values), view.offsets, nullptr};
    };
    if (input.type == DType::f16)
      return take(halves_, std::make_unique<DeviceAxisInput<Half>>(input.values, placement));
    return take(floats_, std::make_unique<DeviceAxisInput<float>>(input.values, placement));
  }

  AnyMatrix y_;
  DeviceArray<int64_t> num_rows_;
  std::vector<std::unique_ptr<DeviceAxisInput<Half>>> halves_;
  std::vector<std::unique_ptr<DeviceAxisInput<float>>> floats_;
  std::vector<std::unique_ptr<DeviceArray<float>>> vectors_;
  std::vector<AxisInput<void>> inputs_;
  std::vector<const float*> pointers_;
  RowProgram view_;
};

std::vector<unsigned char> descriptors_of(const RowProgramLaunch& launch) { return launch.descriptors(); }

/// What each program gives, of one launch.
std::vector<std::vector<float>> run(const std::vector<Program>& programs,
                                    const LaunchPolicies& policies = usual_policies()) {
  std::vector<std::unique_ptr<OnDevice>> on_device;
  std::vector<RowProgram> views;
  for (const Program& program : programs) {
    on_device.push_back(std::make_unique<OnDevice>(program));
    views.push_back(on_device.back()->view());
  }
  const RowProgramLaunch launch(views, policies);
  const DeviceArray<unsigned char> descriptors(descriptors_of(launch));
  launch.launch({descriptors.data()});
  std::vector<std::vector<float>> results;
  for (const auto& program : on_device) results.push_back(program->read());
  return results;
}
std::vector<float> run(const Program& program) { return run(std::vector<Program>{program})[0]; }

void expect_result(const Bounded& expected, const Program& program, std::vector<float> y, double c = 1) {
  for (int64_t i = program.rows * program.cols; i < static_cast<int64_t>(y.size()); ++i) {
    ASSERT_TRUE(std::isnan(y[static_cast<size_t>(i)])) << "a row that is none was written";
  }
  y.resize(static_cast<size_t>(program.rows * program.cols));
  if (program.y_type == DType::f16) {
    expect_within(expected, converted<Half>(y), c, underflow);
  } else {
    expect_within(expected, y, c, underflow);
  }
}

/// Rows of an input as they serve each row of the output, in every column.
Bounded repeated(const Input& input, int64_t rows, int64_t cols) {
  const SegmentedInput view = input.values.view();
  Bounded y;
  for (int64_t n = 0; n < rows; ++n) {
    const float* row = view.values.row(view.values.rows == 1 ? 0 : view.row_serving(n));
    for (int64_t c = 0; c < cols; ++c) y.value.push_back(static_cast<double>(row[view.values.cols == 1 ? 0 : c]));
  }
  y.bound.resize(y.value.size());
  return y;
}

Bounded reference_of(const Program& p) {
  std::vector<const float*> vectors;
  for (const std::vector<float>& vector : p.vectors) vectors.push_back(vector.data());
  return warprank::reference::elementwise(*p.program, views_of(values_of(p.inputs)), vectors, p.rows, p.cols);
}

// ---- Without a program

Program copy_of(const Input& input, int64_t rows, DType y_type, Placement placement = {}) {
  Program program;
  program.inputs = {input};
  program.rows = rows;
  program.cols = input.values.cols;
  program.y_type = y_type;
  program.placement = placement;
  return program;
}

TEST(RowProgramsCopy, ConvertsEveryTypeShapeAndPlacement) {
  for (const DType from : types)
    for (const DType to : types)
      for (const Placement placement : {Placement{}, Placement{8, 8}, Placement{4, 4}, Placement{3, 1}}) {
        std::vector<Program> programs;
        for (const int64_t cols : {1, 3, 4, 8, 24, 40, 260})
          for (const int64_t rows : {0, 1, 37}) {
            programs.push_back(copy_of(random_input(from, rows, cols, 1), rows, to, placement));
          }
        const auto results = in_every_order([&] { return std::vector<float>(run(programs.back())); }, 2);
        reset();
        const auto together = run(programs);
        EXPECT_TRUE(detail::same_bits(together.back(), results));
        for (size_t i = 0; i < programs.size(); ++i) {
          const Program& p = programs[i];
          SCOPED_TRACE("rows " + std::to_string(p.rows) + ", cols " + std::to_string(p.cols) + ", gap " +
                       std::to_string(placement.gap));
          expect_result(repeated(p.inputs[0], p.rows, p.cols), p, together[i]);
        }
      }
}

TEST(RowProgramsCopy, KeepsWhatIsFiniteFinite) {
  reset();
  const Input input{{{7e4f, -3e38f, 65504, INFINITY}, 1, 4, {}}, DType::f32};
  EXPECT_EQ(run(copy_of(input, 1, DType::f16)), (std::vector<float>{65504, -65504, 65504, INFINITY}));
}

TEST(RowProgramsCopy, RepeatsTheRowsOfAncestors) {
  const int64_t rows = 150;
  const std::vector<int64_t> offsets = {0, 0, 1, 33, 33, 40, 111, rows};
  for (const DType type : types)
    for (const int64_t cols : {1, 8, 20, 256}) {
      const Program program = copy_of(random_input(type, 7, cols, 1, offsets), rows, DType::f16);
      const std::vector<float> y = in_every_order([&] { return run(program); }, cols == 20 ? 20 : 2);
      expect_result(repeated(program.inputs[0], rows, cols), program, y);
    }
}

TEST(RowProgramsCopy, RepeatsMoreRowsThanWarpsTakeAtOnce) {
  const int64_t rows = 6500;
  std::vector<int64_t> offsets;
  for (int64_t s = 0; s <= 650; ++s) offsets.push_back(s * 10);
  const Program program = copy_of(random_input(DType::f16, 650, 12, 1, offsets), rows, DType::f16);
  expect_result(repeated(program.inputs[0], rows, 12), program, in_every_order([&] { return run(program); }, 1));
}

TEST(RowProgramsCopy, ServesRowsWithoutASegmentByTheLast) {
  reset();
  const Program program = copy_of(random_input(DType::f32, 2, 4, 1, {0, 3, 5}), 9, DType::f32);
  const std::vector<float> y = run(program);
  for (size_t i = 5 * 4; i < y.size(); ++i) EXPECT_EQ(y[i], program.inputs[0].values.values[4 + i % 4]);
}

TEST(RowProgramsCopy, PutsPartsSideBySideInOneLaunch) {
  const int64_t rows = 45;
  struct Part {
    Input input;
    int64_t cols;
  };
  const std::vector<Part> parts = {{random_input(DType::f16, rows, 24, 1), 24},
                                   {random_input(DType::f32, 3, 13, 2, {0, 20, 20, rows}), 13},
                                   {random_input(DType::f16, 2, 8, 3, {0, 44, rows}), 8},
                                   {random_input(DType::f32, rows, 1, 4), 3},
                                   {random_input(DType::f16, 1, 16, 5), 16}};
  const std::vector<Half> y = in_every_order([&] {
    DeviceMatrix<Half> wide(rows, 64);
    std::vector<std::unique_ptr<OnDevice>> on_device;
    std::vector<RowProgram> programs;
    int64_t column = 0;
    for (const Part& part : parts) {
      on_device.push_back(std::make_unique<OnDevice>(copy_of(part.input, rows, DType::f16)));
      programs.push_back(on_device.back()->view());
      programs.back().y = FloatMatrix<void>(wide.view().columns(column, part.cols));
      column += part.cols;
    }
    const RowProgramLaunch launch(programs);
    const DeviceArray<unsigned char> descriptors(descriptors_of(launch));
    clear_counters();
    launch.launch({descriptors.data()});
    const std::vector<Half> result = wide.read();
    expect_launches(1);
    return result;
  });
  Bounded expected;
  for (int64_t n = 0; n < rows; ++n)
    for (const Part& part : parts) {
      const Bounded all = repeated(part.input, rows, part.cols);
      expected.value.insert(expected.value.end(), all.value.begin() + n * part.cols,
                            all.value.begin() + (n + 1) * part.cols);
    }
  expected.bound.resize(expected.value.size());
  expect_within(expected, y, 1);
}

// ---- Steps

/// All widths in one launch.
void expect_step(const RowStep& step, const std::function<Bounded(Matrix<const float>)>& reference, bool reduces) {
  for (const DType type : types)
    for (const Placement placement : {Placement{}, Placement{3, 1}}) {
      std::vector<Program> programs;
      for (const int64_t cols : {1, 2, 5, 8, 33, 128, 300})
        for (const int64_t rows : {0, 1, 37}) {
          if (rows == 37 && cols > 33) continue;
          programs.push_back(copy_of(random_input(type, rows, cols, 1, {}, 2), rows, type, placement));
          programs.back().step = step;
          if (reduces) programs.back().cols = 1;
        }
      reset();
      const auto results = run(programs);
      for (size_t i = 0; i < programs.size(); ++i) {
        const AxisValues& x = programs[i].inputs[0].values;
        SCOPED_TRACE("rows " + std::to_string(x.rows) + ", cols " + std::to_string(x.cols));
        expect_result(reference(x.view().values), programs[i], results[i]);
      }
    }
}

TEST(RowProgramsStep, GivesTheSoftmaxOfARow) {
  expect_step(
      SoftmaxOfRow{}, [](Matrix<const float> x) { return warprank::reference::softmax(x); }, false);
}

TEST(RowProgramsStep, NormalisesARow) {
  expect_step(
      LayerNormOfRow{1e-3f}, [](Matrix<const float> x) { return warprank::reference::layer_norm(x, 1e-3f, {}, {}); },
      false);
}

TEST(RowProgramsStep, ReducesARow) {
  for (const Pooling pooling : {Pooling::sum, Pooling::mean, Pooling::sqrtn, Pooling::max}) {
    expect_step(
        ReduceRow{pooling}, [&](Matrix<const float> x) { return warprank::reference::reduce(x, pooling); }, true);
  }
}

TEST(RowProgramsStep, ReducesNoColumnsToZero) {
  reset();
  Program program = copy_of({{{}, 5, 0, {}}, DType::f16}, 5, DType::f32);
  program.cols = 1;
  for (const Pooling pooling : {Pooling::sum, Pooling::mean, Pooling::sqrtn, Pooling::max}) {
    program.step = ReduceRow{pooling};
    EXPECT_EQ(run(program), std::vector<float>(5, 0));
  }
}

TEST(RowProgramsStep, NormalisesWithLearnedScaleAndShift) {
  const AxisValues learned = random_values<float>(2, 12, 2);
  const std::vector<float> scale = learned.row(0).values, shift = learned.row(1).values;
  in_every_order(
      [&] {
        const DeviceArray<float> gamma(scale), beta(shift);
        Program program = copy_of(random_input(DType::f16, 50, 12, 1), 50, DType::f32);
        program.step = LayerNormOfRow{1e-5f, gamma.data(), beta.data()};
        expect_result(warprank::reference::layer_norm(program.inputs[0].values.view().values, 1e-5f, scale, shift),
                      program, run(program));
      },
      5);
}

/// Runs layer norms by their own kernel, and by the one for all programs, which one more program asks for.
void expect_norms(const std::vector<Program>& norms, const std::vector<Bounded>& expected) {
  std::vector<Program> with_another = norms;
  with_another.push_back(copy_of(random_input(DType::f32, 2, 3, 1), 2, DType::f32));
  with_another.back().step = SoftmaxOfRow{};
  const auto alone = run(norms), beside = run(with_another);
  for (size_t i = 0; i < norms.size(); ++i) {
    EXPECT_TRUE(detail::same_bits(alone[i], beside[i])) << "norm " << i;
    expect_result(expected[i], norms[i], alone[i]);
  }
}

TEST(RowProgramsStep, NormalisesToTheSameBitsInEveryLaunch) {
  const AxisValues learned = random_values<float>(2, 1028, 2);
  const std::vector<float> scale = learned.row(0).values, shift = learned.row(1).values;
  for (const DType x_type : types)
    for (const DType y_type : types)
      for (const int64_t cols : {4, 12, 64, 96, 256, 260, 384, 516, 768, 1020, 1024, 1028})
        for (const int64_t rows : {0, 1, 37}) {
          SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(cols) + " columns");
          reset();
          const DeviceArray<float> gamma(scale), beta(shift);
          std::vector<Program> norms;
          std::vector<Bounded> expected;
          for (const int num_learned : {0, 1, 2})
            for (const bool has_factor : {false, true}) {
              Program& program =
                  norms.emplace_back(copy_of(random_input(x_type, rows, cols, 1), rows, y_type, Placement{4, 4}));
              program.spare_rows = has_factor ? 3 : 0;
              program.step = LayerNormOfRow{1e-3f, num_learned > 0 ? gamma.data() : nullptr,
                                            num_learned > 1 ? beta.data() : nullptr};
              if (has_factor) program.factor = random_input(y_type, rows + 3, cols, 9);
              if (has_factor) program.inputs[0] = random_input(x_type, rows + 3, cols, 1);
              const Matrix<const float> x(program.inputs[0].values.values.data(), rows, cols);
              Bounded y = warprank::reference::layer_norm(
                  x, 1e-3f, num_learned > 0 ? Span<const float>(scale.data(), cols) : Span<const float>(),
                  num_learned > 1 ? Span<const float>(shift.data(), cols) : Span<const float>());
              if (has_factor) y = warprank::reference::product(y, repeated(*program.factor, rows, cols).value);
              expected.push_back(std::move(y));
            }
          expect_norms(norms, expected);
        }
}

/// Misaligned rows ask for the kernel for all programs, too.
TEST(RowProgramsStep, NormalisesFoldsOfInputs) {
  const std::vector<float> scale = random_values<float>(1, 1024, 7).values;
  const std::vector<Function> folds[] = {
      {Function::add}, {Function::mul}, {Function::add, Function::mul}, {Function::mul, Function::add, Function::add}};
  for (const Placement placement : {Placement{4, 4}, Placement{3, 1}})
    for (const int64_t cols : {3, 4, 96, 260, 1024})
      for (const int64_t rows : {0, 1, 37}) {
        SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(cols) + " columns");
        reset();
        const DeviceArray<float> gamma(scale);
        std::vector<Program> norms;
        std::vector<Bounded> expected;
        for (const std::vector<Function>& of_inputs : folds)
          for (const bool has_factor : {false, true}) {
            const DType y_type = has_factor ? DType::f16 : DType::f32;
            Program& program =
                norms.emplace_back(copy_of(random_input(y_type, rows, cols, 1), rows, y_type, placement));
            program.folds = of_inputs;
            program.spare_rows = has_factor ? 3 : 0;
            const int64_t capacity = rows + program.spare_rows;
            program.inputs[0] = random_input(y_type, capacity, cols, 1);
            program.step = LayerNormOfRow{1e-3f, has_factor ? gamma.data() : nullptr};
            std::vector<float> folded = program.inputs[0].values.values;
            for (size_t i = 0; i < of_inputs.size(); ++i) {
              program.inputs.push_back(random_input(types[i % 2], capacity, cols, static_cast<uint32_t>(i) + 2));
              for (size_t n = 0; n < folded.size(); ++n) {
                const float other = program.inputs.back().values.values[n];
                folded[n] = of_inputs[i] == Function::add ? folded[n] + other : folded[n] * other;
              }
            }
            Bounded y = warprank::reference::layer_norm(
                {folded.data(), rows, cols}, 1e-3f,
                has_factor ? Span<const float>(scale.data(), cols) : Span<const float>(), {});
            if (has_factor) {
              program.factor = random_input(DType::f16, capacity, cols, 9);
              y = warprank::reference::product(y, repeated(*program.factor, rows, cols).value);
            }
            expected.push_back(std::move(y));
          }
        expect_norms(norms, expected);
      }
}

TEST(RowProgramsStep, NormalisesInPlaceAndInEveryOrder) {
  const std::vector<Half> values = converted<Half>(random_values<Half>(301, 64, 3).values);
  const AxisValues x = random_values<Half>(301, 64, 3);
  const std::vector<Half> got = in_every_order(
      [&] {
        DeviceMatrix<Half> matrix(values, 301, 64);
        const AxisInput<void> input{FloatMatrix<const void>(matrix.view())};
        RowProgram program;
        program.inputs = {&input, 1};
        program.step = LayerNormOfRow{1e-3f};
        program.y = FloatMatrix<void>(matrix.view());
        const RowProgramLaunch launch({&program, 1});
        const DeviceArray<unsigned char> descriptors(descriptors_of(launch));
        launch.launch({descriptors.data()});
        return matrix.read();
      },
      5);
  expect_within(warprank::reference::layer_norm(x.view().values, 1e-3f, {}, {}), got, 1);
}

/// Of every shape that an input may have, for 13 rows.
std::vector<Input> factors_of(DType type, int64_t cols) {
  return {random_input(type, 13, cols, 5), random_input(type, 13, 1, 6), random_input(type, 1, cols, 7),
          random_input(type, 4, cols, 8, {0, 4, 4, 12, 13})};
}

TEST(RowProgramsStep, MultipliesTheResultsOfARow) {
  constexpr int64_t rows = 13;
  std::vector<Program> programs;
  std::vector<Bounded> expected;
  for (const DType type : types)
    for (const DType of_factor : types)
      for (const Placement placement : {Placement{}, Placement{3, 1}})
        for (const int64_t cols : {3, 8, 260})
          for (const Input& factor : factors_of(of_factor, cols))
            for (const bool is_softmax : {false, true}) {
              const Input x = random_input(type, rows, cols, 4);
              Program& program =
                  programs.emplace_back(copy_of(x, rows, of_factor == DType::f16 ? DType::f32 : DType::f16, placement));
              program.factor = factor;
              program.step = is_softmax ? RowStep(SoftmaxOfRow{}) : RowStep(LayerNormOfRow{1e-3f});
              const Bounded y = is_softmax ? warprank::reference::softmax(x.values.view().values)
                                           : warprank::reference::layer_norm(x.values.view().values, 1e-3f, {}, {});
              expected.push_back(warprank::reference::product(y, repeated(factor, rows, cols).value));
            }
  in_every_order(
      [&] {
        const auto results = run(programs);
        for (size_t i = 0; i < programs.size(); ++i) {
          SCOPED_TRACE("program " + std::to_string(i));
          expect_result(expected[i], programs[i], results[i]);
        }
        return results.back();
      },
      2);
}

TEST(RowProgramsStep, MultipliesInPlaceOfTheFactor) {
  reset();
  const DeviceArray<float> x(std::vector<float>{1, 2, 3, 6, 0, 1, 0, 3});
  DeviceArray<float> y(std::vector<float>{2, 2, 2, 2, 0, 1, -1, 3});
  RowProgram program;
  const AxisInput<void> input{FloatMatrix<const void>(Matrix<const float>(x.data(), 2, 4)), nullptr, nullptr};
  program.inputs = {&input, 1};
  program.y = FloatMatrix<void>(Matrix<float>(y.data(), 2, 4));
  program.factor = {FloatMatrix<const void>(Matrix<const float>(y.data(), 2, 4)), nullptr, nullptr};
  program.step = SoftmaxOfRow{};
  const RowProgramLaunch launch(Span<const RowProgram>(&program, 1));
  const DeviceArray<unsigned char> descriptors(descriptors_of(launch));
  launch.launch({descriptors.data()});
  const std::vector<float> got = y.read();
  const double first = std::exp(-5.0) + std::exp(-4.0) + std::exp(-3.0) + 1,
               second = 2 * std::exp(-3.0) + std::exp(-2.0) + 1;
  EXPECT_NEAR(got[3], 2 / first, 1e-6);
  EXPECT_NEAR(got[6], -std::exp(-3.0) / second, 1e-6);
  EXPECT_NEAR(got[7], 3 / second, 1e-6);
}

// ---- Programs

/// The program that is one function.
ElementwiseProgram single(Function function, float alpha = 0) {
  ElementwiseProgram program{arity(function), 0, {}, {{function, 0, -1, -1, alpha}}};
  if (arity(function) >= 2) program.instructions[0].b = 1;
  if (arity(function) >= 3) program.instructions[0].c = 2;
  return program;
}

/// Dice of x + shared: s = x + shared; p = sigmoid(s scale + shift); s (p + alpha (1 - p)).
const ElementwiseProgram dice_of_sum{2,
                                     3,
                                     {1.0f},
                                     {{Function::add, 0, 1},
                                      {Function::mul, 6, 2},
                                      {Function::add, 7, 3},
                                      {Function::sigmoid, 8},
                                      {Function::sub, 5, 9},
                                      {Function::mul, 4, 10},
                                      {Function::add, 9, 11},
                                      {Function::mul, 6, 12}}};

Program dice(int64_t rows, int64_t cols, DType x_type, const Input& shared, Placement placement = {}) {
  Program program;
  program.program = &dice_of_sum;
  program.inputs = {random_input(x_type, rows, cols, 1), shared};
  const AxisValues learned = random_values<float>(3, cols, 3);
  for (int64_t v = 0; v < 3; ++v) program.vectors.push_back(learned.row(v).values);
  program.rows = rows;
  program.cols = cols;
  program.placement = placement;
  return program;
}

TEST(RowPrograms, MatchEveryFunctionWithinItsBound) {
  std::vector<ElementwiseProgram> functions;
  for (const auto& [function, name] : names_of(Function{})) functions.push_back(single(function, 0.3f));
  for (const float scale : {1e-3f, 1.0f, 10.0f}) {
    std::vector<Program> programs;
    for (const ElementwiseProgram& function : functions) {
      Program program;
      program.program = &function;
      program.rows = 20;
      program.cols = 25;
      for (int i = 0; i < function.num_inputs; ++i) {
        program.inputs.push_back(random_input(DType::f32, 20, 25, static_cast<uint32_t>(i + 1), {}, scale));
      }
      programs.push_back(program);
    }
    reset();
    const auto results = run(programs);
    for (size_t i = 0; i < programs.size(); ++i) {
      SCOPED_TRACE(std::string(name_of_enum(functions[i].instructions[0].function)) + ", scale " +
                   std::to_string(scale));
      expect_result(reference_of(programs[i]), programs[i], results[i]);
    }
  }
}

TEST(RowPrograms, PassOnNaNAsTheFunctionsSay) {
  reset();
  const AxisValues a{{NAN, 1, NAN}, 1, 3, {}}, b{{2, NAN, NAN}, 1, 3, {}}, c{{0, NAN, 1}, 1, 3, {}};
  for (const auto& [function, name] : names_of(Function{})) {
    const ElementwiseProgram of_function = single(function, 0.3f);
    Program program;
    program.program = &of_function;
    program.inputs = {{a}, {b}, {c}};
    program.inputs.resize(static_cast<size_t>(arity(function)));
    program.rows = 1;
    program.cols = 3;
    const Bounded exact = reference_of(program);
    const std::vector<float> y = run(program);
    for (size_t i = 0; i < 3; ++i) {
      if (std::isnan(exact.value[i])) {
        EXPECT_TRUE(std::isnan(y[i])) << name << " " << i;
      } else {
        EXPECT_NEAR(y[i], exact.value[i], 1e-6) << name << " " << i;
      }
    }
  }
}

/// A function of one or two rows of numbers.
std::vector<float> results_of(Function function, const std::vector<float>& a, const std::vector<float>& b = {}) {
  const ElementwiseProgram of_function = single(function);
  const auto cols = static_cast<int64_t>(a.size());
  Program program;
  program.program = &of_function;
  program.inputs = {{AxisValues{a, 1, cols, {}}}};
  if (arity(function) == 2) program.inputs.push_back({AxisValues{b, 1, cols, {}}});
  program.rows = 1;
  program.cols = cols;
  return run(program);
}

TEST(RowPrograms, GiveAnglesAndSinesTheSignsThatCGives) {
  reset();
  const std::vector<float> zeros = {0.0f, -0.0f}, sine_of_zeros = results_of(Function::sin, zeros);
  EXPECT_EQ(results_of(Function::cos, zeros), (std::vector<float>{1, 1}));
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(std::signbit(sine_of_zeros[i]), std::signbit(zeros[i]));
  for (const Function function : {Function::sin, Function::cos}) {
    for (const float y : results_of(function, {INFINITY, -INFINITY})) EXPECT_TRUE(std::isnan(y));
  }
  std::vector<float> a, b;
  const std::vector<float> sizes = {0, 1e-45f, 0x1p-126f, 0.5f, 1, 3e38f, INFINITY};
  for (const float height : sizes)
    for (const float width : sizes) {
      a.insert(a.end(), {height, height, -height, -height});
      b.insert(b.end(), {width, -width, width, -width});
    }
  const std::vector<float> angles = results_of(Function::atan2, a, b);
  for (size_t i = 0; i < a.size(); ++i) {
    const float expected = std::atan2(a[i], b[i]), height = std::fabs(a[i]), width = std::fabs(b[i]);
    EXPECT_EQ(std::signbit(angles[i]), std::signbit(expected)) << "atan2(" << a[i] << ", " << b[i] << ")";
    const bool is_exact = height == 0 || width == 0 || std::isinf(height) || std::isinf(width);
    EXPECT_NEAR(angles[i], expected, is_exact ? 0 : 0x1p-22 * std::fabs(expected))
        << "atan2(" << a[i] << ", " << b[i] << ")";
  }
}

TEST(RowPrograms, TakeSinesAndCosinesOfEverySize) {
  reset();
  std::vector<float> x;
  for (uint32_t bits = 0x1000000; bits < 0x7f800000; bits += 1000003) {
    x.push_back(warprank::bits_float(bits));
    x.push_back(-x.back());
  }
  // The floats nearest to multiples of pi / 2, where one of both is small.
  for (int q = 1; q < 600000; q += 101) x.push_back(static_cast<float>(q * std::acos(0.0)));
  for (const float size : {1e5f, 0x1p20f, 1048577.0f, 0x1p22f, 4194305.0f}) x.insert(x.end(), {size, -size});
  const std::vector<float> sines = results_of(Function::sin, x), cosines = results_of(Function::cos, x);
  for (size_t i = 0; i < x.size(); ++i) {
    const double of = x[i], sine = std::sin(of), cosine = std::cos(of), size = std::fabs(of);
    const double farther = size <= 0x1p20 ? 0 : 16 * size;
    EXPECT_NEAR(sines[i], sine, (4 * std::fabs(sine) + farther) * 0x1p-24) << of;
    EXPECT_NEAR(cosines[i], cosine, (4 * std::fabs(cosine) + farther) * 0x1p-24) << of;
    EXPECT_LE(std::fabs(sines[i]), 1) << of;
    EXPECT_LE(std::fabs(cosines[i]), 1) << of;
  }
}

TEST(RowPrograms, TakeAnglesAllAroundNearAndFar) {
  reset();
  std::vector<float> a, b;
  for (int i = 0; i < 4000; ++i) {
    const double angle = i * 0.0123, size = std::exp(i % 161 - 80);
    a.push_back(static_cast<float>(size * std::sin(angle)));
    b.push_back(static_cast<float>(size * std::cos(angle)));
  }
  const std::vector<float> angles = results_of(Function::atan2, a, b);
  for (size_t i = 0; i < a.size(); ++i) {
    const double expected = std::atan2(double{a[i]}, double{b[i]});
    EXPECT_NEAR(angles[i], expected, 0x1p-22 * std::fabs(expected)) << "atan2(" << a[i] << ", " << b[i] << ")";
  }
}

TEST(RowPrograms, TakeEveryTypeShapeAndPlacement) {
  const std::vector<std::pair<int64_t, int64_t>> shapes = {{0, 5},  {5, 0},   {1, 1},   {300, 1},  {33, 2},
                                                           {9, 17}, {3, 260}, {1, 768}, {5, 1030}, {700, 520}};
  for (const DType type : types)
    for (const Placement placement : {Placement{}, Placement{4, 4}, Placement{4, 1}}) {
      std::vector<Program> programs;
      for (const auto& [rows, cols] : shapes) {
        const DType other = type == DType::f16 ? DType::f32 : DType::f16;
        programs.push_back(dice(rows, cols, type, random_input(other, rows, 1, 2), placement));
        programs.back().y_type = type;
        programs.back().vector_skip = rows == 3 ? 1 : 0;
      }
      in_every_order(
          [&] {
            const auto results = run(programs);
            for (size_t i = 0; i < programs.size(); ++i) {
              expect_result(reference_of(programs[i]), programs[i], results[i]);
            }
          },
          1);
    }
}

TEST(RowPrograms, TakeInputsFromSeveralAncestorsOneColumnAndOneRow) {
  const int64_t rows = 80;
  const std::vector<int64_t> users = {0, 0, 7, 61, rows}, sessions = {0, 3, 7, 7, 40, 61, 62, rows};
  const ElementwiseProgram sum{5,
                               0,
                               {0.5f},
                               {{Function::add, 0, 1},
                                {Function::mul, 6, 5},
                                {Function::sub, 7, 2},
                                {Function::add, 8, 3},
                                {Function::mul, 9, 4}}};
  Program program;
  program.program = &sum;
  program.inputs = {random_input(DType::f16, 4, 12, 1, users), random_input(DType::f32, rows + 50, 12, 2),
                    random_input(DType::f16, 7, 1, 3, sessions), random_input(DType::f32, 1, 12, 4),
                    random_input(DType::f32, 4, 1, 5, users)};
  program.rows = rows;
  program.cols = 12;
  program.spare_rows = 50;
  const std::vector<float> y = in_every_order([&] { return run(program); });
  Program for_reference = program;
  for_reference.inputs[3].values.offsets = {0, rows};
  expect_result(reference_of(for_reference), program, y);
}

TEST(RowPrograms, AreFollowedByAStep) {
  const ElementwiseProgram negative = single(Function::neg);
  Program program = copy_of(random_input(DType::f32, 7, 20, 1), 7, DType::f16);
  program.program = &negative;
  AxisValues negated = program.inputs[0].values;
  for (float& value : negated.values) value = -value;
  reset();
  program.step = SoftmaxOfRow{};
  expect_result(warprank::reference::softmax(negated.view().values), program, run(program));
  program.step = ReduceRow{Pooling::max};
  program.cols = 1;
  expect_result(warprank::reference::reduce(negated.view().values, Pooling::max), program, run(program));
}

TEST(RowPrograms, HaveTheSameBitsAloneAndAmongOthers) {
  Program program = dice(40, 36, DType::f16, random_input(DType::f32, 40, 1, 2));
  program.step = LayerNormOfRow{};
  reset();
  const std::vector<float> together = run({dice(9, 5, DType::f32, random_input(DType::f32, 9, 1, 4)), program,
                                           dice(3, 3, DType::f16, random_input(DType::f32, 3, 1, 5))})[1];
  for (const int64_t n : {0, 3, 39}) {
    Program alone = program;
    alone.inputs = {{program.inputs[0].values.row(n), DType::f16}, {program.inputs[1].values.row(n)}};
    alone.rows = 1;
    alone.spare_rows = n * 100;  // the rows of a unit depend on the capacity
    if (n > 0) {
      for (Input& input : alone.inputs) {
        input.values.values.resize(static_cast<size_t>((1 + n * 100) * input.values.cols));
        input.values.rows = 1 + n * 100;
      }
    }
    reset();
    std::vector<float> y = run(alone);
    y.resize(36);
    const auto begin = together.begin() + n * 36;
    EXPECT_TRUE(detail::same_bits(y, std::vector<float>(begin, begin + 36))) << n;
  }
}

TEST(RowPrograms, HaveTheSameBitsHoweverRowsAreDivided) {
  const Program program = dice(200, 60, DType::f16, random_input(DType::f16, 1, 60, 7));
  const auto with = [&](const LaunchPolicies& policies) { return run(std::vector<Program>{program}, policies)[0]; };
  Config config;
  config.multiprocessors = 1;
  expect_same_bits(&LaunchPolicies::row_program_blocks, {1, 1000}, with, config);
}

TEST(RowPrograms, MayWriteTheirInput) {
  in_every_order(
      [] {
        const AxisValues x = random_values<float>(9, 70, 1), z = random_values<float>(9, 8, 2);
        DeviceMatrix<float> y(x.values, 9, 70), copied(z.values, 9, 8);
        const AxisInput<void> of_y{FloatMatrix<const void>(Matrix<const float>(y.view()))},
            of_copied{FloatMatrix<const void>(Matrix<const float>(copied.view()))};
        RowProgram programs[2];
        programs[0].inputs = {&of_y, 1};
        programs[0].step = SoftmaxOfRow{};
        programs[0].y = FloatMatrix<void>(y.view());
        programs[1].inputs = {&of_copied, 1};
        programs[1].y = FloatMatrix<void>(copied.view());
        const RowProgramLaunch launch({programs, 2});
        const DeviceArray<unsigned char> descriptors(descriptors_of(launch));
        launch.launch({descriptors.data()});
        expect_within(warprank::reference::softmax(x.view().values), y.read(), 1);
        EXPECT_EQ(copied.read(), z.values);
      },
      5);
}

/// All are alive before the first two are added: 16 have slots, the last square in place of the input.
ElementwiseProgram sum_of_squares(int count) {
  ElementwiseProgram program{1, 0, {}, {}};
  for (int i = 0; i < count; ++i) program.instructions.push_back({Function::square, 0});
  int sum = 1;
  for (int i = 2; i <= count; ++i) {
    program.instructions.push_back({Function::add, sum, i});
    sum = count + i - 1;
  }
  return program;
}

TEST(RowPrograms, MayBeLongAndReadMuch) {
  const int count = 200;
  ElementwiseProgram long_sum{count, 0, {}, {}};  // x_0 + x_1 + ..., each loaded when it is added
  for (int i = 1; i < count; ++i) {
    long_sum.instructions.push_back({Function::add, i == 1 ? 0 : count + i - 2, i});
  }
  EXPECT_TRUE(fits_row_program(long_sum));
  const ElementwiseProgram squares = sum_of_squares(16);
  EXPECT_TRUE(fits_row_program(squares));
  std::vector<Program> programs(2);
  programs[0].program = &long_sum;
  for (int i = 0; i < count; ++i)
    programs[0].inputs.push_back(random_input(DType::f16, 3, 4, static_cast<uint32_t>(i)));
  programs[1].program = &squares;
  programs[1].inputs = {random_input(DType::f32, 3, 4, 1, {}, 0.5f)};
  for (Program& program : programs) program.rows = 3, program.cols = 4;
  reset();
  const auto results = run(programs);
  for (size_t i = 0; i < programs.size(); ++i) expect_result(reference_of(programs[i]), programs[i], results[i]);
}

TEST(RowProgramsCounts, MoveEachSectorOnce) {
  if constexpr (build != Build::plain) GTEST_SKIP() << "counted in the plain build";
  Config config;
  config.count_sectors = true;
  const int64_t rows = 4096, cols = 64;
  std::vector<int64_t> offsets;
  for (int64_t s = 0; s <= 16; ++s) offsets.push_back(s * rows / 16);
  CountTable table({"program", "sectors read", "/ bytes of rows", "sectors written", "/ bytes of y"});
  const auto expect_sectors = [&](const std::string& name, const Program& program, double most) {
    reset(config);
    const OnDevice on_device(program);
    const RowProgram view = on_device.view();
    const RowProgramLaunch launch({&view, 1});
    const DeviceArray<unsigned char> descriptors(descriptors_of(launch));
    clear_counters();
    launch.launch({descriptors.data()});
    synchronize();
    const Counters counted = counters();
    double read = 0;
    for (const Input& input : program.inputs) {
      read += static_cast<double>(rows * input.values.cols * size_of(input.type)) / 32;
    }
    const double written = static_cast<double>(rows * cols * size_of(program.y_type)) / 32;
    EXPECT_LE(static_cast<double>(counted.global_load_sectors), most * read) << name;
    EXPECT_EQ(static_cast<double>(counted.global_store_sectors), written) << name;
    EXPECT_EQ(counted.launches, 1);
    EXPECT_EQ(counted.atomics, 0);
    table.add(name, counted.global_load_sectors, over(counted.global_load_sectors, read), counted.global_store_sectors,
              over(counted.global_store_sectors, written));
  };
  for (const DType from : types)
    for (const DType to : types) {
      expect_sectors(std::string(name_of(from)) + " to " + name_of(to),
                     copy_of(random_input(from, rows, cols, 1), rows, to), 1.1);
    }
  expect_sectors("expand F16", copy_of(random_input(DType::f16, 16, cols, 1, offsets), rows, DType::f16), 1.1);
  expect_sectors("expand F32 to F16", copy_of(random_input(DType::f32, 16, cols, 1, offsets), rows, DType::f16), 1.1);
  // Three vectors and their addresses come on top, for each row once more.
  expect_sectors("dice of a sum", dice(rows, cols, DType::f16, random_input(DType::f16, rows, cols, 2)), 2.75);
}

TEST(RowProgramsMemory, MayBeBeyondTwoToTheThirtyOneElements) {
  if constexpr (build == Build::asan) GTEST_SKIP() << "so much memory has no shadow";
  reset();
  const int64_t cols = 4, stride = (int64_t{1} << 30) + 4;  // 4 GB in three rows, mostly untouched
  const AxisValues rows = random_values<Half>(3, cols, 1);
  DeviceArray<Half> x(2 * stride + cols), copied(2 * stride + cols);
  for (int64_t n = 0; n < 3; ++n) x.write(converted<Half>(rows.row(n).values), n * stride);
  const Matrix<const Half> values(x.data(), 3, cols, stride);
  const AxisInput<void> input{FloatMatrix<const void>(values)};
  const ElementwiseProgram negative = single(Function::neg);
  DeviceMatrix<float> negated(3, cols);
  RowProgram programs[2];
  for (RowProgram& program : programs) program.inputs = {&input, 1};
  programs[0].y = FloatMatrix<void>(Matrix<Half>(copied.data(), 3, cols, stride));
  programs[1].program = &negative;
  programs[1].y = FloatMatrix<void>(negated.view());
  const RowProgramLaunch launch({programs, 2});
  const DeviceArray<unsigned char> descriptors(descriptors_of(launch));
  launch.launch({descriptors.data()});
  const std::vector<float> result = negated.read();
  for (int64_t n = 0; n < 3; ++n)
    for (int64_t c = 0; c < cols; ++c) {
      const float value = rows.values[static_cast<size_t>(n * cols + c)];
      EXPECT_EQ(warprank::to_float(copied.read(n * stride + c, 1)[0]), value);
      EXPECT_EQ(result[static_cast<size_t>(n * cols + c)], -value);
    }
}

TEST(RowProgramsGraph, FollowsTheCountInDeviceMemoryAndTakesOtherVectors) {
  const int64_t capacity = 40;
  in_every_order(
      [&] {
        Program program = dice(capacity, 8, DType::f32, random_input(DType::f32, capacity, 1, 2));
        Program other = program;
        for (std::vector<float>& vector : other.vectors)
          for (float& value : vector) value += 1;
        const OnDevice on_device(program), of_other(other);
        RowProgram view = on_device.view(), view_of_other = view;
        view_of_other.vectors = of_other.view().vectors;
        DeviceArray<int64_t> num_rows(1);
        view.num_rows = view_of_other.num_rows = num_rows.data();
        const RowProgramLaunch launch_of_one({&view, 1}), launch_of_other({&view_of_other, 1});
        ASSERT_EQ(launch_of_one.descriptor_bytes(), launch_of_other.descriptor_bytes());
        DeviceArray<unsigned char> descriptors(descriptors_of(launch_of_one));
        const Stream stream = create_stream();
        begin_capture(stream);
        launch_of_one.launch({descriptors.data()}, stream);
        const Graph graph = end_capture(stream);
        EXPECT_EQ(num_launches(graph), 1);
        for (const int64_t rows : {30, 7, 0, 1000}) {
          if (rows == 7) descriptors.write(descriptors_of(launch_of_other));
          num_rows.write({rows});
          fill(view.y.data, 0xff, capacity * 8 * 4);
          synchronize();
          launch(graph, stream);
          const Program& expected = rows == 30 ? program : other;
          const std::vector<float> y = on_device.read();
          Program part = expected;
          part.rows = std::min(rows, capacity);
          expect_result(reference_of(part), part, y);
        }
      },
      5);
}

TEST(RowProgramsGraph, ReadsUnusedRowsOnlyOfFewAndSaysSo) {
  const auto reads_unused_rows = [](const Program& program) {
    reset();
    const OnDevice on_device(program);
    const RowProgram view = on_device.view();
    return RowProgramLaunch({&view, 1}).reads_unused_rows();
  };
  Program program = copy_of(random_input(DType::f16, 20, 64, 1), 10, DType::f16);
  EXPECT_FALSE(reads_unused_rows(program));  // all are used
  program.spare_rows = 10;
  EXPECT_TRUE(reads_unused_rows(program));
  program.inputs = {random_input(DType::f16, 1, 64, 1, {0, 10})};
  EXPECT_TRUE(reads_unused_rows(program));
  program.inputs = {random_input(DType::f16, 2, 64, 1, {0, 5, 10})};
  EXPECT_TRUE(reads_unused_rows(program));  // without segments the first
  program.inputs = {random_input(DType::f16, 5000, 64, 1)};
  program.spare_rows = 4990;
  EXPECT_FALSE(reads_unused_rows(program));
}

/// A graph that was captured of one is good for the other (Context::rebind).
TEST(RowProgramsGraph, IsTheSameForOtherVectors) {
  reset();
  Program program = dice(5, 8, DType::f32, random_input(DType::f32, 5, 1, 2));
  program.step = LayerNormOfRow{};
  const OnDevice on_device(program), with_other_vectors(program);
  const DeviceArray<float> learned(std::vector<float>(16, 1));
  const auto recorded = [&](const std::vector<const float*>& vectors, const float* gamma, float eps) {
    RowProgram view = on_device.view();
    view.vectors = vectors;
    view.step = LayerNormOfRow{eps, gamma, learned.data()};
    const RowProgramLaunch launch({&view, 1});
    warprank::device::LaunchRecorder recorder;
    launch.launch({learned.data()});  // where descriptors would be
    EXPECT_EQ(recorder.launches().size(), 1u);
    return recorder.launches().front();
  };
  const auto vectors_of = [](const OnDevice& device) {
    const Span<const float* const> vectors = device.view().vectors;
    return std::vector<const float*>(vectors.begin(), vectors.end());
  };
  const std::vector<const float*> vectors = vectors_of(on_device), others = vectors_of(with_other_vectors);
  const auto one = recorded(vectors, learned.data(), 1e-5f);
  EXPECT_TRUE(one == recorded(others, learned.data() + 8, 1e-5f));
  EXPECT_FALSE(one == recorded(vectors, learned.data(), 1e-3f));
  EXPECT_FALSE(one == recorded(vectors, nullptr, 1e-5f));
}

TEST(RowProgramsGolden, GiveWhatPyTorchGives) {
  using warprank::test_support::golden_tensor;
  const auto a = golden_tensor<float>("elementwise", "dense/a"), b = golden_tensor<float>("elementwise", "dense/b");
  const auto rows = static_cast<int64_t>(a.values.size() / 4);
  ASSERT_GT(rows, 0);
  for (const char* name : {"add",    "sub",  "mul",           "div",   "atan2",     "sin",       "cos", "min",
                           "max",    "less", "greater_equal", "equal", "not_equal", "neg",       "abs", "exp",
                           "square", "relu", "sigmoid",       "tanh",  "gelu",      "gelu_tanh", "silu"}) {
    SCOPED_TRACE(name);
    Function function{};
    for (const auto& [candidate, its_name] : names_of(Function{})) {
      if (std::string(its_name) == name) function = candidate;
    }
    const ElementwiseProgram of_function = single(function);
    Program program;
    program.program = &of_function;
    program.inputs = {{{a.values, rows, 4, {}}}, {{b.values, rows, 4, {}}}};
    program.inputs.resize(static_cast<size_t>(arity(function)));
    program.rows = rows;
    program.cols = 4;
    Bounded exact = reference_of(program);
    exact.value = golden_tensor<double>("elementwise", std::string("output/") + name).values;
    reset();
    expect_result(exact, program, run(program));
  }
}

#if !defined(__CUDACC__)
TEST(RowProgramsHost, AgreeWithTheHostPath) {
  const Program program = dice(50, 8, DType::f32, random_input(DType::f32, 2, 1, 2, {0, 20, 50}));
  const std::vector<AxisValues> inputs = values_of(program.inputs);
  const std::vector<SegmentedInput> views = views_of(inputs);
  std::vector<const float*> vectors;
  for (const std::vector<float>& vector : program.vectors) vectors.push_back(vector.data());
  std::vector<float> host(50 * 8),
      workspace(static_cast<size_t>(warprank::host_ops::elementwise_workspace(dice_of_sum)));
  warprank::host_ops::elementwise(dice_of_sum, views, vectors, {host.data(), 50, 8}, workspace);
  Bounded between = reference_of(program);
  between.value.assign(host.begin(), host.end());
  reset();
  expect_result(between, program, run(program), 2);
}
#endif

// ---- Errors

TEST(RowProgramsArguments, AreRefusedWhereTheyDoNotFit) {
  alignas(16) float memory[64] = {};
  const ElementwiseProgram add = single(Function::add);
  const auto refusal =
      [&](const std::function<void(RowProgram&, std::vector<AxisInput<void>>&)>& change) -> std::string {
    std::vector<AxisInput<void>> inputs(2);
    inputs[0].values = inputs[1].values = Matrix<const float>(memory, 2, 8);
    RowProgram program;
    program.program = &add;
    program.y = FloatMatrix<void>(Matrix<float>(memory + 32, 2, 8));
    change(program, inputs);
    program.inputs = inputs;
    try {
      RowProgramLaunch({&program, 1});
    } catch (const warprank::invalid_argument& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(refusal([](auto&, auto&) {}), "nothing was thrown");
  EXPECT_EQ(refusal([](auto& p, auto&) { p.program = nullptr; }), "row program 0's inputs: expected 1, got 2");
  const Function sum = Function::add, quotient = Function::div;
  EXPECT_EQ(refusal([&](auto& p, auto&) { p.folds = {&sum, 1}; }), "row program 0's folds: expected 0, got 1");
  EXPECT_EQ(refusal([&](auto& p, auto&) {
              p.program = nullptr, p.folds = {&sum, 1};
            }),
            "row program 0's folds: expected at most three sums and products, of a layer norm, got others");
  EXPECT_EQ(refusal([&](auto& p, auto&) {
              p.program = nullptr, p.folds = {&quotient, 1}, p.step = LayerNormOfRow{};
            }),
            "row program 0's folds: expected at most three sums and products, of a layer norm, got others");
  EXPECT_EQ(refusal([](auto&, auto& inputs) { inputs.pop_back(); }), "row program 0's inputs: expected 2, got 1");
  EXPECT_EQ(refusal([](auto&, auto& inputs) { inputs[1].values.cols = 7; }),
            "row program 0's input 1: expected 1 or 8 columns, got 7");
  EXPECT_EQ(refusal([](auto& p, auto& inputs) {
              p.y.rows = inputs[0].values.rows = inputs[1].values.rows = 1;
              p.y.data = reinterpret_cast<void*>(int64_t{1} << 40);
              p.y.cols = p.y.stride = (int64_t{1} << 30) + 1;
              inputs[0].values.cols = inputs[1].values.cols = 1;
            }),
            "row program 0: expected at most 1073741824 columns, got 1073741825");
  EXPECT_EQ(refusal([](auto& p, auto&) { p.y.rows = 3; }),
            "2 problems:\n  row program 0's input 0: expected 3 rows, got 2\n"
            "  row program 0's input 1: expected 3 rows, got 2");
  EXPECT_EQ(refusal([](auto&, auto& inputs) { inputs[0].values.data = nullptr; }),
            "row program 0's input 0: expected device memory, got null");
  EXPECT_EQ(refusal([](auto&, auto& inputs) { inputs[0].values.type = DType::i8; }),
            "row program 0's input 0: expected F16 or F32, got I8");
  const int64_t count = 2;
  EXPECT_EQ(refusal([&](auto&, auto& inputs) { inputs[0].num_segments = &count; }),
            "row program 0's input 0: expected offsets of its segments, got none");
  EXPECT_EQ(refusal([](auto& p, auto&) { p.y.stride = 7; }),
            "row program 0's y: expected a stride of at least its 8 columns, got 7");
  EXPECT_EQ(refusal([](auto& p, auto&) { p.step = LayerNormOfRow{-1}; }),
            "row program 0: eps: expected 0 or more, got -1.000000");
  EXPECT_EQ(refusal([](auto& p, auto& inputs) { p.factor = inputs[0]; }),
            "row program 0's factor: expected a softmax or a layer norm, without a program, got another");
  EXPECT_EQ(refusal([](auto& p, auto& inputs) {
              p.program = nullptr;
              inputs.resize(1);
              p.step = SoftmaxOfRow{};
              p.factor = inputs[0];
              p.factor.values.cols = 3;
            }),
            "row program 0's factor: expected 1 or 8 columns, got 3");
  EXPECT_EQ(refusal([&](auto& p, auto& inputs) {
              p.program = nullptr;
              p.step = SoftmaxOfRow{};
              p.factor = inputs[1];
              p.factor.values = FloatMatrix<const void>(Matrix<const float>(memory + 8, 2, 8));
              p.y = FloatMatrix<void>(Matrix<float>(memory, 2, 8));
              inputs.resize(1);
            }),
            "y of row program 0: expected memory of its own, got an overlap with the factor of program 0");
  EXPECT_EQ(refusal([](auto& p, auto&) { p.step = ReduceRow{}; }), "row program 0's y: expected [2, 1], got [2, 8]");
  EXPECT_EQ(refusal([](auto& p, auto&) {
              p.step = ReduceRow{Pooling::none};
              p.y.cols = 1;
            }),
            "row program 0: pooling: expected sum, mean, sqrtn or max, got none");
  EXPECT_EQ(refusal([&](auto& p, auto&) { p.y = FloatMatrix<void>(Matrix<float>(memory + 8, 2, 8)); }),
            "2 problems:\n  y of row program 0: expected memory of its own, got an overlap with an input of program 0\n"
            "  y of row program 0: expected memory of its own, got an overlap with an input of program 0");
  EXPECT_EQ(refusal([&](auto& p, auto&) { p.y = FloatMatrix<void>(Matrix<float>(memory, 2, 8)); }),
            "nothing was thrown");
  const int64_t offsets[8] = {};
  const ElementwiseProgram seven{7, 0, {}, {{Function::add, 0, 1}}};
  EXPECT_EQ(refusal([&](auto& p, auto& inputs) {
              p.program = &seven;
              inputs.resize(7, inputs[0]);
              for (size_t i = 0; i < 7; ++i) inputs[i].offsets = offsets + i;
            }),
            "row program 0: expected inputs on at most 6 different ancestors, got 7");
}

TEST(RowProgramsArguments, AreRefusedWhereAProgramIsWrongOrDoesNotFit) {
  alignas(16) float memory[64] = {};
  const auto refusal = [&](const ElementwiseProgram& function, std::vector<const float*> vectors) -> std::string {
    const std::vector<AxisInput<void>> inputs(1, {FloatMatrix<const void>(Matrix<const float>(memory, 2, 8))});
    RowProgram program;
    program.program = &function;
    program.inputs = inputs;
    program.vectors = vectors;
    program.y = FloatMatrix<void>(Matrix<float>(memory + 32, 2, 8));
    try {
      RowProgramLaunch({&program, 1});
    } catch (const warprank::invalid_argument& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(refusal({1, 1, {}, {{Function::add, 0, 1}}}, {nullptr}),
            "row program 0's vector: expected device memory, got null");
  EXPECT_EQ(refusal({1, 1, {}, {{Function::add, 0, 1}}}, {}), "row program 0's vectors: expected 1, got 0");
  EXPECT_EQ(refusal(sum_of_squares(17), {}), "row program 0: expected at most 16 values alive at once, got more");
  EXPECT_FALSE(fits_row_program(sum_of_squares(17)));
  EXPECT_EQ(refusal({1, 0, {}, {{Function::neg, 3}}}, {}),
            "row program 0: instruction 0 (neg), operand a: expected an earlier register, 0 to 0, got 3");
}

TEST(RowProgramsArguments, AreNotWrittenByTwo) {
  alignas(16) float memory[64] = {};
  const AxisInput<void> input{FloatMatrix<const void>(Matrix<const float>(memory, 2, 8))};
  RowProgram programs[2];
  for (RowProgram& program : programs) {
    program.inputs = {&input, 1};
    program.y = FloatMatrix<void>(Matrix<float>(memory + 32, 2, 8));
  }
  EXPECT_THROW(RowProgramLaunch({programs, 2}), warprank::invalid_argument);
  programs[1].y = FloatMatrix<void>(Matrix<float>(memory, 2, 8));  // which program 0 reads
  EXPECT_THROW(RowProgramLaunch({programs, 2}), warprank::invalid_argument);
  EXPECT_NO_THROW(RowProgramLaunch({programs, 1}));
  EXPECT_NO_THROW(RowProgramLaunch({programs, 0}));
}

}  // namespace
