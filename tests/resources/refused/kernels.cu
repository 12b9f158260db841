// SPDX-License-Identifier: Apache-2.0
//
// Kernels that must be refused, each for a reason of its own.

#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/mma.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"

namespace refused {

using namespace warprank::device;  // NOLINT: for kernels

/// Keeps 100 values of each thread, for which 64 registers are not enough.
WARPRANK_KERNEL(1024, 1)
spills(const float* x, float* y) {
  float values[100], sum = 0;
  WARPRANK_UNROLL
  for (int i = 0; i < 100; ++i) values[i] = load(&x[i * 1024 + thread_rank()]);
  sync_block();
  WARPRANK_UNROLL
  for (int i = 0; i < 100; ++i) sum = sum * values[i] + values[99 - i];
  store(&y[thread_rank()], sum);
}

struct Storage {
  float values[4096];
};

WARPRANK_KERNEL(64, 1)
shared(float* y) {
  auto& storage = static_shared<Storage>();
  storage.values[thread_rank()] = load(&y[thread_rank()]);
  sync_block();
  store(&y[thread_rank()], storage.values[63 - thread_rank()]);
}

WARPRANK_KERNEL(64, 1) not_budgeted(float* y) { store(y, 1.f); }

/// Four tensor instructions.
WARPRANK_KERNEL(32, 1)
tensor(float* y) {
  float d[4] = {};
  const uint32_t a[2] = {1, 2}, b[1] = {3};
  WARPRANK_UNROLL
  for (int i = 0; i < 4; ++i) mma_m16n8k8(d, a, b, d);
  store(&y[thread_rank()], d[0]);
}

}  // namespace refused
