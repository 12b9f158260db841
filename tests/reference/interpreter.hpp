// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a model computes, in double, one request at a time, as its author wrote it: every node in turn, every row by
/// itself, rows found through the row of the parent axis that they belong to. Each number has a bound of the error that
/// FP32, with FP16 between operations, with products of BF16, or with neither, may make from the inputs on, whatever a
/// planner does that leaves the mathematics as it is.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "reference/cell.hpp"
#include "reference/dot.hpp"
#include "reference/plain_weights.hpp"
#include "support/plain_request.hpp"
#include "warprank/model/graph.hpp"

namespace warprank::reference {

/// A user's function: the rows of its inputs that serve one row of the output -> that row.
using PlainFunction = std::function<Row(const std::vector<Row>&)>;

class Interpreter {
 public:
  Interpreter(const Graph& graph, PlainWeights weights, std::map<std::string, PlainTable> tables,
              Rounding rounding = Rounding::worst_case, std::map<std::string, PlainFunction> functions = {},
              Precision precision = Precision::single)
      : graph_(graph),
        weights_(std::move(weights)),
        tables_(std::move(tables)),
        rounding_(rounding),
        precision_(precision),
        functions_(std::move(functions)) {}

  /// By output name its rows.
  std::map<std::string, std::vector<Row>> run(const test_support::PlainRequest& request) {
    request_ = &request;
    list_axes();
    values_.clear();
    for (const Node& node : graph_.nodes) {
      node_ = &node;
      std::vector<Row> rows(axis(node.axis).size());
      for (size_t r = 0; r < rows.size(); ++r) {
        rows[r] = std::visit([&](const auto& op) { return row_of(op, r); }, node.op);
        if (rows[r].size() != static_cast<size_t>(node.width)) throw std::logic_error("width of " + node.name);
        for (Cell& c : rows[r]) c = kept(c, precision_);
      }
      values_.push_back(std::move(rows));
    }
    std::map<std::string, std::vector<Row>> outputs;
    for (const OutputInfo& output : graph_.outputs) outputs[output.name] = values_[static_cast<size_t>(output.node)];
    return outputs;
  }

 private:
  /// A row of an axis: its number among those that the request gave, and the kept row of the parent it belongs to.
  struct AxisRow {
    size_t given;
    size_t parent;
  };

  const std::vector<AxisRow>& axis(int a) const { return axes_[static_cast<size_t>(a)]; }

  void list_axes() {
    axes_.assign(1, {{0, 0}});
    for (size_t a = 1; a < graph_.axes.size(); ++a) {
      const AxisInfo& info = graph_.axes[a];
      std::vector<int64_t> lengths;
      if (const auto given = request_->lengths.find(info.name); given != request_->lengths.end())
        lengths = given->second;
      std::vector<AxisRow> rows;
      for (size_t p = 0; p < axis(info.parent).size() && !lengths.empty(); ++p) {
        const size_t parent_given = axis(info.parent)[p].given;
        int64_t first = 0;
        for (size_t s = 0; s < parent_given; ++s) first += lengths[s];
        const int64_t length = lengths[parent_given];
        const int64_t dropped = info.keep_last > 0 ? std::max<int64_t>(0, length - info.keep_last) : 0;
        for (int64_t i = dropped; i < length; ++i) rows.push_back({static_cast<size_t>(first + i), p});
      }
      axes_.push_back(std::move(rows));
    }
  }

  /// The row of `ancestor` that row `r` of axis `a` is nested in.
  size_t above(int a, size_t r, int ancestor) const {
    for (; a != ancestor; a = graph_.axis(a).parent) r = axis(a)[r].parent;
    return r;
  }
  /// The rows of axis `a` nested in row `r` of its parent.
  std::vector<size_t> below(int a, size_t r) const {
    std::vector<size_t> rows;
    for (size_t i = 0; i < axis(a).size(); ++i)
      if (axis(a)[i].parent == r) rows.push_back(i);
    return rows;
  }

