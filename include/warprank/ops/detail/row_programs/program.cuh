// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Programs of model/elementwise.hpp as kernels interpret them. A value's slot is used again when it was read for the
/// last time.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "warprank/core/dtype.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/model/elementwise.hpp"
#include "warprank/ops/detail/common/activation.cuh"
#include "warprank/ops/detail/row_programs/angles.cuh"

namespace warprank { inline namespace v0 { namespace detail::row_programs {

inline constexpr int num_slots = 16;
inline constexpr int loads_in_flight = 6;  // of a thread

/// One instruction on slots, or the load of a register that is no instruction's. An operand that a function does not
/// read is its first; `a` of a load says how many loads, itself included, follow one another and may be in flight
/// together. No padding: launches are compared by their bytes.
struct SlotOperation {
  enum class Kind : uint8_t { function, load, constant };
  static constexpr int constant = static_cast<int>(ElementwiseFunction::silu) + 1;  // in the place of its function
  static constexpr uint16_t reads_last = 1;                                         // of `index`
  uint32_t number_bits = 0;                                                         // alpha, or the constant
  Kind kind = Kind::function;
  uint8_t function = 0;  // ElementwiseFunction
  uint8_t to = 0, a = 0, b = 0, c = 0;
  uint16_t index = 0;  // of a load: which input, or behind those which vector; of others reads_last or 0
};
static_assert(std::has_unique_object_representations_v<SlotOperation>);

/// What follows the number of an operation, as kernels read it: two words.
struct PackedOperation {
  static constexpr uint32_t position = offsetof(SlotOperation, kind);  // in the operation
  uint32_t what, operands;

  WARPRANK_DEVICE int function() const { return byte(what, 1); }
  WARPRANK_DEVICE int to() const { return byte(what, 2); }
  WARPRANK_DEVICE int a() const { return byte(what, 3); }
  WARPRANK_DEVICE int b() const { return byte(operands, 0); }
  WARPRANK_DEVICE int c() const { return byte(operands, 1); }
  WARPRANK_DEVICE int index() const { return static_cast<int>(operands >> 16); }
  WARPRANK_DEVICE bool reads_last() const { return (operands & uint32_t{SlotOperation::reads_last} << 16) != 0; }

