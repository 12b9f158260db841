// SPDX-License-Identifier: Apache-2.0

/// Weights from files and from arrays, and files from arrays.

#include "warprank/weights/weights.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "module.hpp"
#include "warprank/weights/safetensors.hpp"

namespace warprank::python {

namespace {

/// Arrays by name, with their type where it is not that of the array: NumPy has none for BF16.
using Arrays = std::map<std::string, std::pair<AnyArray, std::optional<std::string>>>;

std::optional<DType> dtype_of_array(const AnyArray& array) {
  const nb::dlpack::dtype type = array.dtype();
  const auto is = [&](nb::dlpack::dtype_code code, int bits) {
    return type.lanes == 1 && type.code == static_cast<uint8_t>(code) && type.bits == bits;
  };
  if (is(nb::dlpack::dtype_code::Float, 32)) return DType::f32;
  if (is(nb::dlpack::dtype_code::Float, 16)) return DType::f16;
  if (is(nb::dlpack::dtype_code::Bfloat, 16)) return DType::bf16;
  if (is(nb::dlpack::dtype_code::Int, 8)) return DType::i8;
  if (is(nb::dlpack::dtype_code::Int, 64)) return DType::i64;
  return {};
}

std::map<std::string, TensorView> views_of(const Arrays& arrays) {
  std::map<std::string, TensorView> views;
  Problems problems;
  for (const auto& [name, entry] : arrays) {
    const auto& [array, type] = entry;
    const std::optional<DType> dtype = type == "BF16" ? DType::bf16 : dtype_of_array(array);
    if (!dtype) {
      problems.add("tensor '" + name + "'", "F32, F16, BF16, I8 or I64",
                   std::to_string(array.dtype().bits) + "-bit elements of another type");
      continue;
    }
    Shape shape;
    for (size_t i = 0; i < array.ndim(); ++i) shape.push_back(static_cast<int64_t>(array.shape(i)));
    views.emplace(name, TensorView{name_of(*dtype), dtype, shape, static_cast<const std::byte*>(array.data()),
                                   static_cast<int64_t>(array.nbytes())});
  }
  problems.throw_if_any();
  return views;
}

WeightsOptions options_of(const std::string& layout, std::map<std::string, std::string> names) {
  if (layout != "pytorch" && layout != "keras")
    throw invalid_argument("layout", "one of pytorch, keras", "'" + layout + "'");
  return {layout == "keras" ? Layout::keras : Layout::pytorch, std::move(names)};
}

Weights from_arrays(Arrays arrays, const std::string& layout, std::map<std::string, std::string> names) {
  // The last that has the weights may let go of the arrays where Python is not held.
  const auto release = [](const Arrays* kept) {
    const nb::gil_scoped_acquire held;
    delete kept;
  };
  const std::shared_ptr<const Arrays> owner(new Arrays(std::move(arrays)), release);
  return Weights::from_views(views_of(*owner), owner, options_of(layout, std::move(names)));
}

/// A copy: the file may go.
nb::object array_of(const TensorView& tensor) {
  std::vector<size_t> shape(tensor.shape.begin(), tensor.shape.end());
  const auto make = [&](auto element) -> nb::object {
    using Element = decltype(element);
    auto owned = std::make_unique<std::vector<Element>>(static_cast<size_t>(tensor.size()));
    if (tensor.bytes > 0) std::memcpy(owned->data(), tensor.data, static_cast<size_t>(tensor.bytes));
    Element* const data = owned->data();
    nb::capsule owner(owned.release(),
                      [](void* vector) noexcept { delete static_cast<std::vector<Element>*>(vector); });
    return nb::cast(nb::ndarray<nb::numpy, Element>(data, shape.size(), shape.data(), owner));
  };
  if (tensor.dtype == DType::f32) return make(float());
  if (tensor.dtype == DType::i8) return make(int8_t());
  if (tensor.dtype == DType::i64) return make(int64_t());
  return make(uint16_t());  // the bits of F16 and BF16
}

}  // namespace

void bind_weights(nb::module_& module) {
  nb::class_<Weights>(module, "Weights", "Named tensors, from safetensors files or from arrays. Immutable.")
      .def_static(
          "open_all",
          [](const std::vector<std::string>& paths, const std::string& layout,
             std::map<std::string, std::string> names) {
            return Weights::open_all(paths, options_of(layout, std::move(names)));
          },
          nb::arg("paths"), nb::arg("layout"), nb::arg("names"))
      .def_static("from_arrays", &from_arrays, nb::arg("arrays"), nb::arg("layout"), nb::arg("names"))
      .def_prop_ro("names", &Weights::names, "Of all tensors as the files have them, sorted.")
      .def(
          "get",
          [](const Weights& self, const std::string& name) {
            const TensorView* tensor = self.find(name);
            if (tensor == nullptr) throw nb::key_error(name.c_str());
            if (!tensor->dtype)
              throw invalid_argument("tensor '" + name + "'", "F32, F16, BF16, I8 or I64", tensor->type_name);
            return std::pair(array_of(*tensor), std::string(tensor->type_name));
          },
          nb::arg("name"));
  module.def(
      "write_safetensors",
      [](const std::string& path, const Arrays& arrays, const std::map<std::string, std::string>& metadata) {
        write_safetensors(path, views_of(arrays), metadata);
      },
      nb::arg("path"), nb::arg("arrays"), nb::arg("metadata"));
}

}  // namespace warprank::python