  size_t width() const { return static_cast<size_t>(node_->width); }
  const Node& input_node(size_t i) const { return graph_.node(node_->inputs[i]); }
  const Row& input(size_t i, size_t r) const { return values_[static_cast<size_t>(node_->inputs[i])][r]; }
  const std::vector<float>& weight(const std::string& name) const { return weights_.at(name); }

  int64_t id_of(int index, size_t r) const {
    const IdsInfo& info = graph_.ids[static_cast<size_t>(index)];
    const auto given = request_->ids.find(info.name);
    return given == request_->ids.end() ? info.default_id.value() : given->second.at(axis(info.axis)[r].given);
  }

  static float as_sent(float value, DenseWire type) {
    return type == DenseWire::f16    ? to_float(to_float16(std::clamp(value, -max_float16, max_float16)))
           : type == DenseWire::bf16 ? to_float(to_bfloat16(value))
                                     : value;
  }

  Row row_of(const DenseOp& op, size_t r) const {
    const DenseInfo& info = graph_.dense[static_cast<size_t>(op.input)];
    const auto given = request_->dense.find(info.name);
    Row row;
    for (size_t c = 0; c < width(); ++c) {
      const bool is_given = given != request_->dense.end();
      row.push_back(exact(is_given ? as_sent(given->second.at(axis(info.axis)[r].given * width() + c), info.wire)
                                   : info.default_value.value()));
    }
    return row;
  }

  /// The table's row for an id; none for padding.
  const Row* looked_up(const EmbedOp& op, size_t r) const {
    const PlainTable& table = tables_.at(graph_.tables[static_cast<size_t>(op.table)].name);
    const int64_t id = id_of(op.ids, r);
    const std::optional<int64_t> padding = graph_.ids[static_cast<size_t>(op.ids)].padding;
    if (table.hashed ? padding == id : id == -1) return nullptr;
    const auto row = table.rows.find(id);
    return row == table.rows.end() ? &table.unknown : &row->second;
  }

  Row row_of(const EmbedOp& op, size_t r) const {
    if (op.pooling == Pooling::none) {
      const Row* row = looked_up(op, r);
      return row == nullptr ? Row(width()) : *row;
    }
    std::vector<const Row*> rows;
    Row weights;
    for (size_t i : below(graph_.ids[static_cast<size_t>(op.ids)].axis, r)) {
      const Row* row = looked_up(op, i);
      if (row == nullptr) continue;
      rows.push_back(row);
      weights.push_back(node_->inputs.empty() ? exact(1) : input(0, i)[0]);
    }
    return bag(rows, weights, op.pooling);
  }

  Row bag(const std::vector<const Row*>& rows, const Row& weights, Pooling pooling) const {
    Sum total(rounding_), squares(rounding_);
    for (const Cell& w : weights) {
      total.add(w);
      squares.add(w, w);
    }
    Cell divisor = exact(1);
    if (pooling == Pooling::mean) divisor = total.total();
    if (pooling == Pooling::sqrtn) divisor = apply(ElementwiseFunction::sqrt, squares.total());
    Row y;
    for (size_t c = 0; c < width(); ++c) {
      Row column;
      Sum sum(rounding_);
      for (size_t i = 0; i < rows.size(); ++i) {
        column.push_back((*rows[i])[c]);
        sum.add(weights[i], column.back());
      }
      const bool is_zero = rows.empty() || (pooling != Pooling::max && total.size() == 0);
      y.push_back(is_zero ? Cell{} : pooling == Pooling::max ? pooled(column, pooling) : divide(sum.total(), divisor));
    }
    return y;
  }

  Row row_of(const ConcatOp&, size_t r) const {
    Row row;
    for (size_t i = 0; i < node_->inputs.size(); ++i) row.insert(row.end(), input(i, r).begin(), input(i, r).end());
    return row;
  }
  Row row_of(const ExpandOp&, size_t r) const { return input(0, above(node_->axis, r, input_node(0).axis)); }
  Row row_of(const SliceOp& op, size_t r) const {
    const auto begin = input(0, r).begin() + op.begin;
    return {begin, begin + node_->width};
  }

