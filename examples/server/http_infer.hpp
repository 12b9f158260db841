// SPDX-License-Identifier: Apache-2.0
#pragma once

/// ModelInfer by HTTP: JSON, and behind it the tensors of the binary data extension. It becomes the message that comes
/// by gRPC, and is answered as that is.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inference.pb.h"
#include "tensor.hpp"
#include "warprank/core/error.hpp"

namespace kserve {

/// A call, and how its answer is to be written.
struct HttpInfer {
  inference::ModelInferRequest request;
  bool is_binary = false;  ///< outputs that nothing else is said of
  std::map<std::string, bool, std::less<>> is_output_binary;
};

/// An answer: `json_bytes` of JSON, and what is in bytes.
struct HttpAnswer {
  std::string body;
  size_t json_bytes = 0;
};

namespace detail {

using Json = nlohmann::json;

/// The JSON of a call. Values of tensors are kept beside it, one after the other however they are nested: a list of
/// lists takes many times the memory of its text.
class CallJson {
 public:
  /// Throws warprank::invalid_argument.
  explicit CallJson(std::string_view text) {
    if (text.find('\0') != std::string_view::npos)  // which the parser takes for the end
      throw warprank::invalid_argument("body", "JSON of a call", "a byte that is 0");
    const auto see = [this](int depth, Json::parse_event_t event, Json& parsed) { return keep(depth, event, parsed); };
    try {
      root_ = Json::parse(text.begin(), text.end(), see);
    } catch (const Json::exception& error) {
      throw warprank::invalid_argument("body", "JSON of a call", error.what());
    }
  }

  const Json& root() const { return root_; }
  /// Of an input's member "data".
  const std::vector<Json>& values(const Json& data) const { return values_.at(data.get<size_t>()); }

 private:
  static constexpr int most_depth = 32;
  static constexpr size_t most_members = 100'000;

  /// What the parser asks of each part; `depth`: lists and objects around it.
  bool keep(int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (depth > most_depth)
      throw warprank::invalid_argument("body", "JSON that is nested at most " + std::to_string(most_depth) + " deep",
                                       "more");
    if (is_data_ && depth > 2 && event != Event::key) {
      if (event == Event::object_start || event == Event::object_end || (depth == 3 && event == Event::value))
        throw warprank::invalid_argument("'data' of an input", "a list of values", "something else");
      if (event == Event::array_start) return true;
      if (event == Event::value) values_.back().push_back(std::move(parsed));
      if (depth == 3) parsed = values_.size() - 1;
      return depth == 3;
    }
    if (++num_members_ > most_members)
      throw warprank::invalid_argument("body", "at most " + std::to_string(most_members) + " members but for 'data'",
                                       "more");
    if (event == Event::object_start) names_.emplace_back();
    if (event == Event::object_end) names_.pop_back();
    if (event != Event::key) return true;
    const std::string& name = parsed.get_ref<const std::string&>();
    if (!names_.back().insert(name).second)
      throw warprank::invalid_argument("member '" + name.substr(0, 200) + "'", "one of that name", "a second one");
    if (depth == 1) is_inputs_ = name == "inputs";
    is_data_ = depth == 3 && is_inputs_ && name == "data";
    if (is_data_) values_.emplace_back();
    return true;
  }

