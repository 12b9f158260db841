// SPDX-License-Identifier: Apache-2.0

/// The kernels of mlp, for scripts/kernel_report.sh; those of single layers are linear's.

#include "warprank/ops/mlp.cuh"

namespace warprank::detail {

template void launch_mlp<75, MlpTile::rows_16>(const MlpPlan&, const MlpDescriptor*, int, device::Stream);
template void launch_mlp<75, MlpTile::rows_32>(const MlpPlan&, const MlpDescriptor*, int, device::Stream);
template void launch_mlp<80, MlpTile::rows_16>(const MlpPlan&, const MlpDescriptor*, int, device::Stream);
template void launch_mlp<80, MlpTile::rows_32>(const MlpPlan&, const MlpDescriptor*, int, device::Stream);

}  // namespace warprank::detail
