// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Graphs as JSON: a new architecture reaches a server as a file, without a rebuild. The round trip is exact (floats
/// are written with the digits that give back the same bits). A file is validated like hand-made input: anything
/// missing, unknown, mistyped or inconsistent is an invalid_argument that says where.

#include <string>

#include "warprank/core/compiled.hpp"
#include "warprank/model/graph.hpp"

namespace warprank { inline namespace v0 {

/// The graph as indented JSON text. Throws invalid_argument when a name is not UTF-8.
WARPRANK_HOST_INLINE std::string to_json(const Graph& graph);

/// Reads and validates a graph; `source` names it in errors. Throws invalid_argument for anything that to_json would
/// not have written. Members `wire` and `out_of_range` of inputs, which older files lack, may be missing: then they
/// have their defaults.
WARPRANK_HOST_INLINE Graph graph_from_json(const std::string& text, const std::string& source = "graph");

/// Writes to_json(graph) beside `path` and renames it over `path`, so that no reader loads half a file. Throws
/// invalid_argument when writing fails.
WARPRANK_HOST_INLINE void save_graph(const Graph& graph, const std::string& path);

/// graph_from_json of a file; errors name its path.
WARPRANK_HOST_INLINE Graph load_graph(const std::string& path);

}}  // namespace warprank::v0

#if !defined(WARPRANK_HOST_COMPILED)
#include "warprank/model/graph_json_definitions.hpp"
#endif
