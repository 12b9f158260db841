// SPDX-License-Identifier: Apache-2.0
#include "simt/runtime.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

#include "simt/devices.hpp"
#include "simt/installed.hpp"
#include "simt/machine.hpp"
#include "warprank/core/cuda_error.hpp"
#include "warprank/device/event.hpp"
#include "warprank/device/executor_runtime.hpp"
#include "warprank/device/find_device.hpp"
#include "warprank/device/sharded_memory.hpp"

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
  int device = 0;
};

}  // namespace simt

namespace warprank { inline namespace v0 { namespace device::backend {

/// A queue; during a capture, a place in a graph.
struct StreamState {
  std::vector<std::shared_ptr<simt::Operation>> tail;  // what the next operation comes after
  simt::Capture capture;
  std::vector<int> capture_tail;
  bool owns_capture = false;
  int device = 0;
};

}}}  // namespace warprank::v0::device::backend

namespace simt {
namespace {

using backend::StreamState;

using OwnedStream = std::shared_ptr<StreamState>;

std::vector<OwnedStream>& streams() {
  static std::vector<OwnedStream> all;
  return all;
}

Calls call_log;
Installed installed;
int64_t device_limit = Config{}.device_bytes, pinned_limit = Config{}.pinned_bytes;
int64_t good_calls = -1;                // before the one that fails
std::map<const void*, int64_t> pinned;  // by address
std::map<const void*, int64_t> mapped;  // likewise, in the range of a device's memory
int current_device = 0;
bool has_peer_access = true;

/// Memory of several devices.
struct Shards {
  int64_t bytes, stripe_bytes;
  std::vector<int> devices;

