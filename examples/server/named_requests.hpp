// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Requests that come as named tensors, many in a call: the rows of all of them one after the other, and for each axis
/// "<axis>.offsets", which says where the rows of each parent row begin.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axes_with_inputs.hpp"
#include "tensor.hpp"
#include "warprank/core/suggest.hpp"
#include "warprank/model.hpp"

namespace kserve {

/// What tensors of a model may be called.
class TensorNames {
 public:
  enum class Kind { ids, dense, offsets };
  struct Input {
    Kind kind;
    int index;                    ///< of the ids input, the dense input or the axis
    int axis;                     ///< that it has rows of; of offsets: the axis itself
    bool pads_minus_one = false;  ///< of ids: -1 is padding
  };

  /// Throws warprank::invalid_argument for inputs that are called as tensors of the server's own.
  explicit TensorNames(const warprank::Graph& graph) : TensorNames(graph, warprank::BatchLayout(graph)) {}
  /// The same where only the inputs of `layout` are sent, some of the graph's, and no offsets of axes whose inputs are
  /// all left out.
  TensorNames(const warprank::Graph& graph, const warprank::BatchLayout& layout) {
    const warprank::BatchLayout all(graph);
    warprank::Problems problems;
    const auto add = [&](const std::string& name, const Input& input) {
      if (is_servers_own(name))
        problems.add("input '" + name + "'", "a name that is not the server's own", "one that is");
      inputs_.emplace(name, input);
    };
    const std::vector<bool> had_inputs = axes_with_inputs(all), has_inputs = axes_with_inputs(layout);
    for (size_t a = 1; a < layout.axes().size(); ++a)
      if (has_inputs[a] || !had_inputs[a])
        inputs_.emplace(layout.axes()[a].name + ".offsets",
                        Input{Kind::offsets, static_cast<int>(a), static_cast<int>(a)});
    for (size_t i = 0; i < layout.ids().size(); ++i)
      add(layout.ids()[i].name, {Kind::ids, static_cast<int>(i), layout.ids()[i].axis,
                                 graph.pads_minus_one(all.ids(layout.ids()[i].name).index)});
    for (size_t i = 0; i < layout.dense().size(); ++i)
      add(layout.dense()[i].name, {Kind::dense, static_cast<int>(i), layout.dense()[i].axis});
    problems.throw_if_any();
  }

  const Input* find(std::string_view name) const {
    const auto found = inputs_.find(name);
    return found == inputs_.end() ? nullptr : &found->second;
  }
  size_t size() const { return inputs_.size(); }
  std::vector<std::string> all() const {
    std::vector<std::string> names;
    for (const auto& [name, input] : inputs_) names.push_back(name);
    return names;
  }

 private:
  std::map<std::string, Input, std::less<>> inputs_;
};

/// The requests of one call, checked as far as it takes to tell them apart; what is wrong with one of them is its own
/// status when it is filled in.
class NamedRequests {
 public:
  /// `layout`, `names` and what the tensors point to outlive it. Throws warprank::invalid_argument with all problems.
  NamedRequests(const warprank::BatchLayout& layout, const TensorNames& names, const std::vector<Tensor>& tensors,
                int64_t most_requests)
      : layout_(layout), axes_(layout.axes().size()) {
    warprank::Problems problems;
    if (tensors.size() > 2 * names.size())  // before each is compared with all others
      throw warprank::invalid_argument("tensors", "the model's " + std::to_string(names.size()),
                                       std::to_string(tensors.size()));
    std::vector<std::string_view> seen;
    for (const Tensor& tensor : tensors) {
      if (std::find(seen.begin(), seen.end(), tensor.name) != seen.end())
        problems.add(what(tensor), "one tensor of that name", "a second one");
      else
        add(tensor, names, problems);
      seen.push_back(tensor.name);
    }
    problems.throw_if_any();
    count(problems, most_requests);
    problems.throw_if_any();
    for (size_t axis = 0; axis < axes_.size(); ++axis) {
      find_rows(axis, problems);
      problems.throw_if_any();  // axes below would be measured by what is wrong
    }
    for (const Input& input : inputs_) check_rows(input, problems);
    problems.throw_if_any();
  }

  int64_t size() const { return num_requests_; }

