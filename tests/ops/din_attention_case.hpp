// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Random histories for tests of the DIN kernel: for an oracle that knows what is rounded to FP16, and in a device's
/// memory.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "reference/activation.hpp"
#include "reference/attention_weights.hpp"
#include "reference/linear.hpp"
#include "support/capacity_matrix.hpp"
#include "support/kernel_testing.hpp"
#include "support/policy_testing.hpp"
#include "warprank/ops/din_attention.cuh"

namespace kernel_testing {

using warprank::Activation;
using warprank::ActivationKind;
using warprank::Normalization;
using warprank::reference::Bounded;

/// A history and its network. Sizes are of the users: how many items and events each has.
struct DinCase {
  int64_t dim = 16;
  std::vector<int64_t> hidden = {32, 16};
  std::vector<int64_t> items = {3}, events = {11};
  Activation activation = warprank::relu;
  Normalization normalization = Normalization::softmax;
  bool scaled = false;
  bool bias = true;
  bool is_aligned = true, half_y = false;
  float scale = 1;              ///< of q and k
  int64_t more = 2;             ///< parents and rows of the capacity
  int64_t longest_history = 0;  ///< expected
  bool inputs_are_half = true;  ///< else q and k of the oracle are FP32
  std::vector<float> q, k;      ///< [items, dim], [events, dim]
  std::vector<warprank::reference::Linear> layers;

  /// Fills in what is random.
  DinCase& make(uint32_t seed = 1) {
    std::mt19937 engine(static_cast<uint32_t>(dim * 1009 + hidden[0] * 31) + seed);
    int64_t in = 4 * dim;
    layers.clear();
    const auto add = [&](int64_t out, Activation f) {
      warprank::reference::Linear layer;
      layer.in = in, layer.out = out, layer.activation = f;
      layer.weight = random_values(engine, out * in, 2 / std::sqrt(static_cast<float>(in)));
      if (bias) layer.bias = random_values(engine, out, 0.5f);
      const bool is_dice = f.kind == ActivationKind::dice;
      if (is_dice || f.kind == ActivationKind::prelu) layer.alpha = random_values(engine, out);
      if (is_dice) layer.scale = random_values(engine, out), layer.shift = random_values(engine, out);
      layers.push_back(layer);
      in = out;
    };
    for (const int64_t width : hidden) add(width, activation);
    add(1, {});
    q = rounded(random_values(engine, num_items() * dim, scale));
    k = rounded(random_values(engine, num_events() * dim, scale));
    return *this;
  }

  int64_t num_items() const { return std::accumulate(items.begin(), items.end(), int64_t{0}); }
  int64_t num_events() const { return std::accumulate(events.begin(), events.end(), int64_t{0}); }
  int64_t num_users() const { return static_cast<int64_t>(items.size()); }
  double factor() const { return scaled ? 1 / std::sqrt(static_cast<double>(dim)) : 1; }

