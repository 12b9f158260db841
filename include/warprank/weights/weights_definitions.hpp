// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Definitions of weights/weights.hpp.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/compiled.hpp"
#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/suggest.hpp"
#include "warprank/core/view.hpp"
#include "warprank/weights/detail/safetensors_header.hpp"
#include "warprank/weights/safetensors.hpp"
#include "warprank/weights/weights.hpp"

namespace warprank { inline namespace v0 {

WARPRANK_HOST_INLINE Weights Weights::open_all(const std::vector<std::string>& paths, WeightsOptions options) {
  Weights weights(std::move(options));
  for (const std::string& path : paths) {
    auto file = std::make_shared<const SafetensorsFile>(path);
    weights.add(path, file->tensors());
    weights.owners_.push_back(std::move(file));
  }
  return weights;
}

WARPRANK_HOST_INLINE Weights Weights::from_tensors(std::map<std::string, StoredTensor> tensors,
                                                   WeightsOptions options) {
  auto owned = std::make_shared<const std::map<std::string, StoredTensor>>(std::move(tensors));
  std::map<std::string, TensorView> views;
  for (const auto& [name, tensor] : *owned) views.emplace(name, tensor.view());
  return from_views(views, std::move(owned), std::move(options));
}

WARPRANK_HOST_INLINE Weights Weights::from_views(const std::map<std::string, TensorView>& tensors,
                                                 std::shared_ptr<const void> owner, WeightsOptions options) {
  for (const auto& [name, tensor] : tensors) check_bytes("tensor " + detail::quoted(name), tensor);
  Weights weights(std::move(options));
  weights.add("tensors in memory", tensors);
  if (owner != nullptr) weights.owners_.push_back(std::move(owner));
  return weights;
}

WARPRANK_HOST_INLINE void Weights::check(Span<const Parameter> wanted, ExtraTensors extra) const {
  std::set<std::string> parameters, used;
  for (const Parameter& parameter : wanted) {
    parameters.insert(parameter.name);
    used.insert(stored_name(parameter.name));
  }
  std::vector<std::string> unused;
  for (const auto& [name, stored] : stored_)
    if (used.count(name) == 0 && !is_training_state(name)) unused.push_back(name);

  Problems problems;
  for (const Parameter& parameter : wanted) {
    const TensorView* tensor = find(parameter.name);
    if (tensor != nullptr) {
      if (auto problem = misfit(parameter, *tensor)) problems.add(*std::move(problem));
    } else if (!parameter.optional) {
      problems.add(missing(parameter, unused));
    }
  }
  for (const auto& [parameter, name] : options_.names)
    if (parameters.count(parameter) == 0)
      problems.add("name map: " + detail::quoted(parameter), "the name of a parameter of the model",
                   "a name that no parameter has" +
                       did_you_mean(nearest_name(parameter, {parameters.begin(), parameters.end()})));
  if (extra == ExtraTensors::refuse)
    for (const std::string& name : unused)
      problems.add(stored_.at(name).source + ": tensor " + detail::quoted(name), "a tensor that the model reads",
                   "one that no parameter reads");
  problems.throw_if_any();
}

WARPRANK_HOST_INLINE void Weights::copy_to(const Parameter& parameter, Span<float> out) const {
  const TensorView* tensor = find(parameter.name);
  if (tensor == nullptr) throw invalid_argument({missing(parameter, names())});
  if (auto problem = misfit(parameter, *tensor)) throw invalid_argument({*std::move(problem)});
  if (out.size() != tensor->size())
    throw invalid_argument("destination of " + describe(parameter), std::to_string(tensor->size()) + " elements",
                           std::to_string(out.size()));
  dispatch_dtype(*tensor->dtype, [&](auto tag) {
    using Value = typename decltype(tag)::type;
    const auto value = [&](int64_t i) { return to_float(load_element<Value>(tensor->data, i)); };
    if (!is_swapped(parameter)) {
      for (int64_t i = 0; i < out.size(); ++i) out[i] = value(i);
      return;
    }
    const int64_t num_out = parameter.shape[parameter.shape.size() - 2], num_in = parameter.shape.back();
    const int64_t matrix = num_out * num_in;
    for (int64_t first = 0; first < out.size(); first += matrix)
      for (int64_t i = 0; i < num_in; ++i)
        for (int64_t o = 0; o < num_out; ++o) out[first + o * num_in + i] = value(first + i * num_out + o);
  });
}

WARPRANK_HOST_INLINE void Weights::add(const std::string& source, const std::map<std::string, TensorView>& tensors) {
  Problems problems;
  for (const auto& [name, view] : tensors) {
    const auto [place, is_new] = stored_.try_emplace(name, Stored{source, view});
    if (!is_new)
      problems.add(source + ": tensor " + detail::quoted(name), "every name in one file",
                   "it also in " + place->second.source);
  }
  problems.throw_if_any();
  sources_ += (sources_.empty() ? "" : ", ") + source;
}

WARPRANK_HOST_INLINE std::string Weights::describe(const Parameter& parameter) const {
  const std::string& name = stored_name(parameter.name);
  const auto place = stored_.find(name);
  return (place == stored_.end() ? sources_ : place->second.source) + ": weight " + detail::quoted(parameter.name) +
         (name == parameter.name ? "" : ", there named " + detail::quoted(name));
}

WARPRANK_HOST_INLINE std::string Weights::wanted_text(const Parameter& parameter) const {
  return "F32, F16 or BF16 " + to_string(stored_shape(parameter));
}

WARPRANK_HOST_INLINE std::optional<Problem> Weights::misfit(const Parameter& parameter,
                                                            const TensorView& tensor) const {
  const Shape shape = stored_shape(parameter);
  const bool is_read = tensor.dtype == DType::f32 || tensor.dtype == DType::f16 || tensor.dtype == DType::bf16;
  if (is_read && tensor.shape == shape) return std::nullopt;
  std::string got = std::string(tensor.type_name) + " " + to_string(tensor.shape);
  if (parameter.is_matrix && tensor.shape != shape && tensor.shape == swapped(shape))
    got += std::string(" (transposed: is the layout ") +
           (options_.layout == Layout::pytorch ? "Keras', [in, out]?)" : "PyTorch's, [out, in]?)");
  return Problem{"", describe(parameter), wanted_text(parameter), got};
}

WARPRANK_HOST_INLINE Problem Weights::missing(const Parameter& parameter,
                                              const std::vector<std::string>& candidates) const {
  std::vector<std::string> fitting;
  for (const std::string& name : candidates)
    if (!misfit(parameter, stored_.at(name).view)) fitting.push_back(name);
  const std::string& name = stored_name(parameter.name);
  std::string nearest = nearest_name(name, fitting);
  if (nearest.empty()) nearest = nearest_name(name, candidates);
  return {"", describe(parameter), wanted_text(parameter), "no such tensor" + did_you_mean(nearest)};
}

WARPRANK_HOST_INLINE std::string Weights::did_you_mean(const std::string& nearest) {
  return nearest.empty() ? "" : " (did you mean " + detail::quoted(nearest) + "?)";
}

WARPRANK_HOST_INLINE bool Weights::is_training_state(const std::string& name) {
  const std::string suffix = ".num_batches_tracked";
  return name.size() >= suffix.size() && name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
}

}}  // namespace warprank::v0
