// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Programs of model/elementwise.hpp as kernels interpret them: operands are loaded just before they are first read,
/// and a value's slot is used again when it was read for the last time.

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "warprank/device/memory.hpp"
#include "warprank/model/elementwise.hpp"
#include "warprank/ops/detail/activation.cuh"

namespace warprank::detail::elementwise {

inline constexpr int num_slots = 16;

/// One instruction on slots, or the load of a register that is no instruction's. An operand that a function does not
/// read is its first.
struct alignas(16) SlotOperation {
  enum class Kind : uint8_t { function, load_input, load_vector, load_constant };
  ElementwiseFunction function = ElementwiseFunction::add;
  float number = 0;  // alpha, or the constant
  Kind kind = Kind::function;
  uint8_t to = 0, a = 0, b = 0, c = 0;
  uint16_t index = 0;  // which input or vector
};

/// What an ElementwiseFunction gives of each of VecSize operands.
template <int VecSize>
WARPRANK_DEVICE void apply_function(ElementwiseFunction function, float alpha, const float (&a)[VecSize],
                                    const float (&b)[VecSize], const float (&c)[VecSize], float (&result)[VecSize]) {
  using Function = ElementwiseFunction;
  const auto each = [&](auto f) {
    WARPRANK_UNROLL
    for (int j = 0; j < VecSize; ++j) result[j] = f(a[j], b[j], c[j]);
  };
  switch (function) {
    case Function::add:
      return each([](float x, float y, float) { return x + y; });
    case Function::sub:
      return each([](float x, float y, float) { return x - y; });
    case Function::mul:
      return each([](float x, float y, float) { return x * y; });
    case Function::div:
      return each([](float x, float y, float) { return x / y; });
    case Function::min:
      return each([](float x, float y, float) { return x < y || x != x ? x : y; });
    case Function::max:
      return each([](float x, float y, float) { return x > y || x != x ? x : y; });
    case Function::less:
      return each([](float x, float y, float) { return x < y ? 1.0f : 0.0f; });
    case Function::less_equal:
      return each([](float x, float y, float) { return x <= y ? 1.0f : 0.0f; });
    case Function::greater:
      return each([](float x, float y, float) { return x > y ? 1.0f : 0.0f; });
    case Function::greater_equal:
      return each([](float x, float y, float) { return x >= y ? 1.0f : 0.0f; });
    case Function::equal:
      return each([](float x, float y, float) { return x == y ? 1.0f : 0.0f; });
    case Function::not_equal:
      return each([](float x, float y, float) { return x != y ? 1.0f : 0.0f; });
    case Function::select:
      return each([](float x, float y, float condition) { return condition != 0 ? x : y; });
    case Function::neg:
      return each([](float x, float, float) { return -x; });
    case Function::abs:
      return each([](float x, float, float) { return std::fabs(x); });
    case Function::exp:
      return each([](float x, float, float) { return std::exp(x); });
    case Function::log:
      return each([](float x, float, float) { return std::log(x); });
    case Function::sqrt:
      return each([](float x, float, float) { return std::sqrt(x); });
    case Function::square:
      return each([](float x, float, float) { return x * x; });
    case Function::relu:
      return each([](float x, float, float) { return x < 0 ? 0.0f : x; });
    case Function::leaky_relu:
      return each([&](float x, float, float) { return leaky_relu_of(x, alpha); });
    case Function::elu:
      return each([&](float x, float, float) { return elu_of(x, alpha); });
    case Function::sigmoid:
      return each([](float x, float, float) { return sigmoid_of(x); });
    case Function::tanh:
      return each([](float x, float, float) { return std::tanh(x); });
    case Function::gelu:
      return each([](float x, float, float) { return gelu_of(x); });
    case Function::gelu_tanh:
      return each([](float x, float, float) { return gelu_tanh_of(x); });
    case Function::silu:
      return each([](float x, float, float) { return silu_of(x); });
  }
}

/// The instructions of a valid program on slots; none when there are not enough.
inline std::vector<SlotOperation> slot_operations(const ElementwiseProgram& program) {
  const auto num_registers = static_cast<size_t>(program.num_registers());
  std::vector<int> last_reader(num_registers, -1), slot_of(num_registers, -1);
  const auto operands = [](const Instruction& i) { return std::array<int, 3>{i.a, i.b, i.c}; };
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    for (const int r : operands(program.instructions[i])) {
      if (r >= 0) last_reader[static_cast<size_t>(r)] = static_cast<int>(i);
    }
  }
  std::vector<SlotOperation> result;
  std::array<bool, num_slots> used{};
  const auto take_slot = [&] {
    for (size_t slot = 0; slot < num_slots; ++slot) {
      if (used[slot]) continue;
      used[slot] = true;
      return static_cast<int>(slot);
    }
    return -1;
  };
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    SlotOperation operation;
    operation.function = instruction.function;
    operation.number = instruction.alpha;
    uint8_t* const slots[] = {&operation.a, &operation.b, &operation.c};
    const std::array<int, 3> registers = operands(instruction);
    for (size_t k = 0; k < 3; ++k) {
      if (registers[k] < 0) {
        *slots[k] = operation.a;
        continue;
      }
      int& slot = slot_of[static_cast<size_t>(registers[k])];
      if (slot < 0) {  // no instruction's result: loaded where it is first read
        SlotOperation load;
        slot = take_slot();
        if (slot < 0) return {};
        load.to = static_cast<uint8_t>(slot);
        const int r = registers[k];
        if (r < program.first_vector()) {
          load.kind = SlotOperation::Kind::load_input;
          load.index = static_cast<uint16_t>(r);
        } else if (r < program.first_constant()) {
          load.kind = SlotOperation::Kind::load_vector;
          load.index = static_cast<uint16_t>(r - program.first_vector());
        } else {
          load.kind = SlotOperation::Kind::load_constant;
          load.number = program.constants[static_cast<size_t>(r - program.first_constant())];
        }
        result.push_back(load);
      }
      *slots[k] = static_cast<uint8_t>(slot);
    }
    for (const int r : registers) {  // the result may take the place of an operand
      if (r >= 0 && last_reader[static_cast<size_t>(r)] == static_cast<int>(i)) {
        used[static_cast<size_t>(slot_of[static_cast<size_t>(r)])] = false;
      }
    }
    const int slot = take_slot();
    if (slot < 0) return {};
    operation.to = static_cast<uint8_t>(slot);
    const size_t own = static_cast<size_t>(program.first_result()) + i;
    slot_of[own] = slot;
    if (last_reader[own] < 0) used[static_cast<size_t>(slot)] = false;  // nobody reads it
    result.push_back(operation);
  }
  return result;
}

}  // namespace warprank::detail::elementwise