  std::pair<double, double> batch_norm(const std::string& name, float eps, bool affine, size_t c) const {
    const double gain = affine ? weight(name + ".weight")[c] : 1, offset = affine ? weight(name + ".bias")[c] : 0;
    const double scale = gain / std::sqrt(static_cast<double>(weight(name + ".running_var")[c]) + eps);
    return {scale, offset - weight(name + ".running_mean")[c] * scale};
  }
  Cell activated(const std::string& layer, const Activation& spec, const Cell& x, size_t c) const {
    if (spec.kind == ActivationKind::prelu) return activate(spec, x, weight(layer + ".prelu.alpha")[c], 0, 0);
    if (spec.kind != ActivationKind::dice) return activate(spec, x, 0, 0, 0, precision_);
    const auto [scale, shift] = batch_norm(layer + ".dice", spec.eps, spec.affine, c);
    return activate(spec, x, weight(layer + ".dice.alpha")[c], scale, shift, precision_);
  }

  Row row_of(const LinearOp& op, size_t r) const {
    if (!op.columns.empty() || op.input_norm || op.norm || op.is_term || op.ones || op.row_bias)
      throw std::logic_error("a graph that a pass has changed");
    const Row& x = input(0, r);
    const auto groups = static_cast<size_t>(op.groups);
    const size_t in = op.shared_input ? x.size() : x.size() / groups;
    size_t scene = 0;
    if (op.scene >= 0) {
      const int64_t id = id_of(op.scene, above(node_->axis, r, graph_.ids[static_cast<size_t>(op.scene)].axis));
      if (id < 0 || id >= op.groups) return Row(width());
      scene = static_cast<size_t>(id);
    }
    const std::vector<float>& matrix = weight(op.name + ".weight");
    Row y;
    for (size_t c = 0; c < width(); ++c) {
      const size_t output = scene * width() + c;  // among the stored ones
      const size_t first = op.shared_input ? 0 : c / (width() / groups) * in;
      Sum sum(rounding_, precision_);
      for (size_t k = 0; k < in; ++k) sum.add(matrix[output * in + k], x[first + k]);
      if (op.bias) sum.add(exact(weight(op.name + ".bias")[output]));
      const auto add_residual = [&](const Cell& to) {
        return apply(ElementwiseFunction::add, to, input(node_->inputs.size() - 1, r)[c]);
      };
      const Cell product = op.residual_first ? add_residual(sum.total(6)) : sum.total(6);
      Cell value = activated(op.name, op.activation, product, output);
      if (op.multiply) value = apply(ElementwiseFunction::mul, value, input(1, r)[c]);
      if (op.residual && !op.residual_first) value = add_residual(value);
      y.push_back(value);
    }
    return y;
  }

  Row row_of(const FieldLinearOp& op, size_t r) const {
    Row y;
    for (size_t h = 0; h < static_cast<size_t>(op.kept); ++h) {
      const Row field = result_field(op, h, r);
      y.insert(y.end(), field.begin(), field.end());
    }
    for (int64_t h = op.out - op.summed; h < op.out; ++h)
      y.push_back(pooled(result_field(op, static_cast<size_t>(h), r), Pooling::sum));
    return y;
  }
  /// An engine of halves rounds the products of two values.
  Row result_field(const FieldLinearOp& op, size_t h, size_t r) const {
    const auto dim = static_cast<size_t>(op.dim);
    const bool has_products = node_->inputs.size() > 1;
    const Row &a = input(0, r), &b = input(node_->inputs.size() - 1, r);
    const size_t others = has_products ? b.size() / dim : 1, terms = a.size() / dim * others;
    const std::vector<float>& matrix = weight(op.name + ".weight");
    Row field;
    for (size_t d = 0; d < dim; ++d) {
      Sum sum(rounding_, precision_);
      for (size_t k = 0; k < terms; ++k) {
        const Cell& own = a[k / others * dim + d];
        const auto product = [&] { return apply(ElementwiseFunction::mul, own, b[k % others * dim + d]); };
        sum.add(matrix[h * terms + k], has_products ? kept(product(), precision_) : own);
      }
      if (op.bias) sum.add(exact(weight(op.name + ".bias")[h]));
      field.push_back(activated(op.name, op.activation, sum.total(6), h));
    }
    return field;
  }

