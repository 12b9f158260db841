// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Definitions of weights/safetensors.hpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "warprank/core/compiled.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/file_writer.hpp"
#include "warprank/core/view.hpp"
#include "warprank/weights/detail/safetensors_header.hpp"
#include "warprank/weights/safetensors.hpp"
#include "warprank/weights/tensor.hpp"

namespace warprank { inline namespace v0 {

WARPRANK_HOST_INLINE void check_bytes(const std::string& where, const TensorView& tensor) {
  const detail::StoredType* type = detail::find_stored_type(tensor.type_name);
  if (type == nullptr)
    throw invalid_argument(where + ", field 'dtype'", "a type of the format, such as F32",
                           detail::quoted(tensor.type_name));
  const std::optional<int64_t> elements = num_elements(tensor.shape);
  int64_t bits = 0;
  if (!elements || __builtin_mul_overflow(*elements, type->bits, &bits))
    throw invalid_argument(where + ", field 'shape'", "a shape of less than 2^63 bits", to_string(tensor.shape));
  if (bits % 8 != 0 || bits / 8 != tensor.bytes)
    throw invalid_argument(where,
                           (bits % 8 == 0 ? std::to_string(bits / 8) : "a whole number of") + " bytes of data for " +
                               type->name + " " + to_string(tensor.shape),
                           std::to_string(tensor.bytes) + " bytes");
}

namespace detail {

/// Checks one tensor by itself: its type, its range, and whether they agree.
inline TensorView view_tensor(const std::string& where, const TensorEntry& entry, Span<const std::byte> data) {
  const StoredType* type = find_stored_type(*entry.dtype);
  if (type == nullptr)
    throw invalid_argument(where + ", field 'dtype'", "a type of the format, such as F32", quoted(*entry.dtype));

  const Shape& offsets = *entry.data_offsets;
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data.size())
    throw invalid_argument(where + ", field 'data_offsets'",
                           "[begin, end] with begin <= end <= " + std::to_string(data.size()) + " bytes of data",
                           to_string(offsets));

  const TensorView tensor{type->name, type->dtype, *entry.shape, data.data() + offsets[0], offsets[1] - offsets[0]};
  check_bytes(where, tensor);
  return tensor;
}

/// Checks that the tensors lie end to end from the first byte of data to the last.
inline void check_coverage(const std::string& file, const std::map<std::string, TensorView>& tensors,
                           Span<const std::byte> data) {
  std::vector<std::tuple<int64_t, int64_t, const std::string*>> ranges;  // begin, end, name
  for (const auto& [name, tensor] : tensors) {
    const int64_t begin = tensor.data - data.data();
    ranges.emplace_back(begin, begin + tensor.bytes, &name);
  }
  std::sort(ranges.begin(), ranges.end());

  int64_t covered = 0;
  const std::string* before = nullptr;
  for (const auto& [begin, end, name] : ranges) {
    if (begin != covered)
      throw invalid_argument(
          file + ": tensor " + quoted(*name),
          "data from byte " + std::to_string(covered) +
              (before == nullptr ? "" : ", where tensor " + quoted(*before) + " ends"),
          (begin < covered ? "an overlap from byte " : "a hole up to byte ") + std::to_string(begin));
    covered = end;
    before = name;
  }
  if (covered != data.size())
    throw invalid_argument(file + ": data", std::to_string(covered) + " bytes, as many as the tensors have",
                           std::to_string(data.size()) + " bytes");
}

/// The kind of a file in place of a safetensors file, by its first bytes; empty if unknown.
inline std::string other_format(Span<const std::byte> bytes) {
  std::string begin(reinterpret_cast<const char*>(bytes.data()),
                    static_cast<size_t>(std::min<int64_t>(bytes.size(), 64)));
  const auto is = [&](std::string_view magic) { return begin.compare(0, magic.size(), magic) == 0; };
  using namespace std::string_view_literals;
  if (is("version https://git-lfs.github.com/spec/"))
    return "a pointer of Git LFS: git lfs pull fetches the file itself";
  if (is("PK\3\4")) return "a zip archive, such as torch.save and numpy.savez write";
  if (is("\x80\2"sv) || is("\x80\4"sv) || is("\x80\5"sv)) return "a pickle, such as torch.save wrote before 1.6";
  if (is("\x89HDF\r\n")) return "an HDF5 file, such as Keras writes";
  if (is("\x1f\x8b")) return "a file compressed by gzip";
  if (is("GGUF")) return "a GGUF file";
  begin.erase(0, begin.find_first_not_of(" \t\r\n"));
  for (char& c : begin) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  if (is("<!doctype html") || is("<html")) return "an HTML page, such as a server sends for a file that it has not";
  if (is("<?xml")) return "XML, such as a store of files sends for one that it has not";
  return is("{") || is("[") ? "JSON" : "";
}

}  // namespace detail

WARPRANK_HOST_INLINE SafetensorsContent parse_safetensors(const std::string& file, Span<const std::byte> bytes) {
  constexpr int64_t length_bytes = 8;
  constexpr uint64_t longest_header = 100'000'000;
  if (bytes.size() < length_bytes)
    throw invalid_argument(file, "a safetensors file of 8 bytes or more", std::to_string(bytes.size()) + " bytes");
  const auto length = load_element<uint64_t>(bytes.data(), 0);
  const auto available = static_cast<uint64_t>(bytes.size() - length_bytes);
  if (length > longest_header || length > available) {
    if (const std::string other = detail::other_format(bytes); !other.empty())
      throw invalid_argument(file, "a safetensors file", other);
    throw invalid_argument(file + ": length of the header",
                           "at most " + std::to_string(std::min(longest_header, available)) + " bytes",
                           std::to_string(length));
  }
  const auto header_bytes = static_cast<int64_t>(length);
  const Span<const std::byte> json = bytes.subspan(length_bytes, header_bytes);
  const Span<const std::byte> data =
      bytes.subspan(length_bytes + header_bytes, bytes.size() - length_bytes - header_bytes);
  if (json.empty() || json[0] != std::byte{'{'})
    throw invalid_argument(file + ": header", "a JSON object that starts at its first byte",
                           json.empty() ? "an empty header" : "another first byte");

  detail::Header header = detail::HeaderReader::read(file, json);
  SafetensorsContent content;
  content.metadata = std::move(header.metadata);
  for (const auto& [name, entry] : header.tensors)
    content.tensors.emplace(name, detail::view_tensor(file + ": tensor " + detail::quoted(name), entry, data));
  detail::check_coverage(file, content.tensors, data);
  return content;
}

namespace detail {

inline std::string json_string(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw invalid_argument("name or metadata of a tensor to write", "UTF-8", quoted(text));
  }
}

inline std::string json_entry(const TensorView& tensor, int64_t begin) {
  std::string shape;
  for (const int64_t dim : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(dim);
  return std::string("{\"dtype\":\"") + tensor.type_name + "\",\"shape\":[" + shape + "],\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(begin + tensor.bytes) + "]}";
}

