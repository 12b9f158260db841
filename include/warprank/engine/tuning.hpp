// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernels that compute the linear layers of a model on a GPU, for each step of the plan and each capacity: as
/// measured, by bind itself (AutoTuning) or by tune() (cuda_tuning.hpp), or by rule where nothing was measured. Plain
/// C++; engine/tuning_json.hpp saves and loads it.
///
/// A score's bits: for one capacity, card and choice of kernels they do not depend on the other requests of the batch,
/// nor on the request's place. Another capacity, another choice or another card may change the last digits, within the
/// bounds that ops state. For each folder, the first choice for a step stands until the process ends, so that exchanged
/// models have the same choice. Processes have the same choice if they have the same tuning, from the file that bind
/// keeps or from a file given to all (BindOptions::tuning), and if none measures.
/// BindOptions::same_kernels_at_all_capacities gives up speed so that linear layers give a row the same bits whatever
/// the capacity.

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/fields.hpp"
#include "warprank/model/types.hpp"

namespace warprank { inline namespace v0 {

enum class LinearKernel {
  fused,    ///< a chain of layers in one launch, their values on chip (ops/mlp.cuh)
  tiles,    ///< in one launch with the layers beside it (ops/linear.cuh)
  cublaslt  ///< in a launch of its own by cuBLASLt, and one more for epilogues that cuBLASLt does not have
};
constexpr auto names_of(LinearKernel) {
  return std::array<std::pair<LinearKernel, const char*>, 3>{
      {{LinearKernel::fused, "fused"}, {LinearKernel::tiles, "tiles"}, {LinearKernel::cublaslt, "cublaslt"}}};
}

/// All properties of a layer on which a choice depends, and the number of equal layers in the same step.
struct LinearShape {
  int64_t depth = 0;  ///< layers before it in its chain
  int64_t rows = 0;   ///< of the capacity
  int64_t in = 0, out = 0;
  std::string behind;  ///< the epilogue after the product and its bias: "row bias, relu, f16"
  int64_t count = 1;

