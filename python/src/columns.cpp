// SPDX-License-Identifier: Apache-2.0

#include "columns.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "warprank/batch/detail/column_rows.hpp"
#include "warprank/batch/request_columns.hpp"

namespace warprank::python {

namespace {

/// What is wrong with offsets into `rows` rows of the parent; empty: nothing.
std::string misfit(Span<const int64_t> offsets, int64_t rows) {
  if (offsets.size() > 0 && offsets[0] > 0) return "a first one of " + std::to_string(offsets[0]);
  return detail::ColumnRows::misfit(Offsets(offsets), rows);
}

std::string rows_of_axis(int64_t rows, const std::string& axis) {
  return std::to_string(rows) + " rows, as axis '" + axis + "' has";
}

std::string text_of(nb::dlpack::dtype type) {
  const auto code = static_cast<nb::dlpack::dtype_code>(type.code);
  const char* const kind = code == nb::dlpack::dtype_code::Int      ? "int"
                           : code == nb::dlpack::dtype_code::Float  ? "float"
                           : code == nb::dlpack::dtype_code::Bfloat ? "bfloat"
                                                                    : "other values of ";
  return kind + std::to_string(type.bits);
}
std::string text_of(const DeviceArray& array) {
  std::string shape;
  for (size_t i = 0; i < array.ndim(); ++i) shape += (i == 0 ? "" : ", ") + std::to_string(array.shape(i));
  return "[" + shape + "] of " + text_of(array.dtype());
}

nb::dlpack::dtype type_of(IdsWire wire) {
  return {static_cast<uint8_t>(nb::dlpack::dtype_code::Int), static_cast<uint8_t>(8 * size_of(wire)), 1};
}
nb::dlpack::dtype type_of(DenseWire wire) {
  const auto code = wire == DenseWire::bf16 ? nb::dlpack::dtype_code::Bfloat : nb::dlpack::dtype_code::Float;
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(8 * size_of(wire)), 1};
}

}  // namespace

Columns::DeviceInput Columns::device_input(const std::string& name, const DeviceArray& array) const {
  for (int i = 0; i < static_cast<int>(layout_.ids().size()); ++i)
    if (const IdsInfo& info = layout_.ids(IdsSlot{i}); info.name == name)
      return {true, i, info.axis, 1, size_of(info.wire), type_of(info.wire), array};
  const DenseSlot slot = layout_.dense(name);
  const DenseInfo& info = layout_.dense(slot);
  return {false, slot.index, info.axis, info.width, info.width * size_of(info.wire), type_of(info.wire), array};
}