  // --- attention
  // ------------------------------------------------------------------------------------------------------

  /// The rows of the history `k` that row `r` of the query attends to.
  std::vector<size_t> events_of(size_t r, const Node& k) const {
    const int parent = graph_.axis(k.axis).parent;
    return below(k.axis, above(node_->axis, r, parent));
  }

  /// The bound allows q - k to be taken apart, and two weights of a column to be added before they meet it.
  Cell din_score(const DinAttentionOp& op, const Row& q, const Row& k) const {
    Row x = q;
    x.insert(x.end(), k.begin(), k.end());
    for (size_t c = 0; c < q.size(); ++c)
      x.push_back(cell(q[c].value - k[c].value, q[c].bound + k[c].bound, q[c].size + k[c].size));
    for (size_t c = 0; c < q.size(); ++c) x.push_back(apply(ElementwiseFunction::mul, q[c], k[c]));
    for (size_t i = 0; i <= op.hidden.size(); ++i) {
      const std::string layer = op.name + "." + std::to_string(i);
      const bool last = i == op.hidden.size();
      const std::vector<float>&matrix = weight(layer + ".weight"), &bias = weight(layer + ".bias");
      Row y;
      for (size_t o = 0; o < bias.size(); ++o) {
        Sum sum(rounding_, precision_);
        for (size_t c = 0; c < x.size(); ++c) sum.add(matrix[o * x.size() + c], x[c]);
        sum.add(exact(bias[o]));
        y.push_back(kept(activated(layer, last ? identity : op.activation, sum.total(6), o), precision_));
      }
      x = std::move(y);
    }
    const double factor = op.scaled ? 1 / std::sqrt(static_cast<double>(q.size())) : 1;
    return cell(factor * x[0].value, factor * (x[0].bound + 2 * std::fabs(x[0].value)));
  }

  /// Weights that are rounded to BF16 are good to 2^-12 before.
  Row weighted_sums(const Row& weights, const std::vector<Row>& rows, size_t columns,
                    Precision products = Precision::single) const {
    Row y;
    for (size_t c = 0; c < columns; ++c) {
      Sum sum(rounding_, products);
      for (size_t t = 0; t < rows.size(); ++t) {
        Cell weight = kept(weights[t], precision_);
        if (products == Precision::bf16_products) weight.bound += 0x1p-12 / u * std::fabs(weight.value);
        sum.add(weight, rows[t][c]);
      }
      y.push_back(sum.total());
    }
    return y;
  }

  Row row_of(const DinAttentionOp& op, size_t r) const {
    Row scores;
    std::vector<Row> events;
    for (size_t t : events_of(r, input_node(1))) {
      events.push_back(input(1, t));
      for (size_t c = 0; node_->inputs.size() == 3 && c < events.back().size(); ++c)
        events.back()[c] = apply(ElementwiseFunction::add, events.back()[c], input(2, t)[c]);
      scores.push_back(din_score(op, input(0, r), events.back()));
    }
    return weighted_sums(normalize(scores, op.normalization), events, width());
  }

  Row silu_weights(const Row& scores, double divisor) const {
    Row weights;
    for (const Cell& score : scores) {
      const Cell weight = activate(silu, score, 0, 0, 0);
      weights.push_back(cell(weight.value / divisor, (weight.bound + 2 * std::fabs(weight.value)) / divisor));
    }
    return weights;
  }

  /// scale <q, k>, of `dim` columns from `first` on.
  Cell score(const Row& q, const Row& k, size_t first, size_t dim, double scale) const {
    Sum sum(rounding_, precision_);
    for (size_t c = first; c < first + dim; ++c) sum.add(q[c], k[c]);
    const Cell product = sum.total();
    return cell(scale * product.value, std::fabs(scale) * (product.bound + 2 * std::fabs(product.value)));
  }

  /// Times are compared in FP32.
  float time(size_t i, size_t r) const { return static_cast<float>(input(i, r)[0].value); }

