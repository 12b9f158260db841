// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Sharded memory by the driver's virtual memory: pages of several devices are mapped one behind the other. The
/// driver's functions are looked up at run time, so that programs need not link the driver. Documented in
/// device/sharded_memory.hpp.

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/cuda_error.hpp"
#include "warprank/device/devices.hpp"

namespace warprank { inline namespace v0 { namespace device::backend::runtime {

/// Null if the driver has no function of this name.
template <class Function>
WARPRANK_HIDDEN Function* find_driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  constexpr unsigned with_virtual_memory = 10020;
  const cudaError_t code =
      cudaGetDriverEntryPointByVersion(name, &found, with_virtual_memory, cudaEnableDefault, &result);
#else
  const cudaError_t code = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
  if (code != cudaSuccess) cudaGetLastError();
  return code == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<Function*>(found) : nullptr;
}

/// The driver's functions for virtual memory.
struct VirtualMemory {
  decltype(&cuDeviceGetAttribute) get_attribute =
      find_driver_function<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute");
  decltype(&cuMemGetAllocationGranularity) granularity =
      find_driver_function<decltype(cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity");
  decltype(&cuMemAddressReserve) reserve = find_driver_function<decltype(cuMemAddressReserve)>("cuMemAddressReserve");
  decltype(&cuMemAddressFree) unreserve = find_driver_function<decltype(cuMemAddressFree)>("cuMemAddressFree");
  decltype(&cuMemCreate) create = find_driver_function<decltype(cuMemCreate)>("cuMemCreate");
  decltype(&cuMemRelease) release = find_driver_function<decltype(cuMemRelease)>("cuMemRelease");
  decltype(&cuMemMap) map = find_driver_function<decltype(cuMemMap)>("cuMemMap");
  decltype(&cuMemUnmap) unmap = find_driver_function<decltype(cuMemUnmap)>("cuMemUnmap");
  decltype(&cuMemSetAccess) set_access = find_driver_function<decltype(cuMemSetAccess)>("cuMemSetAccess");

  bool is_complete() const {
    return get_attribute && granularity && reserve && unreserve && create && release && map && unmap && set_access;
  }
  static const VirtualMemory& functions() {
    static const VirtualMemory found;
    return found;
  }
};

WARPRANK_HIDDEN inline void check_driver(CUresult code, const char* what) {
  if (code != CUDA_SUCCESS)
    throw cuda_error(what, static_cast<int>(code), "CUresult " + std::to_string(static_cast<int>(code)));
}
WARPRANK_HIDDEN inline CUmemAllocationProp pages_of(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return properties;
}

WARPRANK_HIDDEN inline bool can_shard(const std::vector<int>& devices) {
  const VirtualMemory& memory = VirtualMemory::functions();
  if (!memory.is_complete()) return false;
  for (const int device : devices) {
    const DeviceGuard current(device);  // makes a context
    int has_pages = 0;
    const CUresult code =
        memory.get_attribute(&has_pages, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
    if (code != CUDA_SUCCESS || has_pages == 0) return false;
    for (const int peer : devices) {
      int reaches = 0;
      if (peer == device) continue;
      check_cuda(cudaDeviceCanAccessPeer(&reaches, device, peer), "ask whether devices access one another");
      if (reaches == 0) return false;
    }
  }
  return true;
}

WARPRANK_HIDDEN inline int64_t shard_granularity(const std::vector<int>& devices) {
  size_t most = 1;
  for (const int device : devices) {
    const CUmemAllocationProp properties = pages_of(device);
    size_t bytes = 0;
    check_driver(VirtualMemory::functions().granularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                 "ask for the size of pages");
    most = std::max(most, bytes);  // powers of two
  }
  return static_cast<int64_t>(most);
}

/// Consecutive addresses, and the pages that are mapped there so far.
class MappedPages {
 public:
  MappedPages(int64_t bytes, int64_t page_bytes, std::vector<int> devices)
      : devices_(std::move(devices)), bytes_(static_cast<size_t>(bytes)), page_bytes_(static_cast<size_t>(page_bytes)) {
    check_driver(memory_.reserve(&begin_, bytes_, 0, 0, 0), "reserve addresses");
  }
  ~MappedPages() {
    int before = 0;
    cudaGetDevice(&before);
    for (const int device : devices_)
      if (cudaSetDevice(device) == cudaSuccess) cudaDeviceSynchronize();
    cudaSetDevice(before);
    for (size_t at = 0; at < mapped_; at += page_bytes_) memory_.unmap(begin_ + at, page_bytes_);
    memory_.unreserve(begin_, bytes_);
  }
  MappedPages(const MappedPages&) = delete;
  MappedPages& operator=(const MappedPages&) = delete;

  void* data() const { return reinterpret_cast<void*>(begin_); }

  /// Whether the devices had enough memory; if so, each device reads and writes all pages.
  bool map_all() {
    for (size_t n = 0; mapped_ < bytes_; ++n, mapped_ += page_bytes_) {
      const CUmemAllocationProp properties = pages_of(devices_[n % devices_.size()]);
      CUmemGenericAllocationHandle page = 0;
      const CUresult code = memory_.create(&page, page_bytes_, &properties, 0);
      if (code == CUDA_ERROR_OUT_OF_MEMORY) return false;
      check_driver(code, "allocate pages of a device");
      const CUresult mapped = memory_.map(begin_ + mapped_, page_bytes_, 0, page, 0);
      memory_.release(page);  // it stays as long as it is mapped
      check_driver(mapped, "map pages of a device");
    }
    std::vector<CUmemAccessDesc> users;
    for (const int device : devices_) users.push_back({pages_of(device).location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
    check_driver(memory_.set_access(begin_, bytes_, users.data(), users.size()), "let devices access one another");
    return true;
  }

 private:
  const VirtualMemory& memory_ = VirtualMemory::functions();
  std::vector<int> devices_;
  size_t bytes_, page_bytes_, mapped_ = 0;
  CUdeviceptr begin_ = 0;
};

WARPRANK_HIDDEN inline std::shared_ptr<void> allocate_sharded(int64_t bytes, int64_t stripe_bytes,
                                                              const std::vector<int>& devices) {
  const auto pages = std::make_shared<MappedPages>(bytes, stripe_bytes, devices);
  if (!pages->map_all()) return nullptr;
  return {pages, pages->data()};
}

}}}  // namespace warprank::v0::device::backend::runtime
