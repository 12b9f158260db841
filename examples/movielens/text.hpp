// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Reads text files of one record per line, and says where a line is wrong.

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/mapped_file.hpp"

namespace movielens {

/// A field as it is shown in messages: short, and without the bytes that would upset a terminal.
inline std::string shown(std::string_view text) {
  constexpr size_t longest = 40;
  std::string result = "'";
  for (const char c : text.substr(0, longest)) result += c >= ' ' && c <= '~' ? c : '?';
  return result + (text.size() > longest ? "'.." : "'");
}

/// One line, cut into fields.
struct Line {
  std::string where;  ///< "u.data:12"
  std::vector<std::string_view> fields;

  [[noreturn]] void fail(const std::string& expected, const std::string& got) const {
    throw warprank::invalid_argument(where, expected, got);
  }

  /// Field `i` as an integer in [low, high].
  int64_t integer(size_t i, const std::string& name, int64_t low, int64_t high) const {
    const std::string_view text = fields[i];
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < low || value > high)
      fail(name + " from " + std::to_string(low) + " to " + std::to_string(high), shown(text));
    return value;
  }
};

/// Calls `body(line)` for every line that is not empty. A line may end in CR LF. What `body` finds wrong
/// (invalid_argument) and lines of another number of fields are collected in `problems`; after ten the rest of the file
/// is left.
template <class Body>
void each_line(const std::string& path, char separator, size_t num_fields, warprank::Problems& problems, Body body) {
  const warprank::MappedFile file(path);
  std::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), static_cast<size_t>(file.bytes().size()));
  int64_t number = 0;
  for (int wrong = 0; !rest.empty();) {
    const size_t end = rest.find('\n');
    std::string_view text = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    ++number;
    if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
    if (text.empty()) continue;

    Line line{path + ":" + std::to_string(number), {}};
    for (size_t begin = 0; begin != std::string_view::npos;) {
      const size_t next = text.find(separator, begin);
      line.fields.push_back(text.substr(begin, next == std::string_view::npos ? next : next - begin));
      begin = next == std::string_view::npos ? next : next + 1;
    }
    try {
      if (line.fields.size() != num_fields)
        line.fail(std::to_string(num_fields) + " fields with " + shown({&separator, 1}) + " between them",
                  std::to_string(line.fields.size()));
      body(line);
    } catch (const warprank::invalid_argument& error) {
      for (const warprank::Problem& problem : error.problems()) problems.add(problem);
      if (++wrong == 10) {
        problems.add(path, "no more problems than these", "ten; the lines after them were not read");
        return;
      }
    }
  }
}

/// The text in UTF-8: as it is when it is UTF-8, else taken for Latin-1.
inline std::string to_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
  std::string decoded;
  bool is_utf8 = true;
  for (size_t i = 0; i < text.size() && is_utf8;) {
    const int first = byte(i), second = byte(i + 1);
    const size_t length = first < 0x80   ? 1
                          : first < 0xc2 ? 0
                          : first < 0xe0 ? 2
                          : first < 0xf0 ? 3
                          : first < 0xf5 ? 4
                                         : 0;
    is_utf8 = length > 0;
    for (size_t k = 1; k < length; ++k) is_utf8 = is_utf8 && (byte(i + k) & 0xc0) == 0x80;
    // Not in three or four bytes what fits in fewer, no surrogates, nothing above U+10FFFF.
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) || (first == 0xf0 && second < 0x90) ||
        (first == 0xf4 && second > 0x8f))
      is_utf8 = false;
    i += length;
  }
  if (is_utf8) return std::string(text);
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x80) {
      decoded += c;
    } else {
      decoded += static_cast<char>(0xc0 | code >> 6);
      decoded += static_cast<char>(0x80 | (code & 0x3f));
    }
  }
  return decoded;
}

}  // namespace movielens
