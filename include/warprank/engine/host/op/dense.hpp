// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "warprank/engine/host/binder.hpp"
#include "warprank/model/op/dense.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

/// Dense inputs are unpacked before the first step.
inline StepPtr bind_op(const DenseOp&, int, Binder&) { return nullptr; }

}}}  // namespace warprank::v0::host_backend
