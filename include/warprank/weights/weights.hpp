// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The dense weights of a plan: named tensors from safetensors files or from memory.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/compiled.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/model/parameter.hpp"
#include "warprank/weights/safetensors.hpp"
#include "warprank/weights/tensor.hpp"

namespace warprank { inline namespace v0 {

/// How matrices are stored.
enum class Layout {
  pytorch,  ///< [out, in], stacked [groups, out, in]
  keras     ///< [in, out], stacked [groups, in, out]
};

struct WeightsOptions {
  Layout layout = Layout::pytorch;
  std::map<std::string, std::string> names =
      {};  ///< a parameter's or table's name -> the tensor's name, if they differ
};

/// What to do with tensors that no parameter reads.
enum class ExtraTensors { refuse, ignore };

/// Immutable; copies share the mapped files and the tensors.
class Weights {
 public:
  static Weights open(const std::string& path, WeightsOptions options = {}) {
    return open_all({path}, std::move(options));
  }

  /// The tensors of several files together. Throws invalid_argument when two files have a tensor of the same name.
  static Weights open_all(const std::vector<std::string>& paths, WeightsOptions options = {});

  /// Throws invalid_argument for a tensor whose bytes do not fit its shape and type.
  static Weights from_tensors(std::map<std::string, StoredTensor> tensors, WeightsOptions options = {});

  /// Tensors of another owner, not copied: `owner` keeps them, unchanged, as long as the Weights exist. Null: the
  /// caller keeps them. Throws invalid_argument for a tensor whose bytes do not fit its shape and type.
  static Weights from_views(const std::map<std::string, TensorView>& tensors, std::shared_ptr<const void> owner,
                            WeightsOptions options = {});

  /// The name of a parameter's tensor among `names`, also if there is none.
  std::string stored_name(const std::string& parameter) const {
    const auto place = options_.names.find(parameter);
    return place == options_.names.end() ? parameter : place->second;
  }

  /// The tensor of a parameter as it is stored: not converted, not transposed. Null when there is none.
  const TensorView* find(const std::string& parameter) const {
    const auto place = stored_.find(stored_name(parameter));
    return place == stored_.end() ? nullptr : &place->second.view;
  }

  /// The names of all tensors as the files have them, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, stored] : stored_) names.push_back(name);
    return names;
  }

  /// Throws one invalid_argument that lists every parameter that is missing, mis-shaped or not of type F32, F16 or
  /// BF16, every entry of the name map that no parameter uses, and, unless ignored, every tensor that no parameter
  /// reads. PyTorch's "*.num_batches_tracked", which is only read in training, is never reported.
  void check(Span<const Parameter> wanted, ExtraTensors extra = ExtraTensors::refuse) const;

  /// Writes the values of `parameter` in its own shape, row-major: converted to FP32 (exact), and with the last two
  /// dimensions swapped when it is a matrix and the layout is Keras'. `out` has as many elements as the shape.
  /// Throws invalid_argument when the tensor is missing or does not fit, or `out` is of another size.
  void copy_to(const Parameter& parameter, Span<float> out) const;

 private:
  struct Stored {
    std::string source;  ///< the file
    TensorView view;
  };

  /// The same shape with its last two dimensions swapped.
  static Shape swapped(Shape shape) {
    if (shape.size() >= 2) std::swap(shape[shape.size() - 2], shape.back());
    return shape;
  }

  explicit Weights(WeightsOptions options) : options_(std::move(options)) {}

  void add(const std::string& source, const std::map<std::string, TensorView>& tensors);

  static bool is_training_state(const std::string& name);
  bool is_swapped(const Parameter& parameter) const {
    return parameter.is_matrix && parameter.shape.size() >= 2 && options_.layout == Layout::keras;
  }
  Shape stored_shape(const Parameter& parameter) const {
    return is_swapped(parameter) ? swapped(parameter.shape) : parameter.shape;
  }
  std::optional<Problem> misfit(const Parameter& parameter, const TensorView& tensor) const;

  // For messages; `missing` suggests one of `candidates`, preferably one that would fit.
  std::string describe(const Parameter& parameter) const;
  std::string wanted_text(const Parameter& parameter) const;
  static std::string did_you_mean(const std::string& nearest);
  Problem missing(const Parameter& parameter, const std::vector<std::string>& candidates) const;

  WeightsOptions options_;
  std::string sources_;                   ///< all files, for messages
  std::map<std::string, Stored> stored_;  ///< by the names in the files
  std::vector<std::shared_ptr<const void>> owners_;
};

}}  // namespace warprank::v0

#if !defined(WARPRANK_HOST_COMPILED)
#include "warprank/weights/weights_definitions.hpp"
#endif
