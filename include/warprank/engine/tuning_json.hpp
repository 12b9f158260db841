// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tunings as JSON, so that a card is measured once and every start of a server takes what was found:
///
///     {"format": "warprank.tuning", "version": 1,
///      "on": {"card": "NVIDIA T4", "target": 75, ...},
///      "choices": [{"layers": [{"depth": 0, "rows": 4096, "in": 2528, ...}], "kernels": ["cublaslt"], ...}]}
///
/// A file is read strictly: whatever is missing, unknown, mistyped or contradicts itself is an invalid_argument that
/// says where.

#include <cmath>
#include <cstddef>
#include <string>

#include "warprank/core/json.hpp"
#include "warprank/engine/tuning.hpp"

namespace warprank {

namespace detail {

inline constexpr const char* tuning_format = "warprank.tuning";
inline constexpr int tuning_version = 1;

/// Adds to `problems` whatever no tune() would have found.
inline void validate(const Tuning& tuning, const std::string& source, Problems& problems) {
  for (size_t c = 0; c < tuning.choices.size(); ++c) {
    const LinearChoice& choice = tuning.choices[c];
    const std::string what = source + ".choices[" + std::to_string(c) + "]";
    if (choice.layers.empty()) problems.add(what + ".layers", "one or more", "none");
    if (choice.kernels.size() != choice.layers.size())
      problems.add(what + ".kernels", "one for each of " + std::to_string(choice.layers.size()) + " layers",
                   std::to_string(choice.kernels.size()));
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

/// The tuning as indented JSON text.
inline std::string to_json(const Tuning& tuning) {
  return detail::text_of({{"format", detail::tuning_format},
                          {"version", detail::tuning_version},
                          {"on", detail::to_json(tuning.on)},
                          {"choices", detail::to_json(tuning.choices)}},
                         "tuning");
}

/// `source` names the text in errors. Throws invalid_argument for anything that to_json would not have written.
inline Tuning tuning_from_json(const std::string& text, const std::string& source = "tuning") {
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

/// Writes to_json(tuning) beside `path` and renames it over `path`, so that nobody loads half a file. Throws
/// invalid_argument when that fails.
inline void save_tuning(const Tuning& tuning, const std::string& path) { detail::write_text(to_json(tuning), path); }

/// tuning_from_json of a file; errors name its path.
inline Tuning load_tuning(const std::string& path) { return tuning_from_json(detail::read_text(path), path); }

}  // namespace warprank