  int device_at(int64_t byte) const { return devices[static_cast<size_t>(byte / stripe_bytes) % devices.size()]; }
  int64_t bytes_on(int device) const {
    int64_t sum = 0;
    for (int64_t at = 0; at < bytes; at += stripe_bytes) sum += device_at(at) == device ? stripe_bytes : 0;
    return sum;
  }
  /// Whether the bytes are all of one device.
  bool is_one_device(int64_t at, int64_t count) const {
    for (int64_t stripe = at / stripe_bytes; stripe * stripe_bytes < at + count; ++stripe)
      if (device_at(stripe * stripe_bytes) != device_at(at)) return false;
    return true;
  }
};
std::map<const void*, Shards> sharded;  // by address

void require_one_device(const void* address, int64_t bytes) {
  for (const auto& [begin, shards] : sharded) {
    const auto at = static_cast<const char*>(address) - static_cast<const char*>(begin);
    if (at >= 0 && at < shards.bytes && !shards.is_one_device(at, bytes))
      throw Error("copy of " + std::to_string(bytes) + " bytes: memory of several devices");
  }
}

/// Whether one of the allocations has all of the bytes.
bool have(const std::map<const void*, int64_t>& allocations, const void* address, int64_t bytes) {
  auto after = allocations.upper_bound(address);
  if (after == allocations.begin()) return false;
  --after;
  const auto* end = static_cast<const char*>(after->first) + after->second;
  return static_cast<const char*>(address) + bytes <= end;
}
int64_t bytes_of(const std::map<const void*, int64_t>& allocations) {
  int64_t bytes = 0;
  for (const auto& allocation : allocations) bytes += allocation.second;
  return bytes;
}

std::map<int, StreamState>& standard_streams() {
  static std::map<int, StreamState> by_device;
  return by_device;
}
StreamState& state_of(Stream stream) {
  if (stream != nullptr) return *stream;
  StreamState& standard = standard_streams()[current_device];
  standard.device = current_device;
  return standard;
}

void submit(Stream stream, Operation operation) {
  StreamState& state = state_of(stream);
  operation.device = state.device;
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

void run_everything() {
  require_no_capture(state_of(nullptr), "synchronize");
  for (const auto& stream : streams()) require_no_capture(*stream, "synchronize");
  Machine::instance().run_all();
}

}  // namespace

bool is_pinned(const void* address, int64_t bytes) {
  return have(pinned, address, bytes) || have(mapped, address, bytes);
}
bool is_mapped(const void* address) { return have(mapped, address, 1); }

void reset(const Config& config) {
  Machine::instance().reset(config);
  call_log = {};
  installed = {};
  limit_memory(config.device_bytes, config.pinned_bytes);
  good_calls = -1;
  streams().clear();
  standard_streams().clear();
  DeviceMemory::instance().free_all();
  mapped.clear();
  sharded.clear();
  current_device = 0;
  has_peer_access = true;
  race::everything_freed();
}

void install(const Installed& wanted) { installed = wanted; }

const Counters& counters() { return Machine::instance().counters; }
void clear_counters() { Machine::instance().counters = {}; }

const Calls& calls() { return call_log; }
void clear_calls() { call_log = {}; }

void limit_memory(int64_t device_bytes, int64_t pinned_bytes) {
  device_limit = device_bytes;
  pinned_limit = pinned_bytes;
}
void fail_call(int64_t n) { good_calls = n; }
int64_t calls_before_failure() { return good_calls; }
int64_t allocated_bytes() { return DeviceMemory::instance().allocated_bytes() - bytes_of(mapped); }
int64_t allocated_bytes(int device) {
  int64_t bytes = DeviceMemory::instance().allocated_bytes(DeviceMemory::bit_of(device));
  for (const auto& [begin, shards] : sharded)
    if (shards.devices.size() > 1) bytes += shards.bytes_on(device);
  return bytes;
}
void allow_peer_access(bool allowed) { has_peer_access = allowed; }
int64_t pinned_bytes() { return bytes_of(pinned) + bytes_of(mapped); }
int64_t num_streams() { return static_cast<int64_t>(streams().size()); }

namespace {

/// Whether this call of the library is the one that fails.
bool fails() { return good_calls >= 0 && good_calls-- == 0; }
void may_fail(const char* what) {
  constexpr int unknown = 999;
  if (fails()) throw warprank::cuda_error(what, unknown, "cudaErrorUnknown");
}

void* watched_memory(int64_t bytes, uint32_t devices) {
  void* address = DeviceMemory::instance().allocate(bytes, devices);
  race::allocated(address, bytes);
  ++call_log.allocations.count;
  call_log.allocations.bytes += bytes;
  return address;
}
/// Null when there is not as much.
void* try_to_allocate(int64_t bytes) {
  return bytes > device_limit - allocated_bytes(current_device)
             ? nullptr
             : watched_memory(bytes, DeviceMemory::bit_of(current_device));
}

}  // namespace

void* allocate(int64_t bytes) {
  if (void* address = try_to_allocate(bytes)) return address;
  throw Error("allocate: " + std::to_string(bytes) + " bytes, and " +
              std::to_string(device_limit - allocated_bytes(current_device)) + " are free");
}

void release(void* address) {
  run_everything();
  ++call_log.releases;
  DeviceMemory::instance().free(address);
  race::freed(address);
}

void mark_written(void* address, int64_t bytes) { race::host_access(nullptr, address, bytes, true); }

namespace {

void log_copy(const void* to, const void* from, int64_t bytes) {
  const DeviceMemory& memory = DeviceMemory::instance();
  const bool to_device = memory.reserved(to), from_device = memory.reserved(from);
  Calls::Transfers& transfers = !to_device    ? call_log.copies_to_host
                                : from_device ? call_log.copies_on_device
                                              : call_log.copies_to_device;
  ++transfers.count;
  transfers.bytes += bytes;
  if ((!to_device && !is_pinned(to, bytes)) || (!from_device && !is_pinned(from, bytes))) ++call_log.unpinned_copies;
}

}  // namespace

void copy(void* to, const void* from, int64_t bytes, Stream stream) {
  require_one_device(to, bytes);
  require_one_device(from, bytes);
  if (!state_of(stream).capture) log_copy(to, from, bytes);
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
  if (!state_of(stream).capture) {
    ++call_log.fills.count;
    call_log.fills.bytes += bytes;
  }
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
  ++call_log.objects_made;
  streams().push_back(std::make_shared<StreamState>());
  streams().back()->device = current_device;
  return streams().back().get();
}

void synchronize(Stream stream) {
  ++call_log.synchronizations;
  StreamState& state = state_of(stream);
  require_no_capture(state, "synchronize");
  for (const auto& operation : state.tail) Machine::instance().run_until_done(*operation);
}

bool run_one() { return Machine::instance().run_one(); }
int64_t num_queued_launches() { return Machine::instance().num_queued_launches(); }
void synchronize() {
  ++call_log.synchronizations;
  run_everything();
}

Event create_event() {
  ++call_log.objects_made;
  auto event = std::make_shared<EventState>();
  event->device = current_device;
  return event;
}

void record(const Event& event, Stream stream) {
  StreamState& state = state_of(stream);
  if (state.device != event->device) throw Error("record: the event and the stream are of different devices");
  if (state.capture) {
    *event = {nullptr, state.capture, state.capture_tail, state.device};
    return;
  }
  submit(stream, {});
  *event = {state.tail.front(), nullptr, {}, state.device};
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
  Machine::instance().run_until_done(*event->recorded);  // runs nothing; what follows is ordered after it
  return true;
}

void synchronize(const Event& event) {
  ++call_log.synchronizations;
  if (event->recorded) Machine::instance().run_until_done(*event->recorded);
}

void begin_capture(Stream stream) {
  if (stream == nullptr) throw Error("begin_capture: the default stream cannot be captured");
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
  ++call_log.objects_made;
  return graph;
}

void discard_capture(Stream stream) {
  try {
    end_capture(stream);
  } catch (const Error&) {  // of what is forgotten anyway
  }
}

int num_nodes(const Graph& graph) { return static_cast<int>(graph->nodes.size()); }

int num_launches(const Graph& graph) {
  return static_cast<int>(std::count_if(graph->nodes.begin(), graph->nodes.end(),
                                        [](const auto& node) { return node.operation.body != nullptr; }));
}

void set_body(const Graph& graph, const void* kernel, const std::function<void()>& body) {
  for (auto& node : graph->nodes)
    if (node.operation.kernel == kernel) node.operation.body = body;
}

void launch(const Graph& graph, Stream stream) {
  StreamState& state = state_of(stream);
  require_no_capture(state, "launch of a graph");
  ++call_log.graph_launches;
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

namespace warprank { inline namespace v0 { namespace device::backend {

Event create_event() {
  simt::may_fail("create an event");
  return simt::create_event();
}
void record_event(const Event& event, Stream stream) {
  simt::may_fail("record an event");
  simt::record(std::static_pointer_cast<simt::EventState>(event), stream);
}
void wait_event(const Event& event, Stream stream) {
  simt::wait(stream, std::static_pointer_cast<simt::EventState>(event));
}
bool event_done(const Event& event) { return simt::is_done(std::static_pointer_cast<simt::EventState>(event)); }
void run_until_event(const Event& event) {
  const auto state = std::static_pointer_cast<simt::EventState>(event);
  if (state->recorded) simt::Machine::instance().run_until_done(*state->recorded);
}
void wait_for_event(const Event& event) { simt::synchronize(std::static_pointer_cast<simt::EventState>(event)); }

void launch_grid(Dim3 grid, Dim3 block, int64_t shared_bytes, Stream stream, bool overlaps, const void* kernel,
                 std::function<void()> body, Here here) {
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
  if (simt::state_of(stream).device != simt::current_device) refuse("the stream is not of the current device");
  simt::may_fail("launch a kernel");
  simt::Operation operation;
  operation.body = std::move(body);
  operation.kernel = kernel;
  operation.overlaps = overlaps;
  operation.grid = grid;
  operation.block = block;
  operation.shared_bytes = shared_bytes;
  operation.here = here;
  operation.num_blocks = uint64_t{grid.x} * grid.y * grid.z;
  if (!simt::state_of(stream).capture) ++simt::call_log.launches;
  simt::submit(stream, std::move(operation));
}

}}}  // namespace warprank::v0::device::backend

namespace warprank { inline namespace v0 { namespace device::backend::runtime {
namespace {

void require_direction(const void* to, bool to_device, const void* from, bool from_device) {
  const simt::DeviceMemory& memory = simt::DeviceMemory::instance();
  if (memory.reserved(to) != to_device || memory.reserved(from) != from_device) {
    throw simt::Error("copy: one of the addresses is on the other side");
  }
}

}  // namespace

int num_devices() { return simt::Machine::instance().config().devices; }
int set_device(int index) {
  constexpr int invalid_device = 101, insufficient_driver = 35;
  if (num_devices() == 0)
    throw cuda_error("find the current device", insufficient_driver, "cudaErrorInsufficientDriver");
  if (index < 0 || index >= num_devices())
    throw cuda_error("use device " + std::to_string(index), invalid_device, "cudaErrorInvalidDevice");
  return std::exchange(simt::current_device, index);
}
void restore_device(int index) { simt::current_device = index; }
int current_device() { return set_device(simt::current_device); }
FoundDevice find_device(int index) {
  FoundDevice found;
  found.index = index;
  found.num_devices = num_devices();
  found.driver_version = found.num_devices == 0 ? 0 : simt::installed.driver_version;
  found.runtime_version = simt::installed.runtime_version;
  found.name = "executor";
  found.capability = simt::installed.capability == 0 ? target() : simt::installed.capability;
  return found;
}
DeviceInfo current_device_info() {
  DeviceInfo info;
  info.name = "executor";
  info.target = target();
  info.multiprocessors = num_multiprocessors();
  std::tie(info.free_bytes, info.total_bytes) = free_and_total_bytes();
  return info;
}

void* allocate(int64_t bytes) { return simt::fails() ? nullptr : simt::try_to_allocate(bytes); }
void release(void* memory) {
  if (simt::DeviceMemory::instance().contains(memory, 0)) simt::release(memory);  // or a reset was first
}
std::pair<int64_t, int64_t> free_and_total_bytes() {
  return {simt::device_limit - simt::allocated_bytes(simt::current_device), simt::device_limit};
}

void* allocate_pinned(int64_t bytes) {
  constexpr size_t alignment = 256;
  if (simt::fails() || bytes > simt::pinned_limit - simt::pinned_bytes()) return nullptr;
  void* memory = std::aligned_alloc(alignment, (static_cast<size_t>(bytes) + alignment - 1) / alignment * alignment);
  if (memory == nullptr) return nullptr;
  simt::pinned[memory] = bytes;
  ++simt::call_log.allocations.count;
  simt::call_log.allocations.bytes += bytes;
  return memory;
}
void release_pinned(void* memory) {
  simt::run_everything();
  ++simt::call_log.releases;
  simt::pinned.erase(memory);
  std::free(memory);
}

bool can_read(const void* memory) { return simt::is_pinned(memory, 1); }
bool is_on_device(const void* memory) {
  return (simt::DeviceMemory::instance().devices_of(memory) & simt::DeviceMemory::bit_of(simt::current_device)) != 0;
}
bool is_of_current_device(Stream stream) { return simt::state_of(stream).device == simt::current_device; }

std::shared_ptr<void> allocate_mapped(int64_t bytes) {
  if (simt::fails() || bytes > simt::pinned_limit - simt::pinned_bytes()) return nullptr;
  void* memory = simt::watched_memory(bytes, simt::DeviceMemory::every_device);
  simt::mapped[memory] = bytes;
  return {memory, [](void* mapped) {
            if (!simt::is_mapped(mapped)) return;  // a reset was first
            simt::release(mapped);
            simt::mapped.erase(mapped);
          }};
}
bool can_shard(const std::vector<int>& devices) { return devices.size() < 2 || simt::has_peer_access; }
/// Short, so that small tables lie on several devices.
int64_t shard_granularity(const std::vector<int>& devices) {
  if (!can_shard(devices)) throw cuda_error("ask for the size of pages", 801, "cudaErrorNotSupported");
  return 512;
}
std::shared_ptr<void> allocate_sharded(int64_t bytes, int64_t stripe_bytes, const std::vector<int>& devices) {
  const simt::Shards shards{bytes, stripe_bytes, devices};
  uint32_t users = 0;
  for (const int device : devices) {
    users |= simt::DeviceMemory::bit_of(device);
    if (shards.bytes_on(device) > simt::device_limit - simt::allocated_bytes(device)) return nullptr;
  }
  if (simt::fails()) return nullptr;
  void* const memory = simt::watched_memory(bytes, users);
  simt::sharded.emplace(memory, shards);
  return {memory, [](void* begin) {
            if (simt::sharded.erase(begin) > 0) simt::release(begin);  // or a reset was first
          }};
}
void write_mapped(void* to, const void* from, int64_t bytes) {
  static std::mutex marking;  // tables are filled by several threads
  {
    const std::lock_guard<std::mutex> lock(marking);
    simt::mark_written(to, bytes);
  }
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

void copy_to_device(void* to, const void* from, int64_t bytes, Stream stream) {
  simt::may_fail("copy to a device");
  require_direction(to, true, from, false);
  simt::copy(to, from, bytes, stream);
}
void copy_to_host(void* to, const void* from, int64_t bytes, Stream stream) {
  simt::may_fail("copy from a device");
  require_direction(to, false, from, true);
  simt::copy(to, from, bytes, stream);
}
void copy_on_device(void* to, const void* from, int64_t bytes, Stream stream) {
  simt::may_fail("copy on a device");
  require_direction(to, true, from, true);
  simt::copy(to, from, bytes, stream);
}
void fill(void* to, unsigned char value, int64_t bytes, Stream stream) {
  simt::may_fail("fill memory");
  simt::fill(to, value, bytes, stream);
}
void synchronize(Stream stream) {
  simt::may_fail("wait for a stream");
  simt::synchronize(stream);
}

void synchronize_device() { simt::synchronize(); }

OwnedStream create_stream() {
  simt::may_fail("create a stream");
  simt::create_stream();
  const OwnedStream made = simt::streams().back();
  return {made.get(), [made](StreamState*) {
            auto& all = simt::streams();
            all.erase(std::remove(all.begin(), all.end(), made), all.end());
          }};
}

void begin_capture(Stream stream) {
  simt::may_fail("begin a capture");
  simt::begin_capture(stream);
}
void discard_capture(Stream stream) { simt::discard_capture(stream); }
Graph end_capture(Stream stream) {
  const Graph graph = simt::end_capture(stream);
  simt::may_fail("end a capture");
  return graph;
}
void launch_graph(const Graph& graph, Stream stream) {
  simt::may_fail("launch a graph");
  simt::launch(std::static_pointer_cast<simt::GraphState>(graph), stream);
}
void set_body(const Graph& graph, const void* kernel, std::function<void()> body) {
  simt::may_fail("set the arguments of a kernel");
  simt::set_body(std::static_pointer_cast<simt::GraphState>(graph), kernel, body);
}
int num_nodes(const Graph& graph) { return simt::num_nodes(std::static_pointer_cast<simt::GraphState>(graph)); }
int num_kernels(const Graph& graph) { return simt::num_launches(std::static_pointer_cast<simt::GraphState>(graph)); }

}}}  // namespace warprank::v0::device::backend::runtime
