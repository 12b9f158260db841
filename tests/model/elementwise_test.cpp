// SPDX-License-Identifier: Apache-2.0
#include "warprank/model/elementwise.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "reference/elementwise.hpp"

namespace warprank { namespace {

using Function = ElementwiseFunction;

/// Clipped x, scaled by a vector: min(max(x v, 0), 6).
ElementwiseProgram clipped() {
  return {1, 1, {0.0f, 6.0f}, {{Function::mul, 0, 1}, {Function::max, 4, 2}, {Function::min, 5, 3}}};
}

std::vector<Problem> problems_of(const ElementwiseProgram& program) {
  Problems problems;
  validate(program, "program", problems);
  return problems.list();
}

/// One column of a program, exactly.
double evaluate(const ElementwiseProgram& program, const std::vector<float>& inputs,
                const std::vector<float>& vectors) {
  std::vector<SegmentedInput> columns;
  for (const float& input : inputs) columns.push_back({Matrix<const float>(&input, 1, 1)});
  std::vector<const float*> vector_columns;
  for (const float& vector : vectors) vector_columns.push_back(&vector);
  return reference::elementwise(program, columns, vector_columns, 1, 1).value[0];
}

TEST(ElementwiseProgram, NamesEveryFunctionOnceAndKnowsItsArity) {
  int value = 0;
  for (const auto& [function, name] : names_of(Function{})) {
    EXPECT_EQ(static_cast<int>(function), value++) << "in the order of the enumeration";
    EXPECT_STREQ(name_of_enum(function), name);
    EXPECT_GE(arity(function), 1);
  }
  EXPECT_EQ(arity(Function::add), 2);
  EXPECT_EQ(arity(Function::atan2), 2);
  EXPECT_EQ(arity(Function::not_equal), 2);
  EXPECT_EQ(arity(Function::select), 3);
  EXPECT_EQ(arity(Function::neg), 1);
  EXPECT_EQ(arity(Function::sin), 1);
  EXPECT_EQ(arity(Function::silu), 1);
  EXPECT_EQ(arity(static_cast<Function>(value)), 0);
  EXPECT_EQ(arity(static_cast<Function>(-1)), 0);
}

TEST(ElementwiseProgram, IsEqualOnlyWithTheSameBits) {
  const ElementwiseProgram program = clipped();
  EXPECT_EQ(program, clipped());
  ElementwiseProgram other = clipped();
  other.constants[0] = -0.0f;
  EXPECT_NE(program, other);
  other = clipped();
  other.instructions[2].a = 4;
  EXPECT_NE(program, other);
  other = clipped();
  other.instructions[2].alpha = 0.1f;
  EXPECT_NE(program, other);
  other = clipped();
  other.constants.push_back(1);
  EXPECT_NE(program, other);
  other.constants = {std::numeric_limits<float>::quiet_NaN()};
  EXPECT_EQ(other, ElementwiseProgram(other));
}

TEST(ElementwiseProgram, IsValidAsBuilt) { EXPECT_TRUE(problems_of(clipped()).empty()); }

TEST(ElementwiseProgram, IsRefusedWithWhatWasExpectedAndGot) {
  ElementwiseProgram program = clipped();
  program.instructions[1].b = 5;
  const std::vector<Problem> problems = problems_of(program);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].to_string(),
            "program: instruction 1 (max), operand b: expected an earlier register, 0 to 4, got 5");
}

TEST(ElementwiseProgram, ReportsAllBadOperandsTogether) {
  ElementwiseProgram program = clipped();
  program.instructions[0].a = -2;
  program.instructions[1].c = 0;
  program.instructions[2].b = -1;
  EXPECT_EQ(problems_of(program).size(), 3u);
}

TEST(ElementwiseProgram, IsRefusedWhenAnOperandFunctionOrCountIsHostile) {
  constexpr int lowest = std::numeric_limits<int>::min(), highest = std::numeric_limits<int>::max();
  for (const int hostile : {lowest, -2, -1, 7, 8, highest}) {
    for (int Instruction::*operand : {&Instruction::a, &Instruction::b}) {
      ElementwiseProgram program = clipped();
      program.instructions.back().*operand = hostile;
      EXPECT_FALSE(problems_of(program).empty()) << hostile;
    }
  }
  for (const int hostile : {lowest, -1, 27, highest}) {
    ElementwiseProgram program = clipped();
    program.instructions[0].function = static_cast<Function>(hostile);
    EXPECT_FALSE(problems_of(program).empty()) << hostile;
  }
  for (int ElementwiseProgram::*count : {&ElementwiseProgram::num_inputs, &ElementwiseProgram::num_vectors})
    for (const int hostile : {lowest, -1, max_elementwise_registers + 1, highest}) {
      ElementwiseProgram program = clipped();
      program.*count = hostile;
      EXPECT_FALSE(problems_of(program).empty()) << hostile;
    }
  ElementwiseProgram program = clipped();
  program.instructions.clear();
  EXPECT_FALSE(problems_of(program).empty());
  program = clipped();
  program.constants.resize(max_elementwise_registers + 1);
  EXPECT_FALSE(problems_of(program).empty());
  program = clipped();
  program.instructions.resize(max_elementwise_registers + 1, program.instructions[0]);
  EXPECT_FALSE(problems_of(program).empty());
}

