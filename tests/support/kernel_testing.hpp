// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What tests of kernels are written with: one source, run by the executor of kernels and, compiled by nvcc, on a GPU.
///
///     TEST(Scale, DoublesEveryValue) {
///       for_each_target([](const Config& config) {
///         const std::vector<float> result = in_every_order([] {
///           DeviceArray<float> x(1024, 3.f);
///           launch_scale(x.data(), x.size(), 2.f, Stream{});
///           return x.read();
///         }, 20, config);
///         EXPECT_EQ(result, std::vector<float>(1024, 6.f));
///       });
///     }
///
/// Beside what is below there are allocate, copy, fill, create_stream, synchronize, events and graphs, as
/// simt/runtime.hpp declares them. What only the executor can tell stands under `if constexpr (!on_gpu)`.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "reference/bounded.hpp"
#include "simt/config.hpp"
#include "warprank/core/dtype.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/target.hpp"

#if defined(__CUDACC__)
#include "support/kernel_testing_cuda.hpp"
#else
#include "simt/runtime.hpp"
#endif

namespace kernel_testing {

using simt::Config;
using simt::Counters;
using warprank::device::Stream;

#if !defined(__CUDACC__)
using simt::allocate, simt::copy, simt::fill, simt::synchronize, simt::create_stream;  // NOLINT
using simt::begin_capture, simt::end_capture, simt::Graph, simt::launch, simt::num_launches;
using simt::clear_counters, simt::counters, simt::reset;
using simt::Event, simt::create_event, simt::record, simt::wait, simt::is_done;
#endif

/// How this test was compiled. Sizes that only count instructions need not be run in all builds.
enum class Build { plain, asan, race, gpu };
#if defined(__CUDACC__)
inline constexpr Build build = Build::gpu;
#elif defined(__SANITIZE_THREAD__)
inline constexpr Build build = Build::race;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr Build build = Build::asan;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr Build build = Build::race;
#elif __has_feature(address_sanitizer)
inline constexpr Build build = Build::asan;
#else
inline constexpr Build build = Build::plain;
#endif
#else
inline constexpr Build build = Build::plain;
#endif
inline constexpr bool on_gpu = build == Build::gpu;

/// Whether as much shared memory can be had as a target has: a card has no more than its own.
inline bool has_shared_memory_of(int target) { return !on_gpu || target <= warprank::device::target(); }

namespace detail {

template <class Value>
bool same_bits(const Value& a, const Value& b) {
  return a == b;
}
template <class Value>
bool same_bits(const std::vector<Value>& a, const std::vector<Value>& b) {
  static_assert(std::is_trivially_copyable_v<Value>);
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(Value)) == 0);
}

}  // namespace detail

/// Memory of a test on the device. What is not given a value must not be read: the race build refuses it, and on a GPU
/// it is NaN. On a GPU, what was written around it is a failure when it is read or goes out of scope; the executor
/// refuses the access itself.
template <class Value>
class DeviceArray {
 public:
  static_assert(std::is_trivially_copyable_v<Value>);

  explicit DeviceArray(int64_t size) : size_(size), data_(static_cast<Value*>(allocate(bytes(size)))) {}
  explicit DeviceArray(const std::vector<Value>& values) : DeviceArray(static_cast<int64_t>(values.size())) {
    write(values);
  }
  DeviceArray(int64_t size, Value value) : DeviceArray(std::vector<Value>(static_cast<size_t>(size), value)) {}
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
#if defined(__CUDACC__)
  ~DeviceArray() { release(data_); }
#endif  // the executor's memory is freed by the next reset: a test that has failed must not wait here

  Value* data() { return data_; }
  const Value* data() const { return data_; }
  int64_t size() const { return size_; }

  /// Waits for everything queued, and copies `count` values from `begin` to the host.
  std::vector<Value> read(int64_t begin, int64_t count) const {
    synchronize();
    std::vector<Value> values(static_cast<size_t>(count));
    copy(values.data(), data_ + begin, bytes(count));
    synchronize();
#if defined(__CUDACC__)
    expect_guards_untouched(data_);
#endif
    return values;
  }
  std::vector<Value> read() const { return read(0, size_); }

  /// Replaces values from `begin` on, after everything queued.
  void write(const std::vector<Value>& values, int64_t begin = 0) {
    synchronize();
    copy(data_ + begin, values.data(), bytes(static_cast<int64_t>(values.size())));
    synchronize();
  }

 private:
  static int64_t bytes(int64_t count) { return count * static_cast<int64_t>(sizeof(Value)); }

  int64_t size_;
  Value* data_;
};

/// A matrix on the device whose rows lie `stride` elements apart, from element `skip` of its memory on. What is around
/// the elements is NaN, for whoever reads it, and must not change.
template <class Value>
class DeviceMatrix {
 public:
  /// Unwritten elements are NaN.
  DeviceMatrix(int64_t rows, int64_t cols, int64_t stride, int64_t skip = 0)
      : host_(static_cast<size_t>(skip + rows * stride)), rows_(rows), cols_(cols), stride_(stride), skip_(skip) {
    if (!host_.empty()) std::memset(static_cast<void*>(host_.data()), 0xff, host_.size() * sizeof(Value));
    device_ = std::make_unique<DeviceArray<Value>>(host_);
  }
  /// Of values [rows, cols].
  DeviceMatrix(const std::vector<Value>& values, int64_t rows, int64_t cols, int64_t stride, int64_t skip = 0)
      : DeviceMatrix(rows, cols, stride, skip) {
    for (int64_t i = 0; i < rows * cols; ++i) host_[place(i)] = values[static_cast<size_t>(i)];
    device_->write(host_);
  }
  DeviceMatrix(const std::vector<Value>& values, int64_t rows, int64_t cols) : DeviceMatrix(values, rows, cols, cols) {}
  DeviceMatrix(int64_t rows, int64_t cols) : DeviceMatrix(rows, cols, cols) {}

