// SPDX-License-Identifier: Apache-2.0
//
// The runtime's calls about devices, versions and errors.

#include "runtime/device.hpp"

#include <cstdlib>
#include <cstring>

#include "runtime/runtime.hpp"

namespace t4 {

namespace {

/// A T4 where none is named.
const Card* named_card() { return std::getenv("T4_CARD") == nullptr ? nullptr : &Runtime::get().timer.card(); }

}  // namespace

int num_multiprocessors() {
  constexpr int of_a_t4 = 40;
  return named_card() == nullptr ? of_a_t4 : static_cast<int>(named_card()->multiprocessors);
}
int capability() { return named_card() == nullptr ? 75 : static_cast<int>(named_card()->capability); }
Room room() { return named_card() == nullptr ? Room() : room_of(*named_card()); }

namespace {

int l2_bytes() { return named_card() == nullptr ? 4 << 20 : static_cast<int>(named_card()->l2_bytes); }

cudaError_t attribute(int* value, cudaDeviceAttr which) {
  switch (which) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = static_cast<int>(max_threads);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = 48 * 1024;
      break;
    case cudaDevAttrWarpSize:
      *value = warp_size;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      *value = static_cast<int>(num_registers);
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = num_multiprocessors();
      break;
    case cudaDevAttrL2CacheSize:
      *value = l2_bytes();
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = static_cast<int>(room().warps) * warp_size;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = capability() / 10;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = capability() % 10;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(room().shared_bytes);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(room().shared_bytes_of_block);
      break;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *value = static_cast<int>(room().blocks);
      break;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = 256;
      break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
      *value = 1;
      break;
    default:
      *value = 0;
      break;
  }
  return cudaSuccess;
}

cudaError_t only_device(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }

}  // namespace
}  // namespace t4

using t4::Runtime;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return Runtime::get().call([&] { return t4::only_device(device); });
}
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() {
  return Runtime::get().call([] { return cudaSuccess; });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  return Runtime::get().call([&] { return device == 0 ? t4::attribute(value, which) : cudaErrorInvalidDevice; });
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = 0;
  return Runtime::get().call([&] { return device == 0 && peer == 0 ? cudaSuccess : cudaErrorInvalidDevice; });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return Runtime::get().call([&] {
    if (device != 0) return cudaErrorInvalidDevice;
    std::memset(properties, 0, sizeof *properties);
    std::strcpy(properties->name, "Tesla T4 (in software)");
    properties->totalGlobalMem = t4::memory_bytes;
    properties->multiProcessorCount = t4::num_multiprocessors();
    properties->sharedMemPerBlock = 48 * 1024;
    properties->sharedMemPerBlockOptin = t4::room().shared_bytes_of_block;
    properties->sharedMemPerMultiprocessor = t4::room().shared_bytes;
    properties->regsPerBlock = properties->regsPerMultiprocessor = static_cast<int>(t4::num_registers);
    properties->warpSize = t4::warp_size;
    properties->maxThreadsPerBlock = static_cast<int>(t4::max_threads);
    properties->maxThreadsPerMultiProcessor = static_cast<int>(t4::room().warps) * t4::warp_size;
    properties->maxBlocksPerMultiProcessor = static_cast<int>(t4::room().blocks);
    properties->major = t4::capability() / 10, properties->minor = t4::capability() % 10;
    properties->l2CacheSize = t4::l2_bytes();
    properties->memoryBusWidth = 256;
    properties->unifiedAddressing = properties->canMapHostMemory = 1;
    const int grid[] = {0x7fffffff, 65535, 65535}, threads[] = {1024, 1024, 64};
    std::memcpy(properties->maxGridSize, grid, sizeof grid);
    std::memcpy(properties->maxThreadsDim, threads, sizeof threads);
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
/// No function of the driver's is there.
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *function = nullptr;
  if (result != nullptr) *result = cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return Runtime::get().take_last_error(true); }
cudaError_t cudaPeekAtLastError() { return Runtime::get().take_last_error(false); }
const char* cudaGetErrorName(cudaError_t code) {
  switch (code) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDeviceFunction:
      return "cudaErrorInvalidDeviceFunction";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidSymbol:
      return "cudaErrorInvalidSymbol";
    case cudaErrorNoKernelImageForDevice:
      return "cudaErrorNoKernelImageForDevice";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchOutOfResources:
      return "cudaErrorLaunchOutOfResources";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorHostMemoryAlreadyRegistered:
      return "cudaErrorHostMemoryAlreadyRegistered";
    case cudaErrorHostMemoryNotRegistered:
      return "cudaErrorHostMemoryNotRegistered";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorIllegalState:
      return "cudaErrorIllegalState";
    default:
      return "cudaErrorUnknown";
  }
}
const char* cudaGetErrorString(cudaError_t code) { return cudaGetErrorName(code); }
}