 private:
  static WARPRANK_DEVICE int byte(uint32_t word, int i) { return static_cast<int>(word >> 8 * i & 0xff); }
};
static_assert(sizeof(PackedOperation) + PackedOperation::position == sizeof(SlotOperation));

/// What an ElementwiseFunction gives of each of several operands; `read_third` gives the third, which one
/// function has, `read_number` alpha or the constant. The result may be in the place of `a`.
template <int Size, class ReadNumber, class ReadThird>
WARPRANK_DEVICE void apply_function(ElementwiseFunction function, ReadNumber read_number, const float (&a)[Size],
                                    const float (&b)[Size], ReadThird read_third, float (&result)[Size]) {
  using Function = ElementwiseFunction;
  const auto each = [&](auto f) {
    WARPRANK_UNROLL
    for (int j = 0; j < Size; ++j) result[j] = f(a[j], b[j]);
  };
  // Long code once, not for each operand: it would move the others apart, which takes them longer to fetch.
  const auto one_by_one = [&](auto f) {
    float left[Size], others[Size];
    WARPRANK_UNROLL
    for (int j = 0; j < Size; ++j) left[j] = a[j], others[j] = b[j];
    WARPRANK_ROLLED
    for (int count = 0; count < Size; ++count) {
      const float last = f(left[0], others[0]);
      WARPRANK_UNROLL
      for (int j = 0; j + 1 < Size; ++j) left[j] = left[j + 1], others[j] = others[j + 1];
      left[Size - 1] = last;
    }
    WARPRANK_UNROLL
    for (int j = 0; j < Size; ++j) result[j] = left[j];
  };
  // The most frequent ones first: a jump by a table takes as long as several comparisons.
  if (function == Function::mul) return each([](float x, float y) { return x * y; });
  if (function == Function::add) return each([](float x, float y) { return x + y; });
  if (function == Function::sigmoid) return each([](float x, float) { return sigmoid_of(x); });
  switch (function) {
    case Function::sub:
      return each([](float x, float y) { return x - y; });
    case Function::div:
      return each([](float x, float y) { return x / y; });
    case Function::min:
      return each([](float x, float y) { return x < y || x != x ? x : y; });
    case Function::max:
      return each([](float x, float y) { return x > y || x != x ? x : y; });
    case Function::less:
      return each([](float x, float y) { return x < y ? 1.0f : 0.0f; });
    case Function::less_equal:
      return each([](float x, float y) { return x <= y ? 1.0f : 0.0f; });
    case Function::greater:
      return each([](float x, float y) { return x > y ? 1.0f : 0.0f; });
    case Function::greater_equal:
      return each([](float x, float y) { return x >= y ? 1.0f : 0.0f; });
    case Function::equal:
      return each([](float x, float y) { return x == y ? 1.0f : 0.0f; });
    case Function::not_equal:
      return each([](float x, float y) { return x != y ? 1.0f : 0.0f; });
    case Function::select: {
      float condition[Size];
      read_third(condition);
      WARPRANK_UNROLL
      for (int j = 0; j < Size; ++j) result[j] = condition[j] != 0 ? a[j] : b[j];
      return;
    }
    case Function::neg:
      return each([](float x, float) { return -x; });
    case Function::abs:
      return each([](float x, float) { return std::fabs(x); });
    case Function::exp:
      return each([](float x, float) { return std::exp(x); });
    case Function::log:
      return each([](float x, float) { return std::log(x); });
    case Function::sqrt:
      return each([](float x, float) { return std::sqrt(x); });
    case Function::square:
      return each([](float x, float) { return x * x; });
    case Function::relu:
      return each([](float x, float) { return x < 0 ? 0.0f : x; });
    case Function::leaky_relu:
      return each([alpha = read_number()](float x, float) { return leaky_relu_of(x, alpha); });
    case Function::elu:
      return each([alpha = read_number()](float x, float) { return elu_of(x, alpha); });
    case Function::tanh:
      return each([](float x, float) { return std::tanh(x); });
    case Function::gelu:
      return each([](float x, float) { return gelu_of(x); });
    case Function::gelu_tanh:
      return each([](float x, float) { return gelu_tanh_of(x); });
    default: {  // the long ones last: they leave the comparisons above as they are
      if (function == Function::silu) return each([](float x, float) { return silu_of(x); });
      if (static_cast<int>(function) == SlotOperation::constant)
        return each([number = read_number()](float, float) { return number; });
      return one_by_one([&](float x, float y) {
        return function == Function::atan2 ? angle_of(x, y) : sine_of(x, function == Function::cos ? 1 : 0);
      });
    }
  }
}

/// Slots of a program's registers while its operations are written.
class SlotWriter {
 public:
  explicit SlotWriter(const ElementwiseProgram& program)
      : program_(program),
        last_reader_(static_cast<size_t>(program.num_registers()), -1),
        slot_of_(static_cast<size_t>(program.num_registers()), -1) {
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      for (const int r : operands(program.instructions[i])) {
        if (r >= 0) last_reader_[static_cast<size_t>(r)] = static_cast<int>(i);
      }
    }
  }

  /// Whether there are slots for all inputs and learned vectors at once.
  bool load_all() {
    bool fits = true;
    for (int r = 0; r < program_.first_constant(); ++r) {
      if (last_reader_[static_cast<size_t>(r)] >= 0) fits = fits && load(r);
    }
    return fits;
  }
  /// Whether there are slots; what was not loaded is where it is first read.
  bool write_instructions() {
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      if (!write(i)) return false;
    }
    return true;
  }
  std::vector<SlotOperation> take_operations() {
    for (size_t i = operations_.size(); i-- > 0;) {
      SlotOperation& load = operations_[i];
      if (load.kind != SlotOperation::Kind::load) continue;
      const bool is_last = i + 1 == operations_.size() || operations_[i + 1].kind != SlotOperation::Kind::load;
      load.a = static_cast<uint8_t>(is_last ? 1 : std::min(operations_[i + 1].a + 1, loads_in_flight));
    }
    return std::move(operations_);
  }

