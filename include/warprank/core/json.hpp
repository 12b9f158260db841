// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Plain structs as JSON and back, by the fields that they list (core/fields.hpp). The round trip is exact: numbers are
/// written with enough digits to give back the same bits. Reading is strict: every missing, unknown or mistyped member
/// is an invalid_argument with its path.

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/fields.hpp"
#include "warprank/core/file_writer.hpp"
#include "warprank/core/unique_members.hpp"

namespace warprank { inline namespace v0 { namespace detail {

using Json = nlohmann::ordered_json;

// --- writing ---

template <class Value>
Json to_json(const Value& value);

template <class Value>
Json to_json(const std::vector<Value>& values) {
  Json list = Json::array();
  for (const Value& value : values) list.push_back(to_json(value));
  return list;
}

template <class Value>
Json to_json(const std::optional<Value>& value) {
  return value ? to_json(*value) : Json(nullptr);
}

template <class Value>
Json to_json(const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    return name_of_enum(value);
  } else if constexpr (HasFields<Value>::value) {
    Json object = Json::object();
    for_each_field_of<Value>([&](const auto& field) {
      const auto& member = value.*field.member;
      if (!field.is_optional || member != Value{}.*field.member) object[field.name] = to_json(member);
    });
    return object;
  } else if constexpr (std::is_floating_point_v<Value>) {
    if (std::isfinite(value)) return static_cast<double>(value);
    return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";  // JSON has no such numbers
  } else {
    return value;
  }
}

/// Text of any value that has JSON. Throws invalid_argument, about `what`, when a string is not UTF-8.
inline std::string text_of(const Json& json, const std::string& what) {
  try {
    return json.dump(1);
  } catch (const nlohmann::json::exception& error) {
    throw invalid_argument(what, "names in UTF-8", error.what());
  }
}

/// Throws invalid_argument when the file cannot be written; see FileWriter on replacing one.
inline void write_text(const std::string& text, const std::string& path) {
  FileWriter file(path);
  file.write(text.data(), static_cast<int64_t>(text.size()));
  file.commit();
}

// --- reading ---

/// `source` names the text in errors.
inline Json parse_json(const std::string& text, const std::string& source) {
  // The parser would take a zero byte for the end of its input and leave the rest unread.
  if (text.find('\0') != std::string::npos) throw invalid_argument(source, "JSON in UTF-8", "a zero byte");
  UniqueMembers::check(text, source);
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    throw invalid_argument(source, "JSON in UTF-8", error.what());
  }
}

/// The whole content of a file or pipe. Throws invalid_argument if it cannot be opened or read (a directory can be
/// opened, but not read).
inline std::string read_text(const std::string& path) {
  const auto check = [&](bool is_readable) {
    if (!is_readable) throw invalid_argument(path, "a readable file", std::generic_category().message(errno));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), &std::fclose);
  check(file != nullptr);
  std::string text;
  char block[4096];
  while (const size_t count = std::fread(block, 1, sizeof block, file.get())) text.append(block, count);
  check(std::ferror(file.get()) == 0);
  return text;
}

/// Reads values of the expected types; each mistake is thrown with the path to it.
class JsonReader {
 public:
  explicit JsonReader(std::string source) : path_(std::move(source)) {}

  [[noreturn]] void fail(std::string expected, std::string got) const {
    throw invalid_argument(path_, std::move(expected), std::move(got));
  }

  /// The members of a JSON object: each requested member must be there, and no other.
  class Members {
   public:
    Members(JsonReader& reader, const Json& json) : reader_(reader), json_(json) {
      if (!json.is_object()) reader.fail("an object", json.type_name());
    }
    bool has(const std::string& name) const { return json_.contains(name); }
    template <class Value>
    void get(const std::string& name, Value& value) {
      read_member(name, [&](const Json& json) { reader_.read_value(json, value); });
    }
    /// The elements of a list, each by read(reader, json, element).
    template <class Value, class Read>
    void get_list(const std::string& name, std::vector<Value>& values, const Read& read) {
      read_member(name, [&](const Json& json) { reader_.read_list(json, values, read); });
    }
    void finish() const {
      for (const auto& item : json_.items())
        if (known_.count(item.key()) == 0) reader_.fail("no other members", "\"" + item.key() + "\"");
    }

