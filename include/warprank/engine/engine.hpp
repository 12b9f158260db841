// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What an engine is to the rest of the library. Users meet Tables, Model and Context, which forward to these.

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
#include "warprank/engine/host_precision.hpp"
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

/// Where tables and models live: `host()`, or a card.
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
  Span<const AxisInput<void>> inputs;  ///< as many rows as their axes may have
  FloatMatrix<void> output;            ///< to be filled; FP16 or FP32, maybe columns of a wider row
  const int64_t* num_rows = nullptr;   ///< in device memory: rows of the output that a batch has, at most output.rows
  const std::string& settings;         ///< as given in the model
  StreamHandle stream = nullptr;
};
/// Queues kernels in the stream and nothing else. It is called when a context is made, twice for each capacity, the
/// second time into a graph that later runs repeat without it; the same again when the context is rebound to another
/// model, where the graph may hold addresses of the old one's; for each batch above all capacities; and by
/// Context::profile. Several threads may call it at once. What it throws passes out of these.
using CudaCustomFunction = std::function<void(const CudaCustomCall&)>;

/// Functions by the name used in Builder::custom; those of the engine that the tables are on must be there.
struct BindOptions {
  ExtraTensors extra = ExtraTensors::refuse;  ///< tensors in the weights that the model does not read
  std::map<std::string, CustomFunction> custom = {};
  std::map<std::string, CudaCustomFunction> cuda_custom = {};
  /// What linears are computed with on the host; model.describe() tells what was taken. Other engines ignore it.
  HostPrecision host_precision = HostPrecision::fp32;
  /// Which kernels compute linears on a GPU, as measured there (cuda_tuning.hpp); what it has not is chosen by rule.
  /// Null: bind measures by itself, as auto_tuning says (engine/tuning.hpp).
  std::shared_ptr<const Tuning> tuning = nullptr;
  ForeignTuning foreign_tuning = ForeignTuning::refuse;
  AutoTuning auto_tuning = {};
  /// One kernel for all linears that it computes, whatever was measured: to find out whether it is at fault.
  std::optional<LinearKernel> linear_kernel = {};
  /// Linears are computed by the same kernels, cut in the same way, at all capacities, so that a row has the same bits
  /// whatever the capacity: by tiles, those of least cost for all capacities together by rule; nothing is measured, no
  /// chain is fused, and cuBLASLt is not used. But chains that begin with a mix of experts, and linears by scenes, have
  /// kernels that depend on the capacity all the same, and so may ops that are no linears.
  bool same_kernels_at_all_capacities = false;
};

/// What a GPU does with a batch that is above all capacities. The host engine runs it all the same.
///
/// A split batch becomes as few parts as the order of its blobs allows, each of whole requests whose blobs lie side by
/// side and that fit a capacity together. For each part there is a copy of its blobs, a copy of an index of its own, a
/// launch of a graph, which stores its scores, one part after the other; so every blob is copied once, and so are as
/// many indices as there are parts. A request has the bits that it has in a batch of the part's requests alone.
enum class Oversize {
  split,            ///< a request that is above all capacities by itself is run as by `run`
  split_or_refuse,  ///< invalid_argument for such a request, and for more parts than split_parts: never allocates
  run,    ///< at once: memory is allocated for its size, rounded up, and kept; kernels are launched one by one
  refuse  ///< invalid_argument: never allocates
};

/// How a thread waits for a batch on a GPU. What each costs is in docs/SERVING.md.
enum class Wait {
  spin,             ///< looks all the time: soonest, and a core for as long as batches take
  spin_then_sleep,  ///< looks for ContextOptions::spin_seconds, then sleeps between looks; while half of the cores are
                    ///< taken by threads that spin, it sleeps at once. Of a batch that takes long it sleeps the first
                    ///< part, too: as long as such batches took at least so far, less 100 us
  sleep             ///< sleeps between looks: some 20 to 50 us later, and the least processor time
};

struct ContextOptions {
  /// Every intermediate keeps memory of its own, so that `tap` can show it; costs memory, changes no score. Batches
  /// above all capacities are then refused or run at once, never split, so that `tap` shows the values of all requests.
  bool keep_intermediates = false;
  Oversize oversize = Oversize::split;
  int64_t split_parts = 8;  ///< for which pinned memory is reserved; a batch of more parts allocates more, and keeps it
  Wait wait = Wait::spin_then_sleep;
  double spin_seconds = 500e-6;  ///< longer than batches take, or spinning is in vain; with 0 it sleeps at once
  /// Whether kernels of a batch begin before those ahead of them have ended, on cards that can (sm_90 and later): some
  /// 0.5 us less for each kernel. Changes no score.
  bool overlap_launches = true;
  /// A batch in pinned memory, of a capacity that has up to so many bytes, is fetched by the first kernel of its graph;
  /// others are copied ahead of it. 0: all are. What each costs is in docs/SERVING.md. Changes no score.
  int64_t fetch_bytes = plan::most_fetched_bytes;
};

/// Bytes by what they are for. Parts whose name begins with "pinned" are in the host's memory, all others in that of
/// the device that the report is about.
using MemoryReport = std::vector<std::pair<std::string, int64_t>>;

/// What one feature met since the context was made.
struct FeatureCounters {
  std::string feature;  ///< the node's name: "embed.film_id"
  LookupCounters counters;
};

/// The values of one output: rows of all scored requests, and which are whose.
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
  /// Tables::refresh. Of an engine without tables in stores as update.
  virtual UpdateReport refresh(const Weights& delta) { return update(delta); }
  /// Tables::forget_rows.
  virtual void forget_rows(const std::string&) {}
  virtual MemoryReport memory() const = 0;
  /// By name.
  virtual std::vector<PlacedTable> placed() const = 0;
  /// That of the same tables on another of LoadOptions::devices; null where this is for all.
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
  /// Begins to score every request of a closed batch whose status is ok, behind what `stream` was given before; without
  /// one in the context's own. Neither allocates nor waits once it has seen a batch as large. Not called again before
  /// wait().
  virtual void submit(const Batch& batch, std::optional<StreamHandle> stream) = 0;
  /// Whether wait() would return at once.
  virtual bool ready() const = 0;
  /// Returns when the scores of the last batch are in outputs(); throws what went wrong on the device.
  virtual void wait() = 0;
  virtual Span<const OutputView> outputs() const = 0;
  /// Pending::device_scores, of a batch that was submitted.
  virtual DeviceScores device_scores(int) const {
    throw invalid_argument("device scores", "a model on a GPU", "one on the host");
  }
  /// The next batch is scored by `next`, a model of this engine, device and plan. Not called between submit() and
  /// wait(). Throws invalid_argument, and changes nothing, where the tables of the two differ in what launches depend
  /// on.
  virtual void rebind(std::shared_ptr<const ModelBackend> next) = 0;
  /// For each request of the batch its place among the scored ones, or -1.
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
  /// Those that it is bound to.
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
  /// What load_tables would take of the device's memory; loads nothing. Throws all that it would throw for the files.
  virtual MemoryReport table_needs(const Plan& plan, const Weights& weights, const HashTableFiles& images,
                                   const LoadOptions& options) const = 0;
  /// Whether contexts of the plan can be rebound between tables that are updatable and such that are not.
  virtual bool rebinds_to_updatable(const Plan&) const { return true; }
  /// The calling thread will work on this device alone.
  virtual void begin_thread(int) const {}
  /// Bytes of the device's memory that are free now, for tables that are loaded so.
  virtual int64_t free_memory(int index, const LoadOptions& load) const = 0;
};

}}  // namespace warprank::v0
