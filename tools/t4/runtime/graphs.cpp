// SPDX-License-Identifier: Apache-2.0
//
// The runtime's calls about graphs.

#include <algorithm>

#include "runtime/runtime.hpp"

namespace t4 { namespace {

Graph& as_graph(cudaGraph_t handle) { return *reinterpret_cast<Graph*>(handle); }
Node& as_node(cudaGraphNode_t handle) { return *reinterpret_cast<Node*>(handle); }
GraphExec& as_exec(cudaGraphExec_t handle) { return *reinterpret_cast<GraphExec*>(handle); }

cudaError_t set_kernel(Node& node, const cudaKernelNodeParams& params) {
  Runtime& runtime = Runtime::get();
  const Kernel* kernel = runtime.find_kernel(params.func);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  const Dim3 grid{params.gridDim.x, params.gridDim.y, params.gridDim.z};
  const Dim3 block{params.blockDim.x, params.blockDim.y, params.blockDim.z};
  const cudaError_t code = runtime.check_launch(*kernel, grid, block, params.sharedMemBytes);
  if (code != cudaSuccess) return code;
  node.host_function = params.func;
  node.function = kernel->function;
  node.grid = grid, node.block = block;
  node.dynamic_shared_bytes = params.sharedMemBytes;
  node.parameters = pack_parameters(*kernel->function, params.kernelParams);
  return cudaSuccess;
}

}}  // namespace t4

using t4::Runtime;

extern "C" {

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<t4::Graph*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return Runtime::get().call([&] {
    const auto& all = t4::as_graph(graph).nodes;
    if (nodes != nullptr)
      for (size_t i = 0; i < std::min(*count, all.size()); ++i)
        nodes[i] = reinterpret_cast<cudaGraphNode_t>(all[i].get());
    *count = nodes == nullptr ? all.size() : std::min(*count, all.size());
    return cudaSuccess;
  });
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  *type = t4::as_node(node).type;
  return cudaSuccess;
}
cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t handle, cudaKernelNodeParams* params) {
  return Runtime::get().call([&] {
    t4::Node& node = t4::as_node(handle);
    if (node.type != cudaGraphNodeTypeKernel) return cudaErrorInvalidValue;
    node.parameter_addresses.clear();
    for (const t4::Parameter& parameter : node.function->parameters)
      node.parameter_addresses.push_back(node.parameters.data() + parameter.offset);
    *params = {};
    params->func = const_cast<void*>(node.host_function);
    params->gridDim = {node.grid.x, node.grid.y, node.grid.z};
    params->blockDim = {node.block.x, node.block.y, node.block.z};
    params->sharedMemBytes = node.dynamic_shared_bytes;
    params->kernelParams = node.parameter_addresses.data();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* handle, cudaGraph_t graph, unsigned long long) {
  return Runtime::get().call([&] {
    auto exec = std::make_unique<t4::GraphExec>();
    for (const auto& node : t4::as_graph(graph).nodes) {
      exec->index[node.get()] = exec->nodes.size();
      exec->nodes.push_back(*node);
    }
    *handle = reinterpret_cast<cudaGraphExec_t>(exec.release());
    return cudaSuccess;
  });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* handle, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(handle, graph, flags);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
  delete reinterpret_cast<t4::GraphExec*>(handle);
  return cudaSuccess;
}
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t handle, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* params) {
  return Runtime::get().call([&] {
    t4::GraphExec& exec = t4::as_exec(handle);
    const auto found = exec.index.find(&t4::as_node(node));
    if (found == exec.index.end()) return cudaErrorInvalidValue;
    return t4::set_kernel(exec.nodes[found->second], *params);
  });
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream) {
  return Runtime::get().call([&] {
    for (const t4::Node& node : t4::as_exec(handle).nodes) Runtime::get().queue(stream, node);
    return cudaSuccess;
  });
}
}
