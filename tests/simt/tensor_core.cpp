// SPDX-License-Identifier: Apache-2.0
//
// Tensor-core instructions: fragments are laid out as in warprank/device/mma.hpp. Products are summed in FP32 in the
// order of k; the hardware's order and rounding differ, so tests compare within a bound.

#include <cstring>

#include "simt/machine.hpp"
#include "warprank/core/dtype.hpp"

namespace simt { namespace {

constexpr int rows = 16, cols = 8, matrix_rows = 8, row_bytes = 16;

struct MmaPayload {
  float* d;
  const uint32_t *a, *b;
  const float* c;
};

uint16_t element(const uint32_t* fragment, int i) { return static_cast<uint16_t>(fragment[i / 2] >> 16 * (i % 2)); }

/// As warprank::to_float, without branches: the compiler converts many at once.
void widen(const uint16_t* halves, float* values, int count) {
  for (int i = 0; i < count; ++i) {
    const uint32_t bits = halves[i];
    const float magnitude = warprank::bits_float((bits & 0x7fffu) << 13) * 0x1p112f;
    const uint32_t not_finite = (bits & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0;
    values[i] = warprank::bits_float(warprank::float_bits(magnitude) | not_finite | (bits & 0x8000u) << 16);
  }
}

template <int Depth>
void complete_mma(const Lanes& lanes) {
  using Row = float __attribute__((vector_size(cols * sizeof(float))));
  uint16_t halves_a[rows][Depth], halves_b[Depth][cols];
  float a[rows][Depth];
  Row b[Depth], d[rows];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& own = lanes.payload<MmaPayload>(static_cast<unsigned>(lane));
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int i = 0; i < Depth / 2; ++i) {  // two registers for 8 columns of A: rows g and g + 8
      halves_a[group + i / 2 % 2 * 8][pair + i % 2 + i / 4 * 8] = element(own.a, i);
    }
    for (int i = 0; i < Depth / 4; ++i) halves_b[pair + i % 2 + i / 2 * 8][group] = element(own.b, i);
    for (int i = 0; i < 4; ++i) d[group + i / 2 * 8][pair + i % 2] = own.c[i];
  }
  widen(&halves_a[0][0], &a[0][0], rows * Depth);
  widen(&halves_b[0][0], reinterpret_cast<float*>(b), Depth * cols);
  for (int row = 0; row < rows; ++row) {
    for (int k = 0; k < Depth; ++k) d[row] += a[row][k] * b[k];
  }
  for (int lane = 0; lane < 32; ++lane) {
    const auto& own = lanes.payload<MmaPayload>(static_cast<unsigned>(lane));
    for (int i = 0; i < 4; ++i) own.d[i] = d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
  }
  ++Machine::instance().counters.mma;
}

struct MatricesPayload {
  const void* row;
  uint32_t* fragment;
};

template <int Count, bool Transposed>
void complete_load_matrices(const Lanes& lanes) {
  Machine& machine = Machine::instance();
  uint16_t matrix[Count][matrix_rows][8];
  for (int i = 0; i < Count * matrix_rows; ++i) {
    Thread& thread = lanes.thread(static_cast<unsigned>(i));
    const void* row = lanes.payload<MatricesPayload>(static_cast<unsigned>(i)).row;
    const auto refuse = [&](const char* what) { machine.fail(std::string(what) + ": " + thread.at(thread.here)); };
    if (reinterpret_cast<uintptr_t>(row) % row_bytes != 0) {
      refuse("load_matrices: misaligned: a row's address must be aligned to 16 bytes");
    }
    if (!lanes.block.shared.reserved(row)) refuse("load_matrices: the row is not in shared memory");
    if (!lanes.block.shared.contains(row, row_bytes)) refuse("shared memory out of bounds");
    race::access(thread, row, row_bytes, race::Kind::read, Scope::block, {thread.here, nullptr});
    if (machine.config().count_sectors) {
      lanes.block.sectors.add(SectorCounter::Kind::shared_load, thread.here.file, thread.here.line, thread.warp(),
                              thread.lane(), row, row_bytes);
    }
    std::memcpy(matrix[i / matrix_rows][i % matrix_rows], row, row_bytes);
  }
  for (int lane = 0; lane < 32; ++lane) {
    const auto& own = lanes.payload<MatricesPayload>(static_cast<unsigned>(lane));
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int m = 0; m < Count; ++m) {
      const uint32_t low = Transposed ? matrix[m][pair][group] : matrix[m][group][pair];
      const uint32_t high = Transposed ? matrix[m][pair + 1][group] : matrix[m][group][pair + 1];
      own.fragment[m] = low | high << 16;
    }
  }
  ++machine.counters.load_matrices;
}

}}  // namespace simt

namespace warprank { inline namespace v0 { namespace device::backend {

void mma(int k, float* d, const uint32_t* a, const uint32_t* b, const float* c, Here here) {
  static constexpr simt::Collective k8{"mma_m16n8k8", true, simt::complete_mma<8>};
  static constexpr simt::Collective k16{"mma_m16n8k16", true, simt::complete_mma<16>};
  const simt::Collective& what = k == 8 ? k8 : k16;
  simt::Thread& thread = simt::Machine::instance().running(what.name, here);
  simt::Machine& machine = simt::Machine::instance();
  if (k == 16 && machine.config().target < 80) {
    machine.fail(thread, "mma_m16n8k16 needs sm_80, the target is sm_" + std::to_string(machine.config().target), here);
  }
  machine.count(thread, &simt::WarpOperations::mma, here);
  simt::MmaPayload payload{d, a, b, c};
  thread.block->meet(thread, ~0u, what, &payload, here);
}

void load_matrices_from(int count, bool transposed, uint32_t* fragment, const void* row, Here here) {
  static constexpr simt::Collective kinds[2][3] = {{{"load_matrices<1>", true, simt::complete_load_matrices<1, false>},
                                                    {"load_matrices<2>", true, simt::complete_load_matrices<2, false>},
                                                    {"load_matrices<4>", true, simt::complete_load_matrices<4, false>}},
                                                   {{"load_matrices<1>", true, simt::complete_load_matrices<1, true>},
                                                    {"load_matrices<2>", true, simt::complete_load_matrices<2, true>},
                                                    {"load_matrices<4>", true, simt::complete_load_matrices<4, true>}}};
  const simt::Collective& what = kinds[transposed][count / 2];
  simt::Thread& thread = simt::Machine::instance().running(what.name, here);
  simt::Machine::instance().count(thread, &simt::WarpOperations::shared_loads, here);
  simt::MatricesPayload payload{row, fragment};
  thread.block->meet(thread, ~0u, what, &payload, here);
}

}}}  // namespace warprank::v0::device::backend
