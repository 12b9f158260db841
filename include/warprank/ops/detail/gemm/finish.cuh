// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What comes behind the products of linear layers, by itself: y = epilogue(sums), as gemm/epilogue.cuh has it, for
/// several layers in one launch. The sums [capacity, out] are FP32 and those of another kernel, cuBLASLt for example.

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/ops/detail/descriptors.cuh"
#include "warprank/ops/detail/gemm/check.hpp"
#include "warprank/ops/detail/gemm/epilogue.cuh"

namespace warprank::detail {

/// A layer as it lies in device memory.
struct alignas(16) FinishDescriptor {
  Operand<const void> sums;
  Epilogue epilogue;
  const int64_t* num_rows;  ///< null: max_rows
  int64_t max_rows;
  int64_t first_block;
};
static_assert(std::is_trivially_copyable_v<FinishDescriptor>);

inline constexpr int finish_threads = 256;

/// A thread has four columns of a row.
template <class = void>
WARPRANK_KERNEL(finish_threads, 4)
finish_kernel(const FinishDescriptor* layers, int num_layers) {
  const int64_t block = device::block_index().x;
  auto& layer = device::static_shared<FinishDescriptor>();
  read_descriptors(layers + problem_of_block(layers, num_layers, block), 1, &layer);
  device::wait_for_previous_launch();
  const Epilogue& epilogue = layer.epilogue;
  const int64_t columns = (epilogue.width + columns_at_once - 1) / columns_at_once;
  const int64_t at = (block - layer.first_block) * finish_threads + device::thread_rank();
  const int64_t row = at / columns, column = at % columns * columns_at_once;
  if (row >= device::true_count(layer.num_rows, layer.max_rows)) return;
  float values[columns_at_once];
  load_operand(layer.sums, row, column, epilogue.width, values);
  const int64_t bias_row = epilogue.row_bias.data == nullptr ? 0 : bias_row_of(epilogue, row);
  finish_columns(epilogue, row, bias_row, column, values);
}

/// Layers that are finished together.
class FinishLaunch {
 public:
  void add(const FloatMatrix<const void>& sums, const Epilogue& epilogue, const int64_t* num_rows) {
    FinishDescriptor layer{operand_of(sums), epilogue, num_rows, sums.rows, num_blocks_};
    const int64_t columns = (epilogue.width + columns_at_once - 1) / columns_at_once;
    num_blocks_ += (sums.rows * columns + finish_threads - 1) / finish_threads;
    if (num_blocks_ > max_blocks)
      throw invalid_argument("linear layers of one launch", "at most 2^31 - 1 blocks", std::to_string(num_blocks_));
    descriptors_.push_back(layer);
  }
  bool is_empty() const { return num_blocks_ == 0; }

  Span<const unsigned char> descriptors() const {
    return {reinterpret_cast<const unsigned char*>(descriptors_.data()),
            static_cast<int64_t>(descriptors_.size() * sizeof(FinishDescriptor))};
  }
  /// `descriptors` in device memory, aligned to 16.
  WARPRANK_HIDDEN void run(const void* descriptors, device::Stream stream) const;

 private:
  std::vector<FinishDescriptor> descriptors_;
  int64_t num_blocks_ = 0;
};

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_LINEAR)
WARPRANK_KERNELS_INLINE void FinishLaunch::run(const void* descriptors, device::Stream stream) const {
  device::launch_overlapping({static_cast<unsigned>(num_blocks_), finish_threads, 0, stream}, finish_kernel<>,
                             static_cast<const FinishDescriptor*>(descriptors), static_cast<int>(descriptors_.size()));
}
#endif

}  // namespace warprank::detail
