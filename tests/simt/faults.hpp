// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Small kernels, each right with Broken = false and wrong in one way with Broken = true. A comment with the fault's
/// name stands on the lines that an error may name.

#include <cstring>

#include "warprank/device/async_copy.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/mma.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"

namespace faults {

using namespace warprank::device;  // NOLINT: these are kernels

struct Numbers {
  float values[128];
};

// ---- Barriers and collectives

template <bool Broken>
WARPRANK_KERNEL(128, 1)
missing_barrier(float* out) {
  float* values = static_shared<Numbers>().values;
  values[thread_rank()] = 1;  // missing_barrier
  if constexpr (!Broken) sync_block();
  out[thread_rank()] = values[127 - thread_rank()];  // missing_barrier
}

template <bool Broken>
WARPRANK_KERNEL(128, 1)
missing_second_barrier(float* out) {
  float* values = static_shared<Numbers>().values;
  for (int turn = 0; turn < 3; ++turn) {
    values[thread_rank()] = 1;  // missing_second_barrier
    sync_block();
    out[thread_rank()] = values[127 - thread_rank()];  // missing_second_barrier
    if constexpr (!Broken) sync_block();
  }
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
missing_barrier_of_copies(float* out) {
  float* values = static_shared<Numbers>().values;
  std::memset(&values[lane_index() * 4], 0, 16);  // missing_barrier_of_copies
  if constexpr (!Broken) sync_warp();
  std::memcpy(&out[lane_index() * 4], &values[(31 - lane_index()) * 4], 16);  // missing_barrier_of_copies
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
missing_warp_barrier(float* out) {
  float* values = static_shared<Numbers>().values;
  values[lane_index()] = 1;  // missing_warp_barrier
  if constexpr (Broken) {
    shuffle(full_warp, 1, 0);  // meets, but orders no memory
  } else {
    sync_warp();
  }
  out[lane_index()] = values[31 - lane_index()];  // missing_warp_barrier
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
divergent_shuffle(float* out) {
  float value = 1;
  if (!Broken || lane_index() < 16) value = shuffle_xor(full_warp, value, 1);  // divergent_shuffle
  sync_block();
  out[lane_index()] = value;
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
shuffle_outside_mask(float* out) {
  const uint32_t half_warp = lane_index() < 16 ? 0xffffu : 0xffff0000u;
  const int source = Broken ? 0 : lane_index() / 16 * 16;
  out[lane_index()] = shuffle(half_warp, 1.f, source);  // shuffle_outside_mask
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
mask_without_caller(float* out) {
  const uint32_t mask = Broken ? 0xfu << (lane_index() & 24) : Tile<8>::mask();
  out[lane_index()] = any(mask, true) ? 1 : 0;  // mask_without_caller
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
exited_lane_in_mask(float* out) {
  if (lane_index() >= 24) return;
  out[lane_index()] = 0;
  const uint32_t voters = Broken ? full_warp : 0xffffffu;
  out[lane_index()] = any(voters, true) ? 1 : 0;  // exited_lane_in_mask
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
different_operations(float* out) {
  if (Broken && lane_index() == 3) {
    sync_warp();  // different_operations
  } else {
    out[lane_index()] = any(full_warp, true) ? 1 : 0;  // different_operations
  }
  if (!Broken) sync_warp();
}

template <bool Broken>
WARPRANK_KERNEL(64, 1)
barrier_in_branch(float* out) {
  if (Broken && thread_rank() < 16) {
    sync_block();  // barrier_in_branch
  } else {
    sync_block();  // barrier_in_branch
  }
  out[thread_rank()] = 1;
}
template <>
WARPRANK_KERNEL(64, 1)
barrier_in_branch<false>(float* out) {
  sync_block();
  out[thread_rank()] = 1;
}

// ---- Bounds, alignment and unwritten memory

template <bool Broken>
WARPRANK_KERNEL(128, 1)
shared_out_of_bounds(float* out) {
  float* values = static_shared<Numbers>().values;
  const int i = thread_rank() + (Broken ? 1 : 0);
  values[i] = 1;  // shared_out_of_bounds
  sync_block();
  out[thread_rank()] = 1;
}

template <bool Broken>
WARPRANK_KERNEL(128, 1)
global_out_of_bounds(float* out) {  // out [128]
  const int i = thread_rank() + (Broken ? 1 : 0);
  store(&out[i], 1.f);  // global_out_of_bounds
}

template <bool Broken>
WARPRANK_KERNEL(128, 1)
plain_out_of_bounds(float* out) {  // out [128]
  const int i = thread_rank() - (Broken ? 1 : 0) * 128;
  out[i < 0 ? i + 256 : i] = 1;  // plain_out_of_bounds
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
misaligned_vector(float* out) {
  const auto four = load_vector<4>(out + (Broken ? 2 : 4));  // misaligned_vector
  out[64 + lane_index()] = four[0];
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
unwritten_shared(float* out) {
  float* values = static_shared<Numbers>().values;
  if (!Broken || lane_index() < 31) values[lane_index()] = 1;
  sync_warp();
  out[lane_index()] = values[31 - lane_index()];  // unwritten_shared
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
unwritten_global(float* out, float* scratch) {
  if (!Broken) scratch[lane_index()] = 1;
  out[lane_index()] = load(&scratch[lane_index()]);  // unwritten_global
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
host_memory(float* out, const float* host) {
  out[lane_index()] = load(Broken ? host : out);  // host_memory
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
no_dynamic_shared(float* out) {
  float* values = dynamic_shared<float>();  // no_dynamic_shared
  values[lane_index()] = 1;
  out[lane_index()] = 1;
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
too_much_static_shared(float* out) {
  struct Storage {
    float values[Broken ? 12289 : 12288];
  };
  Storage& storage = static_shared<Storage>();  // too_much_static_shared
  storage.values[lane_index()] = 1;
  out[lane_index()] = 1;
}

// ---- Tensor cores and copies

template <bool Broken>
WARPRANK_KERNEL(32, 1)
misaligned_matrices(float* out) {
  auto* halves = dynamic_shared<uint16_t>();
  for (int i = lane_index(); i < 512; i += 32) halves[i] = 0;
  sync_warp();
  uint32_t fragment[4];
  load_matrices(fragment, halves + lane_index() * (Broken ? 9 : 8));  // misaligned_matrices
  out[lane_index()] = static_cast<float>(fragment[0]);
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
matrices_from_global(float* out) {
  auto* numbers = dynamic_shared<float>();
  for (int i = lane_index(); i < 128; i += 32) numbers[i] = 0;
  sync_warp();
  uint32_t fragment[1];
  load_matrices(fragment, (Broken ? out : numbers) + lane_index() % 8 * 4);  // matrices_from_global
  out[lane_index()] = static_cast<float>(fragment[0]);
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
mma_newer_than_target(float* out) {
  float d[4] = {};
  if constexpr (Broken) {
    const uint32_t a[4] = {}, b[2] = {};
    mma_m16n8k16(d, a, b, d);  // mma_newer_than_target
  } else {
    const uint32_t a[2] = {}, b[1] = {};
    mma_m16n8k8(d, a, b, d);
  }
  out[lane_index()] = d[0];
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
mma_by_half_a_warp(float* out) {
  float d[4] = {};
  const uint32_t a[2] = {}, b[1] = {};
  mma_m16n8k8(d, a, b, d);  // mma_by_half_a_warp
  out[lane_index()] = d[0];
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
copy_not_waited(float* out) {
  auto* numbers = dynamic_shared<float>();
  copy_async(&numbers[lane_index() * 4], &out[lane_index() * 4]);
  commit_async();
  if (!Broken) wait_async<0>();
  out[128 + lane_index()] = numbers[lane_index() * 4];  // copy_not_waited
  wait_async<0>();
}

template <bool Broken>
WARPRANK_KERNEL(64, 1)
copy_of_another(float* out) {
  auto* numbers = dynamic_shared<float>();
  copy_async(&numbers[thread_rank() * 4], &out[thread_rank() * 4]);  // copy_of_another
  commit_async();
  wait_async<0>();
  if (!Broken) sync_block();                                     // a wait is for the thread's own copies
  out[256 + thread_rank()] = numbers[(63 - thread_rank()) * 4];  // copy_of_another
}

template <bool Broken>
WARPRANK_KERNEL(64, 1)
early_reuse(float* out) {
  auto* slots = dynamic_shared<float>();  // [2, 64, 4]
  float sum = 0;
  copy_async(&slots[thread_rank() * 4], &out[thread_rank() * 4]);
  commit_async();
  for (int turn = 0; turn < 4; ++turn) {
    wait_async<0>();
    sync_block();
    const int slot = turn % 2 * 256, next = Broken ? slot : 256 - slot;
    copy_async(&slots[next + thread_rank() * 4], &out[thread_rank() * 4]);  // early_reuse
    commit_async();
    sum += slots[slot + (63 - thread_rank()) * 4];  // early_reuse
  }
  wait_async<0>();
  out[256 + thread_rank()] = sum;
}

// ---- Between blocks

template <bool Broken>
WARPRANK_KERNEL(32, 1)
blocks_write_one_place(float* out) {
  store(&out[lane_index() + (Broken ? 0 : 32 * block_index().x)], 1.f);  // blocks_write_one_place
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
lost_update(uint32_t* slots) {  // every thread takes a slot of its own
  for (int i = 0; i < 128; ++i) {
    bool taken;
    if constexpr (Broken) {
      taken = load<Order::relaxed, Scope::device>(&slots[i]) == 0;  // lost_update
      if (taken) store(&slots[i], 1u);                              // lost_update
    } else {
      taken = compare_exchange<Order::relaxed, Scope::device>(&slots[i], 0u, 1u) == 0;
    }
    if (taken) return;
  }
}

template <bool Broken>
WARPRANK_KERNEL(64, 1)
missing_fence(float* out, uint32_t* ticket) {              // out [blocks, 64], then the sum [64]
  store(&out[block_index().x * 64 + thread_rank()], 1.f);  // missing_fence
  bool& last = static_shared<bool>();
  sync_block();
  if (thread_rank() == 0) {
    if constexpr (!Broken) fence<Scope::device>();
    last = take_ticket<Order::relaxed, Scope::device>(ticket, grid_dim().x - 1) == grid_dim().x - 1;
    if constexpr (!Broken) fence<Scope::device>();
  }
  sync_block();
  if (!last) return;
  float sum = 0;
  for (unsigned block = 0; block < grid_dim().x; ++block) {
    sum += load(&out[block * 64 + thread_rank()]);  // missing_fence
  }
  out[grid_dim().x * 64 + thread_rank()] = sum;
}

/// Block 0 hands a value to block 1.
template <Order StoreOrder, Scope StoreScope, Order LoadOrder>
WARPRANK_DEVICE void hand_over(float* out, uint32_t* flag, Here here) {
  if (lane_index() != 0) return;
  if (block_index().x == 0) {
    store(out, 1.f, here);
    store<StoreOrder, StoreScope>(flag, 1u, here);
  } else {
    while (load<LoadOrder, Scope::device>(flag, here) == 0) {
    }
    store(out + 1, load(out, here), here);
  }
}
template <bool Broken>
WARPRANK_KERNEL(32, 1)
release_weakened(float* out, uint32_t* flag) {
  constexpr Order order = Broken ? Order::relaxed : Order::release;
  hand_over<order, Scope::device, Order::acquire>(out, flag, Here::current());  // release_weakened
}
template <bool Broken>
WARPRANK_KERNEL(32, 1)
acquire_weakened(float* out, uint32_t* flag) {
  constexpr Order order = Broken ? Order::relaxed : Order::acquire;
  hand_over<Order::release, Scope::device, order>(out, flag, Here::current());  // acquire_weakened
}
template <bool Broken>
WARPRANK_KERNEL(32, 1)
release_scope_too_narrow(float* out, uint32_t* flag) {
  constexpr Scope scope = Broken ? Scope::block : Scope::device;
  hand_over<Order::release, scope, Order::acquire>(out, flag, Here::current());  // release_scope_too_narrow
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
fence_scope_too_narrow(float* out, uint32_t* flag) {
  if (lane_index() != 0) return;
  if (block_index().x == 0) {
    store(out, 1.f);
    fence<Broken ? Scope::block : Scope::device>();
    store<Order::relaxed, Scope::device>(flag, 1u);
  } else {
    while (load<Order::relaxed, Scope::device>(flag) == 0) {
    }
    fence<Scope::device>();
    store(out + 1, load(out));  // fence_scope_too_narrow
  }
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
atomic_scope_too_narrow(uint32_t* count) {
  atomic_add<Order::relaxed, Broken ? Scope::block : Scope::device>(count, 1u);  // atomic_scope_too_narrow
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
waits_for_nobody(uint32_t* flag) {
  if (!Broken && block_index().x == 0) store<Order::relaxed, Scope::device>(flag, 1u);
  while (load<Order::relaxed, Scope::device>(flag) == 0) {  // waits_for_nobody
  }
}
template <bool Broken>
WARPRANK_KERNEL(32, 1)
votes_for_ever(uint32_t* flag) {
  if (!Broken && block_index().x == 0) store<Order::relaxed, Scope::device>(flag, 1u);
  while (!all(full_warp, load<Order::relaxed, Scope::device>(flag) != 0)) {  // votes_for_ever
  }
}

// ---- Between launches

template <bool Broken>
WARPRANK_KERNEL(32, 1)
update_row(uint32_t* row) {
  store<Order::relaxed, Scope::device>(&row[lane_index()], 1u);  // stale_read_only_load
}
template <bool Broken>
WARPRANK_KERNEL(32, 1)
stale_read_only_load(float* out, const uint32_t* row) {
  uint32_t value;
  if constexpr (Broken) {
    value = load_read_only(&row[lane_index()]);  // stale_read_only_load
  } else {
    value = load<Order::relaxed, Scope::device>(&row[lane_index()]);
  }
  out[lane_index()] = static_cast<float>(value);
}

/// Row and flag: as updates of hash tables publish rows, and look-ups find them.
template <bool Broken>
WARPRANK_KERNEL(32, 1)
publish_row(uint32_t* row) {  // [33]
  store(&row[lane_index()], 1u);
  sync_warp();
  if (lane_index() == 0) store<Order::release, Scope::device>(&row[32], 1u);
}
template <bool Broken>
WARPRANK_KERNEL(32, 1)
constant_load_of_new_row(float* out, const uint32_t* row) {
  uint32_t value = 0;
  if (load<Order::acquire, Scope::device>(&row[32]) != 0) {
    if constexpr (Broken) {
      value = load_constant(&row[lane_index()]);  // constant_load_of_new_row
    } else {
      value = load(&row[lane_index()]);
    }
  }
  out[lane_index()] = static_cast<float>(value);
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
read_only_load_of_own_write(float* out) {
  store(&out[lane_index()], 1.f);
  sync_warp();  // orders the accesses, but the read-only path need not see new values
  const float* other = &out[31 - lane_index()];
  if constexpr (Broken) {
    out[32 + lane_index()] = load_read_only(other);  // read_only_load_of_own_write
  } else {
    out[32 + lane_index()] = load(other);
  }
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
produce(float* out) {
  store(&out[lane_index()], 1.f);  // unordered_launches
}
template <bool Broken>
WARPRANK_KERNEL(32, 1)
consume(float* out) {
  out[32 + lane_index()] = load(&out[lane_index()]);  // unordered_launches
}

// ---- Launches that overlap

template <bool Broken>
WARPRANK_KERNEL(32, 1)
next_of(float* values) {  // values[32 (b + 1) ..] from values[32 b ..], for what launch b left
  wait_for_previous_launch();
  const float value = load(&values[lane_index()]) + 1;
  store(&values[32 + lane_index()], value);  // early_read // early_write
}
template <bool Broken>
WARPRANK_KERNEL(32, 1)
early_read(float* values) {
  float value = 0;
  if constexpr (Broken) value = load(&values[lane_index()]);  // early_read
  wait_for_previous_launch();
  if constexpr (!Broken) value = load(&values[lane_index()]);
  store(&values[32 + lane_index()], value + 1);
}
template <bool Broken>
WARPRANK_KERNEL(32, 1)
constant_load_of_launch_before(float* values) {
  wait_for_previous_launch();
  const float* value = &values[lane_index()];
  store(&values[32 + lane_index()],
        (Broken ? load_constant(value)  // constant_load_of_launch_before
                : load_read_only(value)) +
            1);
}
template <bool Broken>
WARPRANK_KERNEL(32, 1)
early_write(float* values) {
  if constexpr (Broken) store(&values[lane_index()], 0.f);  // early_write
  wait_for_previous_launch();
  store(&values[lane_index()], 0.f);
}
template <bool Broken>
WARPRANK_KERNEL(32, 1)
early_wait_of_another(float* values) {
  if (!Broken || lane_index() == 0) wait_for_previous_launch();
  sync_block();                                               // early_wait_of_another
  store(&values[lane_index()], load(&values[lane_index()]));  // early_wait_of_another
}
template <bool Broken>
WARPRANK_KERNEL(64, 1)
early_end(float* values) {
  sync_block();  // early_end
  if (Broken && thread_rank() >= 32) return;
  wait_for_previous_launch();
  if (thread_rank() < 32) store(&values[thread_rank()], 2.f);
}

template <bool Broken>
WARPRANK_KERNEL(32, 1)
touch(float* out) {
  out[lane_index()] = 1;  // use_after_free
}

}  // namespace faults
