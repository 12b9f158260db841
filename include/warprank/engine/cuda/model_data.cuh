// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What all contexts of a model share, and what another model must have to take its place in them.

#include <memory>
#include <string>

#include "warprank/core/error.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/engine/cuda/make_steps.cuh"
#include "warprank/engine/cuda/table_store.cuh"
#include "warprank/engine/engine.hpp"
#include "warprank/plan/plan.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// What all contexts of a model share. The steps refer to the tables, and to the weights by where these begin.
struct CudaModelData {
  Plan plan;
  std::shared_ptr<const CudaTableStore> tables;
  int device_index = 0;
  ModelSteps steps;
  device::DeviceMemory weights, copied_weights;  ///< of the latter each context has a copy (WeightsMemory)
  std::string linears;                           ///< lines: how their kernels were chosen
};

/// A model of this engine.
class CudaModelBackend : public ModelBackend {
 public:
  const std::shared_ptr<const CudaModelData>& data() const { return data_; }

 protected:
  std::shared_ptr<const CudaModelData> data_;
};

inline void expect_same_tables(const CudaModelData& before, const CudaModelData& after) {
  Problems problems;
  const auto text = [](const CudaTable& table) {
    const bool is_mutable = table.hashed && table.hashed->is_mutable && !table.tier;
    return std::string(name_of(table.view.type)) + " of " + std::to_string(table.view.dim) + " columns" +
           (table.is_hashed() ? ", hashed" : "") + (is_mutable ? ", updatable" : "") +
           (!table.tier           ? table.cache ? ", cached" : ""
            : table.tier->waits() ? ", in a store that is waited for"
                                  : ", in a store");
  };
  for (const TableInfo& info : before.plan.source().tables) {
    const std::string was = text(*before.tables->find(info.name)), is = text(*after.tables->find(info.name));
    if (was != is) problems.add("Context::rebind: table '" + info.name + "'", was, is);
  }
  problems.throw_if_any();
}

}}}  // namespace warprank::v0::cuda_backend
