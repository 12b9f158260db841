// SPDX-License-Identifier: Apache-2.0

/// The longest warps of small kernels at serving sizes: one request of 100 items, with room for 28 more.

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/experts_case.hpp"
#include "support/counts.hpp"
#include "support/kernel_testing.hpp"
#include "support/narrowed.hpp"
#include "warprank/ops/dot.cuh"
#include "warprank/ops/elementwise.cuh"
#include "warprank/ops/field_attention.cuh"
#include "warprank/ops/field_linear.cuh"
#include "warprank/ops/fm.cuh"
#include "warprank/ops/mix.cuh"
#include "warprank/ops/mix_tokens.cuh"
#include "warprank/ops/recurrent.cuh"
#include "warprank/ops/row_programs.cuh"
#include "warprank/ops/segment_reduce.cuh"
#if !defined(__CUDACC__)
#include "support/longest_warp.hpp"

namespace {

using namespace kernel_testing;  // NOLINT: this is a test of kernels
using namespace warprank;        // NOLINT

constexpr int64_t num_items = 100, capacity = 128;

/// What a launch reads and writes, all 1 but for counts and offsets.
class Memory {
 public:
  template <class Value>
  Matrix<Value> matrix(int64_t rows, int64_t cols) {
    return {take(std::vector<Value>(static_cast<size_t>(rows * cols), narrowed<Value>(1))), rows, cols};
  }
  template <class Value>
  AxisInput<Value> of_items(int64_t cols) {
    return {matrix<Value>(capacity, cols)};
  }
  /// Of users who share the items evenly.
  template <class Value>
  AxisInput<Value> of_users(int64_t cols, int64_t num_users = 1, int64_t most_users = 4) {
    std::vector<int64_t> offsets(static_cast<size_t>(most_users + 1));
    for (int64_t u = 1; u <= num_users; ++u) offsets[static_cast<size_t>(u)] = u * num_items / num_users;
    return {matrix<Value>(most_users, cols), take(offsets), number(num_users)};
  }
  const int64_t* number(int64_t value) { return take(std::vector<int64_t>{value}); }
  template <class Value>
  Value* take(const std::vector<Value>& values) {
    const auto array = std::make_shared<DeviceArray<Value>>(values);
    arrays_.push_back(array);
    return array->data();
  }

