// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Definitions of engine/tuning_json.hpp.

#include <cmath>
#include <cstddef>
#include <string>

#include "warprank/core/compiled.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/json.hpp"
#include "warprank/engine/tuning.hpp"
#include "warprank/engine/tuning_json.hpp"

namespace warprank { inline namespace v0 {

namespace detail {

inline constexpr const char* tuning_format = "warprank.tuning";
inline constexpr int tuning_version = 2;

/// Adds to `problems` whatever no tune() would have found.
inline void validate(const Tuning& tuning, const std::string& source, Problems& problems) {
  for (size_t c = 0; c < tuning.choices.size(); ++c) {
    const LinearChoice& choice = tuning.choices[c];
    const std::string what = source + ".choices[" + std::to_string(c) + "]";
    if (choice.layers.empty()) problems.add(what + ".layers", "one or more", "none");
    if (choice.kernels.size() != choice.layers.size())
      problems.add(what + ".kernels", "one for each of " + std::to_string(choice.layers.size()) + " layers",
                   std::to_string(choice.kernels.size()));
    if (choice.variants.size() != choice.layers.size())
      problems.add(what + ".variants", "one for each of " + std::to_string(choice.layers.size()) + " layers",
                   std::to_string(choice.variants.size()));
    for (const LinearKernel kernel : choice.kernels)
      if ((kernel == LinearKernel::fused) != (choice.kernels[0] == LinearKernel::fused)) {
        problems.add(what + ".kernels", "fused for all layers or for none", "some");
        break;
      }
    for (const LinearShape& shape : choice.layers)
      if (shape.depth < 0 || shape.rows < 0 || shape.in < 1 || shape.out < 1 || shape.count < 1)
        problems.add(what + ".layers", "a depth and rows from 0 on, in, out and count from 1 on", text_of_shape(shape));
    for (const double seconds : {choice.seconds, choice.seconds_by_rule})
      if (!(seconds >= 0) || std::isinf(seconds)) problems.add(what, "seconds from 0 on", std::to_string(seconds));
    if (&choice != tuning.find(choice.layers)) problems.add(what + ".layers", "others than before", "the same again");
  }
}

}  // namespace detail

WARPRANK_HOST_INLINE std::string to_json(const Tuning& tuning) {
  return detail::text_of({{"format", detail::tuning_format},
                          {"version", detail::tuning_version},
                          {"on", detail::to_json(tuning.on)},
                          {"choices", detail::to_json(tuning.choices)}},
                         "tuning");
}

WARPRANK_HOST_INLINE Tuning tuning_from_json(const std::string& text, const std::string& source) {
  const detail::Json json = detail::parse_json(text, source);
  detail::JsonReader reader(source);
  detail::JsonReader::Members members(reader, json);
  Tuning tuning;
  reader.check_format(members, detail::tuning_format, detail::tuning_version);
  members.get("on", tuning.on);
  members.get("choices", tuning.choices);
  members.finish();
  Problems problems;
  detail::validate(tuning, source, problems);
  problems.throw_if_any();
  return tuning;
}

WARPRANK_HOST_INLINE void save_tuning(const Tuning& tuning, const std::string& path) {
  detail::write_text(to_json(tuning), path);
}

WARPRANK_HOST_INLINE Tuning load_tuning(const std::string& path) {
  return tuning_from_json(detail::read_text(path), path);
}

}}  // namespace warprank::v0
