// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Definition of Builder::hstu, which builder.hpp documents.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/compiled.hpp"
#include "warprank/model/builder.hpp"

namespace warprank { inline namespace v0 {

namespace detail {

/// Who sees whom in a layer of HSTU: contexts come first, then parts in order, then the targets.
struct HstuParts {
  size_t count, contexts, targets;

  bool is_context(size_t part) const { return part < contexts; }
  bool is_target(size_t part) const { return part >= count - targets; }
  size_t num_ordered() const { return count - contexts - targets; }
  /// Whether rows of a part see those of another one, which may be itself. Of themselves targets see only their own.
  bool sees(size_t part, size_t other, bool contexts_see_events) const {
    if (is_target(other)) return false;
    return other <= part || (is_context(part) && (is_context(other) || contexts_see_events));
  }
};

}  // namespace detail

WARPRANK_HOST_INLINE std::vector<Tensor> Builder::hstu(const std::string& name, const std::vector<Tensor>& sequence,
                                                       const HstuOptions& options, SourceLine at) {
  const std::string what = "hstu '" + name + "'";
  const std::vector<Tensor> nothing(std::max<size_t>(sequence.size(), 2), Tensor{this});  // as the model may read
  const auto refuse = [&](std::string expected, std::string got) {
    problem(at, what, std::move(expected), std::move(got));
    return nothing;
  };
  if (sequence.empty()) return refuse("events, or events and targets", "no tensors");
  for (const Tensor x : sequence)
    if (!check_tensor(at, what, x)) return nothing;
  if (options.max_length < 1) return refuse("a max_length of 1 or more", std::to_string(options.max_length));
  const int64_t width = width_of(sequence[0]), heads = std::max<int64_t>(options.heads, 1);
  for (const Tensor x : sequence)
    if (width_of(x) != width)
      return refuse("parts of one width, " + std::to_string(width) + " columns as the first",
                    std::to_string(width_of(x)));
  const detail::HstuParts parts{sequence.size(), static_cast<size_t>(std::max<int64_t>(options.contexts, 0)),
                                sequence.size() > 1 && options.targets ? size_t{1} : size_t{0}};
  if (options.contexts < 0 || parts.contexts + parts.targets > parts.count)
    return refuse("contexts among the " + std::to_string(parts.count - parts.targets) + " parts that are no targets",
                  std::to_string(options.contexts));
  const bool has_bias = options.positions != 0 || options.time_buckets != 0;
  if ((options.window != 0 || options.positions != 0) && parts.num_ordered() != 1)
    return refuse(
        std::string("one part in order, as there is a ") + (options.window != 0 ? "window" : "bias by position"),
        std::to_string(parts.num_ordered()));
  if (has_bias && parts.num_ordered() == 0)
    return refuse("events in order, as there is a bias", "contexts and targets");
  if ((options.bias_by_head && !has_bias) || (options.clamp_positions && options.positions == 0))
    return refuse("bias_by_head with a bias, and clamp_positions with one by position", "none");
  const std::vector<Tensor>& next_times = options.next_times.empty() ? options.times : options.next_times;
  const size_t num_times = options.time_buckets != 0 ? parts.count - parts.contexts : 0;
  if (options.times.size() != num_times || next_times.size() != num_times)
    return refuse(
        "times of " + std::to_string(num_times) + " parts, those that are no contexts" +
            (options.time_buckets != 0 ? "" : ", as there are no time_buckets"),
        std::to_string(options.times.size()) + " times and " + std::to_string(next_times.size()) + " next_times");
  for (size_t i = 0; i < num_times; ++i)
    if (!check_tensor(at, what, options.times[i]) || !check_tensor(at, what, next_times[i])) return nothing;

  const int64_t inner = options.head_dim > 0 ? width_of_all(heads, options.head_dim) : width;
  const auto norm = [&](const char* which, Tensor x, size_t part, int64_t groups) {
    const std::string of_part = options.norm_by_part ? "." + std::to_string(part) : "";
    return layer_norm(name + which + of_part, x, {options.eps, true, groups, groups > 1}, at);
  };
  struct Projected {
    Tensor u, v, q, k;
  };
  std::vector<Projected> projected;
  for (size_t i = 0; i < parts.count; ++i) {
    const Tensor normed = norm(".norm", sequence[i], i, 1);
    const auto projection = [&](const char* which, Activation activation) {
      return linear(name + which, normed, inner, {true, activation}, at);
    };
    projected.push_back({projection(".u", silu), projection(".v", options.activation),
                         projection(".q", options.activation), projection(".k", options.activation)});
  }
  const auto attend = [&](size_t i) {
    std::vector<Tensor> seen;
    for (size_t j = 0; j < parts.count; ++j) {
      if (!parts.sees(i, j, options.contexts_see_events)) continue;
      AttentionOp attention{options.heads, options.scale, i == j && !parts.is_context(i), AttentionWeights::silu,
                            static_cast<float>(options.max_length)};
      if (!parts.is_context(j) && (i == j || parts.is_target(i)))
        attention.window = options.window, attention.full_last = options.full_last;
      std::vector<Tensor> inputs{projected[i].q, projected[j].k, projected[j].v};
      if (has_bias && !parts.is_context(i) && !parts.is_context(j)) {
        attention.name = name;
        if (i == j || parts.is_target(i))
          attention.positions = options.positions, attention.clamp_positions = options.clamp_positions;
        attention.time_buckets = options.time_buckets, attention.time_bucket_width = options.time_bucket_width;
        attention.bias_by_head = options.bias_by_head;
        if (num_times > 0)
          inputs.insert(inputs.end(), {next_times[i - parts.contexts], options.times[j - parts.contexts]});
      }
      if (parts.is_target(i) && j == (has_bias ? parts.contexts : 0))
        inputs.insert(inputs.end(), {projected[i].k, projected[i].v});
      seen.push_back(append(attention, inputs, name, at));
    }
    Tensor sum = seen[0];
    for (size_t j = 1; j < seen.size(); ++j)
      sum = apply(ElementwiseFunction::add, {Operand(sum, at), Operand(seen[j], at)}, at);
    return sum;
  };
  std::vector<Tensor> results;
  for (size_t i = 0; i < parts.count; ++i) {
    const Tensor u = projected[i].u, attended = attend(i);
    const int64_t groups = options.norm_by_head ? heads : 1;
    const auto times_u = [&](Tensor x) {
      return apply(ElementwiseFunction::mul, {Operand(u, at), Operand(x, at)}, at);
    };
    Tensor gated{this};
    if (options.gate == HstuGate::before_norm) {
      gated = norm(".attention_norm", times_u(attended), i, groups);
    } else {
      gated = times_u(norm(".attention_norm", attended, i, groups));
      if (options.gate == HstuGate::beside) gated = concat({u, attended, gated}, at);
    }
    const Tensor out = linear(name + ".out", gated, width, {options.out_bias, {}}, at);
    results.push_back(apply(ElementwiseFunction::add, {Operand(sequence[i], at), Operand(out, at)}, at));
  }
  return results;
}

}}  // namespace warprank::v0
