// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tunings as JSON, so that a card is measured once and every start of a server uses the result:
///
///     {"format": "warprank.tuning", "version": 2,
///      "on": {"card": "NVIDIA T4", "target": 75, ...},
///      "choices": [{"layers": [{"depth": 0, "rows": 4096, "in": 2528, ...}], "kernels": ["cublaslt"],
///                    "variants": ["algorithm 2"], ...}]}
///
/// A file is read strictly: everything that is missing, unknown, mistyped or contradictory is an invalid_argument with
/// its place.

#include <string>

#include "warprank/core/compiled.hpp"
#include "warprank/engine/tuning.hpp"

namespace warprank { inline namespace v0 {

/// The tuning as indented JSON text.
WARPRANK_HOST_INLINE std::string to_json(const Tuning& tuning);

/// `source` names the text in errors. Throws invalid_argument for anything that to_json would not have written.
WARPRANK_HOST_INLINE Tuning tuning_from_json(const std::string& text, const std::string& source = "tuning");

/// Writes to_json(tuning) beside `path` and renames it over `path`, so that no process loads half a file. Throws
/// invalid_argument when that fails.
WARPRANK_HOST_INLINE void save_tuning(const Tuning& tuning, const std::string& path);

/// tuning_from_json of a file; errors name its path.
WARPRANK_HOST_INLINE Tuning load_tuning(const std::string& path);

}}  // namespace warprank::v0

#if !defined(WARPRANK_HOST_COMPILED)
#include "warprank/engine/tuning_json_definitions.hpp"
#endif
