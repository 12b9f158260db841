// SPDX-License-Identifier: Apache-2.0
#pragma once

/// An op of one's own: what an item is worth falls by half within each half-life, which a user has.
///
///     y[n, c] = x[n, c] 2^(-hours[n] / half_life[user of n])
///
/// This is its place in the language, and what it is on the host. time_decay.cuh is the same on a GPU.

#include <cmath>
#include <cstdint>

#include "warprank/host.hpp"

namespace time_decay {

constexpr const char* name = "time_decay";

/// x [items, width], hours [items, 1], half_life [users or items, 1].
inline warprank::Tensor make(warprank::Builder& b, warprank::Tensor x, warprank::Tensor hours,
                             warprank::Tensor half_life, warprank::Axis item, int64_t width) {
  return b.custom(name, {x, hours, half_life}, item, width);
}

/// For BindOptions::custom.
inline void on_host(const warprank::CustomCall& call) {
  const warprank::SegmentedInput &x = call.inputs[0], &hours = call.inputs[1], &half_life = call.inputs[2];
  for (int64_t n = 0; n < call.output.rows; ++n) {
    const float factor = std::exp2(-hours.values.row(n)[0] / half_life.values.row(half_life.row_serving(n))[0]);
    for (int64_t c = 0; c < call.output.cols; ++c) call.output.row(n)[c] = x.values.row(n)[c] * factor;
  }
}

}  // namespace time_decay
