// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host's part of ops/attention.cuh: checks attentions, divides their work, and launches. Given is Attention, which
/// is defined there, for all to read.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/target.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/contract.hpp"
#include "warprank/ops/detail/attention/bias.cuh"
#include "warprank/ops/detail/attention/descriptor.cuh"
#include "warprank/ops/detail/attention/kernel.cuh"
#include "warprank/ops/detail/attention/split.cuh"
#include "warprank/ops/detail/common/check_float_matrix.hpp"
#include "warprank/ops/detail/common/item_units.cuh"

namespace warprank { inline namespace v0 { namespace detail::attention {

/// Attentions of one launch.
struct Plan {
  std::vector<Descriptor> descriptors;
  int target = 0;
  int columns = narrow_columns;  ///< that the kernel is compiled for
  int64_t blocks = 0;            ///< for each attention
  int64_t shared_bytes = 0;

  AttentionWeights weights = AttentionWeights::softmax;
  std::vector<SiluSplitDescriptor> split;  ///< none: attention_kernel
  bool has_window = false;
  bool has_bias = false;
  std::vector<RelativeBias> biases;  ///< of each attention
  int split_dim = 0, heads = 0;      ///< of the widest attention
  int64_t units = 0;                 ///< of the largest one

  int64_t num_launches() const {
    if (blocks + units == 0) return 0;
    const int64_t most = SplitLaunch<AttentionWeights::softmax>::max_attentions,
                  count = static_cast<int64_t>(split.size());
    return std::max<int64_t>(1, (count + most - 1) / most);
  }
  std::vector<unsigned char> bytes() const {
    if (has_bias)
      return split.empty() ? with_biases<BiasedDescriptor>(descriptors) : with_biases<BiasedSplitDescriptor>(split);
    if (split.empty()) return bytes_of(descriptors);
    if (weights == AttentionWeights::silu) return bytes_of(split);
    return bytes_of(std::vector<SplitDescriptor>(split.begin(), split.end()));
  }

