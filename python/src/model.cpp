// SPDX-License-Identifier: Apache-2.0

/// Tables, models and contexts.

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "columns.hpp"
#include "module.hpp"
#include "scoring.hpp"
#include "warprank/host.hpp"
#if defined(WARPRANK_PYTHON_CUDA)
#include "warprank/cuda.hpp"
#endif

namespace warprank::python {

namespace {

using FloatArray = nb::ndarray<nb::numpy, float>;
using OffsetsArray = nb::ndarray<nb::numpy, int64_t>;
/// By output: the rows of all requests, and where those of each begin; and which requests failed.
using PythonScores = std::tuple<std::map<std::string, FloatArray>, std::map<std::string, OffsetsArray>,
                                std::vector<std::pair<int64_t, std::string>>>;

bool has_cuda() {
#if defined(WARPRANK_PYTHON_CUDA)
  return true;
#else
  return false;
#endif
}

/// "host", "cuda" or "cuda:1".
Device device_named(const std::string& name) {
  if (name == "host") return host();
#if defined(WARPRANK_PYTHON_CUDA)
  const std::string prefix = "cuda:";
  if (name == "cuda") return cuda();
  if (name.size() == prefix.size() + 1 && name.compare(0, prefix.size(), prefix) == 0 && name.back() >= '0' &&
      name.back() <= '9')
    return cuda(name.back() - '0');
#endif
  throw invalid_argument("device",
                         has_cuda() ? "host, cuda or cuda:0 to cuda:9" : "host, as this was built without CUDA",
                         "'" + name + "'");
}

PythonScores scores_of(const Plan& plan, ScoredColumns scored) {
  PythonScores result;
  auto& [values, offsets, failed] = result;
  for (size_t o = 0; o < scored.outputs.size(); ++o) {
    OutputColumn& output = scored.outputs[o];
    const std::string& name = plan.source().outputs[o].name;
    const size_t rows = static_cast<size_t>(output.offsets.back()), requests = output.offsets.size();
    values.emplace(name, numpy_of(std::move(output.values), {rows, static_cast<size_t>(output.width)}));
    offsets.emplace(name, numpy_of(std::move(output.offsets), {requests}));
  }
  failed = std::move(scored.failed);
  return result;
}

LoadOptions load_options(bool updatable, double spare, std::map<std::string, int64_t> capacity) {
  return {updatable, spare, std::move(capacity)};
}

std::map<std::string, std::map<std::string, int64_t>> update(Tables& tables, const Weights& delta) {
  UpdateReport report;
  {
    const nb::gil_scoped_release released;
    report = tables.update(delta);
  }
  std::map<std::string, std::map<std::string, int64_t>> changes;
  for (const auto& [name, change] : report)
    changes[name] = {{"updated", change.updated},
                     {"inserted", change.inserted},
                     {"erased", change.erased},
                     {"absent", change.absent},
                     {"full", change.full}};
  return changes;
}

std::map<std::string, int64_t> bytes_of(const MemoryReport& report) {
  std::map<std::string, int64_t> bytes;
  for (const auto& [name, size] : report) bytes[name] += size;
  return bytes;
}

std::map<std::string, int64_t> named(const LookupCounters& counters) {
  return {{"ids", counters.ids},
          {"unknown", counters.unknown},
          {"out_of_range", counters.out_of_range},
          {"padding", counters.padding},
          {"empty_bags", counters.empty_bags}};
}

std::map<std::string, std::map<std::string, int64_t>> counters(const Worker& worker) {
  std::map<std::string, std::map<std::string, int64_t>> counts;
  for (const FeatureCounters& feature : worker.context.counters()) counts[feature.feature] = named(feature.counters);
  return counts;
}

std::map<std::string, std::map<std::string, int64_t>> counters_of_all(Scorer& scorer) {
  std::map<std::string, std::map<std::string, int64_t>> counts;
  for (const auto& [feature, sums] : scorer.counters()) counts[feature] = named(sums);
  return counts;
}

FloatArray tap(Worker& worker, const std::string& node) {
  const Matrix<const float> values = worker.context.tap(node);
  std::vector<float> copy;
  for (int64_t r = 0; r < values.rows; ++r) copy.insert(copy.end(), values.row(r), values.row(r) + values.cols);
  return numpy_of(std::move(copy), {static_cast<size_t>(values.rows), static_cast<size_t>(values.cols)});
}

void bind_tables(nb::module_& module) {
  nb::class_<Tables>(module, "Tables", "The embedding tables of a plan on one device.")
      .def_static(
          "load",
          [](const Plan& plan, const std::string& path, const std::string& device, bool updatable, double spare,
             std::map<std::string, int64_t> capacity) {
            const nb::gil_scoped_release released;
            return Tables::load(plan, path, device_named(device), load_options(updatable, spare, std::move(capacity)));
          },
          nb::arg("plan"), nb::arg("path"), nb::arg("device"), nb::arg("updatable"), nb::arg("spare"),
          nb::arg("capacity"))
      .def_static(
          "from_weights",
          [](const Plan& plan, const Weights& weights, const std::string& device, bool updatable, double spare,
             std::map<std::string, int64_t> capacity) {
            const nb::gil_scoped_release released;
            return Tables::load(plan, weights, device_named(device),
                                load_options(updatable, spare, std::move(capacity)));
          },
          nb::arg("plan"), nb::arg("weights"), nb::arg("device"), nb::arg("updatable"), nb::arg("spare"),
          nb::arg("capacity"))
      .def(
          "update", &update, nb::arg("delta"),
          "Changes rows while models look them up: \"<table>.keys\", \"<table>.rows\", of hashed tables "
          "\"<table>.erase\". Returns by table how many keys were updated, inserted, erased, absent, or found no room.")
      .def(
          "memory", [](const Tables& self) { return bytes_of(self.memory()); }, "Bytes by what they are for.");
}

void bind_scoring(nb::module_& module) {
  nb::class_<Columns>(module, "Columns", "Many requests as columns that fit a plan and one another; arrays in place.")
      .def(
          nb::init<const Plan&, int64_t, const std::map<std::string, Integers>&, const std::map<std::string, Integers>&,
                   const std::map<std::string, Floats>&, const std::map<std::string, DeviceArray>&>(),
          nb::arg("plan"), nb::arg("num_requests"), nb::arg("offsets"), nb::arg("ids"), nb::arg("dense"),
          nb::arg("on_device"))
      .def_static("as_read", &Columns::as_read, nb::arg("plan"), nb::arg("data"), nb::arg("ragged"),
                  "Of a dictionary of arrays that lie as they are read, and instances of `ragged`; None where one is "
                  "otherwise.")
      .def_prop_ro("num_requests", &Columns::num_requests);

  nb::class_<Worker>(module, "Context", "Memory to run one batch of a model at a time, and what it met.")
      .def(
          "score",
          [](Worker& self, const Columns& columns) {
            ScoredColumns scored;
            {
              const nb::gil_scoped_release released;
              score_batch(columns, 0, columns.num_requests(), self, scored);
            }
            return scores_of(self.context.plan(), std::move(scored));
          },
          nb::arg("columns"))
      .def(
          "score_on_device",
          [](Worker& self, const Columns& columns) {
            std::optional<Pending> pending;
            {
              const nb::gil_scoped_release released;
              pending.emplace(submit_batch(columns, 0, columns.num_requests(), self, StreamHandle{}));
            }
            std::vector<std::pair<int64_t, std::string>> failed;
            for (int64_t r = 0; r < columns.num_requests(); ++r)
              if (const Status& status = self.batch.status(r); !status.ok()) failed.emplace_back(r, status.message);
            return std::pair(scores_on_device(std::move(*pending), self), std::move(failed));
          },
          nb::arg("columns"))
      .def("tap", &tap, nb::arg("node"),
           "The value of a node in the last run, [rows of its axis, width]; of a context with keep_intermediates.")
      .def("counters", &counters, "By feature, what its ids met since the context was made.")
      .def(
          "describe", [](const Worker& self) { return self.context.describe(); },
          "What a batch launches, on a device that launches.")
      .def(
          "memory", [](const Worker& self) { return bytes_of(self.context.memory()); }, "Bytes by what they are for.");

  nb::class_<Scorer>(module, "Model", "A plan with its weights on a device.")
      .def(
          "__init__",
          [](Scorer* self, const Plan& plan, const Weights& weights, const Tables& tables, bool ignore_extra,
             const std::string& precision) {
            const nb::gil_scoped_release released;
            BindOptions options;
            options.host_precision = host_precision_of(precision, "precision");
            if (options.host_precision == HostPrecision::int8_weights) options.cuda_int8 = {"*"};
            options.extra = ignore_extra ? ExtraTensors::ignore : ExtraTensors::refuse;
            new (self) Scorer(plan, weights, tables, options);
          },
          nb::arg("plan"), nb::arg("weights"), nb::arg("tables"), nb::arg("ignore_extra") = false,
          nb::arg("precision") = "fp32")
      .def(
          "score",
          [](Scorer& self, const Columns& columns, int64_t threads, int64_t rows_per_batch) {
            ScoredColumns scored;
            {
              const nb::gil_scoped_release released;
              scored = self.score(columns, threads, rows_per_batch);
            }
            return scores_of(self.model().plan(), std::move(scored));
          },
          nb::arg("columns"), nb::arg("threads"), nb::arg("rows_per_batch"))
      .def(
          "context",
          [](const Scorer& self, bool keep_intermediates, int threads) {
            ContextOptions options;
            options.keep_intermediates = keep_intermediates;
            options.threads = threads;
            return self.worker(options);
          },
          nb::arg("keep_intermediates"), nb::arg("threads"))
      .def("counters", &counters_of_all, "By feature, what ids met in all that was scored.")
      .def(
          "describe", [](const Scorer& self) { return self.model().describe(); },
          "What binding chose, and why; of models on the host.")
      .def(
          "memory", [](const Scorer& self) { return bytes_of(self.model().memory()); }, "Bytes by what they are for.");
}

}  // namespace

void bind_model(nb::module_& module) {
  module.attr("has_cuda") = has_cuda();
  bind_tables(module);
  bind_scoring(module);
}

}  // namespace warprank::python
