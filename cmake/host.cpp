// SPDX-License-Identifier: Apache-2.0

/// The one source of warprank::host: the definitions that host.hpp otherwise inlines into every unit.

#define WARPRANK_HOST_SOURCE
#include <warprank/host.hpp>
