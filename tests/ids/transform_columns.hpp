// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The columns of transform_columns.py, value for value, and its checksums.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "warprank/ids/transforms.hpp"

namespace transform_columns {

inline constexpr int64_t rows = 100000;
inline constexpr int64_t blocks = 10;
inline const std::vector<std::string> names = {"city",    "word",  "brand",         "user",  "age_id",
                                               "level",   "tags",  "genres",        "films", "price",
                                               "history", "liked", "liked_weights", "grid",  "triple"};

inline uint64_t mix(uint64_t x) {
  x = (x + 1) * 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}
inline uint64_t draw(uint64_t column, uint64_t kind, int64_t index) {
  return mix(column << 48 | kind << 40 | static_cast<uint64_t>(index));
}

inline uint64_t number_of(const std::string& name) {
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return i;
  return names.size();
}

/// Of a ragged column; "triple" has three values a row.
inline std::vector<int64_t> offsets(const std::string& name) {
  const uint64_t column = number_of(name == "liked_weights" ? "liked" : name);
  std::vector<int64_t> result = {0};
  for (int64_t row = 0; row < rows; ++row)
    result.push_back(result.back() + (name == "triple" ? 3 : static_cast<int64_t>(draw(column, 9, row) % 5)));
  return result;
}

inline std::string text(uint64_t column, int64_t index) {
  const uint64_t r = draw(column, 0, index), kind = r & 7, n = r >> 8;
  const auto format = [](const char* pattern, auto value) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, pattern, value);
    return std::string(buffer);
  };
  if (kind < 2) return "w" + std::to_string(n % 60);
  if (kind == 2) return std::vector<std::string>{"", "[UNK]", "Zürich", "北京"}[n % 4];
  if (kind == 3) return std::to_string(static_cast<int64_t>(draw(column, 1, index)));
  if (kind == 4) return format("%08x", static_cast<uint32_t>(n));
  std::string words;
  for (uint64_t k = 1; k < 8; ++k) words += format("%016llx", static_cast<unsigned long long>(draw(column, k, index)));
  return words.substr(0, n % 100);
}

inline int64_t integer(uint64_t column, int64_t index) {
  const uint64_t r = draw(column, 0, index), more = draw(column, 1, index);
  if ((r & 3) < 2) return static_cast<int64_t>((r >> 8) % 60) - 5;
  return (r & 3) == 2 ? static_cast<int32_t>(static_cast<uint32_t>(more)) : static_cast<int64_t>(more);
}

inline float fraction(uint64_t r) {
  return static_cast<float>(static_cast<int64_t>((r >> 8) % (1 << 24)) - (1 << 23)) / (1 << 16);
}

inline float number(uint64_t column, int64_t index) {
  const uint64_t r = draw(column, 0, index);
  if ((r & 3) == 0) return static_cast<float>((r >> 8) % 160) / 8 - 10;
  if ((r & 3) < 3) return fraction(r);
  auto bits = static_cast<uint32_t>(draw(column, 1, index));
  if ((bits & 0x7f800000) == 0) bits |= 0x00800000;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

inline float weight(uint64_t column, int64_t index) {
  const uint64_t r = draw(column, 0, index);
  if ((r & 7) < 2) return (r & 7) == 0 ? 0.f : -1.f;
  return static_cast<float>((r >> 8) % 1024) / 64;
}

/// A column with its values.
struct Column {
  std::vector<std::string> texts;
  std::vector<std::string_view> views;
  std::vector<int64_t> integers, offsets;
  std::vector<float> numbers;
};

inline void make(const warprank::ids::TransformColumn& info, Column& column) {
  const uint64_t c = number_of(info.name);
  if (info.ragged) column.offsets = offsets(info.name);
  const int64_t count = (info.ragged ? column.offsets.back() : rows) * info.width;
  for (int64_t i = 0; i < count; ++i) {
    if (info.type == warprank::ids::ColumnType::text)
      column.texts.push_back(text(c, i));
    else if (info.type == warprank::ids::ColumnType::i64)
      column.integers.push_back(integer(c, i));
    else
      column.numbers.push_back(info.name == "grid"            ? fraction(draw(c, 0, i))
                               : info.name == "liked_weights" ? weight(c, i)
                                                              : number(c, i));
  }
  column.views.assign(column.texts.begin(), column.texts.end());
}

inline uint64_t bits_of(int64_t value) { return static_cast<uint64_t>(value); }
inline uint64_t bits_of(float value) {
  if (std::isnan(value)) value = std::numeric_limits<float>::quiet_NaN();
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// 16 hexadecimal digits for each block.
template <class Value>
std::vector<std::string> checksums(warprank::Span<const Value> values) {
  std::vector<std::string> result;
  for (int64_t b = 0; b < blocks; ++b) {
    uint64_t sum = 0;
    for (int64_t i = values.size() * b / blocks; i < values.size() * (b + 1) / blocks; ++i)
      sum += mix(bits_of(values[i]) ^ mix(static_cast<uint64_t>(i)));
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(sum));
    result.emplace_back(digits);
  }
  return result;
}

}  // namespace transform_columns
