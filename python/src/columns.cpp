// SPDX-License-Identifier: Apache-2.0

#include "columns.hpp"

#include <algorithm>
#include <string>

namespace warprank::python {

namespace {

/// What is wrong with offsets into `rows` rows of the parent; empty: nothing.
std::string misfit(Span<const int64_t> offsets, int64_t rows) {
  if (offsets.size() != rows + 1) return std::to_string(offsets.size());
  if (offsets[0] != 0) return "a first one of " + std::to_string(offsets[0]);
  for (int64_t i = 0; i < rows; ++i)
    if (offsets[i] > offsets[i + 1])
      return std::to_string(offsets[i + 1]) + " behind " + std::to_string(offsets[i]) + " at place " +
             std::to_string(i + 1);
  return {};
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
    : num_requests_(num_requests), layout_(plan.layout()) {
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

bool Columns::are_rows() const {
  const auto is_outermost = [](const auto& input) { return input.axis == 0; };
  return arrays_.empty() && on_device_.empty() && std::all_of(ids_.begin(), ids_.end(), is_outermost) &&
         std::all_of(dense_.begin(), dense_.end(), is_outermost);
}

void Columns::pack(int64_t begin, int64_t end, Batch& batch, Workspace& workspace) const {
  if (!are_rows()) {
    for (int64_t r = begin; r < end; ++r) pack(r, batch, workspace);
    return;
  }
  RequestColumns columns;
  for (const auto& input : ids_)
    columns.ids.emplace_back(input.slot, Span<const int64_t>(input.values.data() + begin, end - begin));
  for (const auto& input : dense_)
    columns.dense.emplace_back(
        input.slot, Span<const float>(input.values.data() + begin * input.width, (end - begin) * input.width));
  batch.add_requests(end - begin, columns);
}

void Columns::pack(int64_t r, Batch& batch, Workspace& workspace) const {
  Request request = batch.add_request();
  for (const auto& input : ids_) {
    const int64_t begin = first_row(input.axis, r), end = first_row(input.axis, r + 1);
    request.ids(input.slot, Span<const int64_t>(input.values.data() + begin, end - begin));
  }
  for (const auto& input : dense_) {
    const int64_t begin = first_row(input.axis, r) * input.width, end = first_row(input.axis, r + 1) * input.width;
    request.dense(input.slot, Span<const float>(input.values.data() + begin, end - begin));
  }
  for (const DeviceInput& input : on_device_) {
    const auto count = static_cast<size_t>((first_row(input.axis, r + 1) - first_row(input.axis, r)) * input.width);
    if (input.is_ids) {
      workspace.ids.assign(count, 0);
      request.ids(IdsSlot{input.index}, workspace.ids);
    } else {
      workspace.dense.assign(count, 0);
      request.dense(DenseSlot{input.index}, workspace.dense);
    }
  }
  for (int axis = 1; axis < static_cast<int>(offsets_.size()); ++axis) {
    const Span<const int64_t> offsets = offsets_[static_cast<size_t>(axis)];
    if (!layout_.has_offsets(AxisSlot{axis}) || offsets.empty()) continue;
    const int parent = layout_.axis(AxisSlot{axis}).parent;
    const int64_t begin = first_row(parent, r), end = first_row(parent, r + 1);
    workspace.lengths.clear();
    for (int64_t row = begin; row < end; ++row) workspace.lengths.push_back(offsets[row + 1] - offsets[row]);
    request.lengths(AxisSlot{axis}, workspace.lengths);
  }
  request.finish();
}

}  // namespace warprank::python
