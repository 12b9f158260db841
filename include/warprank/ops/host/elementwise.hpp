// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Elementwise programs on the host: y[n, c] = program(inputs[i][row(n), c] ..., vectors[v][c] ...), see
/// model/elementwise.hpp for the functions.
///
/// | Array      | Shape                                                                                  |
/// |------------|----------------------------------------------------------------------------------------|
/// | inputs[i]  | [N, C] or [N, 1]; [segments, C] or [segments, 1] with Segments over N rows; 1: every column |
/// | vectors[v] | [C]                                                                                    |
/// | y          | [N, C]                                                                                 |
///
/// FP32, one rounding per arithmetic instruction: results are bitwise those of one instruction at a time, so neither
/// fusing programs nor a row's position or neighbours change them. exp, elu, sigmoid, tanh, silu, gelu and gelu_tanh
/// are those of activation.hpp with its bounds, exp within 4 u; log, sin, cos and atan2 within 4 u of themselves
/// (4 u |log a|), u = 2^-24, for every finite a: those beyond 8,192 cost sin and cos a call of the C library each. NaN
/// and the limits as in model/elementwise.hpp.
///
/// y may be an input with the same rows, columns and stride; it overlaps none otherwise. Rows may be strided and need
/// no alignment. Nothing is allocated: the caller gives elementwise_workspace(program) floats.

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <utility>

#include "warprank/core/view.hpp"
#include "warprank/model/elementwise.hpp"
#include "warprank/ops/host/activation.hpp"
#include "warprank/ops/host/concat.hpp"
#include "warprank/ops/host/simd.hpp"
#include "warprank/ops/segmented_input.hpp"

namespace warprank { inline namespace v0 { namespace host_ops {

/// The number of elements of a register that are computed before the next instruction: as many as keep all registers in
/// the first-level cache, in whole vectors of any instruction set.
inline int64_t elementwise_block(const ElementwiseProgram& program) {
  constexpr int64_t cache_floats = 6144;
  return std::clamp<int64_t>(cache_floats / program.num_registers() / 16 * 16, 64, 1024);
}

/// Floats of workspace.
inline int64_t elementwise_workspace(const ElementwiseProgram& program) {
  return program.num_registers() * elementwise_block(program);
}

}}}  // namespace warprank::v0::host_ops

#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/elementwise-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"

namespace warprank { inline namespace v0 { namespace host_ops {

HWY_EXPORT(elementwise);

/// The program must be valid (`validate`) and the shapes as above. `workspace`: elementwise_workspace(program) floats.
inline void elementwise(const ElementwiseProgram& program, Span<const SegmentedInput> inputs,
                        Span<const float* const> vectors, Matrix<float> y, Span<float> workspace) {
  HWY_DYNAMIC_DISPATCH(elementwise)(program, inputs, vectors, y, workspace);
}

}}}  // namespace warprank::v0::host_ops
