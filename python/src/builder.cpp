// SPDX-License-Identifier: Apache-2.0

/// The model language. The Builder's functions come from its header: bind_builder.py.

#include "module.hpp"
#include "vocabulary.hpp"
#include "warprank/graph_json.hpp"

namespace warprank::python {

namespace {

template <class Handle>
void bind_handle(nb::module_& module, const char* name, const char* doc) {
  nb::class_<Handle>(module, name, doc);
}

Tensor calculate(ElementwiseFunction function, const TensorOrNumber& a, const TensorOrNumber& b) {
  const Caller caller;
  return warprank::detail::apply_operator(function, value_of<Operand>(a, "a", caller.at()),
                                          value_of<Operand>(b, "b", caller.at()));
}

template <ElementwiseFunction function>
void bind_operator(nb::class_<Tensor>& tensor, const char* name, const char* reflected) {
  tensor.def(
      name, [](const Tensor& a, const TensorOrNumber& b) { return calculate(function, a, b); }, nb::is_operator(),
      nb::call_policy<KeepsBuilder>());
  tensor.def(
      reflected, [](const Tensor& b, double a) { return calculate(function, a, b); }, nb::is_operator(),
      nb::call_policy<KeepsBuilder>());
}

void bind_activation(nb::module_& module) {
  nb::class_<Activation>(module, "Activation",
                         "An activation with its settings; where the defaults serve, its name does, too.")
      .def(
          "__init__",
          [](Activation* self, const EnumName<ActivationKind>& kind, std::optional<double> alpha, Decimal eps,
             bool affine) {
            const Caller caller;
            Activation made = activation_named(kind.text, "activation", caller.at());
            if (alpha) made.alpha = static_cast<float>(*alpha);
            made.eps = static_cast<float>(eps);
            made.affine = affine;
            new (self) Activation(made);
          },
          nb::arg("kind"), nb::kw_only(), nb::arg("alpha") = nb::none(), nb::arg("eps") = shown(Activation{}.eps),
          nb::arg("affine") = Activation{}.affine,
          "alpha: of leaky_relu (0.01 unless given) and elu (1)\neps, affine: of Dice's batch norm")
      .def_prop_ro("kind", [](const Activation& self) { return shown(self.kind); })
      .def_ro("alpha", &Activation::alpha)
      .def_ro("eps", &Activation::eps)
      .def_ro("affine", &Activation::affine)
      .def(
          "__eq__", [](const Activation& a, const Activation& b) { return a == b; }, nb::is_operator(),
          nb::sig("def __eq__(self, arg: object, /) -> bool"))
      .def("__repr__", [](const Activation& self) { return "Activation('" + shown(self.kind).text + "')"; });
}

template <size_t... Index>
std::vector<std::string> kinds_of_ops(std::index_sequence<Index...>) {
  return {std::variant_alternative_t<Index, Op>::kind...};
}

}  // namespace

void bind_builder(nb::module_& module) {
  bind_activation(module);
  bind_handle<Axis>(module, "Axis", "An axis of a Builder.");
  bind_handle<Table>(module, "Table", "An embedding table of a Builder.");
  bind_handle<Ids>(module, "Ids", "An input of ids of a Builder.");
  nb::class_<Tensor> tensor(module, "Tensor", "A tensor of a Builder: [rows of its axis, width]. Has + - * / and -x.");
  bind_operator<ElementwiseFunction::add>(tensor, "__add__", "__radd__");
  bind_operator<ElementwiseFunction::sub>(tensor, "__sub__", "__rsub__");
  bind_operator<ElementwiseFunction::mul>(tensor, "__mul__", "__rmul__");
  bind_operator<ElementwiseFunction::div>(tensor, "__truediv__", "__rtruediv__");
  tensor.def(
      "__neg__",
      [](const Tensor& self) {
        const Caller caller;
        return -Operand(self, caller.at());
      },
      nb::call_policy<KeepsBuilder>());

  nb::class_<Graph>(module, "Graph", "What a model computes, as plain data: no weights, no device.")
      .def_static(
          "from_json", [](const std::string& text) { return graph_from_json(text); }, nb::arg("text"),
          "Reads and validates a graph.")
      .def(
          "to_json", [](const Graph& self) { return to_json(self); }, "As indented text; the round trip is exact.")
      .def_static("load", &load_graph, nb::arg("path"), "Reads and validates a file of JSON.")
      .def("save", &save_graph, nb::arg("path"), "Writes a file of JSON, whole or not at all.");

  nb::class_<Builder> builder(module, "Builder", "Describes a model. All errors are raised together by `finish`.");
  builder.def(nb::init<>());
#include "builder_methods.inc"
  builder.def("finish", &Builder::finish, nb::arg("outputs"),
              "The finished graph, with these (name, tensor); raises all problems together.");
  module.def(
      "op_kinds", [] { return kinds_of_ops(std::make_index_sequence<std::variant_size_v<Op>>()); },
      "The kinds of operations that graphs consist of.");
}

}  // namespace warprank::python
