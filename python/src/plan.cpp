// SPDX-License-Identifier: Apache-2.0

/// Plans, and what they say of their inputs, weights and tables.

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "module.hpp"
#include "warprank/core/suggest.hpp"
#include "warprank/plan/plan.hpp"

namespace warprank::python {

namespace nb = nanobind;

namespace {

struct Switch {
  const char* name;
  bool Passes::*value;
};
constexpr Switch switches[] = {
    {"remove_dead", &Passes::remove_dead},           {"merge_common", &Passes::merge_common},
    {"fold_batch_norm", &Passes::fold_batch_norm},   {"sums_as_linears", &Passes::sums_as_linears},
    {"late_broadcast", &Passes::late_broadcast},     {"fuse_epilogue", &Passes::fuse_epilogue},
    {"fuse_elementwise", &Passes::fuse_elementwise}, {"fuse_token_norm", &Passes::fuse_token_norm},
    {"sum_histories", &Passes::sum_histories},       {"fuse_tails", &Passes::fuse_tails},
    {"group_launches", &Passes::group_launches},     {"multiply_heads", &Passes::multiply_heads},
    {"place_concats", &Passes::place_concats},       {"reuse_memory", &Passes::reuse_memory},
};
static_assert(std::size(switches) == sizeof(Passes), "a switch for each pass");

std::vector<std::string> names_of_passes() {
  std::vector<std::string> names;
  for (const Switch& each : switches) names.emplace_back(each.name);
  return names;
}

Passes passes_of(const std::map<std::string, bool>& wanted) {
  Passes passes;
  Problems problems;
  for (const auto& [name, on] : wanted) {
    bool found = false;
    for (const Switch& each : switches) {
      if (name != each.name) continue;
      passes.*each.value = on;
      found = true;
    }
    if (!found) problems.add("passes", "a pass", unknown_name(name, names_of_passes()));
  }
  problems.throw_if_any();
  return passes;
}

Plan make_plan(const Graph& graph, const std::vector<Capacity>& capacities, const std::map<std::string, bool>& passes) {
  CompileOptions options;
  if (!capacities.empty()) options.capacities = capacities;
  options.passes = passes_of(passes);
  return compile(graph, std::move(options));
}

void bind_infos(nb::module_& module) {
  nb::class_<AxisInfo>(module, "AxisInfo", "An axis of a plan.")
      .def_ro("name", &AxisInfo::name)
      .def_ro("parent", &AxisInfo::parent, "Its number among the axes; -1: the outermost.")
      .def_ro("keep_last", &AxisInfo::keep_last, "At most this many rows for each row of the parent; 0: all.");
  nb::class_<IdsInfo>(module, "IdsInfo", "An input of ids, one for each row of its axis.")
      .def_ro("name", &IdsInfo::name)
      .def_ro("axis", &IdsInfo::axis, "Its number among the axes.")
      .def_ro("default_id", &IdsInfo::default_id)
      .def_ro("padding", &IdsInfo::padding);
  nb::class_<DenseInfo>(module, "DenseInfo", "An input of `width` values for each row of its axis.")
      .def_ro("name", &DenseInfo::name)
      .def_ro("axis", &DenseInfo::axis, "Its number among the axes.")
      .def_ro("width", &DenseInfo::width)
      .def_ro("default_value", &DenseInfo::default_value);
  nb::class_<TableInfo>(module, "TableInfo", "An embedding table.")
      .def_ro("name", &TableInfo::name)
      .def_ro("dim", &TableInfo::dim)
      .def_ro("hashed", &TableInfo::hashed, "Ids are any 64-bit values; else row numbers.")
      .def_ro("rows", &TableInfo::rows, "0: whatever the file has.");
  nb::class_<Parameter>(module, "Parameter", "A learned tensor, tables apart.")
      .def_ro("name", &Parameter::name)
      .def_ro("shape", &Parameter::shape)
      .def_ro("is_matrix", &Parameter::is_matrix, "Keras has its last two dimensions swapped.")
      .def_ro("optional", &Parameter::optional, "May be absent.");
}

}  // namespace

void bind_plan(nb::module_& module) {
  bind_infos(module);
  module.def("pass_names", &names_of_passes, "The passes that `compile` can be told to leave out.");

  nb::class_<Capacity>(module, "Capacity", "For which batches to plan, in rows of all requests together.")
      .def(
          "__init__",
          [](Capacity* self, int64_t requests, int64_t items, std::map<std::string, int64_t> rows) {
            new (self) Capacity{requests, items, std::move(rows)};
          },
          nb::kw_only(), nb::arg("requests") = Capacity{}.requests, nb::arg("items") = Capacity{}.items,
          nb::arg("rows") = std::map<std::string, int64_t>(),
          "items: rows of the axis of the first output that is not on the outermost axis\nrows: of others, by axis")
      .def_ro("requests", &Capacity::requests)
      .def_ro("items", &Capacity::items)
      .def_ro("rows", &Capacity::rows);

  nb::class_<Plan>(module, "Plan", "A compiled graph: what is computed in which order.")
      .def(
          "__init__",
          [](Plan* self, const Graph& graph, const std::vector<Capacity>& capacities,
             const std::map<std::string, bool>& passes) { new (self) Plan(make_plan(graph, capacities, passes)); },
          nb::arg("graph"), nb::arg("capacities") = std::vector<Capacity>(),
          nb::arg("passes") = std::map<std::string, bool>())
      .def("describe", &Plan::describe, nb::arg("card") = "T4",
           "Every step with its kernel, operations, FLOPs, bytes and predicted time on a card, and what each pass "
           "saved.")
      .def("dot", &Plan::dot, "The executed graph in Graphviz' language, one colour a step.")
      .def_prop_ro(
          "graph", [](const Plan& self) { return self.source(); }, "The graph as it was written.")
      .def_prop_ro(
          "executed_graph", [](const Plan& self) { return self.graph(); }, "The graph after all passes.")
      .def(
          "pads_minus_one",
          [](const Plan& self, const std::string& ids) { return self.source().pads_minus_one(self.ids(ids).index); },
          nb::arg("ids"), "Whether the id -1 of an input is padding, and never a key.")
      .def_prop_ro("num_steps", [](const Plan& self) { return self.storage().steps.size(); })
      .def_prop_ro("axes", [](const Plan& self) { return self.layout().axes(); })
      .def_prop_ro("ids", [](const Plan& self) { return self.layout().ids(); })
      .def_prop_ro("dense", [](const Plan& self) { return self.layout().dense(); })
      .def_prop_ro("tables", [](const Plan& self) { return self.source().tables; })
      .def_prop_ro("parameters", [](const Plan& self) { return self.parameters(); })
      .def_prop_ro("outputs", [](const Plan& self) {
        std::vector<std::string> names;
        for (const OutputInfo& output : self.source().outputs) names.push_back(output.name);
        return names;
      });
}

}  // namespace warprank::python