Columns::Columns(const Plan& plan, int64_t num_requests, const std::map<std::string, Integers>& offsets,
                 const std::map<std::string, Integers>& ids, const std::map<std::string, Floats>& dense,
                 const std::map<std::string, DeviceArray>& on_device)
    : num_requests_(num_requests), plan_(plan), layout_(plan_.layout()) {
  Problems problems;
  std::map<int, Span<const int64_t>> given;
  for (const auto& [name, array] : offsets) {
    const int axis = layout_.axis(name).index;
    if (axis == 0) {
      problems.add("offsets of axis '" + name + "'", "none: the outermost axis has one row for each request", "some");
      continue;
    }
    given.emplace(axis, span_of(array));
    arrays_.push_back(array);
  }

  const int num_axes = static_cast<int>(layout_.axes().size());
  std::vector<int64_t> rows(static_cast<size_t>(num_axes), 0);
  rows[0] = num_requests;
  offsets_.resize(static_cast<size_t>(num_axes));
  for (int axis = 1; axis < num_axes; ++axis) {
    const auto place = given.find(axis);
    if (place == given.end()) continue;
    const AxisInfo& info = layout_.axis(AxisSlot{axis});
    const int64_t parent_rows = rows[static_cast<size_t>(info.parent)];
    const std::string got = misfit(place->second, parent_rows);
    if (!got.empty()) {
      problems.add("offsets of axis '" + info.name + "'",
                   std::to_string(parent_rows + 1) + " from 0 on that never decrease", got);
      continue;
    }
    offsets_[static_cast<size_t>(axis)] = place->second;
    rows[static_cast<size_t>(axis)] = place->second[parent_rows];
  }
  problems.throw_if_any();  // what follows would be about rows that are not known

  std::vector<bool> is_set(static_cast<size_t>(num_axes), false);
  for (const auto& [name, array] : ids) {
    const IdsSlot slot = layout_.ids(name);
    const int axis = layout_.ids(slot).axis;
    const int64_t wanted = rows[static_cast<size_t>(axis)];
    if (static_cast<int64_t>(array.shape(0)) != wanted)
      problems.add("ids '" + name + "'", rows_of_axis(wanted, layout_.axis(AxisSlot{axis}).name),
                   std::to_string(array.shape(0)));
    is_set[static_cast<size_t>(axis)] = true;
    ids_.push_back({slot, axis, 1, array});
  }
  for (const auto& [name, array] : dense) {
    const DenseSlot slot = layout_.dense(name);
    const DenseInfo& info = layout_.dense(slot);
    const int64_t wanted = rows[static_cast<size_t>(info.axis)];
    if (static_cast<int64_t>(array.shape(0)) != wanted || static_cast<int64_t>(array.shape(1)) != info.width)
      problems.add("dense '" + name + "'",
                   rows_of_axis(wanted, layout_.axis(AxisSlot{info.axis}).name) + ", of " + std::to_string(info.width) +
                       " columns",
                   std::to_string(array.shape(0)) + " rows of " + std::to_string(array.shape(1)));
    is_set[static_cast<size_t>(info.axis)] = true;
    dense_.push_back({slot, info.axis, info.width, array});
  }
  for (const auto& [name, array] : on_device) {
    const DeviceInput input = device_input(name, array);
    const int64_t wanted = rows[static_cast<size_t>(input.axis)];
    const bool has_columns = !input.is_ids || array.ndim() > 1;
    const bool fits = array.ndim() == (has_columns ? 2u : 1u) && static_cast<int64_t>(array.shape(0)) == wanted &&
                      (!has_columns || static_cast<int64_t>(array.shape(1)) == input.width);
    if (!fits || array.dtype() != input.type)
      problems.add((input.is_ids ? "ids '" : "dense '") + name + "' on a device",
                   rows_of_axis(wanted, layout_.axis(AxisSlot{input.axis}).name) +
                       (input.is_ids ? ", of " : ", of " + std::to_string(input.width) + " columns of ") +
                       text_of(input.type),
                   text_of(array));
    is_set[static_cast<size_t>(input.axis)] = true;
    on_device_.push_back(input);
  }
  for (int axis = 1; axis < num_axes; ++axis) {
    if (offsets_[static_cast<size_t>(axis)].empty()) continue;  // else they say how many rows the axis above has
    is_set[static_cast<size_t>(layout_.axis(AxisSlot{axis}).parent)] = true;
  }
  for (int axis = 1; axis < num_axes; ++axis)
    if (rows[static_cast<size_t>(axis)] > 0 && !is_set[static_cast<size_t>(axis)])
      problems.add("axis '" + layout_.axis(AxisSlot{axis}).name + "'", "a column of one of its inputs, beside offsets",
                   "none");
  problems.throw_if_any();
}

namespace {

/// Whether an object has a buffer of one of these types; others would be asked for DLPack, which may warn.
bool has_buffer(nb::handle object, const char* types) {
  Py_buffer buffer;
  if (!PyObject_CheckBuffer(object.ptr())) return false;
  if (PyObject_GetBuffer(object.ptr(), &buffer, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) != 0) {
    PyErr_Clear();
    return false;
  }
  const char* const type = buffer.format;
  const bool is_one = type != nullptr && type[0] != 0 && type[1] == 0 && std::strchr(types, type[0]) != nullptr;
  PyBuffer_Release(&buffer);
  return is_one;
}

/// An array that is read without a copy; none where the object is another.
template <class Array>
std::optional<Array> array_as_read(nb::handle object) {
  Array array;
  if (!has_buffer(object, std::is_same_v<Array, Integers> ? "lq" : "f") || !nb::try_cast(object, array, false))
    return {};
  return array;
}

int64_t width_of(const IdsInfo&) { return 1; }
int64_t width_of(const DenseInfo& info) { return info.width; }
int64_t columns_in(const Integers&) { return 1; }
int64_t columns_in(const Floats& array) { return static_cast<int64_t>(array.shape(1)); }

bool are_same(const Integers& a, const Integers& b) {
  return a.shape(0) == b.shape(0) && (a.data() == b.data() || std::equal(a.data(), a.data() + a.shape(0), b.data()));
}

/// What Columns::as_read finds, input by input.
class AsRead {
 public:
  AsRead(const BatchLayout& layout, const nb::dict& data, nb::handle ragged)
      : layout_(layout), data_(data), ragged_(ragged) {}

