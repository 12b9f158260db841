// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Arrays from Python without copies, and arrays for Python.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "warprank/core/view.hpp"

namespace warprank::python {

namespace nb = nanobind;

/// Arrays of anything that has the buffer protocol or DLPack, on the host. One whose rows do not lie one behind the
/// other is copied.
using AnyArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Integers = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

/// The same in the memory of a card.
using DeviceArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cuda>;

inline Span<const int64_t> span_of(const Integers& array) {
  return {array.data(), static_cast<int64_t>(array.shape(0))};
}

/// A NumPy array that has the values without a copy.
template <class Value>
nb::ndarray<nb::numpy, Value> numpy_of(std::vector<Value> values, std::initializer_list<size_t> shape) {
  auto owned = std::make_unique<std::vector<Value>>(std::move(values));
  Value* const data = owned->data();
  nb::capsule owner(owned.release(), [](void* vector) noexcept { delete static_cast<std::vector<Value>*>(vector); });
  return nb::ndarray<nb::numpy, Value>(data, shape, owner);
}

}  // namespace warprank::python
