// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Work that can be done later: a node, and nodes that were captured, in the order in which they were queued, which is
/// one that their dependences allow.

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <vector>

#include "execute/warp.hpp"

namespace t4 {

struct Node {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  // A kernel
  const void* host_function = nullptr;
  const Function* function = nullptr;
  Dim3 grid, block;
  uint32_t dynamic_shared_bytes = 0;
  bool overlaps = false;  ///< may begin before the kernel before it has ended (dependent launch)
  std::vector<uint8_t> parameters;
  std::vector<void*> parameter_addresses;  ///< what cudaGraphKernelNodeGetParams gives
  // A copy, or a fill
  void* to = nullptr;
  const void* from = nullptr;
  int value = 0;
  size_t bytes = 0;
};

struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;  ///< their addresses are their handles
};
struct GraphExec {
  std::vector<Node> nodes;
  std::map<const Node*, size_t> index;  ///< of the graph's nodes
};

/// A capture that goes on in one or more streams.
struct Capture {
  cudaStream_t origin = nullptr;
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
};

/// A copy of the values that `arguments` point to.
std::vector<uint8_t> pack_parameters(const Function& function, void* const* arguments);

}  // namespace t4
