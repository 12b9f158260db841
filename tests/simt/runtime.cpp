// SPDX-License-Identifier: Apache-2.0
#include "simt/runtime.hpp"

#include <algorithm>
#include <cstring>

#include "simt/machine.hpp"
#include "warprank/device/event.hpp"

namespace simt {
using Capture = std::shared_ptr<GraphState>;

/// Nodes in an order in which they could run.
struct GraphState {
  struct Node {
    Operation operation;     // as it will be queued, without order
    std::vector<int> after;  // nodes
  };
  std::vector<Node> nodes;
};

struct EventState {
  std::shared_ptr<Operation> recorded;
  Capture capture;  // or a place in a graph
  std::vector<int> nodes;
};

}  // namespace simt

namespace warprank::device::backend {

/// A queue; during a capture, a place in a graph.
struct StreamState {
  std::vector<std::shared_ptr<simt::Operation>> tail;  // what the next operation comes after
  simt::Capture capture;
  std::vector<int> capture_tail;
  bool owns_capture = false;
};

}  // namespace warprank::device::backend

namespace simt {
namespace {

using backend::StreamState;

std::vector<std::unique_ptr<StreamState>>& streams() {
  static std::vector<std::unique_ptr<StreamState>> all;
  return all;
}

StreamState& state_of(Stream stream) {
  static StreamState standard;
  return stream == nullptr ? standard : *stream;
}

void submit(Stream stream, Operation operation) {
  StreamState& state = state_of(stream);
  if (state.capture) {
    state.capture->nodes.push_back({std::move(operation), state.capture_tail});
    state.capture_tail = {static_cast<int>(state.capture->nodes.size()) - 1};
    return;
  }
  operation.after = std::move(state.tail);
  auto queued = std::make_shared<Operation>(std::move(operation));
  state.tail = {queued};
  Machine::instance().enqueue(queued);
}

void require_no_capture(const StreamState& state, const char* what) {
  if (state.capture) throw Error(std::string(what) + ": the stream is being captured");
}

}  // namespace

void reset(const Config& config) {
  Machine::instance().reset(config);
  streams().clear();
  state_of(nullptr) = {};
  DeviceMemory::instance().free_all();
  race::everything_freed();
}

const Counters& counters() { return Machine::instance().counters; }
void clear_counters() { Machine::instance().counters = {}; }

void* allocate(int64_t bytes) {
  void* address = DeviceMemory::instance().allocate(bytes);
  race::allocated(address, bytes);
  return address;
}

void release(void* address) {
  synchronize();
  DeviceMemory::instance().free(address);
  race::freed(address);
}

void mark_written(void* address, int64_t bytes) { race::host_access(nullptr, address, bytes, true); }

void copy(void* to, const void* from, int64_t bytes, Stream stream) {
  Operation operation;
  operation.action = [=](const Operation& self) {
    if (bytes == 0) return;
    const DeviceMemory& memory = DeviceMemory::instance();
    if ((memory.reserved(to) && !memory.contains(to, bytes)) ||
        (memory.reserved(from) && !memory.contains(from, bytes))) {
      throw Error("copy of " + std::to_string(bytes) + " bytes: global memory out of bounds");
    }
    race::host_access(&self, from, bytes, false);
    race::host_access(&self, to, bytes, true);
    std::memmove(to, from, static_cast<size_t>(bytes));
  };
  submit(stream, std::move(operation));
}

void fill(void* to, unsigned char value, int64_t bytes, Stream stream) {
  Operation operation;
  operation.action = [=](const Operation& self) {
    if (bytes == 0) return;
    if (!DeviceMemory::instance().contains(to, bytes)) {
      throw Error("fill of " + std::to_string(bytes) + " bytes: global memory out of bounds");
    }
    race::host_access(&self, to, bytes, true);
    std::memset(to, value, static_cast<size_t>(bytes));
  };
  submit(stream, std::move(operation));
}

Stream create_stream() {
  streams().push_back(std::make_unique<StreamState>());
  return streams().back().get();
}

void synchronize(Stream stream) {
  StreamState& state = state_of(stream);
  require_no_capture(state, "synchronize");
  for (const auto& operation : state.tail) Machine::instance().run_until_done(*operation);
}

void synchronize() {
  require_no_capture(state_of(nullptr), "synchronize");
  for (const auto& stream : streams()) require_no_capture(*stream, "synchronize");
  Machine::instance().run_all();
}

Event create_event() { return std::make_shared<EventState>(); }

void record(const Event& event, Stream stream) {
  StreamState& state = state_of(stream);
  if (state.capture) {
    *event = {nullptr, state.capture, state.capture_tail};
    return;
  }
  submit(stream, {});
  *event = {state.tail.front(), nullptr, {}};
}

void wait(Stream stream, const Event& event) {
  StreamState& state = state_of(stream);
  if (event->capture) {
    if (state.capture && state.capture != event->capture) throw Error("wait: the streams are in different captures");
    state.capture = event->capture;
    state.capture_tail.insert(state.capture_tail.end(), event->nodes.begin(), event->nodes.end());
    return;
  }
  require_no_capture(state, "wait for an event that was recorded outside of the capture");
  if (event->recorded) state.tail.push_back(event->recorded);
}

bool is_done(const Event& event) {
  if (event->recorded == nullptr) return true;
  if (event->recorded->state != Operation::State::done) return false;
  synchronize(event);  // runs nothing; what follows is ordered after it
  return true;
}

void synchronize(const Event& event) {
  if (event->recorded) Machine::instance().run_until_done(*event->recorded);
}

void begin_capture(Stream stream) {
  StreamState& state = state_of(stream);
  require_no_capture(state, "begin_capture");
  state.capture = std::make_shared<GraphState>();
  state.capture_tail.clear();
  state.owns_capture = true;
}

Graph end_capture(Stream stream) {
  StreamState& state = state_of(stream);
  if (!state.owns_capture) throw Error("end_capture: the stream did not begin a capture");
  const Graph graph = state.capture;
  // Every node but the stream's last must come before another one.
  std::vector<bool> joined(graph->nodes.size(), false);
  for (const auto& node : graph->nodes) {
    for (int before : node.after) joined[static_cast<size_t>(before)] = true;
  }
  for (int last : state.capture_tail) joined[static_cast<size_t>(last)] = true;
  for (const auto& other : streams()) {
    if (other->capture != graph) continue;
    other->capture = nullptr;
    other->capture_tail.clear();
  }
  state.capture = nullptr;
  state.owns_capture = false;
  state.capture_tail.clear();
  if (std::find(joined.begin(), joined.end(), false) != joined.end()) {
    throw Error("end_capture: another stream's part was not joined by an event");
  }
  return graph;
}

int num_launches(const Graph& graph) {
  return static_cast<int>(std::count_if(graph->nodes.begin(), graph->nodes.end(),
                                        [](const auto& node) { return node.operation.body != nullptr; }));
}

void launch(const Graph& graph, Stream stream) {
  StreamState& state = state_of(stream);
  require_no_capture(state, "launch of a graph");
  std::vector<std::shared_ptr<Operation>> queued;
  for (const auto& node : graph->nodes) {
    auto operation = std::make_shared<Operation>(node.operation);
    for (int before : node.after) operation->after.push_back(queued[static_cast<size_t>(before)]);
    if (node.after.empty()) operation->after = state.tail;
    queued.push_back(operation);
    Machine::instance().enqueue(operation);
  }
  if (!queued.empty()) state.tail = queued;
}

}  // namespace simt

