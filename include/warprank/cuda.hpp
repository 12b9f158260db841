// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The CUDA engine: the same models as on the host, on a GPU. Plain C++; link warprank::cuda_engine, or have one .cu of
/// yours include warprank/cuda_engine.cuh, which compiles the engine.
///
///     auto tables = Tables::load(plan, "tables/", cuda());
///     auto model = Model::bind(plan, Weights::open("dense.safetensors"), tables);
///     auto context = model.context();                  // captures a graph for each capacity of the plan
///     auto batch = model.batch();                      // in pinned memory
///     Pending pending = context.submit(batch, stream); // one copy in, one graph that stores scores
///     Scores scores = pending.wait();
///
/// submit waits for nothing, but CUDA makes it wait for a batch that is not in pinned memory.
///
/// Values between kernels are FP16 where tensor cores read them, else FP32; sums are FP32. Products of FP16 weights and
/// values are exact. Dense inputs and table rows that tensor cores read are rounded to FP16 as well; a finite value
/// above 65504 counts as 65504, except where cuBLASLt does a whole layer (LinearKernel::cublaslt, with at most a bias,
/// relu or gelu_tanh behind the product): its FP16 results are then infinite. So give seconds and cents a batch norm of
/// their own, which is computed in FP32 before the rounding. A batch norm that also covers other columns is folded into
/// weights (Passes::fold_batch_norm), and then the values must be small. A request's scores are the same bit for bit
/// whatever else is in the batch, for one capacity, card and choice of kernels, which bind makes by measuring
/// (engine/tuning.hpp). Across capacities, choices and engines they agree within the bounds that the ops state.
///
/// A batch above all capacities also runs: it is split into parts that fit, each run by a graph, with no more copies
/// and no allocation. A request that is by itself above all capacities runs kernel by kernel, in memory that is
/// allocated for it. This memory is made for its rows, rounded up to one of four numbers in each doubling, so that its
/// bits do not depend on earlier batches. Oversize (engine/engine.hpp) has the other choices.

#include <string>

#include "warprank/core/device_allocator.hpp"
#include "warprank/engine/compare.hpp"
#include "warprank/engine/model.hpp"

/// Each shared library that contains the engine uses its own engine, with its own kernels. All other inline code is
/// shared, as in any C++ program: libraries with different versions of these headers are built with -fvisibility=hidden
/// and -fvisibility-inlines-hidden.
#define WARPRANK_ENGINE_HIDDEN __attribute__((visibility("hidden")))

namespace warprank { inline namespace v0 {

WARPRANK_ENGINE_HIDDEN const Engine& cuda_engine();

/// How many devices the engine could use; 0 where there is no driver.
WARPRANK_ENGINE_HIDDEN int num_cuda_devices();

/// The reason why the engine cannot use a device, with its needs and a remedy: a driver that is missing or too old for
/// the CUDA of the program, a card before compute capability 7.5 or without code for it. Empty when the engine can use
/// it. The engine throws the same text as a cuda_error when it is given tables.
WARPRANK_ENGINE_HIDDEN std::string why_no_cuda(int index = 0);

/// From now on, new tables, models and contexts on the device, and each Resident of the same program or library, take
/// their device memory from the allocator; existing objects keep their memory. Without `allocate` the runtime allocates
/// again. Tables that are sharded over cards, and memory of the runtime itself, as for graphs, do not come from the
/// allocator. Throws invalid_argument for an allocator that has only one of allocate and deallocate.
WARPRANK_ENGINE_HIDDEN void set_cuda_allocator(int index, DeviceAllocator allocator);

/// A device of the CUDA engine.
WARPRANK_ENGINE_HIDDEN inline Device cuda(int index = 0) { return {&cuda_engine(), index}; }

}}  // namespace warprank::v0