  /// A score with the biases of a key that is so many places and so much time before its row.
  Cell biased(const AttentionOp& op, size_t head, size_t distance, float apart, const Cell& score) const {
    Sum sum(rounding_);
    sum.add(score);
    const auto add = [&](const char* which, int64_t count, double place) {
      const size_t first = op.bias_by_head ? head * static_cast<size_t>(count) : 0;
      const double last = static_cast<double>(count - 1);
      sum.add(exact(weight(op.name + which)[first + static_cast<size_t>(std::min(place, last))]));
    };
    if (op.positions > 0) add(".position_bias", op.positions, static_cast<double>(distance));
    if (op.time_buckets > 0) {
      const double difference = std::fabs(static_cast<double>(apart));
      const double bucket = difference > 1 ? std::floor(std::log(difference) / op.time_bucket_width) : 0;
      add(".time_bias", op.time_buckets + 1, bucket);
    }
    return op.has_bias() ? sum.total() : score;
  }

  Row row_of(const AttentionOp& op, size_t r) const {
    std::vector<size_t> events = events_of(r, input_node(1));
    const size_t all = events.size();
    if (op.causal) events.erase(std::upper_bound(events.begin(), events.end(), r), events.end());
    if (op.window > 0) {
      const size_t before = op.causal ? events.size() - 1 : all;  // events before the row
      const bool is_full = op.causal ? all - before <= static_cast<size_t>(op.full_last) : op.full_last > 0;
      const size_t unseen = is_full ? 0 : before - std::min(before, static_cast<size_t>(op.window));
      events.erase(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(unseen));
    }
    const size_t dim = width() / static_cast<size_t>(op.heads);
    const double scale = op.scale != 0 ? op.scale : 1 / std::sqrt(static_cast<double>(dim));
    Row y;
    for (size_t first = 0; first < width(); first += dim) {
      Row scores;
      std::vector<Row> values;
      const auto attend_to = [&](const Row& k, const Row& v, size_t distance, float apart) {
        scores.push_back(biased(op, first / dim, distance, apart, score(input(0, r), k, first, dim, scale)));
        const auto begin = v.begin() + static_cast<std::ptrdiff_t>(first);
        values.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(dim));
      };
      size_t distance = (op.causal ? events.size() - 1 : events.size());
      for (size_t t : events)
        attend_to(input(1, t), input(2, t), distance--, op.time_buckets > 0 ? time(3, r) - time(4, t) : 0);
      if (const size_t own = op.own_input(); node_->inputs.size() > own)
        attend_to(input(own, r), input(own + 1, r), 0, 0);
      const Row weights = op.weights == AttentionWeights::silu ? silu_weights(scores, op.divisor)
                                                               : normalize(scores, Normalization::softmax);
      const Row head = weighted_sums(weights, values, dim, precision_);
      y.insert(y.end(), head.begin(), head.end());
    }
    return y;
  }