  warprank::DinWeights pack() const {
    std::vector<warprank::DinLayer> views;
    for (const auto& layer : layers)
      views.push_back({layer.weight, layer.bias, layer.activation, layer.alpha, layer.scale, layer.shift});
    return {dim, views, normalization, scaled};
  }
  Bounded expected() const;
};

/// A number, and a bound of the error that the kernel may make.
struct Uncertain {
  double value, error;
};

inline constexpr double u32 = 0x1p-24, u16 = 0x1p-11, tiny16 = 0x1p-25;

/// The layer behind what it multiplies: exact value, error from inputs and weights, and the magnitude of its terms.
inline Uncertain finish(const warprank::reference::Linear& layer, size_t j, double sum, double error, double magnitude,
                        bool to_float16) {
  const auto learned = [j](const std::vector<float>& values) { return values.empty() ? 0.0 : values[j]; };
  sum += learned(layer.bias), magnitude += std::fabs(learned(layer.bias));
  error += 2 * (static_cast<double>(layer.in) + 6) * u32 * magnitude;  // 2: tensor cores cut where others round
  const warprank::reference::Activated f = warprank::reference::activation(layer.activation, sum, learned(layer.alpha),
                                                                           learned(layer.scale), learned(layer.shift));
  const double total = u32 * f.error + f.slope * error;
  return {f.value, to_float16 ? total + u16 * (std::fabs(f.value) + total) + tiny16 : total};
}

/// The score of an event from the formula, MLP([q, k, q - k, q * k]), with the roundings that ops/din_attention.cuh
/// names: W(q), packed weights and what goes from layer to layer to FP16, sums FP32. `of_input`: relative error of q
/// and k themselves. `is_chained`: Wk - Wd is FP16, too.
inline Uncertain din_score(const DinCase& c, const float* q, const float* k, double of_input, bool is_chained) {
  std::vector<Uncertain> x;
  const auto& first = c.layers[0];
  for (int64_t j = 0; j < first.out; ++j) {
    double sum = 0, error = 0, magnitude = 0;
    for (int64_t i = 0; i < c.dim; ++i) {
      const auto weight = [&](int64_t block) {
        return static_cast<double>(first.weight[static_cast<size_t>(j * first.in + block * c.dim + i)]);
      };
      const double wq = weight(0), wk = weight(1), wd = weight(2), wp = weight(3), qi = q[i], ki = k[i];
      const double size_q = std::fabs(qi), size_k = std::fabs(ki), folded = std::fabs(wk - wd + wp * qi);
      sum += wq * qi + wk * ki + wd * (qi - ki) + wp * qi * ki;
      magnitude +=
          std::fabs(wq * qi) + std::fabs(wk * ki) + std::fabs(wd) * (size_q + size_k) + std::fabs(wp * qi * ki);
      error += size_k * (u16 * (folded + std::fabs(wp * qi)) + tiny16 * (1 + size_q));
      if (is_chained) error += size_k * (u16 * std::fabs(wk - wd) + tiny16);
      error += size_q * (u16 * std::fabs(wq + wd) + tiny16);
      error += of_input * (size_k * folded + size_q * std::fabs(wq + wd + wp * ki));
    }
    x.push_back(finish(first, static_cast<size_t>(j), sum, error, magnitude, c.layers.size() > 2));
  }
  for (size_t l = 1; l < c.layers.size(); ++l) {
    const auto& layer = c.layers[l];
    const bool is_head = l + 1 == c.layers.size();
    std::vector<Uncertain> y;
    for (size_t j = 0; j < static_cast<size_t>(layer.out); ++j) {
      double sum = 0, error = 0, magnitude = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double weight = layer.weight[j * x.size() + i], size = std::fabs(x[i].value);
        sum += weight * x[i].value;
        magnitude += std::fabs(weight) * size;
        error += std::fabs(weight) * x[i].error + (is_head ? 0 : (u16 * std::fabs(weight) + tiny16) * size);
      }
      y.push_back(finish(layer, j, sum, error, magnitude, l + 2 < c.layers.size()));
    }
    x = y;
  }
  return {c.factor() * x[0].value, c.factor() * (x[0].error + 2 * u32 * std::fabs(x[0].value))};
}

inline Bounded DinCase::expected() const {
  const double of_input = inputs_are_half ? 0 : u16;
  const bool is_chained = pack().is_chained();
  Bounded y;
  int64_t item = 0, event = 0;
  for (size_t user = 0; user < items.size(); ++user) {
    const Matrix<const float> history(k.data() + event * dim, events[user], dim);
    for (const int64_t end = item + items[user]; item < end; ++item) {
      Bounded scores;
      for (int64_t t = 0; t < events[user]; ++t) {
        const Uncertain score = din_score(*this, q.data() + item * dim, history.row(t), of_input, is_chained);
        scores.value.push_back(score.value);
        scores.bound.push_back(score.error / u32);
      }
      Bounded weights = warprank::reference::attention_weights(scores, normalization);
      for (size_t t = 0; t < weights.value.size(); ++t)
        weights.bound[t] += of_input / u32 * std::fabs(weights.value[t]);
      append_weighted_sums(weights, history, y);
    }
    event += events[user];
  }
  return y;
}

