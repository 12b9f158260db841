// SPDX-License-Identifier: Apache-2.0

/// Errors of C++ as exceptions of Python, with the same text.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <string>

#include "module.hpp"
#include "warprank/core/cuda_error.hpp"
#include "warprank/core/error.hpp"

namespace warprank::python {

namespace nb = nanobind;

namespace {

/// The exception is a class of Python, with type hints; looked for when it is first raised.
void raise_invalid_argument(const invalid_argument& error) {
  const nb::object type = nb::module_::import_("warprank.errors").attr("InvalidArgument");
  const nb::object raised = type(nb::str(error.what()), nb::cast(error.problems()));
  PyErr_SetObject(type.ptr(), raised.ptr());
}

void raise_cuda_error(const cuda_error& error) {
  PyErr_SetString(nb::module_::import_("warprank.errors").attr("CudaError").ptr(), error.what());
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const invalid_argument& error) {
    raise_invalid_argument(error);
  } catch (const out_of_device_memory& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (const cuda_error& error) {
    raise_cuda_error(error);
  }
}

}  // namespace

void bind_errors(nb::module_& module) {
  nb::class_<Problem>(module, "Problem", "One thing that is wrong.")
      .def(
          "__init__",
          [](Problem* self, std::string what, std::string expected, std::string got, std::string where) {
            new (self) Problem{std::move(where), std::move(what), std::move(expected), std::move(got)};
          },
          nb::arg("what"), nb::arg("expected"), nb::arg("got"), nb::arg("where") = "")
      .def_ro("where", &Problem::where, "\"model.py:12\" when it was found at a call of yours, else empty.")
      .def_ro("what", &Problem::what, "The op, tensor, file or field concerned.")
      .def_ro("expected", &Problem::expected, "What would have been right.")
      .def_ro("got", &Problem::got, "What was found.")
      .def("__str__", &Problem::to_string)
      .def("__repr__", &Problem::to_string);

  module.def(
      "raise_problems",
      [](const std::vector<Problem>& problems) {
        if (!problems.empty()) throw invalid_argument(problems);
      },
      nb::arg("problems"), "Raises InvalidArgument with all of them; does nothing when there is none.");
  nb::register_exception_translator(translate);
}

}  // namespace warprank::python
