// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Messages of ModelInfer as tests write and read them.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "inference.pb.h"

namespace kserve {

using namespace inference;

template <class Value>
std::string bytes(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

inline void add_raw(ModelInferRequest& request, const std::string& name, const std::string& datatype,
                    const std::vector<int64_t>& shape, const std::string& raw) {
  auto& input = *request.add_inputs();
  input.set_name(name);
  input.set_datatype(datatype);
  for (const int64_t extent : shape) input.add_shape(extent);
  request.add_raw_input_contents(raw);
}

inline std::map<std::string, std::string> raw_outputs(const ModelInferResponse& response) {
  std::map<std::string, std::string> outputs;
  for (int o = 0; o < response.outputs_size(); ++o)
    outputs[response.outputs(o).name()] = response.raw_output_contents(o);
  return outputs;
}

}  // namespace kserve
