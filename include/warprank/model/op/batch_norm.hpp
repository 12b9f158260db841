// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <tuple>
#include <utility>

#include "warprank/core/fields.hpp"

namespace warprank { inline namespace v0 {

/// y = (x - running_mean) / sqrt(running_var + eps) [* weight + bias]: a scale and a shift per channel once bound.
/// Reads "<name>.running_mean", ".running_var" and with `affine` ".weight", ".bias", all [width].
struct BatchNorm {
  std::string name;
  float eps = 1e-5f;
  bool affine = true;
};
constexpr auto fields_of(const BatchNorm*) {
  return std::make_tuple(field("name", &BatchNorm::name), field("eps", &BatchNorm::eps),
                         field("affine", &BatchNorm::affine));
}

/// A learned vector with one value per column, as an operand of an elementwise program.
struct LearnedVector {
  enum class Kind {
    stored,            ///< the tensor `name` unchanged
    batch_norm_scale,  ///< weight / sqrt(running_var + eps) of the batch norm `name`
    batch_norm_shift   ///< bias - running_mean * scale
  };
  Kind kind = Kind::stored;
  std::string name;
  float eps = 0;
  bool affine = false;
};
constexpr auto names_of(LearnedVector::Kind) {
  return std::array<std::pair<LearnedVector::Kind, const char*>, 3>{
      {{LearnedVector::Kind::stored, "stored"},
       {LearnedVector::Kind::batch_norm_scale, "batch_norm_scale"},
       {LearnedVector::Kind::batch_norm_shift, "batch_norm_shift"}}};
}
constexpr auto fields_of(const LearnedVector*) {
  return std::make_tuple(field("kind", &LearnedVector::kind), field("name", &LearnedVector::name),
                         field("eps", &LearnedVector::eps), field("affine", &LearnedVector::affine));
}

}}  // namespace warprank::v0
