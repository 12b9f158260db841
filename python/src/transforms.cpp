// SPDX-License-Identifier: Apache-2.0

/// Transforms of features, over columns of Python.

#include "warprank/ids/transforms.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "arrays.hpp"
#include "module.hpp"

namespace warprank::python {

namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
/// A tuple is of str and bytes, or Joined.
using Values = std::variant<nb::tuple, Integers, Floats>;
using Given = std::map<std::string, std::pair<Values, std::optional<Integers>>>;
/// By feature: ids, numbers with their width, offsets; what it has.
using Made = std::tuple<std::optional<nb::ndarray<nb::numpy, int64_t>>, std::optional<nb::ndarray<nb::numpy, float>>,
                        std::optional<nb::ndarray<nb::numpy, int64_t>>>;

/// Of str its UTF-8, which it keeps.
std::string_view view_of(nb::handle value, const std::string& column) {
  Py_ssize_t size = 0;
  if (PyUnicode_Check(value.ptr())) {
    const char* const text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
    if (text == nullptr) throw nb::python_error();
    return {text, static_cast<size_t>(size)};
  }
  if (PyBytes_Check(value.ptr()))
    return {PyBytes_AS_STRING(value.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(value.ptr()))};
  throw invalid_argument("column '" + column + "'", "str or bytes", nb::type_name(value.type()).c_str());
}

/// Text one behind the other, and where each value begins.
struct Joined {
  Bytes bytes;
  Integers offsets;
};
std::optional<Joined> joined(const nb::tuple& values) {
  if (nb::len(values) != 2 || PyUnicode_Check(values[0].ptr()) || PyBytes_Check(values[0].ptr())) return {};
  Joined text;
  if (!nb::try_cast(values[0], text.bytes) || !nb::try_cast(values[1], text.offsets)) return {};
  return text;
}

std::vector<std::string_view> views_of(const nb::tuple& values, const std::string& column) {
  std::vector<std::string_view> views;
  if (const std::optional<Joined> text = joined(values)) {
    const Span<const int64_t> offsets = span_of(text->offsets);
    for (int64_t i = 0; i + 1 < offsets.size(); ++i) {
      const int64_t begin = offsets[i], end = offsets[i + 1];
      if (begin < 0 || begin > end || end > static_cast<int64_t>(text->bytes.shape(0)))
        throw invalid_argument("column '" + column + "'", "offsets of text that never decrease", "others");
      views.emplace_back(reinterpret_cast<const char*>(text->bytes.data()) + begin, static_cast<size_t>(end - begin));
    }
    return views;
  }
  views.reserve(nb::len(values));
  for (const nb::handle value : values) views.push_back(view_of(value, column));
  return views;
}

std::vector<Made> run(const ids::Transforms& transforms, int64_t num_rows, const Given& given) {
  std::map<std::string, std::vector<std::string_view>> texts;
  for (const auto& [name, column] : given) {
    if (const auto* tuple = std::get_if<nb::tuple>(&column.first)) texts[name] = views_of(*tuple, name);
  }
  ids::Columns columns(transforms, num_rows);
  for (const auto& [name, column] : given) {
    const Span<const int64_t> offsets = column.second ? span_of(*column.second) : Span<const int64_t>();
    if (const auto* integers = std::get_if<Integers>(&column.first))
      columns.integers(name, span_of(*integers), offsets);
    else if (const auto* numbers = std::get_if<Floats>(&column.first))
      columns.numbers(name, {numbers->data(), static_cast<int64_t>(numbers->size())}, offsets);
    else
      columns.text(name, texts[name], offsets);
  }
  ids::Features features;
  {
    const nb::gil_scoped_release released;
    transforms.run(columns, features);
  }
  const auto copied = [](auto values) {
    using Value = std::remove_const_t<std::remove_reference_t<decltype(values[0])>>;
    return numpy_of(std::vector<Value>(values.begin(), values.end()), {static_cast<size_t>(values.size())});
  };
  std::vector<Made> made;
  for (int i = 0; i < static_cast<int>(transforms.features().size()); ++i) {
    Made& feature = made.emplace_back();
    const bool has_weights =
        std::holds_alternative<ids::WeighTransform>(transforms.features()[static_cast<size_t>(i)].op);
    const bool has_numbers = has_weights || transforms.is_numbers(i);
    if (has_numbers) std::get<1>(feature) = copied(features.numbers(i));
    if (has_weights || !has_numbers) std::get<0>(feature) = copied(features.ids(i));
    if (!features.offsets(i).empty()) std::get<2>(feature) = copied(features.offsets(i));
  }
  return made;
}

/// (name, type, ragged, width)
std::vector<std::tuple<std::string, std::string, bool, int64_t>> columns_of(const ids::Transforms& transforms) {
  std::vector<std::tuple<std::string, std::string, bool, int64_t>> columns;
  for (const ids::TransformColumn& column : transforms.columns())
    columns.emplace_back(column.name, ids::detail::name_of(column.type), column.ragged, column.width);
  return columns;
}

/// (name, columns of its numbers)
std::vector<std::pair<std::string, int64_t>> features_of(const ids::Transforms& transforms) {
  std::vector<std::pair<std::string, int64_t>> features;
  for (const ids::TransformFeature& feature : transforms.features())
    features.emplace_back(feature.name, transforms.width(static_cast<int>(features.size())));
  return features;
}

}  // namespace

void bind_transforms(nb::module_& module) {
  nb::class_<ids::Transforms>(module, "Transforms")
      .def_static(
          "from_json",
          [](const std::string& text, const std::string& source) { return ids::Transforms::from_json(text, source); },
          nb::arg("text"), nb::arg("source"))
      .def("columns", &columns_of)
      .def("features", &features_of)
      .def("run", &run, nb::arg("num_rows"), nb::arg("columns"));
}

}  // namespace warprank::python
