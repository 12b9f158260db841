// SPDX-License-Identifier: Apache-2.0
#pragma once

/// JSON whose objects have every member once.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// Reads a text before the parser does, since in the parser the last of several members of one name replaces the
/// others. The parser's own callback would also work, but takes quadratic time for a list of objects.
class UniqueMembers final : public nlohmann::json_sax<nlohmann::json> {
 public:
  /// Throws invalid_argument, with the path from `source` on, for the first member that comes a second time. Leaves
  /// errors of JSON to the parser.
  static void check(const std::string& text, const std::string& source) {
    UniqueMembers reader(source);
    nlohmann::json::sax_parse(text, &reader);
  }

  bool key(string_t& key) override {
    Level& object = levels_.back();
    if (!object.names.insert(key).second) throw invalid_argument(path(), "every member once", "\"" + key + "\" twice");
    object.name = std::move(key);
    return true;
  }
  bool start_object(std::size_t) override { return begin(false); }
  bool start_array(std::size_t) override { return begin(true); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool null() override { return next(); }
  bool boolean(bool) override { return next(); }
  bool number_integer(number_integer_t) override { return next(); }
  bool number_unsigned(number_unsigned_t) override { return next(); }
  bool number_float(number_float_t, const string_t&) override { return next(); }
  bool string(string_t&) override { return next(); }
  bool binary(binary_t&) override { return next(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

 private:
  /// An object or list that has begun and not ended.
  struct Level {
    bool is_list;
    size_t index = 0;                  // of the element that is read
    std::string name = {};             // of the member that is read
    std::set<std::string> names = {};  // of the members up to it
  };

  explicit UniqueMembers(const std::string& source) : source_(source) {}

  bool begin(bool is_list) {
    levels_.push_back({is_list});
    return true;
  }
  bool end() {
    levels_.pop_back();
    return next();
  }
  bool next() {
    if (!levels_.empty()) ++levels_.back().index;
    return true;
  }

  /// Of the innermost object.
  std::string path() const {
    std::string path = source_;
    for (size_t i = 0; i + 1 < levels_.size(); ++i)
      path += levels_[i].is_list ? "[" + std::to_string(levels_[i].index) + "]" : "." + levels_[i].name;
    return path;
  }

  const std::string& source_;
  std::vector<Level> levels_;
};

}}}  // namespace warprank::v0::detail