  /// The field's products with a weight [columns, dim].
  Row projected(const std::string& name, const Row& x, size_t field, size_t dim) const {
    const std::vector<float>& matrix = weight(name);
    Row y;
    for (size_t c = 0; c < matrix.size() / dim; ++c) {
      Sum sum(rounding_, precision_);
      for (size_t d = 0; d < dim; ++d) sum.add(matrix[c * dim + d], x[field * dim + d]);
      y.push_back(sum.total());
    }
    return y;
  }
  /// An engine of halves rounds queries, keys and values.
  Row row_of(const FieldAttentionOp& op, size_t r) const {
    const Row& x = input(0, r);
    const auto dim = static_cast<size_t>(op.dim), columns = static_cast<size_t>(op.head_dim);
    const double scale = op.scale != 0 ? op.scale : 1 / std::sqrt(static_cast<double>(op.head_dim));
    const auto project = [&](const char* which) {
      std::vector<Row> rows;
      for (size_t f = 0; f < x.size() / dim; ++f) {
        rows.push_back(projected(op.name + which, x, f, dim));
        for (Cell& c : rows.back()) c = kept(c, precision_);
      }
      return rows;
    };
    const std::vector<Row> q = project(".query.weight"), k = project(".key.weight"), v = project(".value.weight");
    Row y;
    for (size_t f = 0; f < q.size(); ++f) {
      Row sums;
      for (size_t first = 0; first < q[f].size(); first += columns) {
        Row scores;
        std::vector<Row> values;
        for (size_t g = 0; g < k.size(); ++g) {
          scores.push_back(score(q[f], k[g], first, columns, scale));
          const auto begin = v[g].begin() + static_cast<std::ptrdiff_t>(first);
          values.emplace_back(begin, begin + op.head_dim);
        }
        const Row head = weighted_sums(normalize(scores, Normalization::softmax), values, columns, precision_);
        sums.insert(sums.end(), head.begin(), head.end());
      }
      const Row residual = op.residual ? projected(op.name + ".residual.weight", x, f, dim) : Row{};
      for (size_t c = 0; c < sums.size(); ++c) {
        const Cell sum = op.residual ? apply(ElementwiseFunction::add, sums[c], residual[c]) : sums[c];
        y.push_back(activated(op.name, op.activation, sum, c));
      }
    }
    return y;
  }

  /// Columns of U h + c, of which an engine of halves rounds h.
  Cell recurrent_product(const RecurrentOp& op, const Row& before, size_t row) const {
    const std::vector<float>& matrix = weight(op.name + ".weight");
    Sum sum(rounding_, precision_);
    for (size_t c = 0; c < before.size(); ++c) sum.add(matrix[row * before.size() + c], kept(before[c], precision_));
    sum.add(exact(weight(op.name + ".bias")[row]));
    return sum.total();
  }
  Row next_state(const RecurrentOp& op, const Row& before, const Row& gates, const Cell& share) const {
    using Function = ElementwiseFunction;
    const size_t hidden = before.size();
    const auto gate = [&](size_t row) {
      return apply(Function::sigmoid, apply(Function::add, gates[row], recurrent_product(op, before, row)));
    };
    Row state;
    for (size_t c = 0; c < hidden; ++c) {
      const Cell &g = gates[2 * hidden + c], &h = before[c];
      const Cell p = apply(Function::mul, gate(c), recurrent_product(op, before, 2 * hidden + c));
      const Cell n = apply(Function::tanh, apply(Function::add, g, p));
      // How much of n is taken; the rest of h is kept.
      Cell taken = share;
      if (op.cell != RecurrentCell::agru) {
        const Cell z = gate(hidden + c);
        taken = op.cell == RecurrentCell::gru ? apply(Function::sub, exact(1), z) : apply(Function::mul, share, z);
      }
      const double rest = 1 - taken.value, difference = std::fabs(n.value - h.value);
      state.push_back(cell(taken.value * n.value + rest * h.value,
                           taken.value * n.bound + rest * h.bound + taken.bound * difference +
                               u * taken.bound * (n.bound + h.bound) + 4 * (std::fabs(n.value) + std::fabs(h.value))));
    }
    return state;
  }
  Row row_of(const RecurrentOp& op, size_t r) const {
    Row state(width());
    if (!op.attends()) {
      for (const size_t t : below(node_->axis, axis(node_->axis)[r].parent))
        if (t <= r) state = next_state(op, state, input(0, t), exact(1));
      return state;
    }
    const std::vector<size_t> events = events_of(r, input_node(1));
    const Row& q = input(0, r);
    const double scale = op.scale != 0 ? op.scale : 1 / std::sqrt(static_cast<double>(q.size()));
    Row scores;
    for (const size_t t : events) scores.push_back(score(q, input(1, t), 0, q.size(), scale));
    const Row shares = normalize(scores, Normalization::softmax);
    for (size_t e = 0; e < events.size(); ++e) state = next_state(op, state, input(2, events[e]), shares[e]);
    return state;
  }

  // --- interactions
  // ---------------------------------------------------------------------------------------------------

