// SPDX-License-Identifier: Apache-2.0

// Look-ups of the workloads of workloads.hpp, pooled by sums, against a launch of the same kernel for each feature, and
// against a plain gather: one launch, a warp for each bag and feature, which reads one row after another.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "measure_cuda.cuh"
#include "policies.cuh"
#include "reference/embedding_bag.hpp"
#include "tables.cuh"
#include "warprank/ops/embedding_bag.cuh"
#include "workloads.hpp"

namespace warprank::bench {
namespace {

struct GatherFeature {
  const unsigned char* rows;
  const float *scale, *offset;
  const int64_t *ids, *offsets;
  float16* y;
  int64_t dim, num_bags, row_stride, scale_stride;  // bytes; floats
};

template <class Value>
WARPRANK_KERNEL(256, 1)
gather_kernel(const GatherFeature* features) {
  const GatherFeature feature = features[device::block_index().y];
  const int64_t num_warps = device::num_threads() / device::warp_size;
  for (int64_t bag = device::global_thread_rank() / device::warp_size; bag < feature.num_bags; bag += num_warps) {
    const int64_t begin = feature.offsets[bag], end = feature.offsets[bag + 1];
    for (int64_t column = device::lane_index(); column < feature.dim; column += device::warp_size) {
      float sum = 0;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = feature.ids[i];
        const auto* const values = reinterpret_cast<const Value*>(feature.rows + row * feature.row_stride);
        const float value = device::widen(device::load_read_only(&values[column]));
        const int64_t at = row * feature.scale_stride;
        sum += feature.scale == nullptr ? value : value * feature.scale[at] + feature.offset[at];
      }
      device::store(&feature.y[bag * feature.dim + column], device::narrow<float16>(sum));
    }
  }
}

/// A feature's ids and table.
struct Feature {
  Feature(Memory& memory, const BagWorkload& workload, const BagShape& shape, uint64_t seed)
      : host(make_ids(shape, workload.alpha, seed)),
        table(memory, workload.type, shape.num_rows, shape.dim, workload.scales_are_behind),
        ids(memory.upload(host.ids)),
        offsets(memory.upload(host.offsets)) {}

  Matrix<float16> make_result(Memory& memory) const {
    const int64_t dim = table.view().dim;
    return {memory.allocate<float16>(host.num_bags() * dim), host.num_bags(), dim};
  }
  BagFeature feature(Matrix<float16> y) const {
    BagFeature to;
    to.table = table.view();
    IdArray array;
    array.ids = ids, array.offsets = offsets, array.num_ids.capacity = static_cast<int64_t>(host.ids.size());
    to.ids = array;
    to.num_bags.capacity = host.num_bags();
    to.pooling = Pooling::sum;
    to.y = y;
    return to;
  }
  GatherFeature gather(Matrix<float16> y) const {
    const TableView& t = table.view();
    return {t.row(0),
            t.scale,
            t.offset,
            ids,
            offsets,
            y.data,
            t.dim,
            host.num_bags(),
            t.row_stride_bytes,
            t.scale_stride_bytes / 4};
  }
  void check(const Memory& memory, Matrix<float16> y) const {
    const int64_t dim = table.view().dim;
    const std::vector<int64_t> bags = some_rows(host.num_bags());
    std::vector<int64_t> wanted, offsets_of_wanted{0};
    for (const int64_t bag : bags) {
      for (int64_t i = host.offsets[static_cast<size_t>(bag)]; i < host.offsets[static_cast<size_t>(bag) + 1]; ++i)
        wanted.push_back(host.ids[static_cast<size_t>(i)]);
      offsets_of_wanted.push_back(static_cast<int64_t>(wanted.size()));
    }
    std::vector<int64_t> places;
    for (size_t i = 0; i < wanted.size(); ++i) places.push_back(static_cast<int64_t>(i));
    const BenchTable::Rows rows = table.rows(wanted);
    const auto expected = reference::embedding_bag(
        rows.view, [](int64_t place) { return place; }, places, offsets_of_wanted, {}, Pooling::sum);
    const auto got = memory.read(y.data, host.num_bags() * dim);
    expect_within<float16>("embedding_bag", expected, select_rows(got, dim, bags), 2);
  }

