// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of look-ups that models have: of direct tables, one id for each row of y or sums and means of bags
/// without weights, and copies of dense inputs. What else there is general/kernel.cuh does, in blocks of its own of the
/// same launch, which is then of a kernel with more registers: only launches with such features pay for them.
///
/// What a block does is in one record of 128 bytes, which it finds by its number alone; it then runs code for its type
/// of rows, loads and bags. Loads that wait for one another, and for the launch before from the second on:
///
///     ids                          loads
///     array, one id                record (its count), id, row
///     array with offsets           record (its count), offsets, id, row
///     requests, one id             record and beside it their number and positions, entry of a blob, id, row
///     requests, bags               ..., entries, offsets, id, row
///     dense values of requests     ..., entry, values
///
/// with one more for a count in device memory. Two barriers at most where bags are short. 128 threads have 4 parts of
/// 16 bytes each on their way: 8 KB for a block, 64 KB for a multiprocessor. In the prototype of this kernel a warp
/// executed 250 instructions for a request of 50 items, and the launch took 5.2 us (H100).

#include <cstdint>

#include "warprank/device/launch.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/ops/detail/embedding_bag/copy_rows.cuh"
#include "warprank/ops/detail/embedding_bag/general/kernel.cuh"
#include "warprank/ops/detail/embedding_bag/pool_bags.cuh"

namespace warprank::detail::embedding_bag {

/// Reads the block's record, and its first span. The first warp calls.
WARPRANK_DEVICE void begin_block(const Block& block) {
  using namespace device;  // NOLINT: a device function
  using Word = Vector<uint64_t, 2>;
  constexpr int words = sizeof(Record) / sizeof(Word);
  Word word{};
  if (lane_index() < words) word = load_constant(reinterpret_cast<const Word*>(block.record) + lane_index());
  wait_for_previous_launch();
  const Batch& batch = block.batch;
  int64_t position = 0, num_requests = 0;
  if (batch.positions != nullptr) {
    num_requests = true_count(batch.num_requests, batch.max_requests);
    if (lane_index() < batch.max_requests) position = load_constant(&batch.positions[lane_index()]);
  }
  if (lane_index() < words) reinterpret_cast<Word*>(&block.shared.record)[lane_index()] = word;
  if (lane_index() == 0) block.shared.num_requests = static_cast<int32_t>(num_requests);
  sync_warp();
  begin_spans(block, position);
}

WARPRANK_DEVICE void run_path(const Block& block) {
  switch (block.f().path) {
    case Path::dense:
      return copy_dense<float>(block);
    case Path::dense_narrow:
      return copy_dense<uint16_t>(block);
    case Path::f32_16:
      return copy_rows<float, 16>(block);
    case Path::f32_16_bags:
      return pool_bags<float, 16>(block);
    case Path::f32_4:
      return copy_rows<float, 4>(block);
    case Path::f32_4_bags:
      return pool_bags<float, 4>(block);
    case Path::f16_16:
      return copy_rows<half, 16>(block);
    case Path::f16_16_bags:
      return pool_bags<half, 16>(block);
    case Path::f16_8:
      return copy_rows<half, 8>(block);
    case Path::f16_8_bags:
      return pool_bags<half, 8>(block);
    case Path::f16_4:
      return copy_rows<half, 4>(block);
    case Path::f16_4_bags:
      return pool_bags<half, 4>(block);
    case Path::bf16_16:
      return copy_rows<bfloat16, 16>(block);
    case Path::bf16_16_bags:
      return pool_bags<bfloat16, 16>(block);
    case Path::bf16_4:
      return copy_rows<bfloat16, 4>(block);
    case Path::bf16_4_bags:
      return pool_bags<bfloat16, 4>(block);
    case Path::i8_8:
      return copy_rows<int8_t, 8>(block);
    case Path::i8_8_bags:
      return pool_bags<int8_t, 8>(block);
    case Path::i8_4:
      return copy_rows<int8_t, 4>(block);
    case Path::i8_4_bags:
      return pool_bags<int8_t, 4>(block);
  }
}

/// Does what a record says.
WARPRANK_DEVICE void run_block(Shared& shared, const Record* record, const Batch& batch, unsigned char* workspace) {
  using namespace device;  // NOLINT: a device function
  const Block block{shared, batch, record, workspace};
  if (warp_index() == 0) {
    begin_block(block);
  } else {
    wait_for_previous_launch();
  }
  sync_block();
  const bool counts = shared.record.counters != nullptr;
  if (counts) shared.tally[thread_rank()] = {};
  run_path(block);
  if (counts) {
    sync_warp();
    add_counts(block);
  }
}

// Code for sm_86 and sm_89 takes a few registers more, and spills within 64.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890)
inline constexpr int compiled_blocks_per_sm = policy.blocks_per_sm - 1;
#else
inline constexpr int compiled_blocks_per_sm = policy.blocks_per_sm;
#endif

/// Block b does what records[b] says.
template <class = void>
WARPRANK_KERNEL(policy.threads, compiled_blocks_per_sm)
embedding_bag_kernel(const Record* records, Batch batch, unsigned char* workspace) {
  using namespace device;  // NOLINT: for kernels
  run_block(static_shared<Shared>(), records + block_index().x, batch, workspace);
}

/// The same, of launches with features that have no path: the first num_general blocks look those up, which take more
/// registers, and begin first because they take longer.
template <int Target>
WARPRANK_KERNEL(general::policy<Target>.threads, general::policy<Target>.blocks_per_sm)
mixed_embedding_bag_kernel(const Record* records, Batch batch, unsigned char* workspace, general::Partition partition,
                           const general::Descriptor* features, uint32_t num_general) {
  using namespace device;  // NOLINT: for kernels
  static_assert(general::policy<Target>.threads == policy.threads);
  union Either {
    Shared shared;
    general::Shared<Target> general;
  };
  Either& either = static_shared<Either>();
  const uint32_t block = block_index().x;
  if (block < num_general) {
    general::run_block<Target>(either.general, partition, features, workspace, block, num_general);
  } else {
    run_block(either.shared, records + (block - num_general), batch, workspace);
  }
}

}  // namespace warprank::detail::embedding_bag
