// SPDX-License-Identifier: Apache-2.0
#include "runtime/runtime.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "model/report.hpp"
#include "runtime/device.hpp"

namespace t4 {
namespace {

void say(const std::string& message) { std::fprintf(stderr, "t4: %s\n", message.c_str()); }

/// T4_VERBOSE=1: a line for each launch.
bool is_verbose() {
  static const bool verbose = std::getenv("T4_VERBOSE") != nullptr;
  return verbose;
}

}  // namespace

Runtime& Runtime::get() {
  static auto* const runtime = new Runtime;  // programs call it until their very end
  return *runtime;
}

cudaError_t Runtime::call(const std::function<cudaError_t()>& function) {
  const std::lock_guard lock(mutex_);
  if (broken_ != cudaSuccess) return broken_;
  cudaError_t code = cudaErrorUnknown;
  try {
    code = function();
  } catch (const execution_error& error) {
    say(error.what());
    code = broken_ = std::string(error.what()).find("out of bounds") != std::string::npos ? cudaErrorIllegalAddress
                                                                                          : cudaErrorLaunchFailure;
  } catch (const std::exception& error) {
    say(error.what());
    code = broken_ = cudaErrorNoKernelImageForDevice;
  }
  if (code != cudaSuccess) last_ = code;
  return code;
}

cudaError_t Runtime::take_last_error(bool forgets) {
  const std::lock_guard lock(mutex_);
  const cudaError_t code = broken_ != cudaSuccess ? broken_ : last_;
  if (forgets) last_ = cudaSuccess;
  return code;
}

// ---- Code

Image* Runtime::add_image(const void* wrapper) {
  const std::lock_guard lock(mutex_);
  return images_.emplace_back(std::make_unique<Image>(wrapper)).get();
}

Kernel* Runtime::find_kernel(const void* host) {
  const auto found = kernels_.find(host);
  if (found == kernels_.end()) return nullptr;
  Kernel& kernel = found->second;
  if (kernel.function == nullptr) {
    Module& module = kernel.image->module();
    const auto function = module.functions.find(kernel.name);
    if (function == module.functions.end()) throw std::runtime_error("no code for the kernel " + kernel.name);
    kernel.function = &function->second;
    for (const auto& [name, variable] : module.variables) memory.add(variable.address, variable.bytes);
  }
  return &kernel;
}

Variable Runtime::find_variable(const void* host) {
  const auto found = variables_.find(host);
  if (found == variables_.end()) return {};
  Module& module = found->second.first->module();
  const auto variable = module.variables.find(found->second.second);
  if (variable == module.variables.end()) throw std::runtime_error("no variable " + found->second.second);
  memory.add(variable->second.address, variable->second.bytes);
  return variable->second;
}

cudaError_t Runtime::check_launch(const Kernel& kernel, Dim3 grid, Dim3 block, uint64_t dynamic_shared_bytes) const {
  const Function& function = *kernel.function;
  if (grid.count() == 0 || block.count() == 0 || block.count() > max_threads || block.z > 64 || grid.y > 65535 ||
      grid.z > 65535 || grid.x > 0x7fffffff)
    return cudaErrorInvalidConfiguration;
  if (dynamic_shared_bytes > static_cast<uint64_t>(kernel.most_dynamic_shared_bytes) ||
      dynamic_shared_bytes + function.static_shared_bytes > room().shared_bytes_of_block)
    return cudaErrorInvalidValue;
  if (block.count() > static_cast<uint64_t>(function.most_threads)) return cudaErrorInvalidValue;
  if (resident_blocks(function, block.count(), dynamic_shared_bytes, room()) == 0) return cudaErrorLaunchOutOfResources;
  return cudaSuccess;
}

// ---- Work

Stream& Runtime::stream(cudaStream_t handle) {
  const auto found = streams.find(reinterpret_cast<const Stream*>(handle));
  return found == streams.end() ? default_stream_ : *found->second;
}

void Runtime::queue(cudaStream_t handle, Node node) {
  Stream& to = stream(handle);
  if (to.capture) {
    to.capture->graph->nodes.push_back(std::make_unique<Node>(std::move(node)));
  } else {
    run(node);
  }
}

void Runtime::run(const Node& node) {
  if (node.type == cudaGraphNodeTypeMemcpy) {
    std::memmove(node.to, node.from, node.bytes);
  } else if (node.type == cudaGraphNodeTypeMemset) {
    std::memset(node.to, node.value, node.bytes);
  } else if (node.type == cudaGraphNodeTypeKernel) {
    Launch launch =
        make_launch(*node.function, node.grid, node.block, node.dynamic_shared_bytes, node.parameters, memory);
    launch.overlaps = node.overlaps;
    if (timer.is_on()) return timer.run(launch);
    const int resident = resident_blocks(*node.function, node.block.count(), node.dynamic_shared_bytes, room());
    const Executed executed = execute(launch, static_cast<uint32_t>(resident * num_multiprocessors()));
    timer.count(executed);
    if (is_verbose())
      say(short_name(node.function->name) + ": grid " + std::to_string(node.grid.count()) + ", block " +
          std::to_string(node.block.count()) + ", " + std::to_string(executed.instructions) +
          " warp instructions, longest " + std::to_string(executed.longest_warp));
  }
}

std::vector<uint8_t> pack_parameters(const Function& function, void* const* arguments) {
  std::vector<uint8_t> packed;
  for (size_t i = 0; i < function.parameters.size(); ++i) {
    const Parameter& parameter = function.parameters[i];
    const auto end = static_cast<size_t>(parameter.offset + parameter.bytes);
    if (packed.size() < end) packed.resize(end);
    std::memcpy(packed.data() + parameter.offset, arguments[i], static_cast<size_t>(parameter.bytes));
  }
  return packed;
}

}  // namespace t4