  Row row_of(const FmOp& op, size_t r) const {
    const Row e = row_of(ConcatOp{}, r);
    const size_t dim = static_cast<size_t>(op.dim), fields = e.size() / dim;
    Row y;
    Sum total(rounding_);
    for (size_t d = 0; d < dim; ++d) {
      Sum pairs(rounding_);
      for (size_t f = 0; f < fields; ++f)
        for (size_t g = 0; g < f; ++g) pairs.add(e[f * dim + d], e[g * dim + d]);
      y.push_back(pairs.total(2 * static_cast<double>(fields)));
      y.back().size = pairs.size();  // the sum over columns may be taken at any stage
      total.add(y.back());
    }
    return op.reduce ? Row{total.total()} : y;
  }

  Row row_of(const DotOp& op, size_t r) const {
    const Row e = row_of(ConcatOp{}, r);
    const auto dim = static_cast<size_t>(op.dim);
    Row y;
    for (const auto& [f, g] : dot_pairs(e.size() / dim, op.pairs())) {
      Sum sum(rounding_, precision_);
      for (size_t d = 0; d < dim; ++d) sum.add(e[f * dim + d], e[g * dim + d]);
      y.push_back(sum.total());
    }
    if (op.order == DotOrder::lower_padded) y.push_back(exact(0));
    return y;
  }

  Row row_of(const MixOp& op, size_t r) const {
    const Row& x = input(0, r);
    const Row weights = normalize(input(1, r), op.normalization);
    std::vector<Row> experts;
    for (size_t e = 0; e < weights.size(); ++e) {
      const auto begin = x.begin() + static_cast<std::ptrdiff_t>(e * width());
      experts.emplace_back(begin, begin + node_->width);
    }
    Row y = weighted_sums(weights, experts, width());
    size_t next = 2;
    const auto combine = [&](bool present, ElementwiseFunction f) {
      if (!present) return;
      for (size_t c = 0; c < width(); ++c) y[c] = apply(f, y[c], input(next, r)[c]);
      ++next;
    };
    combine(op.multiply, ElementwiseFunction::mul);
    combine(op.residual, ElementwiseFunction::add);
    return y;
  }

  // --- one row
  // --------------------------------------------------------------------------------------------------------

  Cell vector_of(const LearnedVector& v, size_t c) const {
    if (v.kind == LearnedVector::Kind::stored) return exact(weight(v.name)[c]);
    const auto [scale, shift] = batch_norm(v.name, v.eps, v.affine, c);
    const double value = v.kind == LearnedVector::Kind::batch_norm_scale ? scale : shift;
    return cell(value, std::fabs(value));
  }

  Row row_of(const ElementwiseOp& op, size_t r) const {
    const ElementwiseProgram& program = op.program;
    Row y;
    for (size_t c = 0; c < width(); ++c) {
      Row registers;
      for (size_t i = 0; i < node_->inputs.size(); ++i)
        registers.push_back(input(i, r)[input(i, r).size() == 1 ? 0 : c]);
      for (const LearnedVector& v : op.vectors) registers.push_back(vector_of(v, c));
      for (const float constant : program.constants) registers.push_back(exact(constant));
      for (const Instruction& i : program.instructions) {
        const auto operand = [&](int k) { return k < 0 ? Cell{} : registers[static_cast<size_t>(k)]; };
        registers.push_back(apply(i.function, operand(i.a), operand(i.b), operand(i.c), i.alpha));
      }
      y.push_back(registers.back());
      // A scale and a shift may go into the weights that the sum is multiplied with.
      if (op.vectors.size() == 2 && op.vectors[0].kind == LearnedVector::Kind::batch_norm_scale)
        y.back().size = std::fabs(registers[1].value) * registers[0].size + std::fabs(registers[2].value);
    }
    return y;
  }