  /// Operations for each byte of x, weights and y, all FP16.
  double intensity() const {
    const auto m = static_cast<double>(rows), k = static_cast<double>(in), n = static_cast<double>(out);
    return rows == 0 ? 0 : m * k * n / (m * k + k * n + m * n);
  }
};
constexpr auto fields_of(const LinearShape*) {
  return std::make_tuple(field("depth", &LinearShape::depth), field("rows", &LinearShape::rows),
                         field("in", &LinearShape::in), field("out", &LinearShape::out),
                         field("behind", &LinearShape::behind), field("count", &LinearShape::count));
}

/// The kernels of a step of linears at one capacity.
struct LinearChoice {
  std::vector<LinearShape> layers;
  std::vector<LinearKernel> kernels;  ///< by layer; where one is fused, all are
  /// The settings of the kernel, by layer: tiles are cut as in "staged 64 x 64 in 2 parts", equally for all layers of a
  /// depth; a fused chain is "split over 16 blocks of 16 x 32" or computed by "tiles of 16 rows", equally for all its
  /// layers; cuBLASLt takes its "algorithm 3". Empty: by the kernel's own rule.
  std::vector<std::string> variants;
  int64_t launches = 0;        ///< kernels of the step as captured, cuBLASLt's auxiliary ones among them
  double seconds = 0;          ///< measured
  double seconds_by_rule = 0;  ///< of the choice without a tuning
};
constexpr auto fields_of(const LinearChoice*) {
  return std::make_tuple(field("layers", &LinearChoice::layers), field("kernels", &LinearChoice::kernels),
                         field("variants", &LinearChoice::variants), field("launches", &LinearChoice::launches),
                         field("seconds", &LinearChoice::seconds),
                         field("seconds_by_rule", &LinearChoice::seconds_by_rule));
}

/// Raised when kernels of linears, or the way they are cut into blocks, change: older measurements are then out of
/// date.
inline constexpr int linear_kernels_version = 3;

/// The place of a measurement; at another place it means nothing.
struct TunedOn {
  std::string card;
  int target = 0;  ///< compute capability of the kernels: 10 * major + minor
  int multiprocessors = 0;
  int driver = 0;        ///< CUDA version of the driver: 1000 * major + 10 * minor
  int64_t cublaslt = 0;  ///< its version; 0: the engine was built without
  int kernels = linear_kernels_version;
};
constexpr auto fields_of(const TunedOn*) {
  return std::make_tuple(field("card", &TunedOn::card), field("target", &TunedOn::target),
                         field("multiprocessors", &TunedOn::multiprocessors), field("driver", &TunedOn::driver),
                         field("cublaslt", &TunedOn::cublaslt), field("kernels", &TunedOn::kernels));
}

/// How a tuning that was measured elsewhere is treated.
enum class ForeignTuning {
  refuse,  ///< invalid_argument with all differences
  ignore   ///< as if there were none
};

/// How kernels are measured.
struct TuneOptions {
  int turns = 7;  ///< in which all candidates of a step are measured; the median of each counts
  int runs = 20;  ///< of a step in a turn, in one captured graph
  /// A choice is at least this much faster than the rule's choice: a smaller gain would be noise.
  double min_gain = 0.03;
  /// No measurement begins later than this after the first; the remaining steps have no choice.
  double most_seconds = std::numeric_limits<double>::infinity();
  /// The time of a candidate, in place of the device's clock: for tests, or a model of costs. The candidate still runs
  /// once; `seconds` and `seconds_by_rule` of the argument are not known.
  std::function<double(const LinearChoice&)> seconds = {};
  /// Seconds since any beginning, for most_seconds. Empty: a steady clock.
  std::function<double()> clock = {};
};

/// The folder where bind looks for earlier measurements and keeps new ones: WARPRANK_TUNING_FOLDER of the environment,
/// or none if that is empty; else `warprank` in XDG_CACHE_HOME or in the .cache of HOME; none if there is no HOME
/// either.
inline std::string default_tuning_folder();

enum class TuneAtBind {
  on_a_card,  ///< where kernels run on a card, unless the environment has WARPRANK_TUNE_AT_BIND=0
  always,     ///< and with the executor of kernels, whose times mean nothing: for tests
  never
};

/// The tuning by bind on a GPU if neither a tuning nor a kernel is given. It takes the folder's measurements of such
/// steps on such a card, measures the other steps for up to a second, and keeps the results. For steps without time or
/// memory a rule chooses. Context::describe tells the result.
///
/// The file's name has the card and a hash of everything that the choice depends on; it is written whole or not at all,
/// so processes may share a folder. Files of another card, driver or version are ignored; a file that cannot be read is
/// refused, by an invalid_argument that names it. If the folder cannot be written, nothing is kept.
struct AutoTuning {
  TuneAtBind when = TuneAtBind::on_a_card;
  std::string folder = default_tuning_folder();  ///< empty: nothing is kept
  TuneOptions how = at_bind();

  static TuneOptions at_bind() {
    TuneOptions how;
    how.turns = 5;
    how.most_seconds = 1;
    return how;
  }
};

/// Choices of one model or of many.
struct Tuning {
  TunedOn on;
  std::vector<LinearChoice> choices;

