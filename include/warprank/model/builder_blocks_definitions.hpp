// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Definitions of the Builder's blocks, which are made of single operations; builder.hpp documents them.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/compiled.hpp"
#include "warprank/model/activation_program.hpp"
#include "warprank/model/builder.hpp"
#include "warprank/model/infer.hpp"

namespace warprank { inline namespace v0 {

WARPRANK_HOST_INLINE Tensor Builder::mlp(const std::string& name, Tensor x, const std::vector<int64_t>& sizes,
                                         Activation activation, MlpOptions options, SourceLine at) {
  if (sizes.empty()) {
    problem(at, "mlp '" + name + "'", "one layer or more", "none");
    return {this};
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::string layer = name + "." + std::to_string(i);
    const bool last = i + 1 == sizes.size();
    const bool normed = options.batch_norm && !last;
    const Activation act = last ? options.output_activation : activation;
    x = linear(layer, x, sizes[i], {options.bias, normed ? identity : act}, at);
    if (normed) x = activate(batch_norm(layer + ".norm", x, {options.batch_norm_eps}, at), act, layer, at);
  }
  return x;
}

/// Layers "<name>.<i>" with stacked weights like `layer`'s.
WARPRANK_HOST_INLINE Tensor Builder::stack(const std::string& name, Tensor x, LinearOp layer,
                                           const std::vector<int64_t>& sizes, SourceLine at) {
  if (sizes.empty() || layer.groups < 1) {
    problem(at, "experts '" + name + "'", "one expert and one layer or more",
            std::to_string(layer.groups) + " experts of " + std::to_string(sizes.size()) + " layers");
    return {this};
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    layer.name = name + "." + std::to_string(i);
    layer.stacked = true;
    layer.shared_input = i == 0 || layer.scene >= 0;
    const int64_t width = layer.scene >= 0 ? sizes[i] : width_of_all(layer.groups, sizes[i]);
    x = append(layer, {x}, layer.name, at, 0, width);
  }
  return x;
}

WARPRANK_HOST_INLINE Tensor Builder::experts(const std::string& name, Tensor x, int64_t count,
                                             const std::vector<int64_t>& sizes, Activation activation, SourceLine at) {
  LinearOp layer;
  layer.groups = count;
  layer.activation = activation;
  return stack(name, x, layer, sizes, at);
}

WARPRANK_HOST_INLINE Tensor Builder::scene_experts(const std::string& name, Tensor x, Ids scene, int64_t count,
                                                   const std::vector<int64_t>& sizes, Activation activation,
                                                   SourceLine at) {
  if (!check_ids(at, "scene of experts '" + name + "'", scene)) return {this};
  LinearOp layer;
  layer.groups = count;
  layer.activation = activation;
  layer.scene = scene.index;
  return stack(name, x, layer, sizes, at);
}

WARPRANK_HOST_INLINE std::vector<Tensor> Builder::ple(const std::string& name, Tensor x, const PleOptions& options,
                                                      SourceLine at) {
  if (options.tasks < 1 || options.levels.empty()) {
    problem(at, "ple '" + name + "'", "one task and one level or more",
            std::to_string(options.tasks) + " tasks, " + std::to_string(options.levels.size()) + " levels");
    return std::vector<Tensor>(static_cast<size_t>(std::max<int64_t>(options.tasks, 0)), Tensor{this});
  }
  std::vector<Tensor> tasks(static_cast<size_t>(options.tasks), x);
  Tensor shared = x;
  for (size_t level = 0; level < options.levels.size(); ++level) {
    const std::string prefix = name + "." + std::to_string(level) + ".";
    const std::vector<int64_t>& sizes = options.levels[level];
    const Tensor shared_out = experts(prefix + "shared", shared, options.shared_experts, sizes, options.activation, at);
    std::vector<Tensor> all;
    std::vector<Tensor> next;
    for (size_t t = 0; t < tasks.size(); ++t) {
      const std::string task = std::to_string(t);
      const Tensor own = experts(prefix + "task" + task, tasks[t], options.task_experts, sizes, options.activation, at);
      const Tensor logits = gate(prefix + "gate" + task, tasks[t], options.task_experts + options.shared_experts, at);
      all.push_back(own);
      next.push_back(mix(concat({own, shared_out}, at), logits, Normalization::softmax, at));
    }
    all.push_back(shared_out);
    if (level + 1 < options.levels.size()) {
      const int64_t count = options.tasks * options.task_experts + options.shared_experts;
      shared = mix(concat(all, at), gate(prefix + "shared_gate", shared, count, at), Normalization::softmax, at);
    }
    tasks = std::move(next);
  }
  return tasks;
}

WARPRANK_HOST_INLINE Tensor Builder::target_attention(const std::string& name, Tensor q, Tensor k,
                                                      AttentionOptions options, SourceLine at) {
  if (!check_tensor(at, "target_attention '" + name + "'", q)) return {this};
  const int64_t heads = std::max<int64_t>(options.heads, 1);
  const int64_t inner = options.head_dim > 0 ? width_of_all(heads, options.head_dim) : width_of(q);
  const LinearOptions projection{options.bias, {}};
  const Tensor attended =
      append(AttentionOp{options.heads, 0, options.causal},
             {linear(name + ".q", q, inner, projection, at), linear(name + ".k", k, inner, projection, at),
              linear(name + ".v", k, inner, projection, at)},
             name, at);
  return linear(name + ".out", attended, options.out > 0 ? options.out : width_of(q), projection, at);
}

WARPRANK_HOST_INLINE Tensor Builder::self_attention(const std::string& name, Tensor x, SelfAttentionOptions options,
                                                    SourceLine at) {
  if (!check_tensor(at, "self_attention '" + name + "'", x)) return {this};
  const int64_t width = width_of(x);
  const auto norm = [&](const char* which, Tensor t) { return layer_norm(name + which, t, {options.eps, true}, at); };
  const auto add = [&](Tensor a, Tensor b) {
    return apply(ElementwiseFunction::add, {Operand(a, at), Operand(b, at)}, at);
  };
  const Tensor attention_in = options.norm_first ? norm(".norm1", x) : x;
  const Tensor attended =
      append(AttentionOp{options.heads, 0, options.causal},
             {linear(name + ".q", attention_in, width, {}, at), linear(name + ".k", attention_in, width, {}, at),
              linear(name + ".v", attention_in, width, {}, at)},
             name, at);
  x = add(x, linear(name + ".out", attended, width, {}, at));
  if (!options.norm_first) x = norm(".norm1", x);
  const Tensor ffn_in = options.norm_first ? norm(".norm2", x) : x;
  const int64_t hidden = options.hidden > 0 ? options.hidden : 4 * width;
  x = add(x, mlp(name + ".ffn", ffn_in, {hidden, width}, options.activation, {}, at));
  return options.norm_first ? x : norm(".norm2", x);
}

WARPRANK_HOST_INLINE Tensor Builder::cin(const std::string& name, Tensor fields, int64_t dim, const CinOptions& options,
                                         SourceLine at) {
  if (!check_tensor(at, "cin '" + name + "'", fields)) return {this};
  if (options.layers.empty()) {
    problem(at, "cin '" + name + "'", "one layer or more", "none");
    return {this};
  }
  Tensor x = fields;
  std::vector<Tensor> results;
  for (size_t i = 0; i < options.layers.size(); ++i) {
    const std::string layer = name + "." + std::to_string(i);
    const int64_t maps = options.layers[i];
    const bool is_last = i + 1 == options.layers.size(), splits = options.split_half && !is_last;
    if (splits && maps % 2 != 0) {
      problem(at, "cin '" + name + "'", "maps that divide into two halves", std::to_string(maps));
      return {this};
    }
    const int64_t kept = is_last ? 0 : splits ? maps / 2 : maps, summed = splits ? maps / 2 : maps;
    const Tensor made =
        field_linear(layer, {x, fields}, dim, maps, {options.bias, options.activation, kept, summed}, at);
    if (!check_tensor(at, "cin '" + name + "'", made)) return {this};
    x = is_last ? made : slice(made, 0, kept * dim, at);
    results.push_back(is_last ? made : slice(made, kept * dim, kept * dim + summed, at));
  }
  return results.size() == 1 ? results[0] : concat(results, at);
}

WARPRANK_HOST_INLINE Tensor Builder::auto_int(const std::string& name, Tensor x, int64_t dim, AutoIntOptions options,
                                              SourceLine at) {
  if (options.layers < 1) {
    problem(at, "auto_int '" + name + "'", "one layer or more", std::to_string(options.layers));
    return {this};
  }
  const int64_t heads = std::max<int64_t>(options.heads, 1);
  FieldAttentionOptions layer{options.heads, options.head_dim, options.residual, options.activation, options.scale};
  for (int64_t i = 0; i < options.layers; ++i) {
    x = field_attention(name + "." + std::to_string(i), x, dim, layer, at);
    if (!check_tensor(at, "auto_int '" + name + "'", x)) return {this};
    if (layer.head_dim == 0) layer.head_dim = dim / heads;
    dim = heads * layer.head_dim;
  }
  return x;
}

WARPRANK_HOST_INLINE Tensor Builder::rank_mixer(const std::string& name, Tensor x, RankMixerOptions options,
                                                SourceLine at) {
  const std::string what = "rank_mixer '" + name + "'";
  if (!check_tensor(at, what, x)) return {this};
  const int64_t tokens = options.tokens, experts = options.experts;
  if (tokens < 1 || options.layers < 1 || options.dim < 0 || options.hidden < 0) {
    problem(at, what, "one token and one layer or more, of 0 or more columns",
            std::to_string(tokens) + " tokens, " + std::to_string(options.layers) + " layers, dim " +
                std::to_string(options.dim) + ", hidden " + std::to_string(options.hidden));
    return {this};
  }
  constexpr int64_t most_routed = 256;  // whose logits are compared with one another
  const int64_t most_experts = options.top_k > 0 ? most_routed : max_width;
  if (experts < 0 || experts > most_experts || options.top_k < 0 || options.top_k > experts) {
    problem(at, what, "0 to " + std::to_string(most_experts) + " experts, and a top_k of 0 to as many",
            std::to_string(experts) + " experts and top_k " + std::to_string(options.top_k));
    return {this};
  }
  const auto of_each_token = [&](const std::string& layer, Tensor from, int64_t columns, Activation activation) {
    return of_each_part(layer, from, tokens, columns, activation, at);
  };
  if (options.dim > 0) x = of_each_token(name + ".tokens", x, options.dim, identity);
  if (!check_tensor(at, what, x)) return {this};
  const int64_t dim = width_of(x) / tokens, hidden = options.hidden > 0 ? options.hidden : 4 * dim;
  for (int64_t i = 0; i < options.layers; ++i) {
    const std::string layer = name + "." + std::to_string(i);
    const Tensor mixed = mix_tokens(layer + ".mix", x, tokens, options.eps, at);
    if (!check_tensor(at, what, mixed)) return {this};
    const int64_t networks = std::max<int64_t>(experts, 1);
    const Tensor inner = of_each_token(layer + ".ffn.0", mixed, width_of_all(networks, hidden), options.activation);
    Tensor sum = of_each_part(layer + ".ffn.1", inner, width_of_all(networks, tokens), dim, identity, at);
    if (experts == 0) {
      sum = apply(ElementwiseFunction::add, {Operand(mixed, at), Operand(sum, at)}, at);
    } else {
      const Activation activation = options.top_k == 0 ? warprank::relu : warprank::identity;
      const Tensor router = of_each_token(layer + ".router", mixed, experts, activation);
      sum = add_routed(mixed, sum, router, options, at);
    }
    x = layer_norm(layer + ".norm", sum, {options.eps, true, tokens}, at);
  }
  Tensor sum = slice(x, 0, dim, at);
  for (int64_t t = 1; t < tokens; ++t)
    sum = apply(ElementwiseFunction::add, {Operand(sum, at), Operand(slice(x, t * dim, (t + 1) * dim, at), at)}, at);
  return apply(ElementwiseFunction::mul, {Operand(sum, at), Operand(1.0f / static_cast<float>(tokens), at)}, at);
}

/// A linear for each of the parts of the columns.
WARPRANK_HOST_INLINE Tensor Builder::of_each_part(const std::string& name, Tensor x, int64_t parts, int64_t columns,
                                                  Activation activation, SourceLine at) {
  LinearOp linear;
  linear.name = name;
  linear.groups = parts;
  linear.stacked = true;
  linear.shared_input = false;
  linear.activation = activation;
  return append(linear, {x}, name, at, 0, width_of_all(parts, columns));
}

/// Each token plus its experts, weighed by what its router gives.
WARPRANK_HOST_INLINE Tensor Builder::add_routed(Tensor x, Tensor experts, Tensor router,
                                                const RankMixerOptions& options, SourceLine at) {
  if (!check_tensor(at, "experts of tokens", experts) || !check_tensor(at, "routers of tokens", router)) return {this};
  const int64_t count = options.experts, top_k = options.top_k, dim = width_of(x) / options.tokens;
  const auto of_token = [&](Tensor all, int64_t t, int64_t columns) {
    return slice(all, t * columns, (t + 1) * columns, at);
  };
  std::vector<Tensor> tokens;
  for (int64_t t = 0; t < options.tokens; ++t) {
    Tensor gate = of_token(router, t, count);
    if (top_k > 0 && top_k < count) gate = largest_of(gate, top_k, at);
    const Normalization normalization = top_k > 0 ? Normalization::softmax : Normalization::none;
    const Tensor mixed = mix(of_token(experts, t, count * dim), gate, normalization, at);
    tokens.push_back(apply(ElementwiseFunction::add, {Operand(of_token(x, t, dim), at), Operand(mixed, at)}, at));
  }
  return concat(tokens, at);
}

/// x where fewer than `count` columns are larger, else what no softmax counts. A NaN stays.
WARPRANK_HOST_INLINE Tensor Builder::largest_of(Tensor x, int64_t count, SourceLine at) {
  const auto width = static_cast<int>(width_of(x));
  std::vector<Tensor> columns, largest;
  for (int i = 0; i < width; ++i) columns.push_back(slice(x, i, i + 1, at));
  for (int own = 0; own < width; ++own) {
    ElementwiseOp op;
    ElementwiseProgram& program = op.program;
    program.num_inputs = width;
    program.constants = {static_cast<float>(count) - 0.5f, -max_float16};  // whatever sums of 1 are rounded to
    const int most = width, none = width + 1;
    const auto add = [&](ElementwiseFunction function, int a, int b, int c) {
      program.instructions.push_back({function, a, b, c});
      return program.num_registers() - 1;
    };
    int larger = -1;  // of the other columns, so many
    for (int other = 0; other < width; ++other) {
      if (other == own) continue;
      const int is_larger = add(ElementwiseFunction::greater, other, own, -1);
      larger = larger == -1 ? is_larger : add(ElementwiseFunction::add, larger, is_larger, -1);
    }
    add(ElementwiseFunction::select, own, none, add(ElementwiseFunction::less, larger, most, -1));
    largest.push_back(append(op, columns, "", at, 0, 1));
  }
  return concat(largest, at);
}

WARPRANK_HOST_INLINE Tensor Builder::wukong(const std::string& name, Tensor x, int64_t dim,
                                            const WukongOptions& options, SourceLine at) {
  const std::string what = "wukong '" + name + "'";
  if (!check_tensor(at, what, x)) return {this};
  const int64_t of_machine = options.machine_fields, of_linear = options.linear_fields, rank = options.rank;
  const int64_t fewest = std::min({options.layers, dim, of_machine, of_linear, rank});
  if (fewest < 1 || std::max({dim, of_machine, of_linear, rank}) > max_width) {
    problem(at, what,
            "1 or more layers, and 1 to " + std::to_string(max_width) +
                " columns of a field, fields of both blocks, and mixtures",
            std::to_string(options.layers) + " layers, dim " + std::to_string(dim) + ", " + std::to_string(of_machine) +
                " and " + std::to_string(of_linear) + " fields, rank " + std::to_string(rank));
    return {this};
  }
  const int64_t made_fields = of_machine + of_linear;
  std::vector<int64_t> layers = options.hidden;
  layers.push_back(width_of_all(of_machine, dim));
  for (int64_t i = 0; i < options.layers; ++i) {
    const std::string layer = name + "." + std::to_string(i);
    const bool projects = width_of(x) != width_of_all(made_fields, dim);
    const int64_t rows = rank + of_linear + (projects ? made_fields : 0);
    const Tensor made = field_linear(layer + ".fields", {x}, dim, rows, {false, identity, -1, 0}, at);
    if (!check_tensor(at, what, made)) return {this};
    const auto part = [&](int64_t begin, int64_t end) { return slice(made, begin * dim, end * dim, at); };
    const Tensor products =
        layer_norm(layer + ".products", dot_between({x}, {part(0, rank)}, dim, at), {options.eps, true, 1, false}, at);
    const Tensor machine = mlp(layer + ".machine", products, layers, options.activation, {}, at);
    const Tensor linear_block = part(rank, rank + of_linear);
    // Each block's fields are added and normed for themselves, so that their concat is no copy.
    const Tensor residual = projects ? part(rank + of_linear, rows) : x;
    const auto normed = [&](Tensor block, int64_t begin, int64_t end) {
      const Tensor sum = apply(ElementwiseFunction::add,
                               {Operand(block, at), Operand(slice(residual, begin * dim, end * dim, at), at)}, at);
      return layer_norm(layer + ".norm", sum, {options.eps, true, end - begin, false}, at);
    };
    x = concat({normed(machine, 0, of_machine), normed(linear_block, of_machine, made_fields)}, at);
  }
  return x;
}

WARPRANK_HOST_INLINE Tensor Builder::cross(const std::string& name, Tensor x0, CrossOptions options, SourceLine at) {
  if (options.layers < 1 || options.rank < 0) {
    problem(at, "cross '" + name + "'", "one layer or more and a rank of 0 or more",
            std::to_string(options.layers) + " layers, rank " + std::to_string(options.rank));
    return {this};
  }
  if (!check_tensor(at, "cross '" + name + "'", x0)) return {this};
  Tensor x = x0;
  for (int64_t i = 0; i < options.layers; ++i) {
    LinearOp layer;
    layer.name = name + "." + std::to_string(i) + (options.rank > 0 ? ".w" : "");
    layer.multiply = layer.residual = true;
    const Tensor inner =
        options.rank > 0 ? linear(name + "." + std::to_string(i) + ".v", x, options.rank, {false, {}}, at) : x;
    x = append(layer, {inner, x0, x}, layer.name, at, 0, width_of(x0));
  }
  return x;
}

WARPRANK_HOST_INLINE Tensor Builder::wide(const std::string& name, const std::vector<Tensor>& terms, SourceLine at) {
  ElementwiseProgram add_bias;
  add_bias.num_inputs = add_bias.num_vectors = 1;
  add_bias.instructions = {{ElementwiseFunction::add, 0, 1}};
  return append(ElementwiseOp{std::move(add_bias), {{LearnedVector::Kind::stored, name + ".bias"}}},
                {reduce(concat(terms, at), Pooling::sum, at)}, name, at);
}

WARPRANK_HOST_INLINE Tensor Builder::batch_norm(std::string name, Tensor x, BatchNormOptions options, SourceLine at) {
  if (name.empty()) problem(at, "batch_norm", "a name for its statistics", "none");
  return append(batch_norm_op({name, options.eps, options.affine}), {x}, name, at);
}

WARPRANK_HOST_INLINE Tensor Builder::activate(Tensor x, Activation activation, const std::string& name, SourceLine at) {
  const std::string kind = name_of_enum(activation.kind);
  const bool learned = activation.kind == ActivationKind::prelu || activation.kind == ActivationKind::dice;
  if (learned && name.empty()) {
    problem(at, kind, "a name for its weights", "none");
    return {this};
  }
  if (activation.kind == ActivationKind::identity) return x;
  return append(activation_op(activation, name), {x}, learned ? name + "." + kind : kind, at);
}

}}  // namespace warprank::v0
