// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The needs of an engine beside launches: devices, memory, copies, streams, events, graphs. All of them belong to the
/// calling thread's current device, which DeviceGuard sets.
///
///     DeviceMemory arena(bytes, "the arena");
///     OwnedStream stream;
///     const Graph graph = Graph::capture(stream.get(), [&] { launch(...), launch(...); });
///     copy_to_device(arena.data(), batch, used_bytes, stream.get());
///     graph.launch(stream.get());
///     copy_to_host(scores, arena.data(), score_bytes, stream.get());
///     event.record(stream.get());
///
/// Copies, fills and launches of graphs are queued, and allocate nothing. All functions throw cuda_error for errors of
/// the CUDA runtime.

#include <cstdint>
#include <utility>

#include "warprank/device/devices.hpp"
#include "warprank/device/event.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/owned_memory.hpp"

namespace warprank { inline namespace v0 { namespace device {

/// Queue a copy. The host's memory must be pinned, or the host waits; it must stay unchanged until the copy is done.
WARPRANK_HIDDEN inline void copy_to_device(void* to, const void* from, int64_t bytes, Stream stream) {
  backend::runtime::copy_to_device(to, from, bytes, stream);
}
WARPRANK_HIDDEN inline void copy_to_host(void* to, const void* from, int64_t bytes, Stream stream) {
  backend::runtime::copy_to_host(to, from, bytes, stream);
}
WARPRANK_HIDDEN inline void copy_on_device(void* to, const void* from, int64_t bytes, Stream stream) {
  backend::runtime::copy_on_device(to, from, bytes, stream);
}
/// Whether kernels of the current device can read the host's memory at this address, since it is pinned.
WARPRANK_HIDDEN inline bool can_read(const void* memory) { return backend::runtime::can_read(memory); }
/// Whether memory is the current device's, or managed.
WARPRANK_HIDDEN inline bool is_on_device(const void* memory) { return backend::runtime::is_on_device(memory); }
/// Whether a stream is one of the current device; true where CUDA does not tell: before 12.8,
/// and with a driver before it.
WARPRANK_HIDDEN inline bool is_of_current_device(Stream stream) {
  return backend::runtime::is_of_current_device(stream);
}
/// Queues a fill of all bytes with `value`.
WARPRANK_HIDDEN inline void fill(void* to, unsigned char value, int64_t bytes, Stream stream) {
  backend::runtime::fill(to, value, bytes, stream);
}

/// Waits for the work that is queued in the stream. Throws its errors.
WARPRANK_HIDDEN inline void synchronize(Stream stream) { backend::runtime::synchronize(stream); }

/// A stream of the current device that does not wait for the default stream. Work that is queued in it still runs after
/// its destruction. Copies share it.
class OwnedStream {
 public:
  OwnedStream() : stream_(backend::runtime::create_stream()) {}
  Stream get() const { return stream_.get(); }

 private:
  backend::runtime::OwnedStream stream_;
};

/// The captured work of a stream, to be launched as a whole any number of times. Copies share it; an empty graph
/// launches nothing.
class Graph {
 public:
  Graph() = default;

  /// Captures all work that `queue()` queues in the stream, or in streams that its events lead to and back; runs
  /// nothing. The stream must not be the default stream. Exceptions of `queue` are passed on; the stream is then as it
  /// was before.
  template <class Queue>
  static Graph capture(Stream stream, Queue&& queue) {
    backend::runtime::begin_capture(stream);
    OpenCapture open{stream};
    std::forward<Queue>(queue)();
    Graph graph;
    open.ended = true;
    graph.graph_ = backend::runtime::end_capture(stream);
    return graph;
  }

  /// Queues the whole graph. It reads the contents of memory when it runs.
  void launch(Stream stream) const {
    if (graph_ != nullptr) backend::runtime::launch_graph(graph_, stream);
  }

  /// Later launches of the graph run `kernel`, which the graph has once, with these arguments, on the same grid.
  template <class... Params, class... Args>
  void set_arguments(void (*kernel)(Params...), Args... args) const {
    backend::runtime::set_arguments<Params...>(graph_, kernel, static_cast<Params>(args)...);
  }

  /// Kernels, copies and fills.
  int num_nodes() const { return graph_ == nullptr ? 0 : backend::runtime::num_nodes(graph_); }
  int num_kernels() const { return graph_ == nullptr ? 0 : backend::runtime::num_kernels(graph_); }

 private:
  /// A capture that is discarded unless it ends.
  struct OpenCapture {
    Stream stream;
    bool ended = false;
    ~OpenCapture() {
      if (!ended) backend::runtime::discard_capture(stream);
    }
  };

  backend::runtime::Graph graph_;
};

}}}  // namespace warprank::v0::device
