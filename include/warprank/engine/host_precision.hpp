// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <utility>

#include "warprank/core/error.hpp"
#include "warprank/model/types.hpp"

namespace warprank { inline namespace v0 {

/// The type of the factors that the host engine multiplies in layers of more than 8 outputs (linears, cross layers,
/// experts, layers of DIN attention), for the scores of attention, and in dots. Sums are FP32, and so are all other
/// ops. docs/SERVING.md describes the effect of BF16 on scores.
enum class HostPrecision {
  fp32,          ///< FP32 values
  bf16,          ///< values and weights rounded to BF16, by AVX512_BF16, in layers by AMX where there is that, too;
                 ///< FP32 on a processor without AVX512_BF16
  int8_weights,  ///< as automatic; weights of linears, cross layers and experts are kept in INT8, with a scale for each
                 ///< output (ops/int8_weights.hpp): a quarter of the bytes of FP32, half of those of BF16
  automatic      ///< the faster type of this processor: bf16 if it has AVX512_BF16, else fp32
};

constexpr auto names_of(HostPrecision) {
  return std::array<std::pair<HostPrecision, const char*>, 4>{{{HostPrecision::fp32, "fp32"},
                                                               {HostPrecision::bf16, "bf16"},
                                                               {HostPrecision::int8_weights, "int8_weights"},
                                                               {HostPrecision::automatic, "automatic"}}};
}

/// The precision of a name; throws invalid_argument, about `what`, for an unknown name.
inline HostPrecision host_precision_of(const std::string& name, const std::string& what) {
  for (const auto& [precision, its_name] : names_of(HostPrecision{}))
    if (name == its_name) return precision;
  throw invalid_argument(what, "fp32, bf16, int8_weights or automatic", "'" + name + "'");
}

}}  // namespace warprank::v0