TEST(InlineProgram, SplicesTheProducerAndRenumbers) {
  // y = x0 - p * v0 with p = max(x0, z) + v0' + 1: x0 is shared, z only the producer's.
  const ElementwiseProgram consumer{2, 1, {}, {{Function::mul, 1, 2}, {Function::sub, 0, 3}}};
  const ElementwiseProgram producer{
      2, 1, {1.0f}, {{Function::max, 1, 0}, {Function::add, 4, 2}, {Function::add, 5, 3}}};
  const InlinedProgram inlined =
      inline_program(consumer, std::vector<int>{10, 77}, 1, producer, std::vector<int>{20, 10});
  EXPECT_EQ(inlined.inputs, (std::vector<int>{10, 20}));
  const ElementwiseProgram expected{2,
                                    2,
                                    {1.0f},
                                    {{Function::max, 0, 1},
                                     {Function::add, 5, 3},
                                     {Function::add, 6, 4},
                                     {Function::mul, 7, 2},
                                     {Function::sub, 0, 8}}};
  EXPECT_EQ(inlined.program, expected);
  EXPECT_TRUE(problems_of(inlined.program).empty());
}

TEST(InlineProgram, ReplacesEveryUseOfTheProducerAndMergesEqualConstants) {
  const ElementwiseProgram consumer{2, 0, {2.0f, 3.0f}, {{Function::mul, 0, 1}, {Function::select, 4, 2, 3}}};
  const ElementwiseProgram producer{1, 0, {3.0f}, {{Function::add, 0, 1}}};
  const InlinedProgram inlined = inline_program(consumer, std::vector<int>{77, 77}, 0, producer, std::vector<int>{20});
  EXPECT_EQ(inlined.inputs, std::vector<int>{20});
  const ElementwiseProgram expected{
      1, 0, {2.0f, 3.0f}, {{Function::add, 0, 2}, {Function::mul, 3, 3}, {Function::select, 4, 1, 2}}};
  EXPECT_EQ(inlined.program, expected);
}

/// A random valid program.
ElementwiseProgram random_program(std::mt19937& random, int num_inputs) {
  const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<uint32_t>(limit)); };
  ElementwiseProgram program{num_inputs, below(3), {}, {}};
  for (int i = below(4); i > 0; --i) program.constants.push_back(static_cast<float>(below(3)) - 1);
  for (int i = 1 + below(8); i > 0; --i) {
    Instruction instruction{static_cast<Function>(below(27))};
    int* operands[] = {&instruction.a, &instruction.b, &instruction.c};
    for (int k = 0; k < arity(instruction.function); ++k) *operands[k] = below(program.num_registers());
    program.instructions.push_back(instruction);
  }
  return program;
}

TEST(InlineProgram, ComputesWhatTheTwoComputeOneAfterTheOther) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  int num_compared = 0;
  for (int round = 0; round < 2000; ++round) {
    // Tensors 0 to 4 have values; the consumer reads the producer's output as tensor 5, here and there.
    std::vector<int> producer_inputs, consumer_inputs;
    for (uint32_t i = 1 + random() % 3; i > 0; --i) producer_inputs.push_back(static_cast<int>(random() % 5));
    for (uint32_t i = 1 + random() % 4; i > 0; --i) consumer_inputs.push_back(static_cast<int>(random() % 6));
    const size_t input = random() % consumer_inputs.size();
    consumer_inputs[input] = 5;
    const ElementwiseProgram producer = random_program(random, static_cast<int>(producer_inputs.size()));
    const ElementwiseProgram consumer = random_program(random, static_cast<int>(consumer_inputs.size()));

    std::vector<float> tensors(6), producer_vectors, consumer_vectors;
    for (float& value : tensors) value = normal(random);
    for (int v = 0; v < producer.num_vectors; ++v) producer_vectors.push_back(normal(random));
    for (int v = 0; v < consumer.num_vectors; ++v) consumer_vectors.push_back(normal(random));
    const auto values_of = [&](const std::vector<int>& ids) {
      std::vector<float> values;
      for (int id : ids) values.push_back(tensors[static_cast<size_t>(id)]);
      return values;
    };
    // An exact composition, unless the intermediate result is rounded to FP32.
    const double intermediate = evaluate(producer, values_of(producer_inputs), producer_vectors);
    tensors[5] = static_cast<float>(intermediate);
    if (tensors[5] != intermediate) continue;

    const InlinedProgram inlined =
        inline_program(consumer, consumer_inputs, static_cast<int>(input), producer, producer_inputs);
    ASSERT_TRUE(problems_of(inlined.program).empty());
    std::vector<float> vectors = consumer_vectors;
    vectors.insert(vectors.end(), producer_vectors.begin(), producer_vectors.end());
    const double expected = evaluate(consumer, values_of(consumer_inputs), consumer_vectors);
    const double got = evaluate(inlined.program, values_of(inlined.inputs), vectors);
    ASSERT_TRUE(got == expected || (std::isnan(got) && std::isnan(expected))) << "round " << round;
    ++num_compared;
  }
  EXPECT_GT(num_compared, 500);
}

}}  // namespace warprank
