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
/// values are exact. Dense inputs and table rows that tensor cores read are rounded to FP16 as well; whatever is finite
/// and above 65504 counts as 65504, but where cuBLASLt does all of a layer (LinearKernel::cublaslt, with at most a
/// bias, relu or gelu_tanh behind), whose FP16 results are infinite there. So give seconds and cents a batch norm of
/// their own, which is computed in FP32 before that; one that also covers other columns is folded into weights
/// (Passes::fold_batch_norm), and then they must be small. A batch's scores are the same bit for bit whatever else is
/// in the batch, for one capacity, card and choice of kernels, which bind makes by measuring (engine/tuning.hpp);
/// across capacities, choices and engines they agree within the bounds that the ops state.
///
/// A batch that is above all capacities runs, too: in parts that are not, each by a graph, with as little copied and
/// nothing allocated; a request that is above them by itself by memory that is allocated for it, kernel by kernel. That
/// is made for its rows, rounded up to one of four numbers in each doubling, so that its bits do not depend on what
/// came before. Oversize (engine/engine.hpp) has the other choices.

#include <string>

#include "warprank/core/device_allocator.hpp"
#include "warprank/engine/compare.hpp"
#include "warprank/engine/model.hpp"

/// Each shared library that has the engine uses its own, with its own kernels. All else that is inline is shared, as in
/// any C++ program: libraries with different versions of these headers are built with -fvisibility=hidden and
/// -fvisibility-inlines-hidden.
#define WARPRANK_ENGINE_HIDDEN __attribute__((visibility("hidden")))

namespace warprank { inline namespace v0 {

WARPRANK_ENGINE_HIDDEN const Engine& cuda_engine();

/// How many devices the engine could use; 0 where there is no driver.
WARPRANK_ENGINE_HIDDEN int num_cuda_devices();

/// Why the engine cannot use a device, with what it needs and what would do: a driver that is missing or too old for
/// what the program was built with, a card before compute capability 7.5 or without code for it. Empty when it can. The
/// engine throws the same as a cuda_error when it is given tables.
WARPRANK_ENGINE_HIDDEN std::string why_no_cuda(int index = 0);

/// Device memory of tables, models and contexts on the device that are made from now on, and of a Resident of the same
/// program or library, is the allocator's; what is there keeps its own. Without `allocate`: the runtime's again. Tables
/// that are sharded over cards and what the runtime itself takes, as for graphs, do not come from it. Throws
/// invalid_argument for an allocator that has only one of allocate and deallocate.
WARPRANK_ENGINE_HIDDEN void set_cuda_allocator(int index, DeviceAllocator allocator);

/// A device of the CUDA engine.
WARPRANK_ENGINE_HIDDEN inline Device cuda(int index = 0) { return {&cuda_engine(), index}; }

}}  // namespace warprank::v0
