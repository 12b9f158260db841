// SPDX-License-Identifier: Apache-2.0

/// The kernel of experts, for scripts/kernel_report.sh; layers are those of linear and mlp.

#include "warprank/ops/scene_rows.cuh"

WARPRANK_HIDDEN void launch_all(const warprank::SceneRows& rows) { rows.launch({}); }