  Row row_of(const LayerNormOp& op, size_t r) const {
    Row x = input(0, r);
    for (size_t i = 0; i < op.folds.size(); ++i)
      for (size_t c = 0; c < x.size(); ++c) x[c] = apply(op.folds[i], x[c], input(i + 1, r)[c]);
    Row y = normed(x, x.size() / static_cast<size_t>(op.groups), op.eps, op.affine ? op.name : "", op.stacked);
    if (node_->inputs.size() == op.num_folded()) return y;
    for (size_t c = 0; c < y.size(); ++c) y[c] = apply(ElementwiseFunction::mul, y[c], input(op.num_folded(), r)[c]);
    return y;
  }
  Row row_of(const MixTokensOp& op, size_t r) const {
    const auto tokens = static_cast<size_t>(op.tokens);
    const size_t columns = width() / tokens, part = columns / tokens;
    const auto norm = [&](const TokenNorm& norm, const Row& x) {
      return normed(x, columns, norm.eps, norm.name, false);
    };
    const Row x = op.input_norm ? norm(*op.input_norm, input(0, r)) : input(0, r);
    Row sums;
    for (size_t c = 0; c < x.size(); ++c) {
      const size_t token = c / columns, source = c % columns / part;
      const Cell& mixed = x[source * columns + token * part + c % part];
      sums.push_back(apply(ElementwiseFunction::add, x[c], mixed));
    }
    return norm(op.norm, sums);
  }
  /// Each `width` columns of a row, with "<name>.weight" and "<name>.bias" unless the name is empty.
  Row normed(const Row& row, size_t width, float eps, const std::string& name, bool is_stacked) const {
    Row y;
    for (size_t first = 0; first < row.size(); first += width) {
      const auto begin = row.begin() + static_cast<std::ptrdiff_t>(first);
      for (const Cell& value : normed(Row(begin, begin + static_cast<std::ptrdiff_t>(width)), eps)) {
        const size_t learned = is_stacked ? y.size() : y.size() - first;
        Cell result = value;
        if (!name.empty()) {
          result = apply(ElementwiseFunction::mul, result, exact(weight(name + ".weight")[learned]));
          result = apply(ElementwiseFunction::add, result, exact(weight(name + ".bias")[learned]));
        }
        y.push_back(result);
      }
    }
    return y;
  }
  Row normed(const Row& x, float eps) const {
    const Cell mean = pooled(x, Pooling::mean);
    Row deviations;
    Sum squares(rounding_);
    for (const Cell& c : x) {
      deviations.push_back(apply(ElementwiseFunction::sub, c, mean));
      squares.add(deviations.back(), deviations.back());
    }
    const Cell variance = squares.total(), count = exact(static_cast<double>(x.size()));
    const Cell shifted = apply(ElementwiseFunction::add, divide(variance, count), exact(eps));
    const Cell spread = apply(ElementwiseFunction::sqrt, shifted);
    Row y;
    for (size_t c = 0; c < x.size(); ++c) {
      Cell value = divide(deviations[c], spread);
      value.bound += std::fabs(value.value);  // a reciprocal, then a product
      y.push_back(value);
    }
    return y;
  }

  Row row_of(const SoftmaxOp&, size_t r) const { return normalize(input(0, r), Normalization::softmax); }
  Row row_of(const ReduceOp& op, size_t r) const { return {pooled(input(0, r), op.pooling)}; }

  Row row_of(const PoolOp& op, size_t r) const {
    Row y;
    for (size_t c = 0; c < width(); ++c) {
      Row column;
      for (size_t i : below(input_node(0).axis, r)) column.push_back(input(0, i)[c]);
      y.push_back(pooled(column, op.pooling));
    }
    return y;
  }

  Row row_of(const CustomOp& op, size_t r) const {
    std::vector<Row> inputs;
    for (size_t i = 0; i < node_->inputs.size(); ++i)
      inputs.push_back(input(i, above(node_->axis, r, input_node(i).axis)));
    return functions_.at(op.function)(inputs);
  }

  const Graph& graph_;
  PlainWeights weights_;
  std::map<std::string, PlainTable> tables_;
  Rounding rounding_;
  Precision precision_;
  std::map<std::string, PlainFunction> functions_;

  const test_support::PlainRequest* request_ = nullptr;
  std::vector<std::vector<AxisRow>> axes_;
  std::vector<std::vector<Row>> values_;  // of the nodes so far
  const Node* node_ = nullptr;            // the one at hand
};

}  // namespace warprank::reference
