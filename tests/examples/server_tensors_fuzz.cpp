// SPDX-License-Identifier: Apache-2.0

/// No tensors may make the server's converter crash; what it takes for requests can be packed.

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "../../examples/server/named_requests.hpp"
#include "../../examples/server/tensor.hpp"
#include "batch/blob_testing.hpp"
#include "support/fuzz_input.hpp"
#include "warprank/batch/batch.hpp"

namespace {

using namespace warprank;
using namespace warprank::batch_testing;
using test_support::FuzzInput;
using test_support::require;

/// Tensors of a call and the bytes that they point to.
struct Call {
  std::list<std::string> bytes;
  std::vector<kserve::Tensor> tensors;
};

template <class Value>
std::string bytes_of_all(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

void take_tensor(FuzzInput& input, const std::vector<std::string>& names, Call& call) {
  kserve::Tensor& tensor = call.tensors.emplace_back();
  tensor.name = names[input.take<uint8_t>() % names.size()];
  const uint8_t kind = input.take<uint8_t>();
  static const char* const datatypes[] = {"INT64", "INT64", "FP32", "INT32", "UINT64", "BYTES", "FP16", ""};
  tensor.datatype = datatypes[kind % 8];
  int64_t count = 0;
  if (kind % 8 == 2) {
    const std::vector<float> values = input.take_all<float>();
    count = static_cast<int64_t>(values.size());
    call.bytes.push_back(bytes_of_all(values));
  } else if (kind % 8 == 3) {
    const std::vector<int32_t> values = input.take_all<int32_t>();
    count = static_cast<int64_t>(values.size());
    call.bytes.push_back(bytes_of_all(values));
  } else {
    std::vector<int64_t> values = input.take_all<int64_t>();
    if (kind & 8) {  // as offsets are: lengths, added up
      for (size_t i = 1; i < values.size(); ++i) values[i] = values[i - 1] + (values[i] & 3);
      if (!values.empty()) values[0] = 0;
    }
    count = static_cast<int64_t>(values.size());
    call.bytes.push_back(bytes_of_all(values));
  }
  tensor.bytes = call.bytes.back();
  tensor.shape = {count};
  if (kind & 16) tensor.shape = {count / 2, 2};
  if (kind & 32) tensor.shape = input.take_all<int64_t>();
}

void convert(const uint8_t* data, size_t size, const Graph& graph, const BatchLayout& layout) {
  const kserve::TensorNames tensor_names(graph);
  std::vector<std::string> names = tensor_names.all();
  names.push_back("other");
  FuzzInput input(data, size);
  Call call;
  while (!input.empty() && call.tensors.size() < 20) take_tensor(input, names, call);
  for (const kserve::Tensor& tensor : call.tensors) {
    try {
      const auto elements = kserve::byte_elements(tensor);
      require(static_cast<int64_t>(elements.size()) == tensor.shape[0]);
    } catch (const invalid_argument&) {
    }
  }
  try {
    const kserve::NamedRequests requests(layout, tensor_names, call.tensors, 16);
    require(requests.size() >= 1 && requests.size() <= 16);
    Batch batch(layout);
    for (int64_t r = 0; r < requests.size(); ++r) requests.fill(batch.add_request(), r);
    batch.close();
    for (int64_t r = 0; r < batch.size(); ++r)
      if (batch.status(r).ok()) require(validate(bytes_of(batch, r), layout).ok());
  } catch (const invalid_argument&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Graph wide = small_graph(), narrow = narrow_graph();
  static const BatchLayout wide_layout(wide), narrow_layout(narrow);
  convert(data, size, wide, wide_layout);
  convert(data, size, narrow, narrow_layout);
  return 0;
}