namespace warprank::device::backend {

Event create_event() { return simt::create_event(); }
void record_event(const Event& event, Stream stream) {
  simt::record(std::static_pointer_cast<simt::EventState>(event), stream);
}
void wait_event(const Event& event, Stream stream) {
  simt::wait(stream, std::static_pointer_cast<simt::EventState>(event));
}
bool event_done(const Event& event) { return simt::is_done(std::static_pointer_cast<simt::EventState>(event)); }

void launch_grid(Dim3 grid, Dim3 block, int64_t shared_bytes, Stream stream, std::function<void()> body, Here here) {
  const auto refuse = [&](const std::string& what) {
    throw simt::Error("launch refused: " + what + ": at " + here.file + ":" + std::to_string(here.line));
  };
  const simt::Config& config = simt::Machine::instance().config();
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const int64_t limit = simt::shared_limit(config.target);
  if (threads == 0 || threads > simt::max_block_threads || block.z > 64) {
    refuse("a block has " + std::to_string(threads) + " threads, 1 to 1024 are possible");
  }
  if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
    refuse("the grid is larger than 2^31 - 1, 65535, 65535");
  }
  if (shared_bytes < 0 || shared_bytes > limit) {
    refuse(std::to_string(shared_bytes) + " bytes of shared memory, sm_" + std::to_string(config.target) + " has " +
           std::to_string(limit));
  }
  if (simt::Machine::instance().running() != nullptr) refuse("a kernel cannot launch");
  simt::Operation operation;
  operation.body = std::move(body);
  operation.grid = grid;
  operation.block = block;
  operation.shared_bytes = shared_bytes;
  operation.here = here;
  operation.num_blocks = uint64_t{grid.x} * grid.y * grid.z;
  simt::submit(stream, std::move(operation));
}

}  // namespace warprank::device::backend
