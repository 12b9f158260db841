// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Rows in the layout of Criteo's public logs as columns: a label, 13 integers and 26 words, separated by tabs, empty
/// where they are missing.

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "warprank/ids/transforms.hpp"

namespace warprank::test_support {

inline constexpr size_t criteo_integers = 13, criteo_words = 26;

/// Refers to the text that it was read from.
struct CriteoColumns {
  std::array<std::vector<float>, criteo_integers> integers;  ///< NaN: missing
  std::array<std::vector<std::string_view>, criteo_words> words;
  int64_t num_rows = 0;

  /// Whole lines; what was there before is gone, its memory stays.
  void read(std::string_view text) {
    for (auto& column : integers) column.clear();
    for (auto& column : words) column.clear();
    num_rows = 0;
    while (!text.empty()) {
      next_field(text);  // the label
      for (auto& column : integers) column.push_back(number(next_field(text)));
      for (auto& column : words) column.push_back(next_field(text));
      ++num_rows;
    }
  }

  ids::Columns columns(const ids::Transforms& transforms) const {
    ids::Columns columns(transforms, num_rows);
    for (size_t i = 0; i < criteo_integers; ++i) columns.numbers("I" + std::to_string(i + 1), integers[i]);
    for (size_t i = 0; i < criteo_words; ++i) columns.text("C" + std::to_string(i + 1), words[i]);
    return columns;
  }

 private:
  static std::string_view next_field(std::string_view& text) {
    const size_t end = text.find_first_of("\t\n");
    const std::string_view field = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return field;
  }
  static float number(std::string_view field) {
    int64_t integer = 0;
    const auto read = std::from_chars(field.data(), field.data() + field.size(), integer);
    return read.ec == std::errc() ? static_cast<float>(integer) : std::numeric_limits<float>::quiet_NaN();
  }
};

/// Lines of random values.
inline std::string criteo_lines(int64_t num_rows, uint32_t seed) {
  std::mt19937 random(seed);
  std::string text;
  char word[16];
  for (int64_t row = 0; row < num_rows; ++row) {
    text += random() % 4 == 0 ? '1' : '0';
    for (size_t i = 0; i < criteo_integers; ++i)
      text += random() % 5 == 0 ? "\t" : "\t" + std::to_string(static_cast<int64_t>(random() % 2000) - 2);
    for (size_t i = 0; i < criteo_words; ++i) {
      std::snprintf(word, sizeof word, "\t%08x", static_cast<unsigned>(random()));
      text += random() % 10 == 0 ? "\t" : word;
    }
    text += '\n';
  }
  return text;
}

}  // namespace warprank::test_support
