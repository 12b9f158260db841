// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Named ranges of the host's time that profilers show (NVTX). Define WARPRANK_NO_NVTX to compile none in.

#include "warprank/core/on_cuda.hpp"

#if defined(WARPRANK_ON_CUDA) && !defined(WARPRANK_NO_NVTX)
#include <nvtx3/nvToolsExt.h>
#endif

namespace warprank { inline namespace v0 { namespace device {

/// A range of the calling thread, from the constructor to the destructor.
class Range {
 public:
#if defined(WARPRANK_ON_CUDA) && !defined(WARPRANK_NO_NVTX)
  explicit Range(const char* name) { nvtxRangePushA(name); }
  ~Range() { nvtxRangePop(); }
#else
  explicit Range(const char*) {}
#endif
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}}}  // namespace warprank::v0::device