using NamedTensor = std::pair<const std::string, TensorView>;

/// The tensors in the order of the data: by type, wider ones first, then by name.
inline std::vector<const NamedTensor*> data_order(const std::map<std::string, TensorView>& tensors) {
  std::vector<const NamedTensor*> ordered;
  for (const NamedTensor& named : tensors) {
    const auto& [name, tensor] = named;
    check_bytes("tensor " + quoted(name) + " to write", tensor);
    if (name == metadata_name) throw invalid_argument("tensor to write", "a name of a tensor", quoted(name));
    ordered.push_back(&named);
  }
  std::stable_sort(ordered.begin(), ordered.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return find_stored_type(a->second.type_name) > find_stored_type(b->second.type_name);
  });
  return ordered;
}

/// All bytes before the data: the length of the header, and the header.
inline std::string preamble(const std::vector<const NamedTensor*>& ordered,
                            const std::map<std::string, std::string>& metadata) {
  std::string header;
  for (const auto& [key, value] : metadata)
    header += (header.empty() ? "" : ",") + json_string(key) + ":" + json_string(value);
  if (!metadata.empty()) header = json_string(metadata_name) + ":{" + header + "}";
  int64_t begin = 0;
  for (const NamedTensor* named : ordered) {
    header += (header.empty() ? "" : ",") + json_string(named->first) + ":" + json_entry(named->second, begin);
    begin += named->second.bytes;
  }
  header = "{" + header + "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header;
}

}  // namespace detail

WARPRANK_HOST_INLINE std::string serialize_safetensors(const std::map<std::string, TensorView>& tensors,
                                                       const std::map<std::string, std::string>& metadata) {
  const auto ordered = detail::data_order(tensors);
  std::string file = detail::preamble(ordered, metadata);
  for (const auto* named : ordered)
    file.append(reinterpret_cast<const char*>(named->second.data), static_cast<size_t>(named->second.bytes));
  return file;
}

WARPRANK_HOST_INLINE void write_safetensors(const std::string& path, const std::map<std::string, TensorView>& tensors,
                                            const std::map<std::string, std::string>& metadata) {
  const auto ordered = detail::data_order(tensors);
  const std::string preamble = detail::preamble(ordered, metadata);
  detail::FileWriter file(path);
  file.write(preamble.data(), static_cast<int64_t>(preamble.size()));
  for (const auto* named : ordered) file.write(named->second.data, named->second.bytes);
  file.commit();
}

}}  // namespace warprank::v0
