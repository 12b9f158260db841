// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What comes behind the products of linear layers, by itself: y = epilogue(sums), as gemm/epilogue.cuh has it, for
/// several layers in one launch. The sums [capacity, out] are FP32 and those of another kernel, cuBLASLt for example.

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/ops/contract.hpp"
#include "warprank/ops/detail/common/check_float_matrix.hpp"
#include "warprank/ops/detail/common/descriptors.cuh"
#include "warprank/ops/detail/gemm/epilogue.cuh"

namespace warprank { inline namespace v0 { namespace detail::gemm {

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

/// What remains to be done for a layer whose products are in `sums`.
struct FinishedLayer {
  FloatMatrix<const void> sums;
  Epilogue epilogue;
  const int64_t* num_rows = nullptr;
};

struct FinishPlan {
  std::vector<FinishDescriptor> descriptors;
  int64_t num_blocks = 0;
};

inline FinishPlan plan_finish(Span<const FinishedLayer> layers) {
  FinishPlan plan;
  for (const FinishedLayer& layer : layers) {
    plan.descriptors.push_back(
        {operand_of(layer.sums), layer.epilogue, layer.num_rows, layer.sums.rows, plan.num_blocks});
    const int64_t columns = (layer.epilogue.width + columns_at_once - 1) / columns_at_once;
    plan.num_blocks += (layer.sums.rows * columns + finish_threads - 1) / finish_threads;
  }
  if (plan.num_blocks > max_blocks)
    throw invalid_argument("linear layers of one launch", "at most 2^31 - 1 blocks", std::to_string(plan.num_blocks));
  return plan;
}

/// Layers that are finished together: one kernel.
class FinishLaunch : public Primitive {
 public:
  explicit FinishLaunch(Span<const FinishedLayer> layers)
      : Primitive("finished linear layers"), plan_(plan_finish(layers)) {
    set_launches(plan_.num_blocks > 0);
    set_descriptors(bytes_of(plan_.descriptors));
  }

  WARPRANK_HIDDEN void launch(const LaunchMemory& memory, device::Stream stream = {}) const;

 private:
  FinishPlan plan_;
};

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_LINEAR)
WARPRANK_KERNELS_INLINE void FinishLaunch::launch(const LaunchMemory& memory, device::Stream stream) const {
  check(memory);
  device::launch_overlapping({static_cast<unsigned>(plan_.num_blocks), finish_threads, 0, stream}, finish_kernel<>,
                             static_cast<const FinishDescriptor*>(memory.descriptors),
                             static_cast<int>(plan_.descriptors.size()));
}
#endif

}}}  // namespace warprank::v0::detail::gemm