  Json root_;
  std::vector<std::vector<Json>> values_;     // of each "data", which has its number in root_
  std::vector<std::set<std::string>> names_;  // of the objects around
  size_t num_members_ = 0;
  bool is_inputs_ = false, is_data_ = false;
};

/// A member that has to be there, of a type. Throws warprank::invalid_argument.
inline const Json& member(const Json& object, const char* name, Json::value_t type, const std::string& what) {
  const std::string expected = Json(type).type_name();
  if (!object.is_object()) throw warprank::invalid_argument(what, "an object", object.type_name());
  const auto found = object.find(name);
  if (found == object.end() || found->type() != type)
    throw warprank::invalid_argument(what, "a member '" + std::string(name) + "', " + expected,
                                     found == object.end() ? "none" : found->type_name());
  return *found;
}
/// The same, of one that may be left out.
inline const Json* optional_member(const Json& object, const char* name, Json::value_t type, const std::string& what) {
  return object.is_object() && object.find(name) == object.end() ? nullptr : &member(object, name, type, what);
}

inline std::string shown(const Json& value) { return value.dump(-1, ' ', true).substr(0, 80); }

template <class Integer>
Integer integer_of(const Json& value, const std::string& what, std::string_view datatype) {
  using Limits = std::numeric_limits<Integer>;
  if (value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(Limits::max()))
    return static_cast<Integer>(value.get<uint64_t>());
  if (value.is_number_integer() && !value.is_number_unsigned() && Limits::is_signed &&
      value.get<int64_t>() >= static_cast<int64_t>(Limits::min()))
    return static_cast<Integer>(value.get<int64_t>());
  throw warprank::invalid_argument(what, "integers of " + std::string(datatype), shown(value));
}
inline float float_of(const Json& value, const std::string& what) {
  if (!value.is_number() || std::fabs(value.get<double>()) > static_cast<double>(std::numeric_limits<float>::max()))
    throw warprank::invalid_argument(what, "numbers of FP32", shown(value));
  return static_cast<float>(value.get<double>());
}

/// The bytes of values as gRPC's raw_input_contents has them; none of a type that no input takes.
inline std::string bytes_of(const std::vector<Json>& values, std::string_view datatype, const std::string& what) {
  std::string bytes;
  const auto add = [&](const auto& value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); };
  bytes.reserve(values.size() * static_cast<size_t>(element_bytes(datatype)));
  for (const Json& value : values) {
    if (datatype == "FP32")
      add(float_of(value, what));
    else if (datatype == "INT64")
      add(integer_of<int64_t>(value, what, datatype));
    else if (datatype == "UINT64")
      add(integer_of<uint64_t>(value, what, datatype));
    else if (datatype == "INT32")
      add(integer_of<int32_t>(value, what, datatype));
    else if (datatype == "BYTES" && value.is_string())
      add(static_cast<uint32_t>(value.get_ref<const std::string&>().size())),
          bytes += value.get_ref<const std::string&>();
    else if (datatype == "BYTES")
      throw warprank::invalid_argument(what, "texts of BYTES", shown(value));
  }
  return bytes;
}

/// Parameters of a call, an input or an output; those named in `own` are HTTP's, and not copied.
template <class Parameters>
void copy_parameters(const Json* from, Parameters& to, const std::string& what, const std::set<std::string>& own = {}) {
  if (from == nullptr) return;
  for (const auto& item : from->items()) {
    const std::string& name = item.key();
    const Json& value = item.value();
    if (own.count(name) != 0) continue;
    inference::InferParameter& parameter = to[name];
    if (value.is_boolean())
      parameter.set_bool_param(value.get<bool>());
    else if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()})
      parameter.set_uint64_param(value.get<uint64_t>());
    else if (value.is_number_integer())
      parameter.set_int64_param(value.get<int64_t>());
    else if (value.is_number())
      parameter.set_double_param(value.get<double>());
    else if (value.is_string())
      parameter.set_string_param(value.get<std::string>());
    else
      throw warprank::invalid_argument(what + ", parameter '" + name.substr(0, 200) + "'",
                                       "a number, a text or a truth value", value.type_name());
  }
}
/// A parameter that is true or false.
inline std::optional<bool> flag(const Json* parameters, const char* name, const std::string& what) {
  const Json* const value =
      parameters == nullptr ? nullptr : optional_member(*parameters, name, Json::value_t::boolean, what);
  return value == nullptr ? std::nullopt : std::optional(value->get<bool>());
}

/// An input with its values, which it has in `data` or at the begin of `binary`; what it takes is cut off there.
inline void add_input(const Json& input, const CallJson& json, std::string_view& binary,
                      inference::ModelInferRequest& to) {
  using Type = Json::value_t;
  const std::string& name = member(input, "name", Type::string, "an input").get_ref<const std::string&>();
  const std::string what = "tensor '" + name.substr(0, 200) + "'";
  auto& tensor = *to.add_inputs();
  tensor.set_name(name);
  tensor.set_datatype(member(input, "datatype", Type::string, what).get_ref<const std::string&>());
  for (const Json& extent : member(input, "shape", Type::array, what))
    tensor.add_shape(integer_of<int64_t>(extent, what + ", shape", "INT64"));
  const Json* const parameters = optional_member(input, "parameters", Type::object, what);
  copy_parameters(parameters, *tensor.mutable_parameters(), what, {"binary_data_size"});
  const Json* const size =
      parameters == nullptr ? nullptr : optional_member(*parameters, "binary_data_size", Type::number_unsigned, what);
  const auto data = input.find("data");
  if ((size == nullptr) == (data == input.end()))
    throw warprank::invalid_argument(what, "values in 'data', or 'binary_data_size' of them behind the JSON",
                                     size == nullptr ? "neither" : "both");
  if (size == nullptr) {
    to.add_raw_input_contents(bytes_of(json.values(*data), tensor.datatype(), what));
    return;
  }
  if (size->get<uint64_t>() > binary.size())
    throw warprank::invalid_argument(what, std::to_string(size->get<uint64_t>()) + " bytes behind the JSON",
                                     std::to_string(binary.size()));
  const std::string_view bytes = binary.substr(0, size->get<size_t>());
  binary.remove_prefix(bytes.size());
  to.add_raw_input_contents(bytes.data(), bytes.size());
}

}  // namespace detail

