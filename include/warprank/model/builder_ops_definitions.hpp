// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Definitions of the Builder's single operations; builder.hpp documents them.

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/compiled.hpp"
#include "warprank/model/builder.hpp"
#include "warprank/model/infer.hpp"

namespace warprank { inline namespace v0 {

WARPRANK_HOST_INLINE std::string Builder::place(SourceLine at) {
  return at.line == 0 ? std::string() : std::string(at.file) + ":" + std::to_string(at.line);
}

WARPRANK_HOST_INLINE void Builder::problem(SourceLine at, std::string what, std::string expected, std::string got) {
  problems_.add({place(at), std::move(what), std::move(expected), std::move(got)});
}

/// Names are unique among axes, among tables and among inputs.
WARPRANK_HOST_INLINE void Builder::check_name(SourceLine at, const char* what, const std::string& name) {
  if (name.empty()) problem(at, what, "a name", "an empty one");
  if (!name.empty() && !names_.insert(std::string(what) + " " + name).second)
    problem(at, std::string(what) + " '" + name + "'", "a name not used before", "a second one");
}

/// Whether a handle is one of the `count` handles that this Builder gave. If not, reports a problem, except for an
/// empty handle after an earlier problem: a wrong call returns an empty handle.
WARPRANK_HOST_INLINE bool Builder::check_handle(SourceLine at, const std::string& what, const char* expected, int index,
                                                size_t count) {
  if (index >= 0 && index < static_cast<int>(count)) return true;
  if (index >= 0 || problems_.empty()) problem(at, what, expected, index < 0 ? "an empty handle" : "another Builder's");
  return false;
}
WARPRANK_HOST_INLINE bool Builder::check_axis(SourceLine at, const std::string& what, Axis axis) {
  return check_handle(at, what, "an axis of this Builder", axis.index, graph_.axes.size());
}
WARPRANK_HOST_INLINE bool Builder::check_ids(SourceLine at, const std::string& what, Ids ids) {
  return check_handle(at, what, "an ids input of this Builder", ids.index, graph_.ids.size());
}
WARPRANK_HOST_INLINE bool Builder::check_table(SourceLine at, const std::string& what, Table table) {
  return check_handle(at, what, "a table of this Builder", table.index, graph_.tables.size());
}
WARPRANK_HOST_INLINE bool Builder::check_tensor(SourceLine at, const std::string& what, Tensor x) {
  if (x.builder != this)
    problem(at, what, "a tensor of this Builder", x.builder == nullptr ? "an empty handle" : "another Builder's");
  return x.builder == this && x.node >= 0;
}

WARPRANK_HOST_INLINE Axis Builder::axis(std::string name, SourceLine at) {
  check_name(at, "axis", name);
  if (!graph_.axes.empty())
    problem(at, "axis '" + name + "'", "an axis nested in another; the outermost is '" + graph_.axes[0].name + "'",
            "no parent");
  graph_.axes.push_back({std::move(name), graph_.axes.empty() ? -1 : 0, 0});
  return {static_cast<int>(graph_.axes.size()) - 1};
}

WARPRANK_HOST_INLINE Axis Builder::axis(std::string name, Axis parent, KeepLast keep, SourceLine at) {
  check_name(at, "axis", name);
  if (!check_axis(at, "parent of axis '" + name + "'", parent)) return {};
  if (keep.rows < 0) problem(at, "axis '" + name + "'", "keep_last of 0 or more", std::to_string(keep.rows));
  graph_.axes.push_back({std::move(name), parent.index, keep.rows});
  return {static_cast<int>(graph_.axes.size()) - 1};
}

WARPRANK_HOST_INLINE Table Builder::add_table(TableInfo table, SourceLine at) {
  check_name(at, "table", table.name);
  if (table.dim < 1) problem(at, "table '" + table.name + "'", "a dim of 1 or more", std::to_string(table.dim));
  if (table.rows < 0) problem(at, "table '" + table.name + "'", "0 rows or more", std::to_string(table.rows));
  graph_.tables.push_back(std::move(table));
  return {static_cast<int>(graph_.tables.size()) - 1};
}

WARPRANK_HOST_INLINE Table Builder::table(std::string name, TableOptions options, SourceLine at) {
  return add_table({std::move(name), options.dim, false, options.rows}, at);
}

WARPRANK_HOST_INLINE Table Builder::hashed_table(std::string name, TableOptions options, SourceLine at) {
  return add_table({std::move(name), options.dim, true, options.rows}, at);
}

WARPRANK_HOST_INLINE Ids Builder::ids(std::string name, Axis axis, IdsOptions options, SourceLine at) {
  check_name(at, "input", name);
  if (!check_axis(at, "ids '" + name + "'", axis)) return {};
  if (options.padding && !holds(options.wire, *options.padding))
    problem(at, "ids '" + name + "'", "a padding of 32 bits, as its ids", std::to_string(*options.padding));
  graph_.ids.push_back(
      {std::move(name), axis.index, options.default_id, options.padding, options.wire, options.out_of_range});
  return {static_cast<int>(graph_.ids.size()) - 1};
}

WARPRANK_HOST_INLINE Tensor Builder::dense(std::string name, Axis axis, int64_t width, DenseOptions options,
                                           SourceLine at) {
  check_name(at, "input", name);
  if (!check_axis(at, "dense '" + name + "'", axis)) return {this};
  if (width < 1 || width > max_dense_width) {
    problem(at, "dense '" + name + "'", "1 to " + std::to_string(max_dense_width) + " columns", std::to_string(width));
    return {this};
  }
  if (options.default_value && !std::isfinite(*options.default_value))
    problem(at, "dense '" + name + "'", "a finite default", std::to_string(*options.default_value));
  graph_.dense.push_back({name, axis.index, width, options.default_value, options.wire, options.out_of_range});
  return append(DenseOp{static_cast<int>(graph_.dense.size()) - 1}, {}, std::move(name), at);
}

/// Adds a node, or reports its problem. If an earlier problem left an input invalid, this tensor is invalid without a
/// second report.
WARPRANK_HOST_INLINE Tensor Builder::append(Op op, const std::vector<Tensor>& inputs, std::string name, SourceLine at,
                                            int axis, int64_t width) {
  Node node{std::move(name), std::move(op), {}, axis, width, -1, place(at)};
  if (node.name.empty()) node.name = kind_of(node.op);
  for (const Tensor& input : inputs) {
    if (!check_tensor(at, std::string(kind_of(node.op)) + " '" + node.name + "'", input)) return {this};
    node.inputs.push_back(input.node);
  }
  const std::optional<NodeShape> shape = infer_shape(graph_, node, AxisMixing::explicit_expand, problems_);
  if (!shape) return {this};
  node.axis = shape->axis;
  node.width = shape->width;
  node.name = node_names_.make(node.name);
  graph_.nodes.push_back(std::move(node));
  return {this, static_cast<int>(graph_.nodes.size()) - 1};
}

WARPRANK_HOST_INLINE Tensor Builder::embed(Ids ids, Table table, SourceLine at) {
  if (!check_ids(at, "embed", ids) || !check_table(at, "embed", table)) return {this};
  const std::string& name = graph_.ids[static_cast<size_t>(ids.index)].name;
  return append(EmbedOp{ids.index, table.index, Pooling::none}, {}, "embed." + name, at);
}

WARPRANK_HOST_INLINE Tensor Builder::embed_bag(Ids ids, Table table, Pooling pooling, Tensor weights, SourceLine at) {
  if (!check_ids(at, "embed_bag", ids) || !check_table(at, "embed_bag", table)) return {this};
  const std::string& name = graph_.ids[static_cast<size_t>(ids.index)].name;
  if (pooling == Pooling::none) {
    problem(at, "embed_bag '" + name + "'", "sum, mean, sqrtn or max", "none");
    return {this};
  }
  const bool weighted = weights.builder != nullptr;
  return append(EmbedOp{ids.index, table.index, pooling},
                weighted ? std::vector<Tensor>{weights} : std::vector<Tensor>{}, "embed_bag." + name, at);
}

WARPRANK_HOST_INLINE Tensor Builder::pool(Tensor x, Pooling pooling, SourceLine at) {
  return append(PoolOp{pooling}, {x}, "", at);
}

WARPRANK_HOST_INLINE Tensor Builder::expand(Tensor x, Axis axis, SourceLine at) {
  if (!check_axis(at, "expand", axis)) return {this};
  return append(ExpandOp{}, {x}, "", at, axis.index);
}

WARPRANK_HOST_INLINE Tensor Builder::concat(const std::vector<Tensor>& parts, SourceLine at) {
  return append(ConcatOp{}, parts, "", at);
}

WARPRANK_HOST_INLINE Tensor Builder::slice(Tensor x, int64_t begin, int64_t end, SourceLine at) {
  const bool ordered = begin >= 0 && begin < end;
  return append(SliceOp{begin}, {x}, "", at, 0, ordered ? end - begin : 0);
}

WARPRANK_HOST_INLINE Tensor Builder::linear(std::string name, Tensor x, int64_t out, LinearOptions options,
                                            SourceLine at) {
  LinearOp op;
  op.name = name;
  op.bias = options.bias;
  op.activation = options.activation;
  return append(std::move(op), {x}, std::move(name), at, 0, out);
}

WARPRANK_HOST_INLINE Tensor Builder::gate(std::string name, Tensor x, int64_t experts, SourceLine at) {
  return linear(std::move(name), x, experts, {}, at);
}

WARPRANK_HOST_INLINE Tensor Builder::mix(Tensor experts, Tensor gate, Normalization normalization, SourceLine at) {
  return append(MixOp{normalization}, {experts, gate}, "", at);
}

WARPRANK_HOST_INLINE Tensor Builder::din_attention(std::string name, Tensor q, Tensor k, DinOptions options,
                                                   SourceLine at) {
  return append(DinAttentionOp{name, options.hidden, options.activation, options.normalization, options.scaled}, {q, k},
                name, at);
}

WARPRANK_HOST_INLINE Tensor Builder::fm(const std::vector<Tensor>& fields, int64_t dim, FmOptions options,
                                        SourceLine at) {
  return append(FmOp{dim, options.reduce}, fields, "", at);
}

WARPRANK_HOST_INLINE Tensor Builder::dot(const std::vector<Tensor>& fields, int64_t dim, DotOptions options,
                                         SourceLine at) {
  return append(DotOp{dim, options.order, options.self}, fields, "", at);
}

WARPRANK_HOST_INLINE Tensor Builder::dot_between(const std::vector<Tensor>& fields, const std::vector<Tensor>& others,
                                                 int64_t dim, SourceLine at) {
  if (fields.empty() || others.empty()) {
    problem(at, "dot_between", "fields on both sides",
            std::to_string(fields.size()) + " and " + std::to_string(others.size()) + " tensors");
    return {this};
  }
  int64_t columns = 0;
  for (const Tensor& tensor : fields) {
    if (!check_tensor(at, "dot_between", tensor)) return {this};
    columns += width_of(tensor);
  }
  std::vector<Tensor> all = fields;
  all.insert(all.end(), others.begin(), others.end());
  return append(DotOp{dim, DotOrder::lower, false, dim > 0 ? columns / dim : 0}, all, "", at);
}

/// The op behind the linear layer that makes its gates of all events.
WARPRANK_HOST_INLINE Tensor Builder::recurrent(const std::string& name, RecurrentOp op, std::vector<Tensor> attention,
                                               Tensor x, SourceLine at) {
  if (op.hidden < 1 || op.hidden > max_width / 3) {
    problem(at, name_of_enum(op.cell) + (" '" + name + "'"),
            "1 to " + std::to_string(max_width / 3) + " hidden columns", std::to_string(op.hidden));
    return {this};
  }
  op.name = name + ".hidden";
  attention.push_back(linear(name + ".input", x, 3 * op.hidden, {}, at));
  return append(std::move(op), attention, name, at);
}
WARPRANK_HOST_INLINE Tensor Builder::gru(const std::string& name, Tensor x, int64_t hidden, SourceLine at) {
  return recurrent(name, {{}, RecurrentCell::gru, hidden}, {}, x, at);
}
WARPRANK_HOST_INLINE Tensor Builder::augru(const std::string& name, Tensor q, Tensor k, Tensor x, int64_t hidden,
                                           AugruOptions options, SourceLine at) {
  const RecurrentCell cell = options.update_gate ? RecurrentCell::augru : RecurrentCell::agru;
  return recurrent(name, {{}, cell, hidden, options.scale}, {q, k}, x, at);
}

WARPRANK_HOST_INLINE Tensor Builder::field_attention(std::string name, Tensor x, int64_t dim,
                                                     FieldAttentionOptions options, SourceLine at) {
  const int64_t heads = std::max<int64_t>(options.heads, 1);
  if (options.head_dim == 0 && dim % heads != 0) {
    problem(at, "field_attention '" + name + "'", "columns that divide into heads",
            std::to_string(dim) + " columns, " + std::to_string(heads) + " heads");
    return {this};
  }
  return append(FieldAttentionOp{name, dim, options.heads, options.head_dim != 0 ? options.head_dim : dim / heads,
                                 options.scale, options.residual, options.activation},
                {x}, name, at);
}

WARPRANK_HOST_INLINE Tensor Builder::field_linear(std::string name, const std::vector<Tensor>& x, int64_t dim,
                                                  int64_t out, FieldLinearOptions options, SourceLine at) {
  return append(FieldLinearOp{name, dim, out, options.kept < 0 ? out : options.kept, options.summed, options.bias,
                              options.activation},
                x, name, at);
}

WARPRANK_HOST_INLINE Tensor Builder::mix_tokens(std::string name, Tensor x, int64_t tokens, float eps, SourceLine at) {
  return append(MixTokensOp{tokens, {name, eps}, {}}, {x}, name, at);
}

WARPRANK_HOST_INLINE Tensor Builder::layer_norm(std::string name, Tensor x, LayerNormOptions options, SourceLine at) {
  return append(LayerNormOp{name, options.eps, options.affine, options.groups, options.stacked}, {x}, name, at);
}

WARPRANK_HOST_INLINE Tensor Builder::softmax(Tensor x, SourceLine at) { return append(SoftmaxOp{}, {x}, "", at); }

WARPRANK_HOST_INLINE Tensor Builder::reduce(Tensor x, Pooling pooling, SourceLine at) {
  return append(ReduceOp{pooling}, {x}, "", at);
}

WARPRANK_HOST_INLINE Tensor Builder::apply(ElementwiseFunction function, const std::vector<Operand>& operands,
                                           SourceLine at) {
  if (static_cast<int>(operands.size()) != arity(function)) {
    problem(at, name_of_enum(function), std::to_string(arity(function)) + " operands", std::to_string(operands.size()));
    return {this};
  }
  ElementwiseProgram program;
  std::vector<Tensor> inputs;
  for (const Operand& operand : operands)
    if (!operand.number) inputs.push_back(operand.tensor);
  program.num_inputs = static_cast<int>(inputs.size());
  Instruction instruction{function};
  int* const registers[] = {&instruction.a, &instruction.b, &instruction.c};
  int next_input = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].number) {
      *registers[i] = program.first_result();
      program.constants.push_back(*operands[i].number);
    } else {
      *registers[i] = next_input++;
    }
  }
  program.instructions.push_back(instruction);
  return append(ElementwiseOp{std::move(program), {}}, inputs, name_of_enum(function), at);
}