  warprank::Matrix<Value> view() { return {device_->data() + skip_, rows_, cols_, stride_}; }

  /// The elements [rows, cols], after everything queued.
  std::vector<Value> read() const {
    std::vector<Value> all = device_->read(), values;
    for (int64_t i = 0; i < rows_ * cols_; ++i) {
      values.push_back(all[place(i)]);
      all[place(i)] = host_[place(i)];
    }
    EXPECT_TRUE(detail::same_bits(all, host_)) << "something was written between the rows of a matrix";
    return values;
  }

 private:
  size_t place(int64_t i) const { return static_cast<size_t>(skip_ + i / cols_ * stride_ + i % cols_); }

  std::vector<Value> host_;  // as first written
  std::unique_ptr<DeviceArray<Value>> device_;
  int64_t rows_, cols_, stride_, skip_;
};

/// That so many kernels were launched since the counters were cleared; a GPU does not say.
inline void expect_launches(int64_t launches) {
  if constexpr (!on_gpu) {
    EXPECT_EQ(counters().launches, launches);
  }
}

/// Calls body(config) for each target, in memory that was reset: for those whose code differs, unless more are named.
/// On a GPU there is one, whose code runs there.
template <class Body>
void for_each_target(Body body, std::initializer_list<int> targets = {75, 80}) {
  Config config;
  for (const int target : targets) {
    config.target = on_gpu ? warprank::device::target() : target;
    SCOPED_TRACE("sm_" + std::to_string(config.target));
    reset(config);
    body(std::as_const(config));
    if (on_gpu || testing::Test::HasFatalFailure()) return;
  }
}

namespace detail {

/// Calls body(first) in each order until it returns false or a test has failed; `first` tells the first time.
template <class Body>
void run_orders(Body body, int seeds, Config config) {
  const auto run = [&](const std::string& order, bool first) {
    SCOPED_TRACE("in order " + order);
    reset(config);
    try {
      const bool good = body(first);
      synchronize();
      return good && !testing::Test::HasFailure();
    } catch (const simt::Error& error) {
      ADD_FAILURE() << error.what();
      return false;
    }
  };
  if (on_gpu) {
    constexpr int times = 3;  // the order is the GPU's
    for (int i = 0; i < times; ++i) {
      if (!run("of the GPU, time " + std::to_string(i), i == 0)) return;
    }
    return;
  }
  config.schedule = simt::Schedule::forward;
  if (!run("forward", true)) return;
  config.schedule = simt::Schedule::reverse;
  if (!run("reverse", false)) return;
  config.schedule = simt::Schedule::random;
  for (config.seed = 1; config.seed <= static_cast<uint64_t>(seeds); ++config.seed) {
    if (!run("random, seed " + std::to_string(config.seed), false)) return;
  }
}

}  // namespace detail

/// Runs the body forward, in reverse and in `seeds` random orders of threads, each beginning with empty memory, until
/// one fails; on a GPU a few times. When the body returns something, it must be the same bit for bit each time, and is
/// returned.
template <class Body>
auto in_every_order(Body body, int seeds = 20, const Config& config = {}) {
  if constexpr (std::is_void_v<decltype(body())>) {
    const auto run = [&](bool) {
      body();
      return true;
    };
    detail::run_orders(run, seeds, config);
  } else {
    decltype(body()) result{};
    const auto check = [&](bool first) {
      auto again = body();
      const bool same = first || detail::same_bits(result, again);
      EXPECT_TRUE(same) << "another result than in the first order";
      if (first) result = std::move(again);
      return same;
    };
    detail::run_orders(check, seeds, config);
    return result;
  }
}

/// That |out - value| <= c 2^-24 bound for every element, rounded to Value: float, half or bfloat16. NaN where the
/// value is NaN; `underflow` is for values whose products are subnormal.
template <class Value>
void expect_within(const warprank::reference::Bounded& expected, const std::vector<Value>& out, double c,
                   double underflow = 0x1p-126) {
  using warprank::to_float;
  constexpr bool is_half = std::is_same_v<Value, warprank::float16>;
  constexpr bool is_bfloat16 = std::is_same_v<Value, warprank::bfloat16>;
  constexpr double rounding = is_half ? 0x1p-11 : is_bfloat16 ? 0x1p-8 : 0;
  constexpr double subnormal = is_half ? 0x1p-25 : is_bfloat16 ? 0x1p-134 : 0;
  ASSERT_EQ(out.size(), expected.value.size());
  double worst = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const double value = expected.value[i];
    double got;
    if constexpr (is_half || is_bfloat16) {
      got = to_float(out[i]);
    } else {
      got = static_cast<double>(out[i]);
    }
    if (std::isnan(value) ? std::isnan(got) : value == got) continue;
    const double computed = c * 0x1p-24 * expected.bound[i] + underflow;
    const double allowed = computed + rounding * (std::fabs(value) + computed) + subnormal;
    ASSERT_LE(std::fabs(got - value), allowed) << "element " << i << ": expected " << value << ", got " << got;
    worst = std::max(worst, std::fabs(got - value) / allowed);
  }
  testing::Test::RecordProperty("worst_error_over_bound", std::to_string(worst));
}

}  // namespace kernel_testing
