// SPDX-License-Identifier: Apache-2.0

/// Of warprank::host: the host engine.
#include <warprank/engine/host/host_engine.hpp>
