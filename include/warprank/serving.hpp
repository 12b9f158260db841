// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Models that serve for a long time: exchanged while batches run, whichever engine they are on. Plain C++;
/// docs/SERVING.md explains it.

#include "warprank/engine/served_model.hpp"
