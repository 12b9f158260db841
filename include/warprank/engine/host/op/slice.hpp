// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "warprank/engine/host/binder.hpp"
#include "warprank/model/op/slice.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

/// A view.
inline StepPtr bind_op(const SliceOp&, int, Binder&) { return nullptr; }

}}}  // namespace warprank::v0::host_backend