  BagIds host;
  BenchTable table;
  const int64_t *ids, *offsets;
};

/// A launch for all of these.
Queue queue_bags(Memory& memory, const std::vector<BagFeature>& features,
                 const LaunchPolicies& policies = usual_policies()) {
  return queue_launch(memory, EmbeddingBag(features, policies));
}

Queue queue_gather(Memory& memory, const std::vector<GatherFeature>& features, DType type) {
  int64_t most_bags = 1;
  for (const GatherFeature& feature : features) most_bags = std::max(most_bags, feature.num_bags);
  const auto* const on_device = memory.upload(features);
  const device::Dim3 grid{static_cast<unsigned>(std::min<int64_t>((most_bags + 7) / 8, 1024)),
                          static_cast<unsigned>(features.size()), 1};
  const auto kernel = type == DType::i8 ? gather_kernel<int8_t> : gather_kernel<float16>;
  return [=](device::Stream stream) { device::launch({grid, 256, 0, stream}, kernel, on_device); };
}

void embedding_bag(Run& run, const BagWorkload& workload, const PolicySweep* sweep = nullptr) {
  std::vector<std::unique_ptr<Feature>> features;
  Work work;
  for (const BagShape& shape : workload.features) {
    features.push_back(std::make_unique<Feature>(run, workload, shape, features.size()));
    const Feature& feature = *features.back();
    const auto row_bytes = static_cast<double>(feature.table.stored_row_bytes());
    const auto beside = static_cast<double>(8 * (feature.host.ids.size() + feature.host.offsets.size()) +
                                            2 * static_cast<size_t>(feature.host.num_bags() * shape.dim));
    work.bytes += row_bytes * static_cast<double>(feature.host.num_unique()) + beside;
    work.requested_bytes += row_bytes * static_cast<double>(feature.host.ids.size()) + beside;
  }
  const auto make_results = [&] {
    std::vector<Matrix<float16>> results;
    for (const auto& feature : features) results.push_back(feature->make_result(run));
    return results;
  };
  const auto check = [&](const std::vector<Matrix<float16>>& results) {
    return [&, results] {
      for (size_t f = 0; f < features.size(); ++f) features[f]->check(run, results[f]);
    };
  };
  const auto call_by = [&](const LaunchPolicies& policies) -> Call {
    const std::vector<Matrix<float16>> results = make_results();
    std::vector<BagFeature> together;
    for (size_t f = 0; f < features.size(); ++f) together.push_back(features[f]->feature(results[f]));
    return {queue_bags(run, together, policies), check(results)};
  };
  if (sweep != nullptr) return compare_policies(run, *sweep, call_by);

  const std::vector<Matrix<float16>> apart = make_results(), of_gather = make_results();
  std::vector<Queue> one_by_one;
  std::vector<GatherFeature> gathered;
  for (size_t f = 0; f < features.size(); ++f) {
    one_by_one.push_back(queue_bags(run, {features[f]->feature(apart[f])}));
    gathered.push_back(features[f]->gather(of_gather[f]));
  }
  run.measure(work, call_by(usual_policies()),
              {{"unfused", {in_sequence(one_by_one), check(apart)}},
               {"gather", {queue_gather(run, gathered, workload.type), check(of_gather)}}});
}

}  // namespace

void add_benchmarks() {
  for (const BagWorkload& workload : bag_workloads())
    add("embedding_bag/" + workload.name,
        [workload](Run& run) { embedding_bag(run, on_gpu ? workload : small(workload)); });

  using Policies = LaunchPolicies;
  const PolicySweep sweeps[] = {
      {"look_up_wide_row_bytes", &Policies::look_up_wide_row_bytes, {32, 64, 128, 256, no_limit}},
      {"look_up_rounds", &Policies::look_up_rounds, {1, 2, 4, 8}}};
  std::vector<BagWorkload> workloads{serving(1, 50, 1.05)};
  if (on_gpu)
    workloads = {nbit_device(DType::f16, 0),
                 nbit_device(DType::f16, 1.05),
                 nbit_device(DType::i8, 1.05),
                 cuembed(1000000, 32, 32768, 16, 1.05),
                 cuembed(1000000, 128, 1024, 64, 1.05),
                 cuembed(1000000, 128, 32768, 16, 1.05),
                 criteo(1.05),
                 serving(1, 500, 1.05),
                 serving(16, 100, 1.05),
                 serving(64, 100, 1.05)};
  if (is_simulated())  // which takes minutes for what is larger
    workloads = {cuembed(1000000, 32, 1024, 64, 1.05), cuembed(1000000, 128, 1024, 64, 1.05), serving(1, 50, 1.05),
                 serving(1, 500, 1.05), serving(16, 100, 1.05)};
  for (const PolicySweep& sweep : sweeps)
    for (const BagWorkload& workload : workloads)
      add_policy(sweep, "embedding_bag/" + workload.name, [workload](Run& run, const PolicySweep* of) {
        embedding_bag(run, on_gpu ? workload : small(workload), of);
      });
}

}  // namespace warprank::bench