/// A case's arrays in the device's memory.
class DeviceHistory {
 public:
  explicit DeviceHistory(const DinCase& c)
      : case_(c),
        network_(c.pack()),
        weights_(std::vector<unsigned char>(network_.bytes().begin(), network_.bytes().end())),
        num_parents_(std::vector<int64_t>{c.num_users()}),
        item_offsets_(offsets(c.items, c.more)),
        history_offsets_(offsets(c.events, c.more)),
        q_(c.num_items(), c.dim, c.num_items() + c.more, c.is_aligned, c.q),
        k_(c.num_events(), c.dim, c.num_events() + c.more, c.is_aligned, c.k),
        half_y_(c.num_items(), c.dim, c.num_items() + c.more, c.is_aligned),
        float_y_(c.num_items(), c.dim, c.num_items() + c.more, c.is_aligned) {}

  warprank::DinHistory view() {
    warprank::DinHistory to;
    to.q = q_.view();
    to.k = k_.view();
    if (case_.half_y)
      to.y = half_y_.view();
    else
      to.y = float_y_.view();
    to.item_offsets = item_offsets_.data();
    to.history_offsets = history_offsets_.data();
    to.parents = {case_.num_users() + case_.more, num_parents_.data()};
    to.network = &network_;
    to.device_weights = weights_.data();
    to.longest_history = case_.longest_history;
    return to;
  }

  std::vector<float> values() const {
    if (!case_.half_y) return float_y_.values();
    std::vector<float> values;
    for (const float16 value : half_y_.values()) values.push_back(warprank::to_float(value));
    return values;
  }
  void expect_right(double share_of_bound) const {
    if (case_.half_y)
      expect_within(case_.expected(), half_y_.values(), share_of_bound);
    else
      expect_within(case_.expected(), float_y_.values(), share_of_bound);
  }

  DeviceArray<int64_t>& num_parents() { return num_parents_; }
  DeviceArray<int64_t>& item_offsets() { return item_offsets_; }
  DeviceArray<int64_t>& history_offsets() { return history_offsets_; }
  DeviceArray<unsigned char>& weights() { return weights_; }

 private:
  /// What lies behind the true count must not be read.
  static std::vector<int64_t> offsets(const std::vector<int64_t>& sizes, int64_t more) {
    std::vector<int64_t> all = {0};
    for (const int64_t size : sizes) all.push_back(all.back() + size);
    all.resize(all.size() + static_cast<size_t>(more), int64_t{1} << 60);
    return all;
  }

  const DinCase& case_;
  warprank::DinWeights network_;
  DeviceArray<unsigned char> weights_;
  DeviceArray<int64_t> num_parents_, item_offsets_, history_offsets_;
  CapacityMatrix<float16> q_, k_, half_y_;
  CapacityMatrix<float> float_y_;
};

/// A prepared launch with its memory.
class DeviceDin {
 public:
  DeviceDin(const std::vector<warprank::DinHistory>& histories, int target,
            const warprank::LaunchPolicies& policies = usual_policies())
      : launch_(histories, target, policies), descriptors_(launch_.descriptors()) {}
  void run(Stream stream = {}) { launch_.launch({descriptors_.data()}, stream); }
  const warprank::DinLaunch& launch() const { return launch_; }
  DeviceArray<unsigned char>& descriptors() { return descriptors_; }

 private:
  warprank::DinLaunch launch_;
  DeviceArray<unsigned char> descriptors_;
};

/// Of what rounding errors could add up to if all had one sign.
inline constexpr double share_of_din_bound = 0.25;

/// Runs the cases in one launch and gives their outputs.
inline std::vector<std::vector<float>> run_din(const std::vector<DinCase>& cases, int target, bool check = true,
                                               const warprank::LaunchPolicies& policies = usual_policies()) {
  std::vector<std::unique_ptr<DeviceHistory>> histories;
  std::vector<warprank::DinHistory> views;
  for (const DinCase& c : cases) {
    histories.push_back(std::make_unique<DeviceHistory>(c));
    views.push_back(histories.back()->view());
  }
  DeviceDin launch(views, target, policies);
  launch.run();
  std::vector<std::vector<float>> outputs;
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("history " + std::to_string(i) + ": dim " + std::to_string(cases[i].dim) + ", hidden " +
                 std::to_string(cases[i].hidden[0]) + ", " + name_of_enum(cases[i].activation.kind) + ", " +
                 name_of_enum(cases[i].normalization));
    if (check) histories[i]->expect_right(share_of_din_bound);
    outputs.push_back(histories[i]->values());
  }
  return outputs;
}

}  // namespace kernel_testing
