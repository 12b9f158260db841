// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The JSON header of a safetensors file, read token by token: duplicate keys are seen, nothing nests deeper than the
/// format, and memory stays in proportion to the header whatever it says.

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/weights/tensor.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// One element type of the format.
struct StoredType {
  const char* name;
  int64_t bits;                ///< of one element
  std::optional<DType> dtype;  ///< nothing: checked and listed, but not read
};

inline constexpr std::array<StoredType, 22> stored_types{
    {{"BOOL", 8, std::nullopt},        {"F4", 4, std::nullopt},          {"F6_E2M3", 6, std::nullopt},
     {"F6_E3M2", 6, std::nullopt},     {"U8", 8, std::nullopt},          {"I8", 8, DType::i8},
     {"F8_E5M2", 8, std::nullopt},     {"F8_E4M3", 8, std::nullopt},     {"F8_E8M0", 8, std::nullopt},
     {"F8_E4M3FNUZ", 8, std::nullopt}, {"F8_E5M2FNUZ", 8, std::nullopt}, {"I16", 16, std::nullopt},
     {"U16", 16, std::nullopt},        {"F16", 16, DType::f16},          {"BF16", 16, DType::bf16},
     {"I32", 32, std::nullopt},        {"U32", 32, std::nullopt},        {"F32", 32, DType::f32},
     {"C64", 64, std::nullopt},        {"F64", 64, std::nullopt},        {"I64", 64, DType::i64},
     {"U64", 64, std::nullopt}}};

/// The one key of the header that is not a tensor.
inline constexpr const char* metadata_name = "__metadata__";

/// Null when the format has no such type.
inline const StoredType* find_stored_type(const std::string& name) {
  for (const StoredType& type : stored_types)
    if (name == type.name) return &type;
  return nullptr;
}

/// Text from a file as messages show it: control characters replaced, cut when long.
inline std::string shortened(const std::string& text) {
  constexpr size_t longest = 120;
  std::string shown = text.size() <= longest ? text : text.substr(0, longest) + "...";
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < ' ') c = '?';
  return shown;
}
inline std::string quoted(const std::string& name) { return "'" + shortened(name) + "'"; }

/// What the header says of one tensor.
struct TensorEntry {
  std::optional<std::string> dtype;
  std::optional<Shape> shape;
  std::optional<Shape> data_offsets;  ///< begin and end, from the end of the header
};

struct Header {
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
};

/// Parses {"<name>": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, .., "__metadata__": {"<key>":
/// "<text>"}} and nothing else. Throws invalid_argument at the first token that does not fit; whether the numbers make
/// sense together is the caller's to check.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  static Header read(const std::string& file, Span<const std::byte> json) {
    HeaderReader reader(file);
    const char* text = reinterpret_cast<const char*>(json.data());
    // The parser would take a zero byte for the end of its input and leave the rest unread.
    if (std::memchr(text, 0, static_cast<size_t>(json.size())) != nullptr)
      throw invalid_argument(file + ": header", "JSON", "a zero byte");
    nlohmann::json::sax_parse(text, text + json.size(), &reader);
    return std::move(reader.header_);
  }

  bool start_object(std::size_t) override {
    switch (at_) {
      case At::file:
        at_ = At::header;
        return true;
      case At::header:
        at_ = name_ == metadata_name ? At::metadata : At::tensor;
        return true;
      default:
        return refuse("an object");
    }
  }

  bool key(string_t& key) override {
    if (at_ == At::header) {
      name_ = std::move(key);
      const bool is_new = name_ == metadata_name ? !std::exchange(has_metadata_, true) : add_tensor();
      return is_new || refuse_key("every name once", "it twice");
    }
    field_ = std::move(key);
    if (at_ == At::metadata)
      return header_.metadata.try_emplace(field_).second || refuse_key("every key once", "it twice");
    if (field_ != "dtype" && list() == nullptr) return refuse_key("only dtype, shape and data_offsets", "this field");
    const bool is_new = field_ == "dtype" ? !tensor_->dtype.has_value() : !list()->has_value();
    return is_new || refuse_key("every field once", "it twice");
  }

  bool end_object() override {
    if (at_ == At::tensor && !(tensor_->dtype && tensor_->shape && tensor_->data_offsets)) {
      field_.clear();
      const char* missing = !tensor_->dtype ? "dtype" : !tensor_->shape ? "shape" : "data_offsets";
      throw invalid_argument(where(), "dtype, shape and data_offsets", std::string("no ") + missing);
    }
    field_.clear();
    at_ = At::header;
    return true;
  }

  bool start_array(std::size_t) override {
    if (at_ != At::tensor || list() == nullptr) return refuse("a list");
    list()->emplace();
    at_ = At::list;
    return true;
  }

  bool end_array() override {
    at_ = At::tensor;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    constexpr size_t most_dimensions = 64;  // as in PyTorch and NumPy
    if (at_ != At::list || value > uint64_t{std::numeric_limits<int64_t>::max()}) return refuse(std::to_string(value));
    if ((*list())->size() == most_dimensions) return refuse("more than 64 of them");
    (*list())->push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (at_ == At::metadata)
      header_.metadata[field_] = std::move(value);
    else if (at_ == At::tensor && field_ == "dtype")
      tensor_->dtype = std::move(value);
    else
      return refuse("a string");
    return true;
  }

  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("a boolean"); }
  bool number_integer(number_integer_t value) override { return refuse(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { return refuse(shortened(text)); }
  bool binary(binary_t&) override { return refuse("bytes"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    throw invalid_argument(file_ + ": header", "JSON", "a syntax error at its byte " + std::to_string(position));
  }

 private:
  enum class At { file, header, metadata, tensor, list };

  explicit HeaderReader(const std::string& file) : file_(file) {}

  bool add_tensor() {
    const auto [place, is_new] = header_.tensors.try_emplace(name_);
    tensor_ = &place->second;
    return is_new;
  }

  /// The list that the current field fills; null when it is not one.
  std::optional<Shape>* list() {
    return field_ == "shape" ? &tensor_->shape : field_ == "data_offsets" ? &tensor_->data_offsets : nullptr;
  }

  const char* expected() {
    switch (at_) {
      case At::file:
      case At::header:
        return "an object";
      case At::metadata:
        return "a string";
      case At::tensor:
        return list() != nullptr ? "a list" : "a string";
      case At::list:
        return "at most 64 integers from 0 to 2^63 - 1";
    }
    return "";
  }

  std::string where() const {
    if (at_ == At::file) return file_ + ": header";
    return file_ + ": tensor " + quoted(name_) + (field_.empty() ? "" : ", field " + quoted(field_));
  }

  bool refuse(const std::string& got) { throw invalid_argument(where(), expected(), got); }
  bool refuse_key(const char* expected, const char* got) { throw invalid_argument(where(), expected, got); }

  const std::string& file_;
  At at_ = At::file;
  std::string name_;
  std::string field_;
  TensorEntry* tensor_ = nullptr;
  bool has_metadata_ = false;
  Header header_;
};

}}}  // namespace warprank::v0::detail
