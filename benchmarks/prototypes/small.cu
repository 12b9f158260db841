// SPDX-License-Identifier: Apache-2.0
//
// Dots, factorisation machines, attention and row programs for prototypes of them (resident.cuh).

#include "resident.cuh"
#include "warprank/ops/attention.cuh"
#include "warprank/ops/dot.cuh"
#include "warprank/ops/fm.cuh"
#include "warprank/ops/row_programs.cuh"

namespace {

using namespace warprank;
using prototypes::halves;

/// Of the user, whose row serves the items between two offsets, and of the item; without fields there is none.
std::vector<AxisInput<float16>> inputs_of(const void* user, const void* item, const int64_t* offsets, int64_t requests,
                                          int64_t items, int64_t user_cols, int64_t item_cols) {
  std::vector<AxisInput<float16>> inputs;
  if (user_cols > 0) {
    inputs.emplace_back();
    inputs.back().values = halves(user, requests, user_cols);
    inputs.back().offsets = offsets;
  }
  inputs.emplace_back();
  inputs.back().values = halves(item, items, item_cols);
  return inputs;
}
template <class T>
Span<const T> all_of(const std::vector<T>& values) {
  return {values.data(), static_cast<int64_t>(values.size())};
}

}  // namespace

extern "C" {

void* lib_dot(const void* user, const void* item, const int64_t* offsets, int64_t requests, int64_t items,
              int64_t user_fields, int64_t item_fields, int64_t dim, void* y, int64_t cols, int order,
              const int64_t* num_rows) {
  const auto inputs = inputs_of(user, item, offsets, requests, items, user_fields * dim, item_fields * dim);
  constexpr DotOrder orders[] = {DotOrder::lower, DotOrder::lower_padded, DotOrder::upper};
  return prototypes::resident(Dot<float16>(all_of(inputs), dim, {orders[order]}, halves(y, items, cols), num_rows));
}
void lib_dot_run(void* op, cudaStream_t stream) { prototypes::launch<Dot<float16>>(op, stream); }

void* lib_fm(const void* user, const void* item, const int64_t* offsets, int64_t requests, int64_t items,
             int64_t user_fields, int64_t item_fields, int64_t dim, void* y, const int64_t* num_rows) {
  const auto inputs = inputs_of(user, item, offsets, requests, items, user_fields * dim, item_fields * dim);
  return prototypes::resident(Fm<float16, float16>(all_of(inputs), dim, halves(y, items, 1), num_rows));
}
void lib_fm_run(void* op, cudaStream_t stream) { prototypes::launch<Fm<float16, float16>>(op, stream); }

void* lib_attention(const void* q, const void* k, const void* v, void* y, const int64_t* item_offsets,
                    const int64_t* history_offsets, int64_t requests, int64_t items, int64_t events, int64_t heads,
                    int64_t dim) {
  Attention attention;
  attention.q = halves(q, items, heads * dim);
  attention.k = halves(k, events, heads * dim), attention.v = halves(v, events, heads * dim);
  attention.y = halves(y, items, heads * dim);
  attention.item_offsets = item_offsets, attention.history_offsets = history_offsets;
  attention.parents.capacity = requests, attention.heads = heads;
  return prototypes::resident(AttentionLaunch({&attention, 1}));
}
void lib_attention_run(void* op, cudaStream_t stream) { prototypes::launch<AttentionLaunch>(op, stream); }

/// Kind 0: y = [a | b of the row's request | c], in three programs; kind 1: y = sigmoid(a b + vector) c.
void* lib_rows(int kind, const void* a, const void* b, const void* c, const float* vector, const int64_t* offsets,
               int64_t requests, int64_t items, int64_t width, void* y, const int64_t* num_rows) {
  AxisInput<void> inputs[3];
  inputs[0].values = halves(a, items, width), inputs[1].values = halves(b, requests, width);
  inputs[1].offsets = offsets, inputs[2].values = halves(c, items, width);
  std::vector<RowProgram> programs;
  ElementwiseProgram program;
  if (kind == 0) {
    const FloatMatrix<void> side_by_side = halves(y, items, 3 * width);
    for (int i = 0; i < 3; ++i) {
      programs.emplace_back();
      programs.back().inputs = {&inputs[i], 1};
      programs.back().y = side_by_side.columns(i * width, width);
    }
  } else {
    const auto append = [&](ElementwiseFunction function, int first, int second) {
      Instruction instruction;
      instruction.function = function, instruction.a = first, instruction.b = second;
      program.instructions.push_back(instruction);
    };
    program.num_inputs = 3, program.num_vectors = 1;
    append(ElementwiseFunction::mul, 0, 1);
    append(ElementwiseFunction::add, 4, 3);
    append(ElementwiseFunction::sigmoid, 5, -1);
    append(ElementwiseFunction::mul, 6, 2);
    programs.emplace_back();
    programs.back().program = &program, programs.back().inputs = {inputs, 3};
    programs.back().vectors = {&vector, 1};
    programs.back().y = halves(y, items, width);
  }
  for (RowProgram& one : programs) one.step = EachElement{}, one.num_rows = num_rows;
  return prototypes::resident(RowProgramLaunch(all_of(programs)));
}
void lib_rows_run(void* op, cudaStream_t stream) { prototypes::launch<RowProgramLaunch>(op, stream); }
}
