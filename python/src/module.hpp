// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The parts of the module warprank._core, one for each source file here.

#include <nanobind/nanobind.h>

namespace warprank::python {

void bind_errors(nanobind::module_& module);
void bind_builder(nanobind::module_& module);
void bind_plan(nanobind::module_& module);
void bind_weights(nanobind::module_& module);
void bind_model(nanobind::module_& module);
void bind_transforms(nanobind::module_& module);

}  // namespace warprank::python
