// SPDX-License-Identifier: Apache-2.0

/// The one source of warprank::host: the definitions that headers otherwise inline into every unit (core/compiled.hpp).

#define WARPRANK_HOST_SOURCE
#include <warprank/engine/tuning_json.hpp>
#include <warprank/graph_json.hpp>
#include <warprank/host.hpp>
