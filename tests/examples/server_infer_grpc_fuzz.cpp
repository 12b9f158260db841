// SPDX-License-Identifier: Apache-2.0

/// No ModelInfer may crash the server, whatever its message: each is answered, or refused as invalid.

#include <grpcpp/support/status.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "examples/server_fuzzing.hpp"
#include "support/fuzz_input.hpp"

namespace {

using namespace warprank;
using kserve::fuzzing::Service;
using test_support::FuzzInput;
using test_support::require;

template <class Value>
std::string bytes_of(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

/// A request that is right, but for some bytes.
std::string take_blob(FuzzInput& input, const Plan& plan) {
  Batch batch = plan.batch();
  const int64_t items = input.take<uint8_t>() % 4;
  const std::vector<int64_t> ids(static_cast<size_t>(items), input.take<uint8_t>() % 25);
  batch.add_request()
      .ids(plan.ids("user_id"), {input.take<int8_t>()})
      .ids(plan.ids("film_id"), ids)
      .dense(plan.dense("x"), std::vector<float>(static_cast<size_t>(2 * items), 0.5f));
  batch.close();
  require(batch.status(0).ok());
  std::string bytes(reinterpret_cast<const char*>(batch.blob(0).data()), static_cast<size_t>(batch.blob(0).bytes()));
  for (int changes = input.take<uint8_t>() % 4; changes > 0; --changes)
    bytes[input.take<uint16_t>() % bytes.size()] = static_cast<char>(input.take<uint8_t>());
  if (input.take<uint8_t>() % 4 == 0) bytes.resize(input.take<uint16_t>() % (bytes.size() + 9));
  return bytes;
}

void take_tensor(FuzzInput& input, const Service& service, inference::ModelInferRequest& request) {
  auto& tensor = *request.add_inputs();
  tensor.set_name(service.names()[input.take<uint8_t>() % service.names().size()]);
  const uint8_t kind = input.take<uint8_t>();
  static const char* const datatypes[] = {"INT64", "INT64", "FP32", "FP32", "INT32", "UINT64", "BYTES", "FP16"};
  tensor.set_datatype(datatypes[kind % 8]);
  auto& contents = *tensor.mutable_contents();
  std::string raw;
  int64_t count = 0;
  if (kind % 8 == 6) {
    for (count = input.take<uint8_t>() % 4; contents.bytes_contents_size() < count;) {
      const std::string blob = take_blob(input, service.plan());
      const auto size = static_cast<uint32_t>(blob.size());
      raw.append(reinterpret_cast<const char*>(&size), sizeof size).append(blob);
      contents.add_bytes_contents(blob);
    }
  } else if (kind % 8 == 2 || kind % 8 == 3) {
    const std::vector<float> values = input.take_all<float>();
    contents.mutable_fp32_contents()->Add(values.begin(), values.end());
    raw = bytes_of(values);
    count = static_cast<int64_t>(values.size());
  } else {
    std::vector<int64_t> values = input.take_all<int64_t>();
    if (kind & 8) {  // as offsets are: lengths, added up
      for (size_t i = 1; i < values.size(); ++i) values[i] = values[i - 1] + (values[i] & 3);
      if (!values.empty()) values[0] = 0;
    }
    if (kind % 8 == 5)
      contents.mutable_uint64_contents()->Add(values.begin(), values.end());
    else
      contents.mutable_int64_contents()->Add(values.begin(), values.end());
    raw = bytes_of(values);
    count = static_cast<int64_t>(values.size());
  }
  for (const int64_t extent : kind & 32   ? input.take_all<int64_t>()
                              : kind & 16 ? std::vector<int64_t>{count / 2, 2}
                                          : std::vector<int64_t>{count})
    tensor.add_shape(extent);
  if (kind & 64) {
    tensor.clear_contents();
    request.add_raw_input_contents(raw);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Service service;
  inference::ModelInferRequest request;
  FuzzInput input(data, size);
  if (input.take<uint8_t>() % 4 == 0) {
    if (size == 0 || !request.ParseFromArray(data + 1, static_cast<int>(size) - 1)) return 0;
    (*request.mutable_parameters()).erase("timeout");
  } else {
    while (!input.empty() && request.inputs_size() < 12) take_tensor(input, service, request);
  }
  inference::ModelInferResponse response;
  const grpc::Status status = service.infer(request, response);
  if (!status.ok()) return 0;
  require(response.outputs_size() == response.raw_output_contents_size());
  for (int o = 0; o < response.outputs_size(); ++o) {
    const auto& output = response.outputs(o);
    if (output.datatype() == "BYTES") continue;
    const std::vector<int64_t> shape(output.shape().begin(), output.shape().end());
    require(kserve::has_size(shape, kserve::element_bytes(output.datatype()), response.raw_output_contents(o).size()));
  }
  return 0;
}