 private:
  std::vector<std::shared_ptr<void>> arrays_;
};

/// What `body` launches.
std::function<void(const Config&)> run_of(const std::function<void(Memory&)>& body) {
  return [body](const Config& config) {
    reset(config);
    Memory memory;
    body(memory);
    synchronize();
  };
}

TEST(LongestWarps, OfKernelsOfRows) {
  if (build != Build::plain) return;
  CountTable table(longest_warp_columns({"kernel", "shape"}));
  const auto add = [&](const std::string& kernel, const std::string& shape, int64_t most_rounds,
                       const std::function<void(Memory&)>& body) {
    const simt::LoadRounds rounds = add_longest_warp(table, run_of(body), kernel, shape);
    std::string chain;
    for (const std::string& load : rounds.chain) chain += " " + load;
    EXPECT_LE(rounds.rounds, most_rounds) << kernel << ":" << chain;
  };

  for (const int64_t most : {4, 1}) {  // users
    const std::string users = most == 1 ? ", 1 of 1 users" : "";
    for (const int64_t dim : {16, 64})
      add("fm", "24 + 36 fields of " + std::to_string(dim) + users, most == 1 && dim == 16 ? 1 : 2,
          [=](Memory& memory) {
            const std::vector<AxisInput<float16>> inputs = {memory.of_users<float16>(24 * dim, 1, most),
                                                            memory.of_items<float16>(36 * dim)};
            Fm<float16, float>(inputs, dim, memory.matrix<float>(capacity, 1), memory.number(num_items)).launch({});
          });
    for (const int64_t dim : {16, 128})
      add("dot", "13 + 14 fields of " + std::to_string(dim) + users, most == 1 ? 1 : 2, [=](Memory& memory) {
        const std::vector<AxisInput<float16>> inputs = {memory.of_users<float16>(13 * dim, 1, most),
                                                        memory.of_items<float16>(14 * dim)};
        Dot<float16>(inputs, dim, {}, memory.matrix<float16>(capacity, 351), memory.number(num_items)).launch({});
      });
  }
  add("mix", "2 of 4 experts of 64", 1, [](Memory& memory) {
    const auto task = [&] {
      return MixTask<float16, float16>{memory.of_items<float16>(256), memory.of_items<float16>(4),
                                       memory.matrix<float16>(capacity, 64)};
    };
    const std::vector<MixTask<float16, float16>> tasks = {task(), task()};
    Mix<float16, float16>(tasks, memory.number(num_items)).launch({});
  });
  for (const int64_t columns : {64, 768})
    add("mix_tokens", "16 normed tokens of " + std::to_string(columns), 3, [=](Memory& memory) {
      const auto norm = [&] {
        const std::vector<float> ones(static_cast<size_t>(columns), 1.0f);
        return LayerNormOfRow{1e-5f, memory.take(ones), memory.take(ones)};
      };
      const auto matrix = [&] { return memory.matrix<float16>(capacity, 16 * columns); };
      const int64_t* const few = memory.number(10);  // rows are wide, and one shows the path
      const MixTokens<float16> mix(matrix(), 16, matrix(), few, {norm(), norm()});
      mix.launch({memory.take(mix.descriptors())});
    });
  for (const int64_t factors : {0, 8})
    add("field_linear", (factors > 0 ? "8 x 9" : "9") + std::string(" fields of 10 to 40, half of them summed"), 3,
        [=](Memory& memory) {
          const FieldLinearShape shape{factors, 9, 40};
          const auto packed = pack_field_linear(
              shape, std::vector<float>(static_cast<size_t>(shape.out * shape.terms()), 1.0f), std::vector<float>());
          const unsigned char* const weights =
              memory.take(std::vector<unsigned char>(packed.data(), packed.data() + packed.size()));
          const int64_t* const few = memory.number(10);
          const FieldLinear<float16> op(memory.matrix<float16>(capacity, factors * 10),
                                        memory.matrix<float16>(capacity, 90), {10, 40, weights, {}, 20, 20},
                                        memory.matrix<float16>(capacity, 220), few);
          op.launch({memory.take(op.descriptors())});
        });
  add("field_attention", "39 fields of 64, 2 heads of 32", 3, [=](Memory& memory) {
    const FieldAttentionShape shape{64, 2, 32};
    const std::vector<float> weight(static_cast<size_t>(shape.size()), 0.125f);
    const auto packed = pack_field_attention(shape, weight, weight, weight, weight);
    const unsigned char* const weights =
        memory.take(std::vector<unsigned char>(packed.data(), packed.data() + packed.size()));
    const FieldAttention<float16> op(memory.matrix<float16>(capacity, 39 * 64),
                                     {shape, weights, 1, true, {ActivationKind::relu}},
                                     memory.matrix<float16>(capacity, 39 * 64), memory.number(10));
    op.launch({memory.take(op.descriptors())});
  });
  for (const RecurrentCell cell : {RecurrentCell::gru, RecurrentCell::augru})
    add("recurrent", std::string(name_of_enum(cell)) + " of 36 over 20 events", cell == RecurrentCell::gru ? 3 : 4,
        [=](Memory& memory) {
          const std::vector<float> weight(3 * 36 * 36, 0.125f), bias(3 * 36, 0.125f);
          const auto packed = pack_recurrent({36}, weight, bias);
          const unsigned char* const weights =
              memory.take(std::vector<unsigned char>(packed.data(), packed.data() + packed.size()));
          const bool attends = cell != RecurrentCell::gru;
          const int64_t* const events = memory.take(std::vector<int64_t>{0, 20});
          const int64_t* const rows = memory.take(std::vector<int64_t>{0, 10});
          RecurrentInputs in{memory.matrix<float16>(capacity, 108), events, {1, memory.number(1)}, {}, {}, nullptr};
          if (attends)
            in.q = memory.matrix<float16>(capacity, 36), in.k = memory.matrix<float16>(capacity, 36),
            in.row_offsets = rows;
          const Recurrent<float16> op({cell, {36}, weights, 1}, in, memory.matrix<float16>(capacity, 36));
          op.launch({memory.take(op.descriptors())});
        });
  for (const auto& [num_users, most_users] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {1, 4}, {4, 4}, {50, 64}}) {
    const int64_t users = num_users, most = most_users;
    const std::string shape = ", " + std::to_string(users) + " of " + std::to_string(most) + " users";
    add("elementwise", "product of two of 64" + shape, most == 1 ? 1 : 2, [=](Memory& memory) {
      const AxisInput<float16> inputs[] = {memory.of_items<float16>(64), memory.of_users<float16>(64, users, most)};
      const auto product = [](float a, float b) { return a * b; };
      Elementwise(product, inputs, memory.matrix<float16>(capacity, 64), EachElement{}, memory.number(num_items))
          .launch({});
    });
  }

