// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Messages of the protocol as its JSON has them: fields by their names in the proto, integers of 64 bits as numbers.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>
#include <string>

namespace kserve {

nlohmann::ordered_json to_json(const google::protobuf::Message& message);

namespace detail {

/// One value of a field; `index`: of a repeated one, else -1.
inline nlohmann::ordered_json to_json(const google::protobuf::Message& message,
                                      const google::protobuf::FieldDescriptor& field, int index) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& all = *message.GetReflection();
  const bool is_one = index < 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return is_one ? all.GetInt32(message, &field) : all.GetRepeatedInt32(message, &field, index);
    case FieldDescriptor::CPPTYPE_INT64:
      return is_one ? all.GetInt64(message, &field) : all.GetRepeatedInt64(message, &field, index);
    case FieldDescriptor::CPPTYPE_UINT32:
      return is_one ? all.GetUInt32(message, &field) : all.GetRepeatedUInt32(message, &field, index);
    case FieldDescriptor::CPPTYPE_UINT64:
      return is_one ? all.GetUInt64(message, &field) : all.GetRepeatedUInt64(message, &field, index);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return is_one ? all.GetDouble(message, &field) : all.GetRepeatedDouble(message, &field, index);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return is_one ? all.GetFloat(message, &field) : all.GetRepeatedFloat(message, &field, index);
    case FieldDescriptor::CPPTYPE_BOOL:
      return is_one ? all.GetBool(message, &field) : all.GetRepeatedBool(message, &field, index);
    case FieldDescriptor::CPPTYPE_ENUM:
      return (is_one ? all.GetEnum(message, &field) : all.GetRepeatedEnum(message, &field, index))->name();
    case FieldDescriptor::CPPTYPE_STRING:
      return is_one ? all.GetString(message, &field) : all.GetRepeatedString(message, &field, index);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
  return kserve::to_json(is_one ? all.GetMessage(message, &field) : all.GetRepeatedMessage(message, &field, index));
}

}  // namespace detail

/// Fields with their defaults, too, but for messages that are not there.
inline nlohmann::ordered_json to_json(const google::protobuf::Message& message) {
  const google::protobuf::Descriptor& descriptor = *message.GetDescriptor();
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (int f = 0; f < descriptor.field_count(); ++f) {
    const google::protobuf::FieldDescriptor& field = *descriptor.field(f);
    if (!field.is_repeated()) {
      if (!field.has_presence() || reflection.HasField(message, &field))
        json[field.name()] = detail::to_json(message, field, -1);
      continue;
    }
    nlohmann::ordered_json& values = json[field.name()];
    values = field.is_map() ? nlohmann::ordered_json::object() : nlohmann::ordered_json::array();
    for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
      nlohmann::ordered_json value = detail::to_json(message, field, i);
      if (field.is_map())
        values[value.at("key").get<std::string>()] = std::move(value.at("value"));
      else
        values.push_back(std::move(value));
    }
  }
  return json;
}

}  // namespace kserve
