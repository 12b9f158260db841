// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Packs the weights of a linear layer on the device: pack_linear (ops/pack_linear.hpp) for weights in device memory.
///
/// | Array  | Shape     | Type       |                                                                                |
/// |--------|-----------|------------|--------------------------------------------------------------------------------|
/// | weight | [out, in] | FP16, FP32 | rows may be strided                                                            |
/// | bias   | [out]     | FP32       | null: zeros                                                                    |
/// | packed | bytes     |            | PackedLinearLayout{in, out}.bytes() of device memory, aligned to 16            |
///
/// The bytes are the same as from the host's pack_linear. But weights that it refuses are counted and stored here: NaN
/// and infinity unchanged, finite ones as the largest FP16 with their sign. One kernel; allocates nothing and waits for
/// nothing.

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <string>

#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/order.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/ops/detail/common/check_matrix.hpp"
#include "warprank/ops/pack_linear.hpp"

namespace warprank { inline namespace v0 {

namespace detail {

template <class Value>
struct PackArguments {
  Matrix<const Value> weight;
  const float* bias;
  unsigned char* packed;
  uint32_t* num_refused;
};

/// A thread for each place of an input, padding included, then for each of the bias.
template <int Threads, class Value>
WARPRANK_KERNEL(Threads, 1)
pack_linear_kernel(PackArguments<Value> a) {
  using namespace device;  // NOLINT: for kernels
  wait_for_previous_launch();
  const PackedLinearLayout layout{a.weight.cols, a.weight.rows};
  auto* const halves = reinterpret_cast<float16*>(a.packed);
  auto* const floats = reinterpret_cast<float*>(a.packed);
  const bool is_head = layout.is_head();
  const int64_t outputs = layout.num_pairs() * layout.pair;
  const int64_t rows = is_head ? 1 : outputs;
  const int64_t cols = is_head ? layout.bias_offset() / 4 : layout.num_steps() * layout.step;
  constexpr float too_large = 65520.0f;  // from which on FP16 rounds to infinity
  uint32_t refused = 0;
  for (int64_t i = global_thread_rank(); i < rows * cols; i += num_threads()) {
    const int64_t n = i / cols, k = i % cols;
    const bool is_there = n < layout.out && k < layout.in;
    const float value = is_there ? widen(load(&a.weight.data[n * a.weight.stride + k])) : 0.0f;
    const float magnitude = std::fabs(value);
    refused += is_head ? !(magnitude <= FLT_MAX) : !(magnitude < too_large);
    if (is_head)
      store(&floats[layout.head_index(k)], value);
    else
      halves[layout.index(n, k)] = narrow<float16>(value);
  }
  auto* const bias = reinterpret_cast<float*>(a.packed + layout.bias_offset());
  for (int64_t n = global_thread_rank(); n < outputs; n += num_threads())
    store(&bias[n], n < layout.out && a.bias != nullptr ? load(&a.bias[n]) : 0.0f);
  if (a.num_refused != nullptr && refused != 0) atomic_add<Order::relaxed, Scope::device>(a.num_refused, refused);
}

}  // namespace detail

/// Queues the kernel. To `num_refused`, in device memory unless null, it adds how many weights the host would refuse.
/// Throws invalid_argument for views and addresses that are null or misaligned, and for layers of more than 2^30 inputs
/// or outputs.
template <class Value>
WARPRANK_HIDDEN void pack_linear(Matrix<const Value> weight, const float* bias, void* packed, uint32_t* num_refused,
                                 device::Stream stream = {}) {
  Problems problems;
  detail::check_matrix("weight of a linear layer", weight, problems);
  constexpr int64_t most = int64_t{1} << 30;
  if (weight.rows < 1 || weight.cols < 1 || weight.rows > most || weight.cols > most)
    problems.add("linear layer", "in and out of 1 to 2^30",
                 std::to_string(weight.cols) + " and " + std::to_string(weight.rows));
  detail::check_pointer("packed linear layer", packed, 16, problems);
  problems.throw_if_any();
  constexpr int threads = 256, most_blocks = 1024;
  const int64_t places = PackedLinearLayout{weight.cols, weight.rows}.bytes() / 2;
  const auto blocks = static_cast<unsigned>(std::clamp<int64_t>((places + threads - 1) / threads, 1, most_blocks));
  device::launch({blocks, threads, 0, stream}, detail::pack_linear_kernel<threads, Value>,
                 detail::PackArguments<Value>{weight, bias, static_cast<unsigned char*>(packed), num_refused});
}

}}  // namespace warprank::v0
