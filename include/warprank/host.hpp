// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host engine: runs models on this machine's CPU, with the widest vectors it has. Header-only; link Highway. With
/// the target warprank::host, which has the engine compiled, this header only declares it (core/compiled.hpp).
///
///     auto tables = Tables::load(plan, "tables/", host());
///     auto model = Model::bind(plan, Weights::open("dense.safetensors"), tables);
///     auto context = model.context();
///     Scores scores = context.run(batch);

#include "warprank/core/compiled.hpp"
#include "warprank/engine/compare.hpp"
#include "warprank/engine/model.hpp"

namespace warprank { inline namespace v0 {

/// The host engine; there is one.
WARPRANK_HOST_INLINE const Engine& host_engine();
/// The device of the host engine. A context runs on the thread that calls it; use one context per thread.
inline Device host() { return {&host_engine(), 0}; }

}}  // namespace warprank::v0

#if !defined(WARPRANK_HOST_COMPILED)
#include "warprank/engine/host/host_engine.hpp"
#endif
