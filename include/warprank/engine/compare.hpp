// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "warprank/engine/model.hpp"

namespace warprank { inline namespace v0 {

/// The difference between one intermediate of two engines or plans.
struct Difference {
  std::string node;
  double largest = 0;    ///< largest |a - b|; infinity where one is NaN and the other not
  double magnitude = 0;  ///< largest |a|
  int64_t row = 0, column = 0;
  bool differs = false;  ///< largest > tolerance * max(1, magnitude)
};

struct Comparison {
  std::vector<Difference> nodes;  ///< the values that both plans compute under one name, in the order of the first plan
  /// The first node that differs, or null.
  const Difference* first() const {
    const auto it = std::find_if(nodes.begin(), nodes.end(), [](const Difference& d) { return d.differs; });
    return it == nodes.end() ? nullptr : &*it;
  }
  std::string to_string() const {
    const Difference* d = first();
    if (nodes.empty()) return "nothing was compared: the models have no value in common that both keep";
    if (d == nullptr) return std::to_string(nodes.size()) + " nodes compared, none differs";
    char text[96];
    std::snprintf(text, sizeof text, ": |a - b| = %.3g where |a| <= %.3g, row %lld, column %lld", d->largest,
                  d->magnitude, static_cast<long long>(d->row), static_cast<long long>(d->column));
    return "first difference at '" + d->node + "'" + text;
  }
};

/// Runs a batch on both models and compares every intermediate that they compute under one name on one axis: two
/// engines, or one engine with passes on and off. Values that an engine keeps on chip are left out. Values of the CUDA
/// engine are FP16 and differ from others' by some 1e-3. `tolerance` is relative to the largest value of a node, at
/// least 1.
inline Comparison compare(const Model& a, const Model& b, Batch& batch, double tolerance = 1e-4) {
  Context context_a = a.context({true}), context_b = b.context({true});
  context_a.run(batch);
  context_b.run(batch);
  const Graph &graph_a = a.plan().graph(), &graph_b = b.plan().graph();
  Comparison comparison;
  for (const Node& node : graph_a.nodes) {
    const auto same = std::find_if(graph_b.nodes.begin(), graph_b.nodes.end(), [&](const Node& other) {
      return other.name == node.name && other.axis == node.axis && other.width == node.width;
    });
    if (same == graph_b.nodes.end() || !context_a.keeps(node.name) || !context_b.keeps(node.name)) continue;
    const Matrix<const float> x = context_a.tap(node.name), y = context_b.tap(node.name);
    Difference d{node.name};
    for (int64_t r = 0; r < x.rows; ++r)
      for (int64_t c = 0; c < x.cols; ++c) {
        const double p = x.row(r)[c], q = y.row(r)[c];
        double apart = std::abs(p - q);
        if (p == q || (std::isnan(p) && std::isnan(q))) apart = 0;
        if (std::isnan(apart)) apart = INFINITY;
        if (apart > d.largest) {
          d.largest = apart;
          d.row = r;
          d.column = c;
        }
        if (std::isfinite(p)) d.magnitude = std::max(d.magnitude, std::abs(p));
      }
    d.differs = d.largest > tolerance * std::max(1.0, d.magnitude);
    comparison.nodes.push_back(std::move(d));
  }
  return comparison;
}

}}  // namespace warprank::v0
