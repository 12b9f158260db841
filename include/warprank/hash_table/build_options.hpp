// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "warprank/core/dtype.hpp"
#include "warprank/core/page_pool.hpp"

namespace warprank { inline namespace v0 {

/// The rows of a table: at least 1 element, at most 1024 bytes (I8: dim rounded up to 4, and 8 for scale and offset).
struct HashTableRows {
  DType type = DType::f32;
  int64_t dim = 0;
  bool is_mutable = false;  ///< rows may be changed while they are read: takes the header layout
};

/// The progress of a build.
struct HashTableProgress {
  const char* step;  ///< "keys", "buckets", "rows"
  int64_t done;      ///< rows, of this step
  int64_t total;     ///< 0 while it is not known
};

struct HashTableOptions {
  double load_factor = 0.8;  ///< in (0, 1]: keys / places for keys
  int64_t capacity = 0;      ///< keys for which there are buckets at this load factor; 0: the given keys
  int threads = 0;           ///< 0: all that the machine has
  std::shared_ptr<PagePool> pages = nullptr;  ///< the memory of the image; null: its own
  /// Called now and then, by the thread that builds. An exception ends the build.
  std::function<void(const HashTableProgress&)> progress = {};
};

}}  // namespace warprank::v0
