// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Writes rows of a direct table in device memory: row keys[i] becomes row i of those given. A warp copies one.
///
/// Rows are not whole while it runs, and look-ups read them by `.nc` loads: streams and events must order every launch
/// that reads the table before or after it. A launch starts with nothing in the caches of such loads.

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/ops/table_view.hpp"

namespace warprank { inline namespace v0 { namespace detail::write_rows {

/// Rows in device memory, as the table has them.
struct GivenRows {
  const int64_t* keys = nullptr;        ///< [count], in the table, each once
  const unsigned char* rows = nullptr;  ///< [count][stride_bytes], aligned to 16
  int64_t stride_bytes = 0;
  int64_t count = 0;
};

inline constexpr int threads = 128;

/// `Unit`: what divides addresses, strides and rows.
template <class Unit>
WARPRANK_KERNEL(threads, 8)
write_rows_kernel(unsigned char* rows, int64_t row_bytes, GivenRows given) {
  using namespace device;  // NOLINT: for kernels
  const auto num_units = static_cast<int>(row_bytes / static_cast<int64_t>(sizeof(Unit)));
  for (int64_t i = global_thread_rank() / warp_size; i < given.count; i += num_threads() / warp_size) {
    const int64_t key = load_read_only(&given.keys[i]);
    const unsigned char* from = given.rows + i * given.stride_bytes;
    auto* to = reinterpret_cast<Unit*>(rows + key * row_bytes);
    for (int u = lane_index(); u < num_units; u += warp_size) {
      store(&to[u], load_read_only(reinterpret_cast<const Unit*>(from) + u));
    }
  }
}

/// Rows of `table` lie side by side, from an address that is aligned to 16; whole strides are written, so what is
/// behind the values of I8, too.
WARPRANK_HIDDEN WARPRANK_KERNELS_INLINE void launch(const TableView& table, const GivenRows& given,
                                                    device::Stream stream);

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_ENGINE)
WARPRANK_KERNELS_INLINE void launch(const TableView& table, const GivenRows& given, device::Stream stream) {
  constexpr int64_t max_blocks = 1 << 14, warps_per_block = threads / device::warp_size;
  auto* const rows = static_cast<unsigned char*>(const_cast<void*>(table.rows));
  const int64_t bytes = table.row_stride_bytes;
  const auto blocks =
      static_cast<unsigned>(std::min(max_blocks, (given.count + warps_per_block - 1) / warps_per_block));
  const device::LaunchConfig config(blocks, threads, 0, stream);
  const int64_t unit = std::gcd(std::gcd(bytes, given.stride_bytes), int64_t{16});
  if (unit == 16) {
    device::launch(config, write_rows_kernel<device::Vector<uint32_t, 4>>, rows, bytes, given);
  } else if (unit % 4 == 0) {
    device::launch(config, write_rows_kernel<uint32_t>, rows, bytes, given);
  } else if (unit == 2) {
    device::launch(config, write_rows_kernel<uint16_t>, rows, bytes, given);
  } else {
    device::launch(config, write_rows_kernel<uint8_t>, rows, bytes, given);
  }
}
#endif

}}}  // namespace warprank::v0::detail::write_rows
