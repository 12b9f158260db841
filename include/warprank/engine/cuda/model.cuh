// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The CUDA engine: Engine, ModelBackend and their checks.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "warprank/cuda.hpp"
#include "warprank/engine/check_bind.hpp"
#include "warprank/engine/cuda/context.cuh"
#include "warprank/engine/cuda/tune_at_bind.cuh"

namespace warprank { inline namespace v0 { namespace cuda_backend {

class CudaModel : public CudaModelBackend {
 public:
  CudaModel(const Plan& plan, const Weights& weights, std::shared_ptr<const CudaTableStore> tables, int device_index,
            const BindOptions& options) {
    const device::DeviceGuard current(device_index);
    auto data = std::make_shared<CudaModelData>(CudaModelData{plan, std::move(tables), device_index, {}, {}, {}, {}});
    WeightsMemory memory;
    detail::Int8Linears int8(options.cuda_int8, plan.source());  // refuses names before anything is measured
    const ValueLayout values(data->plan.graph(), data->plan.storage());
    LinearDecision linears = LinearDecider(data->plan, values, weights, *data->tables, device_index, options).decide();
    data->linears = std::move(linears.text);
    data->steps = StepMaker(data->plan, values, weights, *data->tables, options, std::move(int8),
                            std::move(linears.chooser), memory)
                      .make();
    data->linears += data->steps.int8_linears;
    const device::OwnedStream stream;
    data->weights = copied(memory.bytes(), "the weights of a model", stream.get());
    data->copied_weights = copied(memory.copied(), "the weights of a model that contexts copy", stream.get());
    data_ = std::move(data);
  }

  std::unique_ptr<ContextBackend> make_context(const ContextOptions& options) const override {
    const device::DeviceGuard current(data_->device_index);
    return std::make_unique<CudaContext>(data_, options);
  }
  const TableStore* tables() const override { return data_->tables.get(); }
  HostAllocator batch_allocator() const override { return device::pinned_allocator(data_->device_index); }
  MemoryReport memory() const override {
    MemoryReport report = data_->tables->memory();
    report.emplace_back("weights", data_->weights.bytes() + data_->copied_weights.bytes());
    return report;
  }
};

class CudaEngine : public Engine {
 public:
  const char* name() const override { return "cuda"; }
  std::shared_ptr<TableStore> load_tables(const Plan& plan, const Weights& weights, const HashTableFiles& images,
                                          const LoadOptions& options, int index) const override {
    auto store = CudaTableStore::load(plan, weights, images, index, options);
    store->start_passes(options.cache_pass_seconds);
    return store;
  }
  std::shared_ptr<const ModelBackend> bind(const Plan& plan, const Weights& weights,
                                           std::shared_ptr<const TableStore> tables, int index,
                                           const BindOptions& options) const override {
    auto store = std::dynamic_pointer_cast<const CudaTableStore>(std::move(tables));
    detail::check_tables(plan, *store);
    detail::check_parameters(plan, weights, options.cuda_custom, "cuda_custom", options.extra);
    return std::make_shared<CudaModel>(plan, weights, std::move(store), index, options);
  }
  MemoryReport table_needs(const Plan& plan, const Weights& weights, const HashTableFiles& images,
                           const LoadOptions& options) const override {
    return CudaTableStore::needs(plan, weights, images, options);
  }
  /// Graphs have other kernels for hashed tables whose rows may change.
  bool rebinds_to_updatable(const Plan& plan) const override {
    const std::vector<TableInfo>& tables = plan.source().tables;
    return std::none_of(tables.begin(), tables.end(), [](const TableInfo& info) { return info.hashed; });
  }
  /// Or each call would go back to device 0, and take memory of that.
  void begin_thread(int index) const override { device::backend::runtime::set_device(index); }
  int64_t free_memory(int index, const LoadOptions&) const override { return device::free_bytes(index); }
  std::shared_ptr<std::byte> allocate(int index, int64_t bytes, const std::string& what) const override {
    const device::DeviceGuard current(index);
    auto memory = std::make_shared<const device::DeviceMemory>(bytes, what);
    auto* const data = static_cast<std::byte*>(memory->data());
    return {std::move(memory), data};
  }
};

}}}  // namespace warprank::v0::cuda_backend
