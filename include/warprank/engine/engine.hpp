// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The interface of an engine to the rest of the library. Users see Tables, Model and Context, which forward to these
/// classes.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "warprank/batch/batch.hpp"
#include "warprank/core/float_matrix.hpp"
#include "warprank/core/host_allocator.hpp"
#include "warprank/core/view.hpp"
#include "warprank/engine/device_batch.hpp"
#include "warprank/engine/host_precision.hpp"
#include "warprank/engine/piecewise_batch.hpp"
#include "warprank/engine/placed_table.hpp"
#include "warprank/engine/profile.hpp"
#include "warprank/engine/table_options.hpp"
#include "warprank/engine/tuning.hpp"
#include "warprank/hash_table/file.hpp"
#include "warprank/ops/axis_input.hpp"
#include "warprank/ops/segmented_input.hpp"
#include "warprank/ops/table_view.hpp"
#include "warprank/plan/cards.hpp"
#include "warprank/plan/plan.hpp"
#include "warprank/weights/weights.hpp"

struct CUstream_st;  // CUDA's

namespace warprank { inline namespace v0 {

class Engine;

/// A stream of a model's device: a cudaStream_t, named here without CUDA's headers. Null is CUDA's default stream, here
/// as in ops/. The host engine has none.
using StreamHandle = ::CUstream_st*;

/// The place of tables and models: `host()`, or a card.
struct Device {
  const Engine* engine = nullptr;
  int index = 0;
};

/// One call of a user's own operation on the host.
struct CustomCall {
  Span<const SegmentedInput> inputs;  ///< each on the output's axis or above it
  Matrix<float> output;               ///< to be filled
  const std::string& settings;        ///< as given in the model
};
/// Must not throw and must be callable from several threads at once; a row may depend on its own inputs alone.
using CustomFunction = std::function<void(const CustomCall&)>;

/// One call of a user's own operation on a GPU.
struct CudaCustomCall {
  Span<const AxisInput<void>> inputs;  ///< with as many rows as their axes may have
  FloatMatrix<void> output;            ///< to be filled; FP16 or FP32, maybe columns of a wider row
  const int64_t* num_rows = nullptr;   ///< in device memory: rows of the output that a batch has, at most output.rows
  const std::string& settings;         ///< as given in the model
  StreamHandle stream = nullptr;
};
/// Must only queue kernels in the stream. It is called when a context is made, twice for each capacity; the second call
/// goes into a graph that later runs repeat without a call. It is called in the same way when the context is rebound to
/// another model, since the graph may hold addresses of the old model; for each batch above all capacities; and by
/// Context::profile. Several threads may call it at once. Its exceptions pass out of these functions.
using CudaCustomFunction = std::function<void(const CudaCustomCall&)>;

/// Functions by the name used in Builder::custom; those of the engine that the tables are on must be there.
struct BindOptions {
  ExtraTensors extra = ExtraTensors::refuse;  ///< tensors in the weights that the model does not read
  std::map<std::string, CustomFunction> custom = {};
  std::map<std::string, CudaCustomFunction> cuda_custom = {};
  /// The precision of linears on the host; model.describe() tells the choice. Other engines ignore it.
  HostPrecision host_precision = HostPrecision::fp32;
  /// Linears, cross layers and experts whose weights a GPU keeps in INT8, with a scale for each output
  /// (ops/int8_weights.hpp): half the bytes of FP16. By name; "*" is all. Linears of up to 8 outputs, and those that
  /// one launch chains, keep theirs; Context::describe tells which. Other engines ignore it (docs/SERVING.md).
  std::vector<std::string> cuda_int8 = {};
  /// The kernels of linears on a GPU, as measured there (cuda_tuning.hpp); for linears that it does not have, a rule
  /// chooses. Null: bind measures by itself, as auto_tuning says (engine/tuning.hpp).
  std::shared_ptr<const Tuning> tuning = nullptr;
  ForeignTuning foreign_tuning = ForeignTuning::refuse;
  AutoTuning auto_tuning = {};
  /// One kernel for all linears that it can compute, whatever was measured: to find out whether this kernel is at
  /// fault.
  std::optional<LinearKernel> linear_kernel = {};
  /// Linears are computed by the same kernels, cut in the same way, at all capacities, so that a row has the same bits
  /// whatever the capacity: by tiles, which a rule chooses for the least cost of all capacities together. Nothing is
  /// measured, no chain is fused, and cuBLASLt is not used. But the kernels of chains that begin with a mix of experts,
  /// and of linears by scenes, still depend on the capacity, and so may the kernels of other ops.
  bool same_kernels_at_all_capacities = false;
};

/// Says what a GPU does with a batch that is above all capacities. The host engine always runs it.
///
/// A split batch becomes as few parts as the order of its blobs allows. Each part has whole requests whose blobs lie
/// side by side and that fit into a capacity together. The parts run one after the other; each needs a copy of its
/// blobs, a copy of its own index, and a launch of a graph, which stores its scores. So every blob is copied once, and
/// one index for each part. A request has the same bits as in a batch of only the part's requests.
enum class Oversize {
  split,            ///< a request that is above all capacities by itself is run as by `run`
  split_or_refuse,  ///< invalid_argument for such a request, and for more parts than split_parts: never allocates
  run,    ///< at once: memory is allocated for its size, rounded up, and kept; kernels are launched one by one
  refuse  ///< invalid_argument: never allocates
};

/// How a thread waits for a batch on a GPU. docs/SERVING.md has the costs of each way.
enum class Wait {
  spin,             ///< looks all the time: fastest, but takes a core during batches
  spin_then_sleep,  ///< looks for ContextOptions::spin_seconds, then sleeps between looks; while threads that spin
                    ///< take half of the cores, it sleeps at once. During a long batch it first sleeps, too: as long
                    ///< as the shortest such batch so far, less 100 us
  sleep             ///< sleeps between looks: some 20 to 50 us slower, with the least processor time
};

struct ContextOptions {
  /// Every intermediate keeps memory of its own, so that `tap` can show it. This costs memory, and changes no score.
  /// Batches above all capacities are then refused or run at once, never split, so that `tap` shows the values of all
  /// requests.
  bool keep_intermediates = false;
  Oversize oversize = Oversize::split;
  int64_t split_parts = 8;  ///< parts with reserved pinned memory; a batch of more parts allocates more, and keeps it
  Wait wait = Wait::spin_then_sleep;
  double spin_seconds = 500e-6;  ///< make it longer than a batch, or spinning is in vain; with 0 it sleeps at once
  /// Whether kernels of a batch begin before those ahead of them have ended, on cards that can (sm_90 and later): some
  /// 0.5 us less for each kernel. Changes no score.
  bool overlap_launches = true;
  /// The first kernel of a graph fetches a batch in pinned memory if its capacity has at most this number of bytes;
  /// other batches are copied ahead of the graph. 0: all are copied. docs/SERVING.md has the costs of both ways.
  /// Changes no score.
  int64_t fetch_bytes = plan::most_fetched_bytes;
  /// On the host, the threads that compute a batch: the calling thread and others of the context, which look for work
  /// during a batch and some 0.1 ms longer, then sleep. No more than there are cores; Context::describe says how many.
  /// Changes no score. docs/SERVING.md tells when to use more threads and when more contexts. Making the context throws
  /// std::system_error where the system gives no thread.
  int threads = 1;
};

/// Bytes by their use. Parts whose name begins with "pinned" are in the host's memory, all others in the memory of the
/// report's device.
using MemoryReport = std::vector<std::pair<std::string, int64_t>>;

/// The counters of one feature since the context was made.
struct FeatureCounters {
  std::string feature;  ///< the node's name: "embed.film_id"
  LookupCounters counters;
};

/// The values of one output: rows of all scored requests, and the rows of each request.
struct OutputView {
  std::string name;
  Matrix<const float> values;  ///< contiguous
  Segments requests;           ///< rows of the r-th scored request
};

/// The values of one output where a device has them.
struct DeviceScores {
  Matrix<const float> values;  ///< in the device's memory; rows of all scored requests, `stride` floats apart
  Segments requests;           ///< in the host's memory; rows of the r-th scored request
};

// --- the interfaces an engine implements ---

/// Images of hashed tables, by table.
using HashTableFiles = std::map<std::string, std::shared_ptr<const HashTableFile>>;

class TableStore {
 public:
  virtual ~TableStore() = default;
  /// Tables::update.
  virtual UpdateReport update(const Weights& delta) = 0;
  /// Tables::refresh. For an engine without tables in stores, the same as update.
  virtual UpdateReport refresh(const Weights& delta) { return update(delta); }
  /// Tables::forget_rows.
  virtual void forget_rows(const std::string&) {}
  virtual MemoryReport memory() const = 0;
  /// By name.
  virtual std::vector<PlacedTable> placed() const = 0;
  /// The store of the same tables on another of LoadOptions::devices; null where this store is for all devices.
  virtual std::shared_ptr<TableStore> on(int) { return nullptr; }
  /// Tables::pass_over_caches.
  virtual void pass_over_caches() {}
  /// Tables::cache_counters.
  virtual std::map<std::string, CacheCounters> cache_counters() const { return {}; }
  /// Tables::store_counters.
  virtual std::map<std::string, StoreCounters> store_counters() const { return {}; }
};

class ModelBackend;

class ContextBackend {
 public:
  virtual ~ContextBackend() = default;
  /// Begins to score every request of a closed batch whose status is ok, behind earlier work in `stream`; without
  /// one in the context's own. Neither allocates nor waits after it has seen a batch as large. Not called again before
  /// wait().
  virtual void submit(const Batch& batch, std::optional<StreamHandle> stream) = 0;
  /// The same of a batch in the device's memory.
  virtual void submit_on_device(const DeviceBatch&, std::optional<StreamHandle>) {
    throw invalid_argument("device batch", "a model on a GPU", "one on the host");
  }
  /// The same of a batch with pieces in the device's memory.
  virtual void submit_piecewise(const PiecewiseBatch&, std::optional<StreamHandle>) {
    throw invalid_argument("piecewise batch", "a model on a GPU", "one on the host");
  }
  /// Whether wait() would return at once.
  virtual bool ready() const = 0;
  /// Returns when the scores of the last batch are in outputs(); throws errors of the device.
  virtual void wait() = 0;
  virtual Span<const OutputView> outputs() const = 0;
  /// Pending::device_scores, of a batch that was submitted.
  virtual DeviceScores device_scores(int) const {
    throw invalid_argument("device scores", "a model on a GPU", "one on the host");
  }
  /// The next batch is scored by `next`, a model of this engine, device and plan. Not called between submit() and
  /// wait(). Throws invalid_argument, and changes nothing, if the tables of the two models differ in a property on
  /// which launches depend.
  virtual void rebind(std::shared_ptr<const ModelBackend> next) = 0;
  /// For each request of the batch, its position among the scored requests, or -1.
  virtual Span<const int64_t> scored() const = 0;
  /// Whether the value of a node is in memory after a run of a context with keep_intermediates.
  virtual bool keeps(int) const { return true; }
  virtual Matrix<const float> tap(int node) = 0;
  virtual std::vector<FeatureCounters> counters() const = 0;
  virtual MemoryReport memory() const = 0;
  /// Context::describe.
  virtual std::string describe() const { return {}; }
  /// Context::profile, of a closed batch.
  virtual Profile profile(const Batch&, const ProfileOptions&) { return {}; }
};

class ModelBackend {
 public:
  virtual ~ModelBackend() = default;
  virtual std::unique_ptr<ContextBackend> make_context(const ContextOptions& options) const = 0;
  /// The tables to which it is bound.
  virtual const TableStore* tables() const = 0;
  /// Memory from which batches are copied to the device without a detour. It may outlive the model.
  virtual HostAllocator batch_allocator() const { return {}; }
  virtual MemoryReport memory() const = 0;
  /// Model::describe.
  virtual std::string describe() const { return {}; }
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual const char* name() const = 0;
  virtual std::shared_ptr<TableStore> load_tables(const Plan& plan, const Weights& weights,
                                                  const HashTableFiles& images, const LoadOptions& options,
                                                  int index) const = 0;
  virtual std::shared_ptr<const ModelBackend> bind(const Plan& plan, const Weights& weights,
                                                   std::shared_ptr<const TableStore> tables, int index,
                                                   const BindOptions& options) const = 0;
  /// The device memory that load_tables would take; loads nothing. Throws the same errors of files as load_tables.
  virtual MemoryReport table_needs(const Plan& plan, const Weights& weights, const HashTableFiles& images,
                                   const LoadOptions& options) const = 0;
  /// Whether contexts of the plan can be rebound between updatable tables and tables that are not updatable.
  virtual bool rebinds_to_updatable(const Plan&) const { return true; }
  /// The calling thread will work only on this device.
  virtual void begin_thread(int) const {}
  /// Bytes of the device's memory that are free now, for tables that are loaded with these options.
  virtual int64_t free_memory(int index, const LoadOptions& load) const = 0;
  /// Memory of the device, uninitialised, aligned to 256 bytes; `what` names its user in messages.
  virtual std::shared_ptr<std::byte> allocate(int, int64_t, const std::string& what) const {
    throw invalid_argument(what, "a GPU, which has memory of its own", "the host");
  }
};

}}  // namespace warprank::v0