 private:
  template <class Biased, class Descriptor>
  std::vector<unsigned char> with_biases(const std::vector<Descriptor>& of_all) const {
    std::vector<Biased> biased(of_all.size());
    for (size_t i = 0; i < of_all.size(); ++i) {
      static_cast<Descriptor&>(biased[i]) = of_all[i];
      biased[i].bias = biases[i];
    }
    return bytes_of(biased);
  }
};

template <class Given>
bool has_own_keys(const Given& given) {
  return given.own_k.data != nullptr || given.own_v.data != nullptr;
}

template <class Given>
void check_bias(const Given& given, const std::string& what, Problems& problems) {
  if (given.bias == nullptr) return;
  const AttentionBiasShape& shape = given.bias_shape;
  if (given.weights != AttentionWeights::silu)
    problems.add(what + "'s bias", "the weights of silu", "the weights of a softmax");
  if (shape.tables != 1 && shape.tables != given.heads)
    problems.add(what + "'s bias", "a table for all heads, or one for each", std::to_string(shape.tables));
  check_pointer(what + "'s bias", given.bias, 16, problems);
  if (shape.positions > 0 && !given.causal && given.item_offsets == given.history_offsets)
    problems.add(what + "'s bias by position", "causal attention, or items that are not the events", "neither");
  if (!shape.has_time()) return;
  check_matrix<const void>(what + "'s item_times", given.item_times, given.q.rows, 1, problems);
  check_matrix<const void>(what + "'s event_times", given.event_times, given.k.rows, 1, problems);
}

template <class Given>
void check_attention(const Given& given, const std::string& what, Problems& problems) {
  const int64_t width = given.q.cols, heads = given.heads;
  if (heads < 1) return problems.add(what + "'s heads", "1 or more", std::to_string(heads));
  if (width % heads != 0 || width < heads || width / heads > wide_columns)
    problems.add(what + "'s columns", "1 to " + std::to_string(wide_columns) + " for each of its heads",
                 std::to_string(width) + " columns, " + std::to_string(heads) + " heads");
  check_matrix<const void>(what + "'s q", given.q, given.q.rows, width, problems);
  check_matrix<const void>(what + "'s k", given.k, given.k.rows, width, problems);
  check_matrix<const void>(what + "'s v", given.v, given.k.rows, width, problems);
  check_matrix(what + "'s y", given.y, given.q.rows, width, problems);
  constexpr int64_t most_events = std::numeric_limits<int32_t>::max();
  if (given.k.rows > most_events)
    problems.add(what + "'s events", "at most " + std::to_string(most_events), std::to_string(given.k.rows));
  if (!std::isfinite(given.scale)) problems.add(what + "'s scale", "a number", std::to_string(given.scale));
  if (given.causal && (given.item_offsets != given.history_offsets || given.q.rows != given.k.rows))
    problems.add(what, "items that are the events, as it is causal", "another axis");
  const bool silu = given.weights == AttentionWeights::silu;
  if (!std::isfinite(given.divisor) || !std::isfinite(1 / given.divisor) || given.divisor < 0 ||
      (!silu && given.divisor != 1))
    problems.add(what + "'s divisor", silu ? "a number above 0" : "1, as a softmax has none",
                 std::to_string(given.divisor));
  constexpr int64_t most_window = int64_t{1} << 30;
  if (given.window < 0 || given.window > most_window || given.full_last < 0 || given.full_last > most_window)
    problems.add(what + "'s window and full_last", "0 to 2^30",
                 std::to_string(given.window) + " and " + std::to_string(given.full_last));
  if (given.window != 0 && !silu) problems.add(what + "'s window", "the weights of silu", "the weights of a softmax");
  if (has_own_keys(given)) {
    if (!silu || given.causal)
      problems.add(what + "'s own keys", "the weights of silu, and not causal",
                   silu ? "causal" : "the weights of a softmax");
    check_matrix<const void>(what + "'s own_k", given.own_k, given.q.rows, width, problems);
    check_matrix<const void>(what + "'s own_v", given.own_v, given.q.rows, width, problems);
  }
  check_bias(given, what, problems);
  check_items_and_events(given, what, problems);
}

/// That no attention writes what it or another of the launch reads or writes; but y may be the whole q.
template <class Given>
void check_overlaps(Span<const Given> attentions, Problems& problems) {
  for (int64_t i = 0; i < attentions.size(); ++i) {
    const Region y = region_of(attentions[i].y);
    for (int64_t j = 0; j < attentions.size(); ++j) {
      const auto refuse = [&](const char* name, const Region& region) {
        if (overlap(y, region))
          problems.add("y of attention " + std::to_string(i), "memory of its own",
                       "an overlap with " + std::string(name) + " of attention " + std::to_string(j));
      };
      const Region q = region_of(FloatMatrix<const void>(attentions[j].q));
      if (i != j || !(y == q)) refuse("q", q);
      refuse("k", region_of(FloatMatrix<const void>(attentions[j].k)));
      refuse("v", region_of(FloatMatrix<const void>(attentions[j].v)));
      if (attentions[j].bias != nullptr && attentions[j].bias_shape.has_time()) {
        refuse("item_times", region_of(FloatMatrix<const void>(attentions[j].item_times)));
        refuse("event_times", region_of(FloatMatrix<const void>(attentions[j].event_times)));
      }
      if (has_own_keys(attentions[j])) {
        refuse("own_k", region_of(FloatMatrix<const void>(attentions[j].own_k)));
        refuse("own_v", region_of(FloatMatrix<const void>(attentions[j].own_v)));
      }
      if (i < j) refuse("y", region_of(attentions[j].y));
    }
  }
}

/// Rows whose heads have `dim` columns each. Vectors are loaded where every head begins with one.
inline gemm::RowSource source_of(const Matrix<const float16>& matrix, int dim) {
  gemm::RowSource source{};
  source.first = matrix.data;
  source.stride = matrix.stride;
  source.num_columns = dim;
  source.is_aligned = reinterpret_cast<uintptr_t>(matrix.data) % 16 == 0 && matrix.stride % 8 == 0 &&
                      (dim % 8 == 0 || dim == matrix.cols);
  return source;
}

template <class Given>
Descriptor describe(const Given& given) {
  Descriptor to{};
  to.axes = items_and_events_of(given);
  to.heads = static_cast<int>(given.heads);
  to.dim = static_cast<int>(given.q.cols / given.heads);
  to.padded_dim = (to.dim + 15) / 16 * 16;
  to.q = source_of(given.q, to.dim);
  to.k = source_of(given.k, to.dim);
  to.v = source_of(given.v, to.dim);
  if (has_own_keys(given)) {
    to.own_k = source_of(given.own_k, to.dim);
    to.own_v = source_of(given.own_v, to.dim);
  }
  to.y = gemm::operand_of(given.y);
  to.scale = given.scale == 0 ? 1 / std::sqrt(static_cast<float>(to.dim)) : given.scale;
  to.share = 1 / given.divisor;
  to.causal = given.causal;
  to.window = {static_cast<int>(given.window), static_cast<int>(given.full_last)};
  return to;
}

template <class Given>
RelativeBias describe_bias(const Given& given) {
  RelativeBias to{};
  if (given.bias == nullptr) return to;
  const AttentionBiasShape& shape = given.bias_shape;
  if (shape.has_time()) {
    to.cells = given.bias;
    to.item_times = given.item_times.data, to.event_times = given.event_times.data;
    to.item_stride = given.item_times.stride, to.event_stride = given.event_times.stride;
    to.last_bucket = static_cast<int>(shape.time_buckets);
    to.buckets_per_bit = time_buckets_per_bit(shape.time_bucket_width);
  }
  if (shape.positions > 0) to.positions = given.bias + shape.positions_offset();
  to.last_position = static_cast<int>(shape.positions - 1);
  to.is_by_head = shape.tables > 1 ? 1 : 0;
  return to;
}

/// Whether split_attention_kernel does an attention.
inline bool may_be_split(const Descriptor& d) {
  constexpr int most_heads = 65535;
  const bool has_width = d.dim == 16 || d.dim == 32 || d.dim == 64 || d.dim == 128;
  int64_t widest = 0;
  for (const int64_t stride : {d.q.stride, d.k.stride, d.v.stride, d.y.stride, d.own_k.stride, d.own_v.stride})
    widest = std::max(widest, stride);
  const bool own_are_aligned = d.own_k.first == nullptr || (d.own_k.is_aligned && d.own_v.is_aligned);
  return has_width && d.heads <= most_heads && widest <= std::numeric_limits<int>::max() && d.q.is_aligned &&
         d.k.is_aligned && d.v.is_aligned && own_are_aligned && d.y.is_aligned;
}

template <class Given>
SiluSplitDescriptor describe_split(const Given& given, const Descriptor& d) {
  constexpr float log2_of_e = 1.44269504f;
  SiluSplitDescriptor to{};
  to.q = d.q.first, to.k = d.k.first, to.v = d.v.first, to.y = d.y.data;
  to.q_stride = static_cast<uint32_t>(d.q.stride), to.k_stride = static_cast<uint32_t>(d.k.stride);
  to.v_stride = static_cast<uint32_t>(d.v.stride), to.y_stride = static_cast<uint32_t>(d.y.stride);
  to.num_parents = d.axes.num_parents;
  to.item_offsets = d.axes.item_offsets, to.history_offsets = d.axes.history_offsets;
  to.max_parents = d.axes.max_parents, to.max_items = d.axes.max_items;
  to.max_events = static_cast<int>(given.k.rows);
  to.heads = d.heads;
  to.factor = given.weights == AttentionWeights::softmax ? d.scale * log2_of_e : d.scale;
  to.own_k = d.own_k.first, to.own_v = d.own_v.first;
  to.own_k_stride = static_cast<uint32_t>(d.own_k.stride), to.own_v_stride = static_cast<uint32_t>(d.own_v.stride);
  to.share = d.share;
  to.window = d.window;
  to.is_half = d.y.is_half ? 1 : 0;
  to.is_causal = d.causal ? 1 : 0;
  return to;
}

/// Where all of the attentions may be split and are of one width, they are: a block for each unit that there may be.
template <class Given>
void plan_split(Span<const Given> attentions, Plan& plan) {
  const auto differs = [&](const Descriptor& d) { return !may_be_split(d) || d.dim != plan.descriptors[0].dim; };
  if (plan.descriptors.empty() || std::any_of(plan.descriptors.begin(), plan.descriptors.end(), differs)) return;
  plan.split_dim = plan.descriptors[0].dim;
  for (size_t i = 0; i < plan.descriptors.size(); ++i) {
    const Descriptor& d = plan.descriptors[i];
    plan.split.push_back(describe_split(attentions[static_cast<int64_t>(i)], d));
    const int64_t items = d.axes.max_items, parents = std::min(d.axes.max_parents, items);
    plan.has_window = plan.has_window || d.window.events > 0;
    plan.units = std::max(plan.units, (items + (split_items - 1) * parents) / split_items);
    plan.heads = std::max(plan.heads, d.heads);
  }
  plan.blocks = plan.units * plan.heads;
}

/// The parameter of a launch of `count` attentions from `begin` on.
template <AttentionWeights Weights>
SplitLaunch<Weights> split_launch(const std::vector<SiluSplitDescriptor>& all, size_t begin, size_t count) {
  SplitLaunch<Weights> launch{};
  std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(begin), count, launch.attentions);
  return launch;
}

/// Checks the attentions and divides their work. Capacities, shapes and the target decide alone.
template <class Given>
Plan plan_attentions(Span<const Given> attentions, int target) {
  Problems problems;
  for (int64_t i = 0; i < attentions.size(); ++i)
    check_attention(attentions[i], "attention " + std::to_string(i), problems);
  for (const Given& given : attentions)
    if (given.weights != attentions[0].weights)
      problems.add("attentions of one launch", "the same weights", "those of a softmax and those of silu");
  problems.throw_if_any();
  check_overlaps(attentions, problems);
  problems.throw_if_any();
  constexpr int64_t most_attentions = 65535;
  if (attentions.size() > most_attentions)
    raise(invalid_argument("attentions of one launch", "at most 65535", std::to_string(attentions.size())));

  Plan plan;
  plan.target = target;
  if (!attentions.empty()) plan.weights = attentions[0].weights;
  for (const Given& given : attentions) {
    plan.descriptors.push_back(describe(given));
    plan.biases.push_back(describe_bias(given));
    plan.has_bias = plan.has_bias || given.bias != nullptr;
    if (plan.descriptors.back().dim > narrow_columns) plan.columns = wide_columns;
  }
  const Policy chosen = device::dispatch_target<75, 80>(target, [&](auto known) {
    return plan.columns == narrow_columns ? policy<known(), narrow_columns> : policy<known(), wide_columns>;
  });
  const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t wanted = device::num_multiprocessors() * chosen.min_blocks;
  for (Descriptor& d : plan.descriptors) {
    d.partition = choose_partition(d.padded_dim, target, chosen);
    const int64_t units = ceil_div(d.axes.max_items, strip_rows);
    const int64_t useful = std::max<int64_t>(1, wanted / (attentions.size() * d.heads));
    plan.blocks = std::max(plan.blocks, d.heads * std::min(units, useful));
    plan.shared_bytes = std::max<int64_t>(plan.shared_bytes, d.partition.bytes);
  }
  plan_split(attentions, plan);
  if (!plan.split.empty()) {
    plan.shared_bytes = device::dispatch_target<75, 80>(target, [&](auto known) {
      return split_bytes(plan.split_dim == 128 ? split_policy<known(), 128>.warps : split_policy<known(), 64>.warps,
                         plan.split_dim);
    });
  }
  return plan;
}

WARPRANK_HIDDEN WARPRANK_KERNELS_INLINE void launch(const Plan& plan, const void* descriptors, device::Stream stream);

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_ATTENTION)
template <int Target, int Dim, AttentionWeights Weights>
WARPRANK_HIDDEN void launch_split(const Plan& plan, const void* descriptors, device::Stream stream) {
  static_assert(sizeof(SplitParts<split_policy<Target, Dim>.warps, Dim, Weights>) ==
                split_bytes(split_policy<Target, Dim>.warps, Dim));
  constexpr size_t most = SplitLaunch<Weights>::max_attentions;
  for (size_t begin = 0; begin < plan.split.size(); begin += most) {
    const size_t count = std::min(most, plan.split.size() - begin);
    const device::Dim3 grid(static_cast<unsigned>(plan.units), static_cast<unsigned>(plan.heads),
                            static_cast<unsigned>(count));
    const auto launch = split_launch<Weights>(plan.split, begin, count);
    const auto queue = [&](auto* kernel, const auto* all) {
      device::launch_overlapping({grid, split_threads<Target, Dim>, plan.shared_bytes, stream}, kernel, all + begin,
                                 launch);
    };
    const auto* const memory = static_cast<const SplitDescriptorOf<Weights>*>(descriptors);
    if constexpr (Weights == AttentionWeights::silu) {
      if (plan.has_bias) {
        queue(biased_split_attention_kernel<Target, Dim>, static_cast<const BiasedSplitDescriptor*>(descriptors));
        continue;
      }
      if (plan.has_window) {
        queue(split_attention_kernel<Target, Dim, Weights, true>, memory);
        continue;
      }
    }
    queue(split_attention_kernel<Target, Dim, Weights, false>, memory);
  }
}

template <int Target, AttentionWeights Weights>
WARPRANK_HIDDEN void launch_weighted(const Plan& plan, const void* descriptors, device::Stream stream) {
  if (plan.split_dim == 16) return launch_split<Target, 16, Weights>(plan, descriptors, stream);
  if (plan.split_dim == 32) return launch_split<Target, 32, Weights>(plan, descriptors, stream);
  if (plan.split_dim == 64) return launch_split<Target, 64, Weights>(plan, descriptors, stream);
  if (plan.split_dim == 128) return launch_split<Target, 128, Weights>(plan, descriptors, stream);
  const device::Dim3 grid(static_cast<unsigned>(plan.blocks), static_cast<unsigned>(plan.descriptors.size()));
  const device::LaunchConfig config{grid, block_threads, plan.shared_bytes, stream};
  if constexpr (Weights == AttentionWeights::silu) {
    const auto* const biased = static_cast<const BiasedDescriptor*>(descriptors);
    if (plan.has_bias && plan.columns == narrow_columns)
      return device::launch_overlapping(config, biased_attention_kernel<Target, narrow_columns>, biased);
    if (plan.has_bias) return device::launch_overlapping(config, biased_attention_kernel<Target, wide_columns>, biased);
  }
  const auto* const memory = static_cast<const Descriptor*>(descriptors);
  if (plan.columns == narrow_columns)
    device::launch_overlapping(config, attention_kernel<Target, narrow_columns, Weights>, memory);
  else
    device::launch_overlapping(config, attention_kernel<Target, wide_columns, Weights>, memory);
}

WARPRANK_KERNELS_INLINE void launch(const Plan& plan, const void* descriptors, device::Stream stream) {
  device::dispatch_target<75, 80>(plan.target, [&](auto target) {
    if (plan.weights == AttentionWeights::softmax)
      launch_weighted<target(), AttentionWeights::softmax>(plan, descriptors, stream);
    else
      launch_weighted<target(), AttentionWeights::silu>(plan, descriptors, stream);
  });
}
#endif

}}}  // namespace warprank::v0::detail::attention
