// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Sorts rows by scene, for experts by scene (experts.cuh):
///
///     rows = the rows of scene 0, of scene 1, ...; at last the rows whose id is not in [0, num_scenes)
///
/// Rows of a scene stay in their order. There is one id for each row, or for each segment of rows. Each launch counts
/// the ids, and the ids that name no scene.

#include <cstdint>

#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/ops/contract.hpp"
#include "warprank/ops/detail/scene_rows/kernel.cuh"
#include "warprank/ops/row_groups.hpp"
#include "warprank/ops/scene_ids.hpp"

namespace warprank { inline namespace v0 {

/// RowGroups for layers. Used as contract.hpp says: one kernel of one block, meant for up to some ten thousand rows.
class SceneRows : public Primitive {
 public:
  /// `groups` is bytes(num_scenes, num_rows.capacity) of device memory, aligned to 256; its launches write it, and
  /// launches of layers read it. Throws invalid_argument, all problems together.
  SceneRows(const SceneIds& scenes, int64_t num_scenes, DeviceCount num_rows, void* groups)
      : Primitive("rows of scenes"),
        arguments_(
            detail::scene_rows::describe_scenes(scenes, num_scenes, num_rows.capacity, num_rows.actual, groups)) {
    set_launches(1);
  }

  static int64_t bytes(int64_t num_scenes, int64_t capacity) {
    return detail::scene_rows::ends_offset(capacity) + (num_scenes + 1) * int64_t{sizeof(int32_t)};
  }
  RowGroups groups() const { return {arguments_.rows, arguments_.ends, arguments_.num_groups}; }

  WARPRANK_HIDDEN void launch(const LaunchMemory&, device::Stream stream = {}) const;

 private:
  detail::scene_rows::SceneArguments arguments_;
};

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_SCENE_ROWS)
WARPRANK_KERNELS_INLINE void SceneRows::launch(const LaunchMemory&, device::Stream stream) const {
  using namespace detail::scene_rows;  // NOLINT: of this function alone
  const auto kernel = arguments_.ids == nullptr ? scene_rows_kernel<true> : scene_rows_kernel<false>;
  device::launch_overlapping({1, num_threads, 0, stream}, kernel, arguments_);
}
#endif

}}  // namespace warprank::v0
