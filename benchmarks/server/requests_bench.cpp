// SPDX-License-Identifier: Apache-2.0

// What the server does to a request before it is scored, from the bytes of a ModelInfer message to a closed batch: as
// named tensors and as a blob (docs/SERVER.md), in turns, on one thread.
//   min_us        of the form that the name says
//   named_ratio   of a blob: how many times as long named tensors take

#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "inference.pb.h"
#include "measure.hpp"
#include "meituan_like.hpp"
#include "movielens/model.hpp"
#include "server/infer.hpp"
#include "support/plain_request.hpp"
#include "support/random_data.hpp"
#include "warprank/model.hpp"

namespace warprank { namespace {

using test_support::PlainRequest;

/// A message of one request, as kinds of clients make it.
class Message {
 public:
  template <class Value>
  void add(const std::string& name, const char* datatype, std::vector<int64_t> shape,
           const std::vector<Value>& values) {
    auto* const input = message_.add_inputs();
    input->set_name(name);
    input->set_datatype(datatype);
    for (const int64_t extent : shape) input->add_shape(extent);
    message_.add_raw_input_contents(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value));
  }
  std::string bytes() const { return message_.SerializeAsString(); }

 private:
  inference::ModelInferRequest message_;
};

std::string named_message(const BatchLayout& layout, const PlainRequest& request) {
  Message message;
  for (const auto& [name, lengths] : request.lengths) {
    std::vector<int64_t> offsets = {0};
    for (const int64_t length : lengths) offsets.push_back(offsets.back() + length);
    message.add(name + ".offsets", "INT64", {static_cast<int64_t>(offsets.size())}, offsets);
  }
  for (const auto& [name, ids] : request.ids) message.add(name, "INT64", {static_cast<int64_t>(ids.size())}, ids);
  for (const auto& [name, values] : request.dense) {
    const int64_t width = layout.dense()[static_cast<size_t>(layout.dense(name).index)].width;
    message.add(name, "FP32", {static_cast<int64_t>(values.size()) / width, width}, values);
  }
  return message.bytes();
}

std::string blob_message(const BatchLayout& layout, const PlainRequest& request) {
  Batch batch(layout);
  add_to(batch, request);
  batch.close();
  if (!batch.status(0).ok()) throw std::runtime_error(batch.status(0).message);
  const BlobView blob = batch.blob(0);
  const auto size = static_cast<uint32_t>(blob.bytes());
  std::string element(sizeof size, '\0');
  std::memcpy(element.data(), &size, sizeof size);
  element.append(reinterpret_cast<const char*>(blob.data()), size);
  Message message;
  message.add(kserve::blobs_name, "BYTES", {1}, std::vector<char>(element.begin(), element.end()));
  return message.bytes();
}

void requests(benchmark::State& state, Outputs (*model)(Builder&), const test_support::RequestShape& shape) {
  const Plan plan = compile(model);
  const BatchLayout& layout = plan.layout();
  std::mt19937 random(1);
  const PlainRequest request = test_support::random_request(layout, shape, random);
  const std::string named = named_message(layout, request), blob = blob_message(layout, request);
  const kserve::TensorNames names(plan.source());
  Batch batch(layout);
  const auto close = [&] {
    batch.close();
    if (!batch.status(0).ok()) throw std::runtime_error(batch.status(0).message);
  };
  const auto run_named = [&] {
    inference::ModelInferRequest message;
    message.ParseFromString(named);
    const std::vector<kserve::Tensor> tensors = kserve::detail::tensors_of(message);
    const kserve::NamedRequests all(layout, names, tensors, 1);
    batch.clear();
    all.fill(batch.add_request(), 0);
    close();
  };
  const auto run_blob = [&] {
    inference::ModelInferRequest message;
    message.ParseFromString(blob);
    const std::vector<kserve::Tensor> tensors = kserve::detail::tensors_of(message);
    const std::string_view element = kserve::byte_elements(tensors[0])[0];
    batch.clear();
    batch.add_blob({reinterpret_cast<const std::byte*>(element.data()), static_cast<int64_t>(element.size())});
    close();
  };
  constexpr double sample_seconds = 1e-3;
  const int64_t calls = bench::calls_for(sample_seconds, run_blob),
                named_calls = bench::calls_for(sample_seconds, run_named);
  bench::Minimum time, named_time;
  for (auto _ : state) {
    named_time.sample(run_named, named_calls);
    state.SetIterationTime(time.sample(run_blob, calls) / static_cast<double>(calls));
  }
  state.counters["min_us"] = time.value() * 1e6;
  state.counters["named_us"] = named_time.value() * 1e6;
  state.counters["named_ratio"] = named_time.value() / time.value();
  state.counters["bytes"] = static_cast<double>(blob.size());
  state.counters["named_bytes"] = static_cast<double>(named.size());
}

test_support::RequestShape shape_of(std::map<std::string, int64_t> rows) {
  test_support::RequestShape shape;
  shape.rows = std::move(rows);
  shape.odd_ids = false;
  return shape;
}

BENCHMARK_CAPTURE(requests, meituan_like / items : 200, models::meituan_like,
                  shape_of({{"item", 200}, {"clicked", 100}, {"ordered", 100}}))
    ->Iterations(40)
    ->UseManualTime();
BENCHMARK_CAPTURE(requests, din_mmoe / items : 100, movielens::din_mmoe, shape_of({{"item", 100}, {"history", 50}}))
    ->Iterations(40)
    ->UseManualTime();

}}  // namespace warprank
