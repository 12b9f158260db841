// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The library's version, by SemVer. CMake and the packages read it here; docs/INSTALL.md says what it promises.
#define WARPRANK_VERSION_MAJOR 0
#define WARPRANK_VERSION_MINOR 1
#define WARPRANK_VERSION_PATCH 0

/// All names of the library are in this inline namespace, and are written without it. Two versions with different
/// namespaces can live in one process: the namespace changes with every version whose types or functions differ by more
/// than additions.
namespace warprank { inline namespace v0 {
}}  // namespace warprank::v0
