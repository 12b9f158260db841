// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The runtime that an executor of kernels on the CPU provides. Documented where it is public, in runtime.hpp,
/// owned_memory.hpp and devices.hpp. Ours is in tests/simt.

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "warprank/device/device_info.hpp"
#include "warprank/device/executor.hpp"

// In a namespace of its own: its functions must not be found by the type of a stream.
namespace warprank { inline namespace v0 { namespace device::backend::runtime {

using OwnedStream = std::shared_ptr<StreamState>;
using Graph = std::shared_ptr<void>;

int num_devices();
int current_device();
/// Returns the device that was current.
int set_device(int index);
void restore_device(int index);
DeviceInfo current_device_info();

/// Null if the device does not have as much memory.
void* allocate(int64_t bytes);
void release(void* memory);
std::pair<int64_t, int64_t> free_and_total_bytes();
/// Null if the host does not have as much memory.
void* allocate_pinned(int64_t bytes);
void release_pinned(void* memory);
bool can_read(const void* memory);
bool is_on_device(const void* memory);
bool is_of_current_device(Stream stream);
/// Null if the host does not have as much memory.
std::shared_ptr<void> allocate_mapped(int64_t bytes);
void write_mapped(void* to, const void* from, int64_t bytes);

void copy_to_device(void* to, const void* from, int64_t bytes, Stream stream);
void copy_to_host(void* to, const void* from, int64_t bytes, Stream stream);
void copy_on_device(void* to, const void* from, int64_t bytes, Stream stream);
void fill(void* to, unsigned char value, int64_t bytes, Stream stream);
void synchronize(Stream stream);
void synchronize_device();
template <class Last>
void finish(int index, const Last& last) {
  const int before = current_device();
  restore_device(index);
  synchronize_device();
  last();
  restore_device(before);
}
OwnedStream create_stream();

void begin_capture(Stream stream);
void discard_capture(Stream stream);
Graph end_capture(Stream stream);
void launch_graph(const Graph& graph, Stream stream);
void set_body(const Graph& graph, const void* kernel, std::function<void()> body);
template <class... Params>
void set_arguments(const Graph& graph, void (*kernel)(Params...), Params... args) {
  set_body(graph, reinterpret_cast<const void*>(kernel), call_of<Params...>(kernel, args...));
}
int num_nodes(const Graph& graph);
int num_kernels(const Graph& graph);

}}}  // namespace warprank::v0::device::backend::runtime
