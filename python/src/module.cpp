// SPDX-License-Identifier: Apache-2.0

#include "module.hpp"

namespace nb = nanobind;

NB_MODULE(_core, module) {
  module.doc() = "The compiled part of warprank; use the package `warprank`.";
  warprank::python::bind_errors(module);
  warprank::python::bind_builder(module);
  warprank::python::bind_plan(module);
  warprank::python::bind_weights(module);
  warprank::python::bind_model(module);
  warprank::python::bind_transforms(module);
}
