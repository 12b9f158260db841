// SPDX-License-Identifier: Apache-2.0

// Stacks of layers against a chain of cuBLASLt, and against the library's own layers one by one, both in a graph.

#include <cstdint>
#include <string>
#include <vector>

#include "stack.cuh"

namespace warprank::bench {
namespace {

void mlp(Run& run, const std::vector<int64_t>& widths, int64_t rows) {
  StackData data(run, widths, rows);
  run.measure(data.work(), data.fused(),
              {{product_maker, data.one_by_one(queue_product)}, {"layers", data.one_by_one(queue_own_layer)}});
}

}  // namespace

void add_benchmarks() {
  for (const std::vector<int64_t>& widths : stacks_to_measure)
    for (const int64_t rows : {1, 50, 100, 500, 1000, 4096})
      if (on_gpu || (rows <= 50 && widths[1] <= 256))
        add(name_of_stack(widths, rows), [=](Run& run) { mlp(run, widths, rows); });
}

}  // namespace warprank::bench
