// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How the words of the model language look in Python. Enumerators are their names, activations their names or
/// Activation objects, operands tensors or numbers; `In<T>` is what a function takes from Python for a T of C++, and
/// `value_of` what it passes on. All else is itself.

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/model/builder.hpp"
#include "warprank/model/types.hpp"

namespace warprank::python {

namespace nb = nanobind;

/// An enumerator by its name, right or wrong: what is wrong is said by value_of.
template <class Enum>
struct EnumName {
  std::string text;
};

/// An activation, or a name of one, right or wrong.
struct ActivationOrName {
  std::variant<Activation, std::string> value;
};

using TensorOrNumber = std::variant<Tensor, double>;

/// A number that Python shows as it was written: 1e-5 where a float would be 9.999999747378752e-06.
using Decimal = double;

template <class Type, class = void>
struct FromPython {
  using type = Type;
};
template <class Enum>
struct FromPython<Enum, std::enable_if_t<std::is_enum_v<Enum>>> {
  using type = EnumName<Enum>;
};
template <>
struct FromPython<Activation> {
  using type = ActivationOrName;
};
template <>
struct FromPython<float> {
  using type = Decimal;
};
template <>
struct FromPython<KeepLast> {
  using type = int64_t;
};
template <>
struct FromPython<Operand> {
  using type = TensorOrNumber;
};
template <>
struct FromPython<std::vector<Operand>> {
  using type = std::vector<TensorOrNumber>;
};
template <class Type>
using In = typename FromPython<Type>::type;

/// A default, as Python shows it.
template <class Type>
In<Type> shown(const Type& value) {
  if constexpr (std::is_enum_v<Type>) {
    return {name_of_enum(value)};
  } else if constexpr (std::is_same_v<Type, Activation>) {
    return {name_of_enum(value.kind)};
  } else if constexpr (std::is_same_v<Type, float>) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", static_cast<double>(value));
    return std::strtod(text, nullptr);
  } else if constexpr (std::is_same_v<Type, KeepLast>) {
    return value.rows;
  } else {
    return value;
  }
}

/// Throws invalid_argument, about `what`, for a name that the Enum does not have.
template <class Enum>
Enum enum_named(const std::string& name, const char* what, SourceLine at) {
  std::string names;
  for (const auto& [enumerator, known] : names_of(Enum{})) {
    if (name == known) return enumerator;
    names += (names.empty() ? "" : ", ") + std::string(known);
  }
  const std::string where = std::string(at.file) + ":" + std::to_string(at.line);
  throw invalid_argument(std::vector<Problem>{{where, what, "one of " + names, "'" + name + "'"}});
}

/// With the settings that the function of this name in C++ has.
inline Activation activation_named(const std::string& name, const char* what, SourceLine at) {
  const auto kind = enum_named<ActivationKind>(name, what, at);
  if (kind == ActivationKind::leaky_relu) return leaky_relu();
  if (kind == ActivationKind::elu) return elu();
  return {kind};
}

template <class Type>
Type value_of(const In<Type>& value, [[maybe_unused]] const char* what, [[maybe_unused]] SourceLine at) {
  if constexpr (std::is_enum_v<Type>) {
    return enum_named<Type>(value.text, what, at);
  } else if constexpr (std::is_same_v<Type, Activation>) {
    const auto* name = std::get_if<std::string>(&value.value);
    return name == nullptr ? std::get<Activation>(value.value) : activation_named(*name, what, at);
  } else if constexpr (std::is_same_v<Type, float>) {
    return static_cast<float>(value);
  } else if constexpr (std::is_same_v<Type, KeepLast>) {
    return keep_last(value);
  } else if constexpr (std::is_same_v<Type, Operand>) {
    const auto* number = std::get_if<double>(&value);
    return number == nullptr ? Operand(std::get<Tensor>(value), at) : Operand(*number, at);
  } else if constexpr (std::is_same_v<Type, std::vector<Operand>>) {
    std::vector<Operand> operands;
    for (const TensorOrNumber& operand : value) operands.push_back(value_of<Operand>(operand, what, at));
    return operands;
  } else {
    return value;
  }
}

