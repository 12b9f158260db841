// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace t4 {

inline std::string trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1));
}
inline bool begins_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}
/// Whether it ended so, and does no longer.
inline bool take_suffix(std::string& text, std::string_view suffix) {
  if (text.size() < suffix.size() || std::string_view(text).substr(text.size() - suffix.size()) != suffix) return false;
  text.resize(text.size() - suffix.size());
  return true;
}

}  // namespace t4
