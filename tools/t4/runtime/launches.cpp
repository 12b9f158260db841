// SPDX-License-Identifier: Apache-2.0
//
// Code that a program registers, and the runtime's calls that launch it.

#include <cstring>
#include <vector>

#include "runtime/device.hpp"
#include "runtime/runtime.hpp"

namespace t4 { namespace {

struct Configuration {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};
/// Of <<<>>>, until the stub has its arguments.
std::vector<Configuration>& configurations() {
  thread_local std::vector<Configuration> all;
  return all;
}

Dim3 as_dim3(dim3 value) { return {value.x, value.y, value.z}; }

cudaError_t launch(const void* host, dim3 grid, dim3 block, void** arguments, size_t shared_bytes, cudaStream_t stream,
                   bool overlaps = false) {
  Runtime& runtime = Runtime::get();
  const Kernel* kernel = runtime.find_kernel(host);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  const cudaError_t code = runtime.check_launch(*kernel, as_dim3(grid), as_dim3(block), shared_bytes);
  if (code != cudaSuccess) return code;
  Node node;
  node.type = cudaGraphNodeTypeKernel;
  node.host_function = host;
  node.function = kernel->function;
  node.grid = as_dim3(grid), node.block = as_dim3(block);
  node.dynamic_shared_bytes = static_cast<uint32_t>(shared_bytes);
  node.overlaps = overlaps;
  node.parameters = pack_parameters(*kernel->function, arguments);
  runtime.queue(stream, std::move(node));
  return cudaSuccess;
}

}}  // namespace t4

using t4::Runtime;

extern "C" {

// ---- What nvcc's code calls

void** __cudaRegisterFatBinary(void* wrapper) { return reinterpret_cast<void**>(Runtime::get().add_image(wrapper)); }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void** image, const char* host, char*, const char* name, int, void*, void*, void*, void*,
                            int*) {
  Runtime::get().add_kernel(reinterpret_cast<t4::Image*>(image), host, name);
}
void __cudaRegisterVar(void** image, char* host, char*, const char* name, int, size_t, int, int) {
  Runtime::get().add_variable(reinterpret_cast<t4::Image*>(image), host, name);
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream) {
  t4::configurations().push_back({grid, block, shared_bytes, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  const t4::Configuration last = t4::configurations().back();
  t4::configurations().pop_back();
  *grid = last.grid, *block = last.block, *shared_bytes = last.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                               cudaStream_t stream) {
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, arguments, shared_bytes, stream);
}

// ---- What programs call

cudaError_t cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                             cudaStream_t stream) {
  return Runtime::get().call([&] { return t4::launch(host, grid, block, arguments, shared_bytes, stream); });
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* host, void** arguments) {
  bool overlaps = false;
  for (unsigned i = 0; i < config->numAttrs; ++i)
    overlaps |= config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization &&
                config->attrs[i].val.programmaticStreamSerializationAllowed != 0;
  return Runtime::get().call([&] {
    return t4::launch(host, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes, config->stream,
                      overlaps);
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* host) {
  return Runtime::get().call([&] {
    const t4::Kernel* kernel = Runtime::get().find_kernel(host);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    std::memset(attributes, 0, sizeof *attributes);
    attributes->sharedSizeBytes = kernel->function->static_shared_bytes;
    attributes->maxThreadsPerBlock = kernel->function->most_threads;
    attributes->numRegs = kernel->function->code.num_registers;
    attributes->ptxVersion = attributes->binaryVersion = t4::capability();
    attributes->maxDynamicSharedSizeBytes = kernel->most_dynamic_shared_bytes;
    return cudaSuccess;
  });
}
cudaError_t cudaFuncSetAttribute(const void* host, cudaFuncAttribute which, int value) {
  return Runtime::get().call([&] {
    t4::Kernel* kernel = Runtime::get().find_kernel(host);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    if (which != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || value + kernel->function->static_shared_bytes > t4::room().shared_bytes_of_block)
      return cudaErrorInvalidValue;
    kernel->most_dynamic_shared_bytes = value;
    return cudaSuccess;
  });
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* host, int threads,
                                                                   size_t shared_bytes, unsigned) {
  return Runtime::get().call([&] {
    const t4::Kernel* kernel = Runtime::get().find_kernel(host);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    *blocks = t4::resident_blocks(*kernel->function, static_cast<uint64_t>(threads), shared_bytes, t4::room());
    return cudaSuccess;
  });
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* host, int threads,
                                                          size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads, shared_bytes, 0);
}
}