  /// Null if the step was not measured.
  const LinearChoice* find(const std::vector<LinearShape>& layers) const {
    for (const LinearChoice& choice : choices)
      if (choice.layers == layers) return &choice;
    return nullptr;
  }
  /// A line for each layer: the place of the measurement, the choice, and the time of the step.
  std::string to_string() const;
};
constexpr auto fields_of(const Tuning*) {
  return std::make_tuple(field("on", &Tuning::on), field("choices", &Tuning::choices));
}

/// The rule where nothing was measured: chains stay fused. A single layer goes to cuBLASLt if that is there, its kernel
/// can do the whole epilogue, and intensity() is at least min_cublaslt_intensity(). If cuBLASLt has no algorithm for a
/// layer of a step, tiles take all layers of the step that were meant for cuBLASLt, measured or not.
///
/// A layer of M rows does 2 M K N operations and moves 2 (M K + K N + M N) bytes. With few operations for each byte,
/// memory and launches count, and one launch of ours has all layers side by side. With many, the main loop counts, and
/// cuBLASLt's is made for each card.
///
/// On an H100, at 40 sizes of 1 to 4096 rows, cuBLASLt took 0.52 to 1.06 times as long as the prototype of our kernels
/// for layers of 80 and more. Below that it took longer, except for 50 rows of 2528 x 2048, where it took 0.75. 100
/// rows of 1024 x 1024 are just above 80. No other card was measured: other cards have the same number, until a
/// measurement gives them a row of their own, and they measure by themselves at bind (TuneAtBind).
constexpr double min_cublaslt_intensity(int target) {
  constexpr struct {
    int from_target;
    double intensity;
  } cards[] = {{90, 80}, {0, 80}};  // H100, all others
  for (const auto& card : cards)
    if (target >= card.from_target) return card.intensity;
  return 0;
}

/// The rule's choice for the kernels of `target`. `is_chain`: more than one layer, one after another; `is_bare`:
/// cuBLASLt does the whole epilogue.
inline LinearKernel linear_kernel_by_rule(const LinearShape& shape, bool is_chain, bool is_bare, bool has_cublaslt,
                                          int target) {
  if (is_chain) return LinearKernel::fused;
  const bool is_large = shape.intensity() >= min_cublaslt_intensity(target);
  return has_cublaslt && is_bare && is_large ? LinearKernel::cublaslt : LinearKernel::tiles;
}

/// Throws invalid_argument with all differences between a tuning's place and `here`.
void check_tuning(const Tuning& tuning, const TunedOn& here);

// ---- Implementation

namespace detail {

inline std::string text_of_shape(const LinearShape& shape) {
  const auto text = [](int64_t value) { return std::to_string(value); };
  return (shape.count == 1 ? "" : text(shape.count) + " of ") + "[" + text(shape.rows) + ", " + text(shape.in) +
         "] -> " + text(shape.out) + " (" + shape.behind + ")";
}

}  // namespace detail

inline std::string default_tuning_folder() {
  if (const char* const folder = std::getenv("WARPRANK_TUNING_FOLDER")) return folder;
  const char *const cache = std::getenv("XDG_CACHE_HOME"), *const home = std::getenv("HOME");
  if (cache != nullptr && cache[0] != 0) return std::string(cache) + "/warprank";
  return home == nullptr || home[0] == 0 ? "" : std::string(home) + "/.cache/warprank";
}

inline void check_tuning(const Tuning& tuning, const TunedOn& here) {
  Problems problems;
  const auto text = [](const auto& value) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>)
      return std::to_string(value);
    else
      return value;
  };
  std::apply(
      [&](const auto&... fields) {
        const auto compare = [&](const char* name, const auto& expected, const auto& got) {
          if (expected != got) problems.add(std::string("tuning: ") + name, text(expected), text(got));
        };
        (compare(fields.name, here.*fields.member, tuning.on.*fields.member), ...);
      },
      fields_of(static_cast<const TunedOn*>(nullptr)));
  problems.throw_if_any();
}

inline std::string Tuning::to_string() const {
  const auto microseconds = [](double seconds) {
    char text[32];
    std::snprintf(text, sizeof text, "%9.1f", seconds * 1e6);
    return std::string(text);
  };
  std::string text = on.card + ", sm_" + std::to_string(on.target) + ", driver " + std::to_string(on.driver) +
                     ", cuBLASLt " + std::to_string(on.cublaslt) +
                     "\n  by rule      chosen  launches  kernel    layer\n";
  for (const LinearChoice& choice : choices)
    for (size_t i = 0; i < choice.layers.size(); ++i) {
      char launches[16];
      std::snprintf(launches, sizeof launches, "%10lld", static_cast<long long>(choice.launches));
      text += i == 0 ? microseconds(choice.seconds_by_rule) + microseconds(choice.seconds) + " us" + launches
                     : std::string(31, ' ');
      std::string kernel = name_of_enum(choice.kernels[i]);
      kernel.resize(10, ' ');
      text += "  " + kernel + detail::text_of_shape(choice.layers[i]) +
              (choice.variants[i].empty() ? "" : ", " + choice.variants[i]) + "\n";
    }
  return text;
}

}}  // namespace warprank::v0