  template <class Info, class Array>
  bool take(const Info& info, bool has_default, std::map<std::string, Array>& arrays) {
    const nb::str name(info.name.c_str(), info.name.size());
    const nb::handle value = PyDict_GetItemWithError(data_.ptr(), name.ptr());
    if (!value.is_valid()) return has_default;
    ++num_taken_;
    std::optional<Array> array;
    if (info.axis == 0) {
      array = array_as_read<Array>(value);
      if (!array.has_value() || !counts(static_cast<int64_t>(array->shape(0)))) return false;
    } else {
      if (layout_.axis(AxisSlot{info.axis}).parent != 0 || !value.type().is(ragged_)) return false;
      const std::optional<Integers> offsets = array_as_read<Integers>(value.attr("offsets"));
      if (!offsets.has_value() || !counts(static_cast<int64_t>(offsets->shape(0)) - 1)) return false;
      const auto [place, is_first] = this->offsets.emplace(layout_.axis(AxisSlot{info.axis}).name, *offsets);
      if (!is_first && !are_same(place->second, *offsets)) return false;
      array = array_as_read<Array>(value.attr("values"));
      if (!array.has_value()) return false;
    }
    if (columns_in(*array) != width_of(info)) return false;
    arrays.emplace(info.name, std::move(*array));
    return true;
  }
  bool took_all() const { return num_taken_ == data_.size() && num_requests >= 0; }

  int64_t num_requests = -1;
  std::map<std::string, Integers> offsets, ids;
  std::map<std::string, Floats> dense;

 private:
  bool counts(int64_t requests) {
    if (num_requests < 0) num_requests = requests;
    return requests >= 0 && num_requests == requests;
  }

  const BatchLayout& layout_;
  const nb::dict& data_;
  nb::handle ragged_;
  size_t num_taken_ = 0;
};

}  // namespace

std::optional<Columns> Columns::as_read(const Plan& plan, const nb::dict& data, nb::handle ragged) {
  AsRead found(plan.layout(), data, ragged);
  for (const IdsInfo& info : plan.layout().ids())
    if (!found.take(info, info.default_id.has_value(), found.ids)) return {};
  for (const DenseInfo& info : plan.layout().dense())
    if (!found.take(info, info.default_value.has_value(), found.dense)) return {};
  if (!found.took_all()) return {};
  return Columns(plan, found.num_requests, found.offsets, found.ids, found.dense, {});
}

int64_t Columns::first_row(int axis, int64_t r) const {
  if (axis == 0) return r;
  const Span<const int64_t> offsets = offsets_[static_cast<size_t>(axis)];
  return offsets.empty() ? 0 : offsets[first_row(layout_.axis(AxisSlot{axis}).parent, r)];
}

int64_t Columns::rows_before(int64_t r) const {
  int64_t rows = 0;
  for (int axis = 0; axis < static_cast<int>(offsets_.size()); ++axis) rows += first_row(axis, r);
  return rows;
}

void Columns::pack(int64_t begin, int64_t end, Batch& batch, Workspace& workspace) const {
  RequestColumns columns;
  const auto part = [&](const auto& input) {
    const int64_t first = first_row(input.axis, begin), rows = first_row(input.axis, end) - first;
    return Span<std::remove_pointer_t<decltype(input.values.data())>>(input.values.data() + first * input.width,
                                                                      rows * input.width);
  };
  for (const auto& input : ids_) columns.ids.emplace_back(input.slot, part(input));
  for (const auto& input : dense_) columns.dense.emplace_back(input.slot, part(input));
  const auto count = [&](const DeviceInput& input) {
    return (first_row(input.axis, end) - first_row(input.axis, begin)) * input.width;
  };
  for (const DeviceInput& input : on_device_) {  // all share the same zeros
    auto& [ids, dense] = workspace;
    const auto values = static_cast<size_t>(count(input));
    if (input.is_ids) ids.resize(std::max(ids.size(), values));
    if (!input.is_ids) dense.resize(std::max(dense.size(), values));
  }
  for (const DeviceInput& input : on_device_) {
    if (input.is_ids)
      columns.ids.emplace_back(IdsSlot{input.index}, Span<const int64_t>(workspace.ids.data(), count(input)));
    else
      columns.dense.emplace_back(DenseSlot{input.index}, Span<const float>(workspace.dense.data(), count(input)));
  }
  for (int axis = 1; axis < static_cast<int>(offsets_.size()); ++axis) {
    const Span<const int64_t> offsets = offsets_[static_cast<size_t>(axis)];
    if (offsets.empty()) continue;
    const int parent = layout_.axis(AxisSlot{axis}).parent;
    const int64_t first = first_row(parent, begin), last = first_row(parent, end);
    columns.offsets.emplace_back(AxisSlot{axis}, Span<const int64_t>(offsets.data() + first, last - first + 1));
  }
  batch.add_requests(end - begin, columns);
}

}  // namespace warprank::python
