// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Finds and checks the sources of a plan's tables. Every engine's store starts here.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/compiled.hpp"
#include "warprank/core/pace.hpp"
#include "warprank/core/view.hpp"
#include "warprank/engine/engine.hpp"
#include "warprank/hash_table/hash_table.hpp"

namespace warprank { inline namespace v0 {

/// One table on the host. It does not own tensors and mapped images, which may be at any address.
struct TableSource {
  TableInfo info;
  DType type = DType::f32;
  TablePlacement placement;
  const TensorView* rows = nullptr;                      ///< [n, dim] of a direct table
  const TensorView *scale = nullptr, *offset = nullptr;  ///< F32 [n] of a direct table of I8
  const TensorView* default_row = nullptr;               ///< F32 [dim]; null: zeros
  std::optional<HashTable> hashed;                       ///< a hashed table that is in memory
  std::shared_ptr<const HashTableFile> mapped;           ///< a hashed table that is not: its checked image

  std::shared_ptr<const RowSource> in_store;  ///< neither of these: its rows are there

  int64_t unbuilt_bytes = 0;  ///< of the image of a hashed table that was only checked

  /// For a hashed table.
  int64_t image_bytes() const { return hashed ? hashed->bytes() : mapped ? mapped->image().size() : unbuilt_bytes; }
  /// 0 if a store has any number of rows. A hashed table must not be only checked.
  int64_t num_rows() const {
    return rows != nullptr ? rows->shape[0]
           : in_store      ? info.rows
           : hashed        ? hashed->size()
                           : static_cast<int64_t>(mapped->header().size);
  }
  /// All members but `where`.
  PlacedTable placed() const { return {info, type, num_rows(), ""}; }
  /// For a hashed table that is not only checked, all bytes of its image.
  Span<const unsigned char> image() const { return hashed ? hashed->image() : mapped->image(); }
};

/// How hashed tables are treated: images in files are read to memory, or checked where they are mapped; tables of keys
/// and rows are built, or, if everything is only checked, not built.
enum class Images { read, map, check };

/// The source of each table of the plan, in the plan's order: tensors of `weights`, which must outlive the result, and
/// `images`; hashed tables are read at `pace`. Throws invalid_argument with everything that is missing, mis-shaped,
/// damaged or not needed.
WARPRANK_HOST_INLINE std::vector<TableSource> find_tables(const Plan& plan, const Weights& weights,
                                                          const HashTableFiles& images, Images use,
                                                          const LoadOptions& options, Pace& pace);

}}  // namespace warprank::v0

#if !defined(WARPRANK_HOST_COMPILED)
#include "warprank/engine/table_source_definitions.hpp"
#endif
