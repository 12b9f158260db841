// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a program needs beside kernels: memory, copies, streams, events and graphs, with the meaning they have in the
/// CUDA runtime. Nothing runs before someone waits: everything queued is then in flight together. One thread of the
/// host may use it. simt/devices.hpp has what there is of several devices.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "simt/config.hpp"
#include "warprank/device/backend.hpp"

namespace simt {

using warprank::device::backend::Stream;
using Here = warprank::SourceLine;

/// Ends everything, frees all memory and streams, and takes new settings. For the beginning of a test.
void reset(const Config& config = {});
const Counters& counters();
void clear_counters();
const Calls& calls();
void clear_calls();

/// Replaces Config::device_bytes and pinned_bytes, until the next reset.
void limit_memory(int64_t device_bytes, int64_t pinned_bytes);
/// From now on the library's call number `n`, from 0, that may fail does so, once: an allocation finds no memory,
/// others throw cuda_error. Until the next reset; -1: none does. What a batch waits for does not fail.
void fail_call(int64_t n);
/// How many calls there are to be before the one that fails; -1: it has been, or there is none.
int64_t calls_before_failure();
/// What is held now.
int64_t allocated_bytes();
int64_t pinned_bytes();  ///< mapped memory included
int64_t num_streams();

// Memory. The host may read and write it as well, when nothing that touches it is in flight.
/// Throws Error when there is not as much.
void* allocate(int64_t bytes);
/// Waits for everything in flight, as cudaFree does.
void release(void* address);
/// Says that the host has written the memory through a pointer.
void mark_written(void* address, int64_t bytes);
void copy(void* to, const void* from, int64_t bytes, Stream stream = nullptr);
void fill(void* to, unsigned char value, int64_t bytes, Stream stream = nullptr);

// Streams and events. Stream nullptr is one of its own and does not wait for the others.
Stream create_stream();
void synchronize(Stream stream);
void synchronize();
/// Runs until one more launch, copy or event is done, for who looks at what is done half; false when nothing is queued.
bool run_one();
int64_t num_queued_launches();  ///< those that have begun included

struct EventState;
using Event = std::shared_ptr<EventState>;
Event create_event();
void record(const Event& event, Stream stream);
/// What the stream gets from now on waits for what was recorded.
void wait(Stream stream, const Event& event);
/// Whether all that was recorded is done; runs nothing.
bool is_done(const Event& event);
void synchronize(const Event& event);

// Graphs. A capture takes what the stream gets, and what streams get that have waited for its events.
struct GraphState;
using Graph = std::shared_ptr<GraphState>;
void begin_capture(Stream stream);
/// Throws Error when another stream's part was not joined by an event.
Graph end_capture(Stream stream);
/// Ends a capture, and forgets what it got.
void discard_capture(Stream stream);
int num_nodes(const Graph& graph);
int num_launches(const Graph& graph);
/// Later launches of the graph run the kernel so.
void set_body(const Graph& graph, const void* kernel, const std::function<void()>& body);
/// Whether the host's memory was allocated as pinned, which kernels may access.
bool is_pinned(const void* address, int64_t bytes);
/// Whether it is the host's memory that tables lie in: pinned, and watched as a device's is.
bool is_mapped(const void* address);
void launch(const Graph& graph, Stream stream);

/// Memory of a test: allocated, filled from a vector, read back after everything is done.
template <class Value>
class DeviceArray {
 public:
  explicit DeviceArray(int64_t size)
      : size_(size), data_(static_cast<Value*>(allocate(size * static_cast<int64_t>(sizeof(Value))))) {}
  explicit DeviceArray(const std::vector<Value>& values) : DeviceArray(static_cast<int64_t>(values.size())) {
    copy(data_, values.data(), size_ * static_cast<int64_t>(sizeof(Value)));
    synchronize();
  }
  DeviceArray(int64_t size, Value value) : DeviceArray(std::vector<Value>(static_cast<size_t>(size), value)) {}
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  Value* data() { return data_; }
  int64_t size() const { return size_; }
  std::vector<Value> read() {
    synchronize();
    return std::vector<Value>(data_, data_ + size_);
  }

 private:
  int64_t size_;
  Value* data_;  // freed by the next reset: a test that has failed must not wait here
};

}  // namespace simt
