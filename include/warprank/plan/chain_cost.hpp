// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Predicts whether a chain of linears is faster as one launch than as several, for few rows. This decides how many
/// layers of a wide stack become one step.
///
/// One launch saves the other launches and their first trips to memory, but blocks that share the outputs of all layers
/// take tiles of 32 rows (ops/detail/mlp/split.cuh): every tile reads all weights from the second-level cache, and
/// every block reads the tile's rows. A layer with a launch of its own may take larger tiles, and split its sums.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "warprank/plan/cards.hpp"

namespace warprank { inline namespace v0 { namespace plan {

struct ChainLayer {
  int64_t in = 0, out = 0;
};

/// Rows that chains are chosen for: the candidates of one request.
inline constexpr int64_t rows_of_chain_cost = 100;

namespace detail {

/// The longest of three times: of a layer's bytes from memory, of its bytes from the second-level cache, and of its
/// operations.
constexpr double seconds_of_layer(const ChainLayer& layer, double bytes, double cache_bytes, double rows,
                                  const Card& card) {
  const double flops = 2 * rows * static_cast<double>(layer.in * layer.out);
  return std::max({bytes / card.bandwidth(), cache_bytes / card.cache_bandwidth, flops / card.flops()});
}
constexpr double weight_bytes(const ChainLayer& layer) { return 2 * static_cast<double>(layer.in * layer.out); }
constexpr int64_t tiles_of(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }

}  // namespace detail

/// The time of a layer in a launch of its own, in tiles of 64 rows and 64 outputs.
constexpr double seconds_of_launch(const ChainLayer& layer, const Card& card) {
  constexpr int64_t rows = rows_of_chain_cost, tile = 64;
  const double weights = detail::weight_bytes(layer), of_row = static_cast<double>(2 * layer.in);
  const double bytes = weights + static_cast<double>(rows * 2 * (layer.in + layer.out));
  const double cache_bytes = static_cast<double>(detail::tiles_of(rows, tile)) * weights +
                             static_cast<double>(detail::tiles_of(layer.out, tile) * rows) * of_row;
  return predicted_seconds({}, {2, 309}, 1, card) +
         detail::seconds_of_layer(layer, bytes, cache_bytes, static_cast<double>(rows), card);
}

/// The time of the layers from `first` on in one launch, and of each layer before in its own.
inline double seconds_of_chain(const std::vector<ChainLayer>& layers, size_t first, const Card& card) {
  constexpr int64_t rows = 32, tiles = detail::tiles_of(rows_of_chain_cost, rows), most_blocks = 32;
  constexpr int64_t most_kept = 1024;  // inputs, whose rows a block reads once
  double seconds = 0;
  for (size_t l = 0; l < first; ++l) seconds += seconds_of_launch(layers[l], card);
  if (layers.size() - first == 1) return seconds + seconds_of_launch(layers[first], card);
  const auto depth = static_cast<double>(layers.size() - first);
  seconds += predicted_seconds({}, {1 + depth, 335 * depth}, 1, card);
  for (size_t l = first; l < layers.size(); ++l) {
    const ChainLayer& layer = layers[l];
    const int64_t shares = detail::tiles_of(layer.out, 16);
    const int64_t blocks = std::min({shares, most_blocks, card.multiprocessors / tiles});
    const int64_t readers = layer.in > most_kept ? shares : blocks;
    const double weights = detail::weight_bytes(layer);
    const double cache_bytes =
        static_cast<double>(tiles) * (weights + static_cast<double>(readers * rows * 2 * layer.in));
    seconds += detail::seconds_of_layer(layer, weights, cache_bytes, static_cast<double>(tiles * rows), card);
  }
  return seconds;
}

/// The first layer of the end of a chain that becomes one launch: the longest end such that, on the T4 and the H100, no
/// other is faster by more than the accuracy of the prediction.
inline size_t first_of_chain(const std::vector<ChainLayer>& layers) {
  constexpr double accuracy = 0.02;
  size_t first = 0;
  for (const char* name : {"T4", "H100"}) {
    const Card card = card_named(name);
    double least = seconds_of_chain(layers, layers.size() - 1, card);
    for (size_t l = layers.size() - 1; l-- > 0;) least = std::min(least, seconds_of_chain(layers, l, card));
    size_t longest = 0;
    while (seconds_of_chain(layers, longest, card) > (1 + accuracy) * least) ++longest;
    first = std::max(first, longest);
  }
  return first;
}

}}}  // namespace warprank::v0::plan