   private:
    template <class Read>
    void read_member(const std::string& name, const Read& read) {
      const auto it = json_.find(name);
      if (it == json_.end()) reader_.fail("a member \"" + name + "\"", "none");
      known_.insert(name);
      const size_t length = reader_.path_.size();
      reader_.path_ += "." + name;
      read(*it);
      reader_.path_.resize(length);
    }

    JsonReader& reader_;
    const Json& json_;
    std::set<std::string> known_;
  };

  /// The members "format" and "version", which identify a file.
  void check_format(Members& members, const std::string& expected_format, int expected_version) const {
    std::string format;
    int version = 0;
    members.get("format", format);
    members.get("version", version);
    if (format != expected_format) fail("format \"" + expected_format + "\"", "\"" + format + "\"");
    if (version != expected_version) fail("version " + std::to_string(expected_version), std::to_string(version));
  }

  void read_value(const Json& json, bool& value) const {
    if (!json.is_boolean()) fail("true or false", json.type_name());
    value = json.get<bool>();
  }
  void read_value(const Json& json, std::string& value) const {
    if (!json.is_string()) fail("a string", json.type_name());
    value = json.get<std::string>();
  }
  void read_value(const Json& json, double& value) const {
    if (json.is_string()) {
      const auto text = json.get<std::string>();
      if (text != "nan" && text != "inf" && text != "-inf") fail("a number", "\"" + text + "\"");
      value = text == "nan" ? NAN : text == "inf" ? INFINITY : -INFINITY;
      return;
    }
    if (!json.is_number()) fail("a number", json.type_name());
    value = json.get<double>();
  }
  void read_value(const Json& json, float& value) const {
    double wide = 0;
    read_value(json, wide);
    value = std::abs(wide) > 3.4028235677973366e38 ? static_cast<float>(std::copysign(INFINITY, wide))
                                                   : static_cast<float>(wide);
  }
  void read_value(const Json& json, int64_t& value) const {
    if (!json.is_number_integer() || (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX))
      fail("a 64-bit integer", json.dump());
    value = json.get<int64_t>();
  }
  void read_value(const Json& json, int& value) const {
    int64_t wide = 0;
    read_value(json, wide);
    if (wide < INT32_MIN || wide > INT32_MAX) fail("a 32-bit integer", std::to_string(wide));
    value = static_cast<int>(wide);
  }
  template <class Value>
  void read_value(const Json& json, std::vector<Value>& values) {
    read_list(json, values, [](JsonReader& reader, const Json& element, Value& to) { reader.read_value(element, to); });
  }
  template <class Value>
  void read_value(const Json& json, std::optional<Value>& value) {
    if (!json.is_null()) read_value(json, value.emplace());
  }
  template <class Value>
  std::enable_if_t<std::is_enum_v<Value>> read_value(const Json& json, Value& value) const {
    std::string text;
    read_value(json, text);
    std::string known;
    for (const auto& [enumerator, name] : names_of(Value{})) {
      if (text == name) {
        value = enumerator;
        return;
      }
      known += std::string(known.empty() ? "" : ", ") + name;
    }
    fail("one of " + known, "\"" + text + "\"");
  }
  template <class Value>
  std::enable_if_t<HasFields<Value>::value> read_value(const Json& json, Value& value) {
    Members members(*this, json);
    for_each_field_of<Value>([&](const auto& field) {
      if (!field.is_optional || members.has(field.name)) members.get(field.name, value.*field.member);
    });
    members.finish();
  }

 private:
  template <class Value, class Read>
  void read_list(const Json& json, std::vector<Value>& values, const Read& read) {
    if (!json.is_array()) fail("a list", json.type_name());
    for (size_t i = 0; i < json.size(); ++i) {
      const size_t length = path_.size();
      path_.append("[").append(std::to_string(i)).append("]");
      read(*this, json[i], values.emplace_back());
      path_.resize(length);
    }
  }

  std::string path_;
};

}}}  // namespace warprank::v0::detail
