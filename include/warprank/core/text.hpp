// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Numbers and columns in texts for human readers.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace warprank { inline namespace v0 { namespace detail {

/// 255 -> "0x00000000000000ff".
inline std::string hexadecimal(uint64_t value) {
  char text[19];
  std::snprintf(text, sizeof text, "0x%016llx", static_cast<unsigned long long>(value));
  return text;
}

/// 1234567 -> "1.23 M".
inline std::string with_unit(double value) {
  const char* const units[] = {"", " K", " M", " G", " T"};
  int unit = 0;
  while (value >= 999.5 && unit < 4) {
    value /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f%s" : "%.3g%s", value, units[unit]);
  return text;
}
/// 320 -> "320 B", 1234567 -> "1.23 MB".
inline std::string bytes_text(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  return with_unit(value) + (value < 999.5 ? " B" : "B");
}

inline std::string padded(std::string text, size_t width, bool right = false) {
  if (text.size() < width) text.insert(right ? 0 : text.size(), width - text.size(), ' ');
  return text;
}

}}}  // namespace warprank::v0::detail
