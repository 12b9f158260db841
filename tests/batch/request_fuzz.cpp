// SPDX-License-Identifier: Apache-2.0

/// No values may make a setter crash or throw; a request that is ok is a valid blob.

#include <cstdint>
#include <numeric>
#include <vector>

#include "batch/blob_testing.hpp"
#include "support/fuzz_input.hpp"
#include "warprank/batch/batch.hpp"

namespace {

using namespace warprank;
using namespace warprank::batch_testing;
using test_support::FuzzInput;
using test_support::require;

/// Sets a history and its tags so that they agree.
void set_history(Request& request, FuzzInput& input, const BatchLayout& layout) {
  std::vector<int64_t> lengths(input.take<uint8_t>() % 8);
  for (int64_t& length : lengths) length = input.take<uint8_t>() % 4;
  const std::vector<int64_t> tags(static_cast<size_t>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})));
  request.ids(layout.ids("seen"), lengths).ids(layout.ids("tag"), tags, Lengths(lengths));
}

void set_something(Request& request, FuzzInput& input, const BatchLayout& layout) {
  const uint8_t what = input.take<uint8_t>() % 9;
  const int ids = input.take<uint8_t>() % static_cast<int>(layout.ids().size());
  const int dense = ids % static_cast<int>(layout.dense().size());
  const int axis = ids % static_cast<int>(layout.axes().size());
  if (what == 0) request.ids({ids}, input.take_all<int64_t>());
  if (what == 1) request.ids({ids}, input.take_all<int64_t>(), Lengths(input.take_all<int64_t>()));
  if (what == 2) request.ids({ids}, input.take_all<int64_t>(), Offsets(input.take_all<int64_t>()));
  if (what == 3) request.dense({dense}, input.take_all<float>());
  if (what == 4) request.lengths({axis}, input.take_all<int64_t>());
  if (what == 5) request.offsets({axis}, input.take_all<int64_t>());
  if (what == 6) request.ids({0}, {1});
  if (what == 7) request.ids({1}, {1, 2}).dense({0}, {1, 2, 3, 4});
  if (what == 8) set_history(request, input, layout);
}

void fill(const uint8_t* data, size_t size, const BatchLayout& layout, Batch& batch) {
  batch.clear();
  FuzzInput input(data, size);
  while (!input.empty()) {
    Request request = batch.add_request();
    for (int setters = input.take<uint8_t>() % 8; setters > 0; --setters) set_something(request, input, layout);
    if (input.take<uint8_t>() % 2 == 0) request.finish();
  }
  batch.close();
  for (int64_t r = 0; r < batch.size(); ++r)
    if (batch.status(r).ok()) require(validate(bytes_of(batch, r), layout).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const BatchLayout wide(small_graph()), narrow(narrow_graph());
  static Batch wide_batch(wide), narrow_batch(narrow);
  fill(data, size, wide, wide_batch);
  fill(data, size, narrow, narrow_batch);
  return 0;
}
