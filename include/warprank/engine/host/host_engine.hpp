// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host engine: Engine, ModelBackend and ContextBackend on this machine's CPU, with one thread or more per context.

#include <cstdint>
#include <memory>

#include "warprank/core/compiled.hpp"
#include "warprank/core/free_memory.hpp"
#include "warprank/engine/check_bind.hpp"
#include "warprank/engine/host/model.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

class HostEngine : public Engine {
 public:
  const char* name() const override { return "host"; }
  std::shared_ptr<TableStore> load_tables(const Plan& plan, const Weights& weights, const HashTableFiles& images,
                                          const LoadOptions& options, int) const override {
    return std::make_shared<HostTableStore>(plan, weights, images, options);
  }
  std::shared_ptr<const ModelBackend> bind(const Plan& plan, const Weights& weights,
                                           std::shared_ptr<const TableStore> tables, int,
                                           const BindOptions& options) const override {
    detail::check_tables(plan, dynamic_cast<const HostTableStore&>(*tables));
    return std::make_shared<HostModel>(plan, weights, std::move(tables), options);
  }
  MemoryReport table_needs(const Plan& plan, const Weights& weights, const HashTableFiles& images,
                           const LoadOptions& options) const override {
    return HostTableStore::needs(plan, weights, images, options);
  }
  int64_t free_memory(int, const LoadOptions& load) const override {
    return warprank::free_memory() + (load.pages ? load.pages->free_bytes() : 0);
  }
};

}}}  // namespace warprank::v0::host_backend

namespace warprank { inline namespace v0 {

WARPRANK_HOST_INLINE const Engine& host_engine() {
  static const host_backend::HostEngine engine;
  return engine;
}

}}  // namespace warprank::v0
