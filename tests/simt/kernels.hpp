// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Whole kernels as a library has them, for the executor to run and nvcc to compile.

#include "warprank/device/async_copy.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/mma.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"

namespace kernels {

using namespace warprank::device;  // NOLINT: these are kernels

constexpr int sum_threads = 128;

/// out[0] = the sum of x [n]: each block leaves a partial sum, the last block to arrive adds them in their order. The
/// ticket is 0 before and after.
WARPRANK_KERNEL(sum_threads, 4)
sum(const float* x, int64_t n, float* partial, uint32_t* ticket, float* out) {  // partial [grid]
  struct Storage {
    float of_warp[sum_threads / warp_size];
    bool last;
  };
  Storage& shared = static_shared<Storage>();
  float value = 0;
  for (int64_t i = global_thread_rank(); i < n; i += num_threads()) value += load_read_only(&x[i]);
  value = Warp::sum(value);
  if (lane_index() == 0) shared.of_warp[warp_index()] = value;
  sync_block();
  if (thread_rank() == 0) {
    float total = 0;
    for (float part : shared.of_warp) total += part;
    store(&partial[block_index().x], total);
    shared.last = take_ticket<Order::acq_rel, Scope::device>(ticket, grid_dim().x - 1) == grid_dim().x - 1;
  }
  sync_block();
  if (!shared.last || thread_rank() != 0) return;
  float total = 0;
  for (unsigned block = 0; block < grid_dim().x; ++block) total += load(&partial[block]);
  store(out, total);
}

constexpr uint64_t empty_key = ~uint64_t{0};

/// Inserts keys [n] into slots [buckets, 8], a tile of 8 lanes for each key; failed counts the keys without a place.
WARPRANK_KERNEL(128, 4)
insert(const uint64_t* keys, int64_t n, uint64_t* slots, uint32_t buckets, uint32_t* failed) {
  using Bucket = Tile<8>;
  const int64_t num_tiles = num_threads() / Bucket::size;
  for (int64_t i = global_thread_rank() / Bucket::size; i < n; i += num_tiles) {
    const uint64_t key = load_read_only(&keys[i]);
    uint32_t bucket = static_cast<uint32_t>(key * 0x9e3779b97f4a7c15u >> 32) % buckets;
    bool done = false;
    uint32_t probes = 0;
    while (!done && probes < buckets) {
      uint64_t* slot = &slots[static_cast<int64_t>(bucket) * Bucket::size + Bucket::rank()];
      const uint64_t held = load<Order::relaxed, Scope::device>(slot);
      if (Bucket::any(held == key)) break;
      const uint32_t free = Bucket::ballot(held == empty_key);
      if (free == 0) {
        bucket = (bucket + 1) % buckets;
        ++probes;
        continue;
      }
      uint64_t before = 0;
      if (Bucket::rank() == first_bit(free)) {
        before = compare_exchange<Order::relaxed, Scope::device>(slot, empty_key, key);
      }
      before = Bucket::shuffle(before, first_bit(free));
      done = before == empty_key || before == key;
    }
    if (probes == buckets && Bucket::rank() == 0) atomic_add<Order::relaxed, Scope::device>(failed, 1u);
  }
}

constexpr int gemm_size = 64, gemm_threads = 128, gemm_stride = gemm_size + 8;
constexpr int64_t gemm_shared_bytes = int64_t{2} * gemm_size * gemm_stride * 2;

/// C = A B, all 64 x 64 and row-major, FP16 in and FP32 out, one block. Depth 8 runs on every target, 16 from sm_80.
template <int Depth>
WARPRANK_KERNEL(gemm_threads, 1)
gemm(const warprank::float16* a, const warprank::float16* b, float* c) {
  constexpr int vector = 8, rows = 32, cols = 32;  // of a warp
  auto* tile_a = dynamic_shared<warprank::float16>();
  auto* tile_b = tile_a + gemm_size * gemm_stride;
  for (int i = thread_rank() * vector; i < gemm_size * gemm_size; i += gemm_threads * vector) {
    const int to = i / gemm_size * gemm_stride + i % gemm_size;
    copy_async(&tile_a[to], &a[i]);
    copy_async(&tile_b[to], &b[i]);
  }
  commit_async();
  wait_async<0>();
  sync_block();

  const int row0 = warp_index() / 2 * rows, col0 = warp_index() % 2 * cols, lane = lane_index();
  float sums[rows / 16][cols / 8][4] = {};
  for (int k = 0; k < gemm_size; k += Depth) {
    uint32_t fragment_a[rows / 16][Depth / 4], fragment_b[cols / 8][Depth / 8];
    WARPRANK_UNROLL
    for (int i = 0; i < rows / 16; ++i) {
      // Matrices of 8 columns, each of 16 rows: lanes 0-15 give the rows of the first, 16-31 of the second.
      load_matrices(fragment_a[i],
                    &tile_a[(row0 + i * 16 + lane % 16) * gemm_stride + k + lane / 16 % (Depth / 8) * 8]);
    }
    WARPRANK_UNROLL
    for (int j = 0; j < cols / 8; ++j) {
      load_matrices<true>(fragment_b[j], &tile_b[(k + lane % Depth) * gemm_stride + col0 + j * 8]);
    }
    WARPRANK_UNROLL
    for (int i = 0; i < rows / 16; ++i) {
      WARPRANK_UNROLL
      for (int j = 0; j < cols / 8; ++j) {
        if constexpr (Depth == 8) mma_m16n8k8(sums[i][j], fragment_a[i], fragment_b[j], sums[i][j]);
        if constexpr (Depth == 16) mma_m16n8k16(sums[i][j], fragment_a[i], fragment_b[j], sums[i][j]);
      }
    }
  }
  WARPRANK_UNROLL
  for (int i = 0; i < rows / 16; ++i) {
    WARPRANK_UNROLL
    for (int j = 0; j < cols / 8; ++j) {
      WARPRANK_UNROLL
      for (int half_tile = 0; half_tile < 2; ++half_tile) {
        const int row = row0 + i * 16 + lane / 4 + half_tile * 8, col = col0 + j * 8 + lane % 4 * 2;
        const Vector<float, 2> pair{{sums[i][j][half_tile * 2], sums[i][j][half_tile * 2 + 1]}};
        store_vector(&c[row * gemm_size + col], pair);
      }
    }
  }
}

/// A row of 2 x 64 values that is replaced while it is read: a slot is written aside and published by its number.
struct alignas(16) Row {
  uint32_t current;
  uint32_t slots[2][64];
};

WARPRANK_KERNEL(64, 1)
update_row(Row* row, uint32_t version) {
  const uint32_t spare = 1 - load<Order::relaxed, Scope::device>(&row->current);
  store(&row->slots[spare][thread_rank()], version);
  sync_block();
  if (thread_rank() == 0) store<Order::release, Scope::device>(&row->current, spare);
}

/// out [64] = the row, all of one version.
WARPRANK_KERNEL(64, 1)
read_row(const Row* row, uint32_t* out) {
  uint32_t& slot = static_shared<uint32_t>();
  if (thread_rank() == 0) slot = load<Order::acquire, Scope::device>(&row->current);
  sync_block();
  store(&out[thread_rank()], load(&row->slots[slot][thread_rank()]));
}

/// y = a x in place, 16 bytes at a time; n is a multiple of 4.
WARPRANK_KERNEL(256, 1)
scale(float* x, int64_t n, float a) {
  for (int64_t i = global_thread_rank() * 4; i < n; i += num_threads() * 4) {
    auto four = load_vector<4>(&x[i]);
    WARPRANK_UNROLL
    for (int j = 0; j < 4; ++j) four[j] *= a;
    store_vector(&x[i], four);
  }
}

/// One block sets two flags, another reads them in the other order: seen [2] is what it found, the later flag first.
template <Order StoreOrder, Order LoadOrder, bool Fenced>
WARPRANK_KERNEL(1, 1)
message(uint32_t* flags, uint32_t* seen) {
  if (block_index().x == 0) {
    store<Order::relaxed, Scope::device>(&flags[0], 1u);
    if constexpr (Fenced) fence<Scope::device>();
    store<StoreOrder, Scope::device>(&flags[1], 1u);
  } else {
    seen[0] = load<LoadOrder, Scope::device>(&flags[1]);
    if constexpr (Fenced) fence<Scope::device>();
    seen[1] = load<Order::relaxed, Scope::device>(&flags[0]);
  }
}

/// A pipeline commits a group in every turn, also when nothing is left to copy.
WARPRANK_KERNEL(32, 1)
commit_nothing() {
  commit_async();
  commit_async();
  wait_async<1>();
}

}  // namespace kernels
