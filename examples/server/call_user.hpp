// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The user that a call is about.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "inference.pb.h"
#include "warprank/batch/detail/fnv1a.hpp"
#include "warprank/core/error.hpp"
#include "warprank/hash_table/layout.hpp"
#include "warprank/serving/user_key.hpp"

namespace kserve {

/// The parameter of a call that says whose states are to be kept and found; of an answer, that they are.
inline constexpr const char* user_state = "user_state";

/// The key of a user, from the text that the caller names the user by: two hashes, each of all of it.
inline warprank::UserKey user_key_of(std::string_view text) {
  warprank::detail::Fnv1a bytes;
  uint64_t words = text.size();
  for (size_t at = 0; at < text.size(); at += sizeof words) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + at, std::min(sizeof word, text.size() - at));
    words = warprank::hash_table::fmix64(words ^ word);
  }
  for (const char c : text) bytes.add_byte(static_cast<uint8_t>(c));
  return {bytes.hash(), words};
}

/// The user of a call; none: it names none. An integer is the same as its decimal. Throws warprank::invalid_argument.
inline std::optional<warprank::UserKey> user_of(const inference::ModelInferRequest& request) {
  const auto found = request.parameters().find(user_state);
  if (found == request.parameters().end()) return std::nullopt;
  const inference::InferParameter& value = found->second;
  const auto refuse = [](const std::string& got) {
    throw warprank::invalid_argument("parameter '" + std::string(user_state) + "'",
                                     "a text that is not empty, or an integer", got);
  };
  if (value.has_string_param() && value.string_param().empty()) refuse("an empty text");
  if (value.has_double_param()) refuse("a number with a fraction, " + std::to_string(value.double_param()));
  if (value.has_bool_param()) refuse("a truth value");
  if (value.has_string_param()) return user_key_of(value.string_param());
  if (value.has_uint64_param()) return user_key_of(std::to_string(value.uint64_param()));
  if (!value.has_int64_param()) refuse("nothing");
  return user_key_of(std::to_string(value.int64_param()));
}

}  // namespace kserve
