// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a request of a plan consists of: the axes and the inputs, in the order in which blobs hold them.
/// docs/BATCH_FORMAT.md describes the bytes.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/suggest.hpp"
#include "warprank/model/graph.hpp"

namespace warprank {

/// The newest version of the blob format that this library reads and writes; it does so with all before it, too.
inline constexpr uint32_t batch_format_version = 2;

/// Names resolved once. An index counts ids inputs, dense inputs and axes each from 0, in the order of the graph.
struct IdsSlot {
  int index = -1;
};
struct DenseSlot {
  int index = -1;
};
struct AxisSlot {
  int index = -1;
};

namespace detail {

/// FNV-1a, 64 bits (Fowler, Noll, Vo): per byte hash = (hash ^ byte) * 0x100000001b3. Numbers enter little-endian,
/// texts as their length in 4 bytes and their bytes.
class Fnv1a {
 public:
  void add_byte(uint8_t byte) { hash_ = (hash_ ^ byte) * 0x100000001b3; }
  void add_32(uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) add_byte(static_cast<uint8_t>(value >> shift));
  }
  void add_64(uint64_t value) {
    add_32(static_cast<uint32_t>(value));
    add_32(static_cast<uint32_t>(value >> 32));
  }
  void add_text(const std::string& text) {
    add_32(static_cast<uint32_t>(text.size()));
    for (const char c : text) add_byte(static_cast<uint8_t>(c));
  }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace detail

/// The axes and inputs of a graph. Immutable; plain data, no device.
class BatchLayout {
 public:
  /// Throws invalid_argument with every problem when the graph's axes or inputs are not well formed: axis 0 is the one
  /// without a parent, every other axis comes after its parent, names are unique, dense inputs have 1 to 2^20 columns.
  explicit BatchLayout(const Graph& graph) : axes_(graph.axes), ids_(graph.ids), dense_(graph.dense) {
    Problems problems;
    check_axes(problems);
    check_inputs(problems);
    problems.throw_if_any();
    make_fingerprints();
  }

  const std::vector<AxisInfo>& axes() const { return axes_; }
  const std::vector<IdsInfo>& ids() const { return ids_; }
  const std::vector<DenseInfo>& dense() const { return dense_; }
  const AxisInfo& axis(AxisSlot slot) const { return axes_[static_cast<size_t>(slot.index)]; }
  const IdsInfo& ids(IdsSlot slot) const { return ids_[static_cast<size_t>(slot.index)]; }
  const DenseInfo& dense(DenseSlot slot) const { return dense_[static_cast<size_t>(slot.index)]; }

  /// Names to slots. Throws invalid_argument for an unknown name, with the nearest one, and for an input of the other
  /// kind.
  IdsSlot ids(const std::string& name) const { return {find_input(name, true)}; }
  DenseSlot dense(const std::string& name) const { return {find_input(name, false)}; }
  AxisSlot axis(const std::string& name) const {
    const auto it = axis_names_.find(name);
    if (it == axis_names_.end()) throw unknown("axis", "an axis of the model", name, axis_names_);
    return {it->second};
  }

  /// Whether blobs hold offsets for an axis: its parent is not the outermost axis, so it may have several segments.
  bool has_offsets(AxisSlot slot) const { return slot.index > 0 && axis(slot).parent > 0; }

  /// Whether other axes are nested in an axis.
  bool has_children(AxisSlot slot) const {
    for (const AxisInfo& other : axes_)
      if (other.parent == slot.index) return true;
    return false;
  }

  /// Identifies the axes and inputs, their order, widths and defaults: equal fingerprints mean that blobs of one plan
  /// may go to the other, whatever types inputs have in them. Guards against mistakes, not against forgery; the hashed
  /// bytes are listed in docs/BATCH_FORMAT.md.
  uint64_t fingerprint() const { return fingerprint_; }
  /// The same, and the types: all blobs of a batch are as its layout has them.
  uint64_t batch_fingerprint() const { return batch_fingerprint_; }

  /// The oldest version of the blob format that can say what the layout's inputs are: 1 where none is narrow.
  uint32_t version() const { return has_narrow_inputs() ? 2 : 1; }
  bool has_narrow_inputs() const {
    return std::any_of(ids_.begin(), ids_.end(), [](const IdsInfo& info) { return info.wire != IdsWire::i64; }) ||
           std::any_of(dense_.begin(), dense_.end(), [](const DenseInfo& info) { return info.wire != DenseWire::f32; });
  }

  /// The same axes and inputs with ids of 64 bits and dense values of FP32: what it packs is of version 1, for peers
  /// that know no other.
  BatchLayout wide() const {
    BatchLayout layout = *this;
    for (IdsInfo& info : layout.ids_) info.wire = IdsWire::i64;
    for (DenseInfo& info : layout.dense_) info.wire = DenseWire::f32;
    layout.batch_fingerprint_ = fingerprint_;
    return layout;
  }