/// The line of Python that called, for the messages of the Builder and the `where` of nodes.
class Caller {
 public:
  Caller() {
    PyFrameObject* const frame = PyEval_GetFrame();  // borrowed; null where no Python runs
    if (frame == nullptr) return;
    code_ = nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
    file_ = nb::cast<std::string>(code_.attr("co_filename"));
    line_ = PyFrame_GetLineNumber(frame);
  }
  SourceLine at() const { return {file_.c_str(), line_}; }

 private:
  nb::object code_;
  std::string file_;
  int line_ = 0;
};

/// Of a Builder's function: what it returns keeps the Builder, to which handles point.
struct KeepsBuilder {
  static void precall(PyObject**, size_t, nb::detail::cleanup_list*) {}
  static void postcall(PyObject** args, size_t, nb::handle result) {
    if (!result.is_valid()) return;
    if (nb::isinstance<nb::list>(result)) {
      for (nb::handle each : nb::borrow<nb::list>(result)) nb::keep_alive_obj(each, args[0]);
    } else {
      nb::keep_alive_obj(result, args[0]);
    }
  }
};

namespace detail {

template <class Enum>
constexpr size_t literal_size() {
  size_t size = sizeof("typing.Literal[]") - 1;
  for (const auto& [enumerator, name] : names_of(Enum{})) {
    for (const char* c = name; *c != '\0'; ++c) ++size;
    size += 4;  // quotes, a comma and a space
  }
  return size - 2;
}

/// "typing.Literal['none', 'sum']".
template <class Enum>
constexpr auto literal_text() {
  nb::detail::descr<literal_size<Enum>()> text;
  size_t end = 0;
  const auto add = [&](const char* part) {
    for (; *part != '\0'; ++part) text.text[end++] = *part;
  };
  add("typing.Literal[");
  bool first = true;
  for (const auto& [enumerator, name] : names_of(Enum{})) {
    add(first ? "'" : ", '");
    add(name);
    add("'");
    first = false;
  }
  add("]");
  return text;
}

}  // namespace detail
}  // namespace warprank::python

namespace nanobind::detail {

template <class Enum>
struct type_caster<warprank::python::EnumName<Enum>> {
  NB_TYPE_CASTER(warprank::python::EnumName<Enum>, warprank::python::detail::literal_text<Enum>())

  bool from_python(handle source, uint32_t flags, cleanup_list* cleanup) noexcept {
    make_caster<std::string> text;
    if (!text.from_python(source, flags, cleanup)) return false;
    value.text = std::move(text.value);
    return true;
  }
  static handle from_cpp(const warprank::python::EnumName<Enum>& name, rv_policy policy, cleanup_list* list) noexcept {
    return make_caster<std::string>::from_cpp(name.text, policy, list);
  }
};

template <>
struct type_caster<warprank::python::ActivationOrName> {
  using Variant = std::variant<warprank::Activation, std::string>;
  NB_TYPE_CASTER(warprank::python::ActivationOrName,
                 union_name(make_caster<warprank::Activation>::Name,
                            warprank::python::detail::literal_text<warprank::ActivationKind>()))

  bool from_python(handle source, uint32_t flags, cleanup_list* cleanup) noexcept {
    make_caster<Variant> either;
    if (!either.from_python(source, flags, cleanup)) return false;
    value.value = static_cast<Variant&&>(either);
    return true;
  }
  static handle from_cpp(const warprank::python::ActivationOrName& from, rv_policy policy,
                         cleanup_list* list) noexcept {
    return make_caster<Variant>::from_cpp(from.value, policy, list);
  }
};

}  // namespace nanobind::detail
