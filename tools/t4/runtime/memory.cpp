// SPDX-License-Identifier: Apache-2.0
//
// The runtime's calls about memory. The card's is the host's; kernels may use what was allocated or registered.

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "runtime/device.hpp"
#include "runtime/runtime.hpp"

namespace t4 { namespace {

constexpr int garbage = 0xee;                          // in what is not written yet,
constexpr uint64_t most_garbage = uint64_t{16} << 20;  // but in what is large

/// Null: the system has not as much. Always at the same addresses, one behind the other with a gap, as the caches' sets
/// depend on them: a program takes the same time each time.
void* map(uint64_t bytes) {
  constexpr uint64_t first = uint64_t{1} << 44, page = 4096;
  static uint64_t next = first;
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* address =
      mmap(reinterpret_cast<void*>(next), bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, -1, 0);
  if (address == MAP_FAILED) address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  next += (bytes + page - 1) / page * page + page;
  if (bytes <= most_garbage) std::memset(address, garbage, bytes);
  return address;
}

cudaError_t allocate(void** address, uint64_t bytes, bool on_device) {
  Runtime& runtime = Runtime::get();
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (on_device && bytes > memory_bytes - runtime.allocated_bytes) return cudaErrorMemoryAllocation;
  if (bytes > uint64_t{1} << 40) return cudaErrorMemoryAllocation;
  *address = map(bytes);
  if (*address == nullptr) return cudaErrorMemoryAllocation;
  if (on_device) runtime.allocated_bytes += bytes;
  runtime.sizes[*address] = bytes;
  runtime.memory.add(*address, bytes);
  return cudaSuccess;
}
cudaError_t release(void* address, bool on_device) {
  Runtime& runtime = Runtime::get();
  if (address == nullptr) return cudaSuccess;
  const auto found = runtime.sizes.find(address);
  if (found == runtime.sizes.end()) return cudaErrorInvalidValue;
  if (on_device) runtime.allocated_bytes -= found->second;
  munmap(address, found->second);
  runtime.memory.remove(address);
  runtime.sizes.erase(found);
  return cudaSuccess;
}

Node copy_node(void* to, const void* from, size_t bytes) {
  Node node;
  node.type = cudaGraphNodeTypeMemcpy;
  node.to = to, node.from = from, node.bytes = bytes;
  return node;
}
Node fill_node(void* to, int value, size_t bytes) {
  Node node;
  node.type = cudaGraphNodeTypeMemset;
  node.to = to, node.value = value, node.bytes = bytes;
  return node;
}

}}  // namespace t4

using t4::Runtime;

extern "C" {

cudaError_t cudaMalloc(void** address, size_t bytes) {
  return Runtime::get().call([&] { return t4::allocate(address, bytes, true); });
}
cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t) { return cudaMalloc(address, bytes); }
cudaError_t cudaMallocManaged(void** address, size_t bytes, unsigned) { return cudaMalloc(address, bytes); }
cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  return Runtime::get().call([&] { return t4::allocate(address, bytes, false); });
}
cudaError_t cudaMallocHost(void** address, size_t bytes) { return cudaHostAlloc(address, bytes, 0); }
cudaError_t cudaFree(void* address) {
  return Runtime::get().call([&] { return t4::release(address, true); });
}
cudaError_t cudaFreeAsync(void* address, cudaStream_t) { return cudaFree(address); }
cudaError_t cudaFreeHost(void* address) {
  return Runtime::get().call([&] { return t4::release(address, false); });
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return Runtime::get().call([&] {
    *total = t4::memory_bytes;
    *free = t4::memory_bytes - Runtime::get().allocated_bytes;
    return cudaSuccess;
  });
}

cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned) {
  return Runtime::get().call([&] {
    Runtime::get().memory.add(address, bytes);
    return cudaSuccess;
  });
}
cudaError_t cudaHostUnregister(void* address) {
  return Runtime::get().call([&] {
    Runtime::get().memory.remove(address);
    return cudaSuccess;
  });
}
cudaError_t cudaHostGetDevicePointer(void** on_device, void* host, unsigned) {
  *on_device = host;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  return Runtime::get().call([&] {
    std::memset(attributes, 0, sizeof *attributes);
    if (Runtime::get().memory.find(reinterpret_cast<uint64_t>(address)).end == 0) return cudaSuccess;
    attributes->type = cudaMemoryTypeDevice;
    attributes->devicePointer = attributes->hostPointer = const_cast<void*>(address);
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return Runtime::get().call([&] {
    Runtime::get().queue(stream, t4::copy_node(to, from, bytes));
    return cudaSuccess;
  });
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  for (size_t row = 0; row < height; ++row)
    if (const cudaError_t code =
            cudaMemcpyAsync(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch,
                            width, kind, stream);
        code != cudaSuccess)
      return code;
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return Runtime::get().call([&] {
    Runtime::get().queue(stream, t4::fill_node(to, value, bytes));
    return cudaSuccess;
  });
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes, nullptr); }

cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  return Runtime::get().call([&] {
    *address = Runtime::get().find_variable(symbol).address;
    return *address == nullptr ? cudaErrorInvalidSymbol : cudaSuccess;
  });
}
cudaError_t cudaGetSymbolSize(size_t* bytes, const void* symbol) {
  return Runtime::get().call([&] {
    const t4::Variable variable = Runtime::get().find_variable(symbol);
    *bytes = variable.bytes;
    return variable.address == nullptr ? cudaErrorInvalidSymbol : cudaSuccess;
  });
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind) {
  return Runtime::get().call([&] {
    const t4::Variable variable = Runtime::get().find_variable(symbol);
    if (variable.address == nullptr) return cudaErrorInvalidSymbol;
    if (offset + bytes > variable.bytes) return cudaErrorInvalidValue;
    std::memcpy(variable.address + offset, from, bytes);
    return cudaSuccess;
  });
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind) {
  return Runtime::get().call([&] {
    const t4::Variable variable = Runtime::get().find_variable(symbol);
    if (variable.address == nullptr) return cudaErrorInvalidSymbol;
    if (offset + bytes > variable.bytes) return cudaErrorInvalidValue;
    std::memcpy(to, variable.address + offset, bytes);
    return cudaSuccess;
  });
}
}
