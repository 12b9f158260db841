// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Graphs as JSON, and back.

#include "warprank/model/graph_json.hpp"
