// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Models that serve for a long time: exchanged while batches run, and a queue in front of them that merges requests.
/// Whichever engine they are on; plain C++. docs/SERVING.md explains it.

#include "warprank/engine/served_model.hpp"
#include "warprank/serving/ranking_service.hpp"
