// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Models that serve for a long time: exchanged while batches run, and a queue in front of them that merges requests.
/// They work on any engine, in plain C++. docs/SERVING.md explains them.

#include "warprank/engine/served_model.hpp"
#include "warprank/serving/ranking_service.hpp"
#include "warprank/serving/user_states.hpp"
