// SPDX-License-Identifier: Apache-2.0

// Every way to compute a stack of layers in one launch, beside what the rule of detail/mlp/policy.hpp takes, the
// library's layers one by one, and cuBLASLt's chain.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "stack.cuh"

namespace warprank::bench {
namespace {

std::vector<ChainPolicy> policies() {
  std::vector<ChainPolicy> all{{{}, MlpTile::rows_16}, {{}, MlpTile::rows_32}};
  for (SplitPolicy split : detail::mlp::split_kernels)
    for (const int blocks : {4, 8, 16, 32, detail::mlp::max_split_blocks}) {
      split.blocks = blocks;
      all.push_back({split});
    }
  return all;
}

/// Whether blocks that wait for one another can all be resident.
bool is_resident(const ChainPolicy& policy, int64_t rows) {
  const int64_t tiles = (rows + policy.split.rows() - 1) / policy.split.rows();
  return !policy.split.is_split() || tiles * policy.split.blocks <= device::num_multiprocessors();
}

void mlp(Run& run, const std::vector<int64_t>& widths, int64_t rows) {
  StackData data(run, widths, rows);
  const std::vector<Mlp> stacks{data.stack(data.make_result())};
  std::vector<std::pair<std::string, Call>> ways{{"by rule", data.fused()}};
  for (const ChainPolicy& policy : policies())
    if (detail::mlp::fits_chain(Span<const Mlp>(stacks), policy) && is_resident(policy, rows))
      ways.push_back({policy.to_string(), data.fused(&policy)});
  ways.push_back({"layers", data.one_by_one(queue_own_layer)});
  if (product_maker == "cublaslt") ways.push_back({product_maker, data.one_by_one(queue_product)});
  run.compare(ways);
}

}  // namespace

void add_benchmarks() {
  for (const std::vector<int64_t>& widths : stacks_to_measure)
    for (const int64_t rows : {1, 50, 100, 500, 1000, 4096})
      if (on_gpu || (rows == 1 && widths[1] <= 128))
        add_sweep(name_of_stack(widths, rows), [=](Run& run) { mlp(run, widths, rows); });
}

}  // namespace warprank::bench
