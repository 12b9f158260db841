// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Definitions of hash_table/build.hpp.

#include <cstdint>

#include "warprank/core/compiled.hpp"
#include "warprank/hash_table/build.hpp"
#include "warprank/hash_table/build_options.hpp"
#include "warprank/hash_table/detail/build_image.hpp"
#include "warprank/hash_table/hash_table.hpp"
#include "warprank/hash_table/stream.hpp"

namespace warprank { inline namespace v0 {

WARPRANK_HOST_INLINE HashTable build_hash_table(const HashTableRows& rows, const HashTableStream& stream,
                                                const HashTableOptions& options) {
  return detail::ImageBuilder(rows, options).build(stream);
}

WARPRANK_HOST_INLINE int64_t check_hash_table(const HashTableRows& rows, const HashTableChunk& all,
                                              const HashTableOptions& options) {
  return detail::ImageBuilder(rows, options).check(stream_of(all));
}

}}  // namespace warprank::v0
