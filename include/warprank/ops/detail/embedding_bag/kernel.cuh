// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of look-ups: copies of dense inputs and of rows, and bags. It is compiled with hashed features and, with
/// more blocks on a multiprocessor, without.
///
/// What a block does is in one record of 128 bytes, or two where a feature of the launch has weights and the like,
/// which it finds by its number alone, and reads by one load. It then runs one of few paths (record.hpp). Loads that
/// wait for one another, and for the launch before from the second on:
///
///     ids                          loads
///     array, one id                record (its count), id, row
///     array with offsets           record (its count), offsets, id, row
///     array with indices           record (its counts), log2(ids) in each of two searches, id, row
///     requests, one id             record and beside it their number and positions, entry of a blob, id, row
///     requests, bags               ..., entries, offsets, id, row
///     dense values of requests     ..., entry, values
///
/// with one more for a count in device memory, and of a hashed table a line before the row (hashed.cuh). Scales and
/// offsets of I8, weights and ids of the rows after are on their way beside the rows. Two barriers at most where bags
/// are short. 128 threads have 4 parts of 16 bytes each on their way: 8 KB for a block, 64 KB for a multiprocessor. In
/// the prototype of this kernel a warp executed 250 instructions for a request of 50 items, and the launch took 5.2 us
/// (H100).
///
/// All rows take the same code but where they are decoded: a type costs 2 KB of instructions there, and cost 90 KB when
/// each had paths of its own, which took nvcc three times as long. A branch on the type for four rows is nothing beside
/// their loads. A path of another kind is one more value of Path, and one more case in run_path or in pool_bag.

#include <cstdint>

#include "warprank/device/launch.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/ops/detail/embedding_bag/copy_rows.cuh"
#include "warprank/ops/detail/embedding_bag/hashed.cuh"
#include "warprank/ops/detail/embedding_bag/pool_bags.cuh"

namespace warprank { inline namespace v0 { namespace detail::embedding_bag {

/// Reads the block's record, and its first span. The first warp calls.
WARPRANK_DEVICE void begin_block(const Block& block) {
  using namespace device;  // NOLINT: a device function
  using Word = Vector<uint64_t, 2>;
  constexpr int words_of_record = sizeof(Record) / sizeof(Word);
  const int words = words_of_record * static_cast<int>(block.lines), lane = lane_index();
  Word word{};
  if (lane < words) word = load_constant(reinterpret_cast<const Word*>(block.record) + lane);
  wait_for_previous_launch();
  const Batch& batch = block.batch;
  int64_t position = 0, num_requests = 0;
  if (batch.positions != nullptr) {
    num_requests = true_count(batch.num_requests, batch.max_requests);
    if (lane < batch.max_requests) position = load_constant(&batch.positions[lane]);
  }
  if (lane == 0) {
    block.shared.num_requests = static_cast<int32_t>(num_requests);
    if (block.lines == 1) block.shared.extras = no_extras;
  }
  if (lane < words_of_record) {
    reinterpret_cast<Word*>(&block.shared.record)[lane] = word;
  } else if (lane < words) {
    reinterpret_cast<Word*>(&block.shared.extras)[lane - words_of_record] = word;
  }
  sync_warp();
  begin_spans(block, position);
}

/// `HasKeys` is of launches with features of hashed tables, which take more registers.
/// `HasCaches` of launches where some of them are on the host and have caches.
template <bool HasKeys, bool HasCaches>
WARPRANK_DEVICE void run_path(const Block& block) {
  switch (block.f().path) {
    case Path::dense:
      return copy_dense(block);
    case Path::rows:
      if (copy_rows(block)) break;
      return;
    case Path::keys:
      if constexpr (HasKeys) {
        if (is_row_of_key(block.f())) return copy_keys<HasCaches>(block);
      }
      break;
    default:
      break;
  }
  pool_bags<HasKeys, HasCaches>(block);
}

/// Does what a record says.
template <bool HasKeys, bool HasCaches = false>
WARPRANK_DEVICE void run_block(Shared& shared, const Record* record, uint32_t lines, const Batch& batch,
                               unsigned char* workspace) {
  using namespace device;  // NOLINT: a device function
  const Block block{shared, batch, record, lines, workspace};
  if (warp_index() == 0) {
    begin_block(block);
  } else {
    wait_for_previous_launch();
  }
  sync_block();
  const bool counts = shared.record.counters != nullptr;
  if (counts) shared.tally[thread_rank()] = {};
  run_path<HasKeys, HasCaches>(block);
  const bool is_hashed = shared.record.path == Path::keys && !(HasCaches && is_direct(block));
  if (counts) add_counts(block, is_hashed);
}

// Code for sm_86 and sm_89 takes a few registers more, and spills within 64.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890)
inline constexpr int compiled_blocks_per_sm = policy.blocks_per_sm - 1;
#else
inline constexpr int compiled_blocks_per_sm = policy.blocks_per_sm;
#endif

/// Block b does what its record says, the b-th of so many lines each.
template <bool HasKeys>
WARPRANK_KERNEL(policy.threads, HasKeys ? blocks_with_keys_per_sm : compiled_blocks_per_sm)
embedding_bag_kernel(const Record* records, uint32_t lines, Batch batch, unsigned char* workspace) {
  using namespace device;  // NOLINT: for kernels
  run_block<HasKeys>(static_shared<Shared>(), records + uint64_t{block_index().x} * lines, lines, batch, workspace);
}

/// The same of launches with caches.
template <class = void>
WARPRANK_KERNEL(policy.threads, blocks_with_caches_per_sm)
cached_embedding_bag_kernel(const Record* records, uint32_t lines, Batch batch, unsigned char* workspace) {
  using namespace device;  // NOLINT: for kernels
  run_block<true, true>(static_shared<Shared>(), records + uint64_t{block_index().x} * lines, lines, batch, workspace);
}

}}}  // namespace warprank::v0::detail::embedding_bag