  void fill(warprank::Request request, int64_t r) const {
    for (const Input& input : inputs_) {
      const std::vector<int64_t>& starts = axes_[input.axis].starts;
      const int64_t begin = starts[static_cast<size_t>(r)], rows = starts[static_cast<size_t>(r) + 1] - begin;
      if (input.is_ids)
        request.ids(warprank::IdsSlot{input.index}, values<int64_t>(input, begin, rows));
      else
        request.dense(warprank::DenseSlot{input.index}, values<float>(input, begin, rows));
    }
    for (size_t a = 1; a < axes_.size(); ++a) {
      if (axes_[a].lengths.empty()) continue;
      const std::vector<int64_t>& starts = axes_[static_cast<size_t>(layout_.axes()[a].parent)].starts;
      const int64_t begin = starts[static_cast<size_t>(r)], rows = starts[static_cast<size_t>(r) + 1] - begin;
      request.lengths(warprank::AxisSlot{static_cast<int>(a)},
                      warprank::Span<const int64_t>(axes_[a].lengths.data() + begin, rows));
    }
  }

 private:
  struct Input {
    std::string what;  // for messages
    std::vector<int64_t> shape;
    bool is_ids;
    int index;
    size_t axis;
    int64_t width;
    const char* bytes;
    std::vector<int64_t> converted;  // ids that came as 32 bits, or have a number without a sign that is none
  };
  struct Axis {
    std::optional<std::vector<int64_t>> offsets;  // [parent rows + 1], when they came
    std::vector<int64_t> lengths;                 // [parent rows], the same
    std::vector<int64_t> starts;                  // [requests + 1], where the rows of each request begin
    int64_t rows() const { return starts.back(); }
  };

  static std::string what(const Tensor& tensor) { return "tensor '" + std::string(tensor.name.substr(0, 200)) + "'"; }

  template <class Value>
  static warprank::Span<const Value> values(const Input& input, int64_t begin, int64_t rows) {
    // Values are read byte by byte where they lie at odd addresses.
    return {reinterpret_cast<const Value*>(input.bytes) + begin * input.width, rows * input.width};
  }

  void add(const Tensor& tensor, const TensorNames& names, warprank::Problems& problems) {
    const TensorNames::Input* const found = names.find(tensor.name);
    if (found == nullptr)
      return problems.add(what(tensor), "an input of the model",
                          warprank::unknown_name(std::string(tensor.name.substr(0, 200)), names.all()));
    const bool is_dense = found->kind == TensorNames::Kind::dense;
    const std::string expected = is_dense ? "FP32" : found->kind == TensorNames::Kind::ids ? "INT64" : "INT64 or INT32";
    const bool is_right = is_dense ? tensor.datatype == "FP32"
                                   : tensor.datatype == "INT64" || tensor.datatype == "INT32" ||
                                         (tensor.datatype == "UINT64" && found->kind == TensorNames::Kind::ids);
    if (!is_right) return problems.add(what(tensor), expected, std::string(tensor.datatype));

    const int64_t width = is_dense ? layout_.dense()[static_cast<size_t>(found->index)].width : 1;
    const std::vector<int64_t>& shape = tensor.shape;
    const bool has_shape = (shape.size() == 2 && shape[1] == width && found->kind != TensorNames::Kind::offsets) ||
                           (shape.size() == 1 && width == 1);
    if (!has_shape || shape[0] < 0)
      return problems.add(what(tensor),
                          is_dense ? "the shape [rows, " + std::to_string(width) + "]" : "the shape [rows]",
                          to_string(shape));
    const int64_t element = element_bytes(tensor.datatype);
    if (!has_size(shape, element, tensor.bytes.size()))
      return problems.add(what(tensor),
                          "the bytes of a " + std::string(tensor.datatype) + " of shape " + to_string(shape),
                          std::to_string(tensor.bytes.size()) + " bytes");

    if (found->kind == TensorNames::Kind::offsets) {
      axes_[static_cast<size_t>(found->index)].offsets = as_64_bits(tensor);
      return;
    }
    Input& input = inputs_.emplace_back(Input{what(tensor),
                                              shape,
                                              !is_dense,
                                              found->index,
                                              static_cast<size_t>(found->axis),
                                              width,
                                              tensor.bytes.data(),
                                              {}});
    const bool is_unsigned = tensor.datatype == "UINT64" && found->pads_minus_one;
    if (tensor.datatype != "INT32" && !is_unsigned) return;
    input.converted = as_64_bits(tensor);
    // 2^64 - 1 has the bits of -1, but is no padding: an id that the table does not have, like -2.
    if (is_unsigned) std::replace(input.converted.begin(), input.converted.end(), int64_t{-1}, int64_t{-2});
    input.bytes = reinterpret_cast<const char*>(input.converted.data());
  }

