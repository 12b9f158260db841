// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Checks blobs that come from outside.

#include <cstddef>

#include "warprank/batch/layout.hpp"
#include "warprank/core/compiled.hpp"
#include "warprank/core/status.hpp"
#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 {

/// Checks that `blob`, at any address, is a request of the layout that BlobView can read, with inputs of any types;
/// gives the reason if it is not. Never reads outside of the blob, whatever its content. Reads every offset and every
/// dense value once; ids are any values of 64 or 32 bits.
WARPRANK_HOST_INLINE Status validate_blob(Span<const std::byte> blob, const BatchLayout& layout);

}}  // namespace warprank::v0

#if !defined(WARPRANK_HOST_COMPILED)
#include "warprank/batch/validate_definitions.hpp"
#endif
