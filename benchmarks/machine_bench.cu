// SPDX-License-Identifier: Apache-2.0

// What the card can do: large copies, dense FP16 products by mma alone, and the time that a kernel takes that does
// nothing.

#include <cstdint>
#include <vector>

#include "measure_cuda.cuh"
#include "warprank/device/empty_kernel.hpp"

namespace warprank::bench {
namespace {

void copy(Run& run) {
  const int64_t bytes = size_for(int64_t{256} << 20, 1 << 10);
  std::vector<unsigned char> values(static_cast<size_t>(bytes));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<unsigned char>(i * 7 + i / 256);
  auto* const to = run.allocate<unsigned char>(bytes);
  const auto* const from = run.upload(values);
  run.measure({2.0 * static_cast<double>(bytes)},
              {[=](device::Stream stream) { device::copy_on_device(to, from, bytes, stream); },
               [&] {
                 if (run.read(to, bytes) != values) throw WrongResult("copy: other bytes");
               }});
}

void tensor(Run& run) {
  TensorRate rate;
  rate.num_blocks = static_cast<int>(size_for(rate.num_blocks, 1));
  rate.rounds = static_cast<int>(size_for(8192, 3));
  auto* const sums = run.allocate<int32_t>(rate.num_threads());
  run.measure({0, rate.flops()}, {[=](device::Stream stream) { rate.launch(sums, stream); },
                                  [&] {
                                    const std::vector<int32_t> got = run.read(sums, rate.num_threads());
                                    for (size_t i = 0; i < got.size(); ++i)
                                      if (got[i] != rate.expected(static_cast<int>(i % 32)))
                                        throw WrongResult("tensor: another sum");
                                  }});
}

void launch(Run& run) { run.measure({}, {device::launch_empty, nullptr}); }

}  // namespace

void add_benchmarks() {
  add("machine/copy", copy);
  add("machine/tensor", tensor);
  add("machine/launch", launch);
}

}  // namespace warprank::bench
