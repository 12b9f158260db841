// SPDX-License-Identifier: Apache-2.0

/// No body of an infer by HTTP may crash the server: each is answered, or refused as invalid.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "../../examples/server/http_infer.hpp"
#include "examples/server_fuzzing.hpp"
#include "support/fuzz_input.hpp"
#include "warprank/core/error.hpp"

using warprank::test_support::require;

/// The first two bytes: how much of the others is behind the JSON.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static kserve::fuzzing::Service service;
  if (size < 2) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t behind = data[0] + size_t{256} * data[1];
  kserve::HttpInfer call;
  try {
    call = kserve::read_infer(body, body.size() - behind);  // also more than there is
  } catch (const warprank::invalid_argument& error) {
    require(*error.what() != '\0');
    return 0;
  }
  require(call.request.inputs_size() == call.request.raw_input_contents_size());
  call.request.mutable_parameters()->erase("timeout");
  inference::ModelInferResponse response;
  if (!service.infer(call.request, response).ok()) return 0;
  const kserve::HttpAnswer answer = kserve::write_infer(call, response);
  const auto json = nlohmann::json::parse(answer.body.substr(0, answer.json_bytes));
  size_t binary = 0;
  for (const auto& output : json.at("outputs"))
    if (output.count("data") == 0) binary += output.at("parameters").at("binary_data_size").get<size_t>();
  require(answer.json_bytes + binary == answer.body.size());
  return 0;
}
