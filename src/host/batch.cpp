// SPDX-License-Identifier: Apache-2.0

/// Of warprank::host: requests and batches of them.
#include <warprank/batch/batch_definitions.hpp>
#include <warprank/batch/detail/batch_state_definitions.hpp>
#include <warprank/batch/detail/staging_definitions.hpp>
#include <warprank/batch/layout_definitions.hpp>
#include <warprank/batch/validate_definitions.hpp>
