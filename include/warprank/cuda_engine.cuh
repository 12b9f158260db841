// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The CUDA engine's implementation. Include it in one source file of a program or shared library, compiled by nvcc; or
/// link the target warprank::cuda_engine, which contains it. All other files include warprank/cuda.hpp.

#include "warprank/engine/cuda/model.cuh"
#include "warprank/engine/cuda/tune.cuh"

namespace warprank { inline namespace v0 {

const Engine& cuda_engine() {
  static const cuda_backend::CudaEngine engine;
  return engine;
}

int num_cuda_devices() { return device::num_devices(); }

std::string why_no_cuda(int index) {
  const auto why = device::why_unusable(device::backend::runtime::find_device(index));
  return why ? why->what() : "";
}

void set_cuda_allocator(int index, DeviceAllocator allocator) { device::set_allocator(index, std::move(allocator)); }

Tuning tune(const Plan& plan, const Weights& weights, const Tables& tables, const BindOptions& bind_options,
            const TuneOptions& options) {
  const auto store = std::dynamic_pointer_cast<const cuda_backend::CudaTableStore>(tables.store());
  if (store == nullptr)
    throw invalid_argument("tune: tables", "tables of the CUDA engine", tables.device().engine->name());
  detail::check_tables(plan, *store);
  detail::check_parameters(plan, weights, bind_options.cuda_custom, "cuda_custom", bind_options.extra);
  const int index = tables.device().index;
  const device::DeviceGuard current(index);
  return cuda_backend::Tuner(plan, weights, *store, index, bind_options, options).run();
}

}}  // namespace warprank::v0