 private:
  static std::array<int, 3> operands(const Instruction& i) { return {i.a, i.b, i.c}; }

  int take_slot() {
    for (int slot = 0; slot < num_slots; ++slot) {
      if (used_[static_cast<size_t>(slot)]) continue;
      used_[static_cast<size_t>(slot)] = true;
      return slot;
    }
    return -1;
  }
  bool load(int r) {
    const int slot = take_slot();
    if (slot < 0) return false;
    slot_of_[static_cast<size_t>(r)] = slot;
    SlotOperation& operation = operations_.emplace_back();
    operation.to = static_cast<uint8_t>(slot);
    if (r < program_.first_constant()) {
      operation.kind = SlotOperation::Kind::load;
      operation.index = static_cast<uint16_t>(r);
    } else {
      operation.kind = SlotOperation::Kind::constant;
      operation.function = SlotOperation::constant;
      operation.number_bits = float_bits(program_.constants[static_cast<size_t>(r - program_.first_constant())]);
    }
    return true;
  }
  bool write(size_t i) {
    const Instruction& instruction = program_.instructions[i];
    SlotOperation operation;
    operation.function = static_cast<uint8_t>(instruction.function);
    operation.number_bits = float_bits(instruction.alpha);
    uint8_t* const slots[] = {&operation.a, &operation.b, &operation.c};
    const std::array<int, 3> registers = operands(instruction);
    for (size_t k = 0; k < 3; ++k) {
      const int r = registers[k];
      if (r >= 0 && slot_of_[static_cast<size_t>(r)] < 0 && !load(r)) return false;
      *slots[k] = r < 0 ? operation.a : static_cast<uint8_t>(slot_of_[static_cast<size_t>(r)]);
    }
    for (const int r : registers) {  // the result may take the place of an operand
      if (r >= 0 && last_reader_[static_cast<size_t>(r)] == static_cast<int>(i)) {
        used_[static_cast<size_t>(slot_of_[static_cast<size_t>(r)])] = false;
      }
    }
    const int slot = take_slot();
    if (slot < 0) return false;
    operation.to = static_cast<uint8_t>(slot);
    const size_t own = static_cast<size_t>(program_.first_result()) + i;
    slot_of_[own] = slot;
    if (last_reader_[own] < 0) used_[static_cast<size_t>(slot)] = false;  // nobody reads it
    operations_.push_back(operation);
    return true;
  }

  const ElementwiseProgram& program_;
  std::vector<int> last_reader_, slot_of_;  // of each register
  std::array<bool, num_slots> used_{};
  std::vector<SlotOperation> operations_;
};

/// The instructions of a valid program on slots; none when there are not enough. Inputs and vectors are loaded first,
/// or where there are not enough slots for all, each just before it is first read.
inline std::vector<SlotOperation> slot_operations(const ElementwiseProgram& program) {
  SlotWriter ahead(program);
  if (ahead.load_all() && ahead.write_instructions()) return ahead.take_operations();
  SlotWriter late(program);
  return late.write_instructions() ? late.take_operations() : std::vector<SlotOperation>();
}

/// Says which functions read the result of the one before as their first operand: it is still in registers. Swaps
/// operands where that helps.
inline void keep_in_registers(std::vector<SlotOperation>& operations) {
  for (size_t i = 1; i < operations.size(); ++i) {
    SlotOperation& operation = operations[i];
    const SlotOperation& before = operations[i - 1];
    if (operation.kind != SlotOperation::Kind::function || before.kind == SlotOperation::Kind::load) continue;
    const auto function = static_cast<ElementwiseFunction>(operation.function);
    const bool commutes = function == ElementwiseFunction::add || function == ElementwiseFunction::mul;
    if (commutes && operation.b == before.to) std::swap(operation.a, operation.b);
    operation.index = operation.a == before.to ? SlotOperation::reads_last : 0;
  }
}

}}}  // namespace warprank::v0::detail::row_programs