  static std::vector<int64_t> as_64_bits(const Tensor& tensor) {
    std::vector<int64_t> values(static_cast<size_t>(tensor.shape[0]));
    if (tensor.datatype != "INT32") {
      if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
      return values;
    }
    for (size_t i = 0; i < values.size(); ++i) {
      int32_t value;
      std::memcpy(&value, tensor.bytes.data() + i * sizeof value, sizeof value);
      values[i] = value;
    }
    return values;
  }

  /// How many requests these are: the rows of the outermost axis, or the parent rows of axes directly in it.
  void count(warprank::Problems& problems, int64_t most_requests) {
    std::string by;
    const auto see = [&](const std::string& source, int64_t requests) {
      if (by.empty()) {
        by = source;
        num_requests_ = requests;
      } else if (requests != num_requests_) {
        problems.add(source, std::to_string(num_requests_) + " requests, as " + by + " has", std::to_string(requests));
      }
    };
    for (const Input& input : inputs_)
      if (input.axis == 0) see(input.what, input.shape[0]);
    for (size_t a = 1; a < axes_.size(); ++a)
      if (axes_[a].offsets && layout_.axes()[a].parent == 0)
        see(offsets_of(a), static_cast<int64_t>(axes_[a].offsets->size()) - 1);
    if (num_requests_ < 1 || num_requests_ > most_requests)
      problems.add(by, "1 to " + std::to_string(most_requests) + " requests", std::to_string(num_requests_));
  }

  std::string offsets_of(size_t axis) const { return "tensor '" + layout_.axes()[axis].name + ".offsets'"; }

  void find_rows(size_t a, warprank::Problems& problems) {
    Axis& axis = axes_[a];
    axis.starts.assign(static_cast<size_t>(num_requests_) + 1, 0);
    if (a == 0) {
      for (size_t r = 0; r < axis.starts.size(); ++r) axis.starts[r] = static_cast<int64_t>(r);
      return;
    }
    const size_t parent = static_cast<size_t>(layout_.axes()[a].parent);
    const auto first = std::find_if(inputs_.begin(), inputs_.end(), [&](const Input& i) { return i.axis == a; });
    if (axis.offsets) {
      check_offsets(a, axes_[parent].rows(), problems);
      if (!problems.empty()) return;
      for (size_t r = 0; r < axis.starts.size(); ++r)
        axis.starts[r] = (*axis.offsets)[static_cast<size_t>(axes_[parent].starts[r])];
      for (size_t i = 1; i < axis.offsets->size(); ++i)
        axis.lengths.push_back((*axis.offsets)[i] - (*axis.offsets)[i - 1]);
    } else if (first == inputs_.end()) {
      // No rows, unless the request says otherwise.
    } else if (parent == 0 && num_requests_ == 1) {
      axis.starts[1] = first->shape[0];
    } else {
      problems.add(offsets_of(a), "where the rows of each '" + layout_.axes()[parent].name + "' begin",
                   "no such tensor");
    }
  }

  void check_offsets(size_t a, int64_t parent_rows, warprank::Problems& problems) const {
    const std::vector<int64_t>& offsets = *axes_[a].offsets;
    const std::string& parent = layout_.axes()[static_cast<size_t>(layout_.axes()[a].parent)].name;
    if (static_cast<int64_t>(offsets.size()) != parent_rows + 1)
      return problems.add(offsets_of(a),
                          std::to_string(parent_rows + 1) + " offsets, one more than rows of '" + parent + "'",
                          std::to_string(offsets.size()));
    if (offsets[0] != 0) return problems.add(offsets_of(a), "0 as the first offset", std::to_string(offsets[0]));
    const auto found = std::adjacent_find(offsets.begin(), offsets.end(), std::greater<>());
    if (found != offsets.end())
      problems.add(offsets_of(a), "offsets that never decrease",
                   std::to_string(found[1]) + " behind " + std::to_string(found[0]));
  }

  void check_rows(const Input& input, warprank::Problems& problems) const {
    const Axis& axis = axes_[input.axis];
    if (input.shape[0] == axis.rows()) return;
    const std::string rows = std::to_string(axis.rows()) + " rows, as ";
    const auto first =
        std::find_if(inputs_.begin(), inputs_.end(), [&](const Input& i) { return i.axis == input.axis; });
    problems.add(input.what, rows + (axis.offsets ? offsets_of(input.axis) : first->what) + " has",
                 std::to_string(input.shape[0]));
  }

  const warprank::BatchLayout& layout_;
  std::vector<Input> inputs_;
  std::vector<Axis> axes_;
  int64_t num_requests_ = 1;
};

}  // namespace kserve