WARPRANK_HOST_INLINE Tensor Builder::custom(std::string function, const std::vector<Tensor>& inputs, Axis axis,
                                            int64_t width, std::string settings, SourceLine at) {
  if (!check_axis(at, "custom '" + function + "'", axis)) return {this};
  return append(CustomOp{function, std::move(settings)}, inputs, function, at, axis.index, width);
}

WARPRANK_HOST_INLINE Tensor Builder::label(std::string name, Tensor x, SourceLine at) {
  if (!check_tensor(at, "label '" + name + "'", x)) return {this};
  if (name.empty() || !node_names_.take(name))
    problem(at, "label '" + name + "'", "a name not used before", name.empty() ? "an empty one" : "a second one");
  graph_.node(x.node).name = std::move(name);
  return x;
}

WARPRANK_HOST_INLINE Graph Builder::finish(const Outputs& outputs) {
  if (outputs.empty()) problems_.add("outputs", "one or more", "none");
  std::map<std::string, int> seen;
  for (const auto& [name, tensor] : outputs) {
    if (name.empty()) problems_.add("output", "a name", "an empty one");
    if (seen[name]++ == 1) problems_.add("output '" + name + "'", "a name not used before", "a second one");
    check_tensor({}, "output '" + name + "'", tensor);
    graph_.outputs.push_back({name, tensor.node});
  }
  problems_.throw_if_any();
  return std::move(graph_);
}

}}  // namespace warprank::v0
