// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/attention_weights.hpp"
#include "reference/bounded.hpp"
#include "warprank/core/view.hpp"
#include "warprank/model/types.hpp"

namespace warprank::reference {

/// Biases of scores; null: there is no such one. Tables are one, or one for each head.
struct RelativeBias {
  int64_t tables = 1, num_positions = 0, num_buckets = 0;
  const float *positions = nullptr, *times = nullptr;  ///< [tables, num_positions], [tables, num_buckets + 1]
  double bucket_width = 0.301;
  const float *query_times = nullptr, *key_times = nullptr;

  int64_t bucket_of(double difference) const {
    if (!(std::fabs(difference) > 1)) return 0;
    return static_cast<int64_t>(
        std::min(std::floor(std::log(std::fabs(difference)) / bucket_width), static_cast<double>(num_buckets)));
  }
  /// Adds that of a key so many places and so much time before its query to the last of the scores.
  void add(int64_t head, int64_t distance, float difference, Bounded& scores) const {
    const int64_t table = tables > 1 ? head : 0;
    const auto add_number = [&](double number) {
      scores.value.back() += number;
      scores.bound.back() += 2 * std::fabs(number);
    };
    if (positions != nullptr) add_number(positions[table * num_positions + std::min(distance, num_positions - 1)]);
    if (times != nullptr) add_number(times[table * (num_buckets + 1) + bucket_of(difference)]);
  }
};

/// How an attention weighs its keys. `own`: a key and a value more for each query; null: none.
struct AttentionSettings {
  int64_t heads = 1;
  double scale = 1;
  bool causal = false;
  AttentionWeights weights = AttentionWeights::softmax;
  double divisor = 1;
  Matrix<const float> own_k = {}, own_v = {};
  int64_t window = 0, full_last = 0;  ///< as AttentionOp's
  bool of_magnitudes = false;         ///< sum_t |w_t v_t|, which bounds are made of
  RelativeBias bias = {};
};

/// Of a segment with `count` keys the first that query `place` of it sees. With `causal` it sees no key behind itself.
inline int64_t first_seen(const AttentionSettings& settings, int64_t place, int64_t count) {
  const bool has_window =
      settings.window > 0 && (settings.causal ? place < count - settings.full_last : settings.full_last == 0);
  return has_window ? std::max<int64_t>((settings.causal ? place : count) - settings.window, 0) : 0;
}

/// Appends scale <q, k>, of columns [first, end).
inline void append_score(const float* q, const float* k, int64_t first, int64_t end, double scale, Bounded& scores) {
  double dot = 0, magnitude = 0;
  for (int64_t c = first; c < end; ++c) {
    const double product = static_cast<double>(q[c]) * k[c];
    dot += product;
    magnitude += std::fabs(product);
  }
  scores.value.push_back(scale * dot);
  scores.bound.push_back(std::fabs(scale) * static_cast<double>(end - first + 2) * magnitude);
}

/// y[i, h] = sum_t w_t v[t, h] over the keys t of i's segment, and its own one; w are the weights of the scores
/// scale * <q[i, h], k[t, h]>. With `causal` query i of a segment sees its keys up to i. No key: zeros.
inline Bounded attention(Matrix<const float> q, Matrix<const float> k, Matrix<const float> v, Segments queries,
                         Segments keys, const AttentionSettings& settings) {
  const int64_t dim = q.cols / settings.heads;
  const bool has_own = settings.own_k.data != nullptr;
  Bounded y;
  for (int64_t s = 0; s < queries.count; ++s)
    for (int64_t i = queries.begin(s); i < queries.end(s); ++i) {
      const int64_t place = i - queries.begin(s);
      const int64_t first = keys.begin(s) + first_seen(settings, place, keys.size(s));
      const int64_t end = settings.causal ? keys.begin(s) + place + 1 : keys.end(s);
      for (int64_t h = 0; h < settings.heads; ++h) {
        Bounded scores;
        std::vector<const float*> values;
        for (int64_t t = first; t < end; ++t) {
          append_score(q.row(i), k.row(t), h * dim, (h + 1) * dim, settings.scale, scores);
          const float apart =
              settings.bias.times != nullptr ? settings.bias.query_times[i] - settings.bias.key_times[t] : 0;
          settings.bias.add(h, (settings.causal ? place : keys.size(s)) - (t - keys.begin(s)), apart, scores);
          values.push_back(v.row(t) + h * dim);
        }
        if (has_own) {
          append_score(q.row(i), settings.own_k.row(i), h * dim, (h + 1) * dim, settings.scale, scores);
          settings.bias.add(h, 0, 0, scores);
          values.push_back(settings.own_v.row(i) + h * dim);
        }
        const Bounded weights = settings.weights == AttentionWeights::silu
                                    ? silu_weights(scores, settings.divisor)
                                    : attention_weights(scores, Normalization::softmax);
        append_weighted_sums(weights, values, dim, y, settings.of_magnitudes);
      }
    }
  return y;
}

/// The same, with the bound of the CUDA kernels (ops/attention.cuh).
inline Bounded attention_in_fp16(Matrix<const float> q, Matrix<const float> k, Matrix<const float> v, Segments queries,
                                 Segments keys, const AttentionSettings& settings) {
  const auto attend = [&](const AttentionSettings& with) { return attention(q, k, v, queries, keys, with); };
  AttentionSettings magnitudes = settings;
  magnitudes.of_magnitudes = true;
  AttentionSettings of_equal_weights = magnitudes;
  of_equal_weights.scale = 0, of_equal_weights.bias = {}, of_equal_weights.weights = AttentionWeights::softmax;
  Bounded y = attend(settings);
  const Bounded weighted = attend(magnitudes), mean = attend(of_equal_weights);
  const double of_each_value = settings.weights == AttentionWeights::softmax ? 0x1p-15 : 1 / settings.divisor;
  size_t place = 0;
  for (int64_t s = 0; s < queries.count; ++s)
    for (int64_t i = 0; i < queries.size(s); ++i) {
      const int64_t own = settings.own_k.data != nullptr ? 1 : 0, end = settings.causal ? i + 1 : keys.size(s);
      const int64_t seen = end - first_seen(settings, i, keys.size(s)) + own;
      for (int64_t c = 0; c < q.cols; ++c, ++place)
        y.bound[place] = 2 * y.bound[place] + 0x1p14 * weighted.value[place] +
                         of_each_value * static_cast<double>(seen) * mean.value[place];
    }
  return y;
}

}  // namespace warprank::reference