  const auto row_program = [](Memory& memory, const ElementwiseProgram* program,
                              const std::vector<AxisInput<void>>& inputs, RowStep step, int64_t cols) {
    RowProgram rows;
    rows.program = program;
    rows.inputs = inputs;
    rows.step = step;
    rows.y = memory.matrix<float16>(capacity, cols);
    rows.num_rows = memory.number(num_items);
    const RowProgramLaunch launch({&rows, 1});
    launch.launch({memory.take(launch.descriptors())});
  };
  const auto as_row = [](const AxisInput<float16>& input) {
    return AxisInput<void>{FloatMatrix<const void>(input.values), input.offsets, input.num_segments};
  };
  static const auto sum_of_products = [] {
    ElementwiseProgram program;
    program.num_inputs = 3;
    program.instructions = {
        {ElementwiseFunction::mul, 0, 1}, {ElementwiseFunction::add, 3, 2}, {ElementwiseFunction::sigmoid, 4}};
    return program;
  }();
  add("row_programs", "sigmoid(a b + c), 64 columns", 1, [&](Memory& memory) {
    const auto input = [&] { return as_row(memory.of_items<float16>(64)); };
    row_program(memory, &sum_of_products, {input(), input(), input()}, EachElement{}, 64);
  });
  add("row_programs", "softmax of 64 columns", 1, [&](Memory& memory) {
    row_program(memory, nullptr, {as_row(memory.of_items<float16>(64))}, SoftmaxOfRow{}, 64);
  });
  for (const int64_t num_users : {1, 4})
    add("row_programs", "expand 64 columns of " + std::to_string(num_users) + " of 4 users", 2, [=](Memory& memory) {
      row_program(memory, nullptr, {as_row(memory.of_users<float16>(64, num_users))}, EachElement{}, 64);
    });
  add("segment_reduce", "100 rows of 64", 2, [](Memory& memory) {
    SegmentReduction reduction;
    reduction.x = FloatMatrix<const void>(memory.matrix<float16>(capacity, 64));
    reduction.offsets = memory.take(std::vector<int64_t>{0, num_items, 0, 0, 0});
    reduction.num_segments = memory.number(1);
    reduction.pooling = Pooling::mean;
    reduction.y = memory.matrix<float16>(4, 64);
    SegmentReduceLaunch({&reduction, 1}).launch({});
  });
}

TEST(LongestWarps, OfSceneRows) {
  if (build != Build::plain) return;
  CountTable table(longest_warp_columns({"scenes", "ids"}));
  for (const int64_t num_ids : {1, 100})
    add_longest_warp(
        table,
        [num_ids](const Config& config) {
          reset(config);
          Scenes scenes{8, {}, {}};
          for (int64_t i = 0; i < num_ids; ++i)
            scenes.ids.push_back(i % 8), scenes.sizes.push_back(num_items / num_ids);
          const DeviceScenes on_device(scenes, 28);
          on_device.rows().launch({});
          synchronize();
        },
        8, num_ids);
}

}  // namespace
#endif