 private:
  using Names = std::map<std::string, int>;

  static invalid_argument unknown(const char* what, const char* expected, const std::string& name, const Names& known) {
    std::vector<std::string> candidates;
    for (const auto& entry : known) candidates.push_back(entry.first);
    return invalid_argument(std::string(what) + " '" + name + "'", expected, unknown_name(name, candidates));
  }

  /// Inputs are numbered ids first, then dense.
  int find_input(const std::string& name, bool as_ids) const {
    const char* what = as_ids ? "ids" : "dense";
    const auto it = input_names_.find(name);
    if (it == input_names_.end()) throw unknown(what, "an input of the model", name, input_names_);
    const int num_ids = static_cast<int>(ids_.size());
    const bool is_ids = it->second < num_ids;
    if (is_ids != as_ids)
      throw invalid_argument(std::string(what) + " '" + name + "'", as_ids ? "an ids input" : "a dense input",
                             is_ids ? "an ids input" : "a dense input");
    return is_ids ? it->second : it->second - num_ids;
  }

  void check_axes(Problems& problems) {
    if (axes_.empty()) problems.add("axes", "an outermost axis", "none");
    for (size_t i = 0; i < axes_.size(); ++i) {
      const AxisInfo& axis = axes_[i];
      const std::string what = "axis '" + axis.name + "'";
      const int index = static_cast<int>(i);
      if (!axis_names_.emplace(axis.name, index).second) problems.add(what, "a name not used before", "a second one");
      const bool parent_fits = i == 0 ? axis.parent == -1 : axis.parent >= 0 && axis.parent < index;
      if (!parent_fits)
        problems.add(what, i == 0 ? "no parent" : "a parent that comes before it",
                     "parent " + std::to_string(axis.parent));
      if (axis.keep_last < 0) problems.add(what, "keep_last of 0 or more", std::to_string(axis.keep_last));
    }
  }

  void check_input(Problems& problems, const std::string& what, const std::string& name, int axis) {
    if (!input_names_.emplace(name, static_cast<int>(input_names_.size())).second)
      problems.add(what, "a name not used before", "a second one");
    if (axis < 0 || axis >= static_cast<int>(axes_.size()))
      problems.add(what, "an axis of the model", "axis " + std::to_string(axis));
  }

  void check_inputs(Problems& problems) {
    for (const IdsInfo& input : ids_) check_input(problems, "ids '" + input.name + "'", input.name, input.axis);
    for (const DenseInfo& input : dense_) {
      const std::string what = "dense '" + input.name + "'";
      check_input(problems, what, input.name, input.axis);
      if (input.width < 1 || input.width > max_dense_width)
        problems.add(what, "1 to " + std::to_string(max_dense_width) + " columns", std::to_string(input.width));
      if (input.default_value && !std::isfinite(*input.default_value))
        problems.add(what, "a finite default", std::to_string(*input.default_value));
    }
  }

  void make_fingerprints() {
    detail::Fnv1a hash;
    hash.add_32(1);  // the version that blobs had when fingerprints began
    hash.add_32(static_cast<uint32_t>(axes_.size()));
    hash.add_32(static_cast<uint32_t>(ids_.size()));
    hash.add_32(static_cast<uint32_t>(dense_.size()));
    for (const AxisInfo& axis : axes_) {
      hash.add_text(axis.name);
      hash.add_32(static_cast<uint32_t>(axis.parent));
      hash.add_64(static_cast<uint64_t>(axis.keep_last));
    }
    for (const IdsInfo& input : ids_) {
      hash.add_text(input.name);
      hash.add_32(static_cast<uint32_t>(input.axis));
      hash.add_byte(input.default_id ? 1 : 0);
      hash.add_64(static_cast<uint64_t>(input.default_id.value_or(0)));
    }
    for (const DenseInfo& input : dense_) {
      hash.add_text(input.name);
      hash.add_32(static_cast<uint32_t>(input.axis));
      hash.add_64(static_cast<uint64_t>(input.width));
      hash.add_byte(input.default_value ? 1 : 0);
      hash.add_32(float_bits(input.default_value.value_or(0)));
    }
    fingerprint_ = hash.hash();
    if (has_narrow_inputs()) {
      for (const IdsInfo& input : ids_) hash.add_byte(static_cast<uint8_t>(input.wire));
      for (const DenseInfo& input : dense_) hash.add_byte(static_cast<uint8_t>(input.wire));
    }
    batch_fingerprint_ = hash.hash();
  }

  std::vector<AxisInfo> axes_;
  std::vector<IdsInfo> ids_;
  std::vector<DenseInfo> dense_;
  Names axis_names_;
  Names input_names_;
  uint64_t fingerprint_ = 0, batch_fingerprint_ = 0;
};

}  // namespace warprank