/// What a body asks for, of which the first `json_bytes` are JSON; its model comes from elsewhere. Throws
/// warprank::invalid_argument.
inline HttpInfer read_infer(std::string_view body, size_t json_bytes) {
  using detail::Json;
  using Type = Json::value_t;
  if (json_bytes > body.size())
    throw warprank::invalid_argument("Inference-Header-Content-Length",
                                     "at most the body's " + std::to_string(body.size()) + " bytes",
                                     std::to_string(json_bytes));
  const detail::CallJson json(body.substr(0, json_bytes));
  std::string_view binary = body.substr(json_bytes);
  HttpInfer call;
  const Json& root = json.root();
  if (const Json* const id = detail::optional_member(root, "id", Type::string, "body")) call.request.set_id(*id);
  const Json* const parameters = detail::optional_member(root, "parameters", Type::object, "body");
  detail::copy_parameters(parameters, *call.request.mutable_parameters(), "body", {"binary_data_output"});
  call.is_binary = detail::flag(parameters, "binary_data_output", "body").value_or(false);
  for (const Json& input : detail::member(root, "inputs", Type::array, "body"))
    detail::add_input(input, json, binary, call.request);
  if (!binary.empty())
    throw warprank::invalid_argument("body", "as many bytes behind the JSON as all 'binary_data_size' say",
                                     std::to_string(binary.size()) + " more");
  if (const Json* const outputs = detail::optional_member(root, "outputs", Type::array, "body"))
    for (const Json& output : *outputs) {
      auto& wanted = *call.request.add_outputs();
      wanted.set_name(detail::member(output, "name", Type::string, "an output").get_ref<const std::string&>());
      const std::string what = "output '" + wanted.name().substr(0, 200) + "'";
      const Json* const own = detail::optional_member(output, "parameters", Type::object, what);
      detail::copy_parameters(own, *wanted.mutable_parameters(), what, {"binary_data"});
      if (const auto is_binary = detail::flag(own, "binary_data", what))
        call.is_output_binary[wanted.name()] = *is_binary;
    }
  return call;
}

/// The answer to a call.
inline HttpAnswer write_infer(const HttpInfer& call, const inference::ModelInferResponse& response) {
  using Json = nlohmann::ordered_json;
  Json json = {{"model_name", response.model_name()}, {"model_version", response.model_version()}};
  if (!response.id().empty()) json["id"] = response.id();
  for (const auto& [name, value] : response.parameters()) json["parameters"][name] = value.string_param();
  Json& outputs = json["outputs"] = Json::array();
  std::string binary;
  for (int o = 0; o < response.outputs_size(); ++o) {
    const auto& tensor = response.outputs(o);
    const std::string& bytes = response.raw_output_contents(o);
    Json& output = outputs.emplace_back(Json{{"name", tensor.name()}, {"datatype", tensor.datatype()}});
    output["shape"] = std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end());
    const auto said = call.is_output_binary.find(tensor.name());
    if (said == call.is_output_binary.end() ? call.is_binary : said->second) {
      output["parameters"]["binary_data_size"] = bytes.size();
      binary += bytes;
      continue;
    }
    Json& data = output["data"] = Json::array();
    const auto add_all = [&](auto value) {
      for (size_t at = 0; at < bytes.size(); at += sizeof value) {
        std::memcpy(&value, bytes.data() + at, sizeof value);
        data.push_back(value);
      }
    };
    if (tensor.datatype() == "FP32")
      add_all(float{});
    else if (tensor.datatype() == "INT64")
      add_all(int64_t{});
    else
      for (const std::string_view element :
           byte_elements({tensor.name(), tensor.datatype(), output["shape"], bytes, {}}))
        data.push_back(element);
  }
  HttpAnswer answer{json.dump(-1, ' ', false, Json::error_handler_t::replace)};
  answer.json_bytes = answer.body.size();
  answer.body += binary;
  return answer;
}

}  // namespace kserve
