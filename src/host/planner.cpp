// SPDX-License-Identifier: Apache-2.0

/// Of warprank::host: models and plans.
#include <warprank/core/error_definitions.hpp>
#include <warprank/model/builder_blocks_definitions.hpp>
#include <warprank/model/builder_hstu_definitions.hpp>
#include <warprank/model/builder_ops_definitions.hpp>
#include <warprank/plan/divide_definitions.hpp>
#include <warprank/plan/plan_definitions.hpp>
