// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How a block of the DIN kernel divides its work, and what lies where in its shared memory.
///
/// A unit is a few neighbouring items of one user. Its history is in shared memory once, or chunk after chunk when it
/// is too long. For `items` at a time their folded first layers are made, `fold_rows` rows of them; then each warp
/// takes `tiles` x 8 events of an item through all layers. More items at a time read the weights less often, more tiles
/// the folded weights, more events on chip fold less often; all want shared memory. A long history is read once for a
/// unit of many items, which are folded again for each chunk of it, or once for each group, folded once. So the counts
/// decide.

#include <algorithm>
#include <cstdint>
#include <string>

#include "warprank/core/error.hpp"
#include "warprank/device/target.hpp"

namespace warprank { inline namespace v0 { namespace detail::din {

inline constexpr int max_hidden_layers = 3;
inline constexpr int block_warps = 8, block_threads = block_warps * 32;
inline constexpr int max_items = 4;              ///< folded at a time
inline constexpr int tile_events = 8;            ///< the columns of an mma
inline constexpr int row_padding = 8;            ///< halves: rows lie an odd number of 16 bytes apart
inline constexpr int header_bytes = 768;         ///< the descriptor and the current unit
inline constexpr int max_later_bytes = 8 << 10;  ///< of weights that are kept in shared memory

/// The scoring network, widths padded to 16.
struct Shape {
  int dim = 0;
  int num_hidden = 0;
  int hidden[max_hidden_layers] = {};
  int64_t longest_history = 0;

  int64_t later_bytes() const {  ///< of the weights of the hidden layers behind the first
    int64_t bytes = 0;
    for (int i = 1; i < num_hidden; ++i) bytes += int64_t{2} * hidden[i - 1] * hidden[i];
    return bytes;
  }
};

/// Printable; all sizes in bytes, all places from the start of shared memory.
struct Partition {
  int blocks = 0;      ///< that share a multiprocessor
  int warps = 0;       ///< of the block that take events; the others help to load, fold and pool
  int tiles = 0;       ///< of 8 events that a warp takes at a time
  int items = 0;       ///< folded at a time
  int fold_rows = 0;   ///< of the first layer folded at a time
  int events = 0;      ///< on chip
  int unit_items = 0;  ///< the most items of a unit

  int query = 0;          ///< float [items, dim]
  int constants = 0;      ///< float [items, hidden 0]: c(q)
  int folded = 0;         ///< half [items, fold_rows, dim + row_padding]: W(q)
  int history = 0;        ///< half [events, dim + row_padding]
  int scores = 0;         ///< float [events, max_items]
  int sums = 0;           ///< float [unit_items, dim]: of the chunks before
  int softmax = 0;        ///< float [3, unit_items]: largest score, sum, factor for the sums before
  int later = -1;         ///< weights of the later layers, when they fit
  int staging = 0;        ///< of each warp, half [2][tiles, hidden, 8]; then partial sums of the pooling
  int staging_bytes = 0;  ///< of each warp
  int bytes = 0;
};

/// The places for a division that is given but for `events`, which become as many as fit; none: too large.
inline Partition place(const Shape& shape, Partition p, int64_t limit) {
  const int64_t stride = int64_t{2} * (shape.dim + row_padding);
  int64_t end = header_bytes;
  const auto reserve = [&](int64_t bytes) {
    const int64_t begin = end;
    end += (bytes + 127) / 128 * 128;
    return static_cast<int>(begin);
  };
  p.query = reserve(int64_t{4} * p.items * shape.dim);
  p.constants = reserve(int64_t{4} * p.items * shape.hidden[0]);
  p.folded = reserve(stride * p.items * p.fold_rows);
  p.sums = reserve(int64_t{4} * p.unit_items * shape.dim);
  p.softmax = reserve(int64_t{4} * 3 * p.unit_items);
  if (shape.num_hidden > 1 && shape.later_bytes() <= max_later_bytes) p.later = reserve(shape.later_bytes());
  int64_t staged = 0;  // the outputs of every layer but the last, the third in the place of the first
  for (int i = 0; i + 1 < shape.num_hidden; ++i) staged += shape.hidden[i];
  p.staging_bytes = static_cast<int>(staged * 2 * tile_events * p.tiles);
  constexpr int64_t pooling_bytes = int64_t{4} * 2 * max_items * block_threads;
  p.staging = reserve(std::max<int64_t>(int64_t{p.staging_bytes} * p.warps, pooling_bytes));

  const int64_t per_event = stride + 4 * max_items, wanted = (shape.longest_history + 7) / 8 * 8;
  constexpr int64_t rounding = 2 * 128;
  const int64_t room = std::max<int64_t>((limit - end - rounding) / per_event / 8 * 8, 0);
  p.events = static_cast<int>(std::min(room, std::max<int64_t>(wanted, 8)));
  p.history = reserve(stride * p.events);
  p.scores = reserve(int64_t{4} * max_items * p.events);
  p.bytes = static_cast<int>(end);
  return p;
}

/// Clocks of a multiprocessor for an item with the longest history, counted: products on tensor cores, how well they
/// fill the warps, bytes from shared memory and from the second-level cache. Only ratios matter.
inline double clocks_per_item(const Shape& shape, const Partition& p) {
  constexpr double shared_bytes = 128, cache_bytes = 32, products = 512;  // per clock
  const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t events = std::max<int64_t>(shape.longest_history, 1);
  const auto chunks = static_cast<double>(ceil_div(events, p.events));
  const int64_t tasks = p.items * ceil_div(std::min<int64_t>(events, p.events), int64_t{8} * p.tiles);
  const auto rounds = static_cast<double>(ceil_div(tasks, p.warps));
  const double busy = static_cast<double>(tasks) / (rounds * p.warps);
  const double folds = p.fold_rows < shape.hidden[0] ? chunks * rounds : p.unit_items <= p.items ? 1 : chunks;
  const double first = static_cast<double>(shape.dim) * shape.hidden[0], later = shape.later_bytes() / 2.0;
  const auto l = static_cast<double>(events);

  const double mma = l * (first + later) / products / busy * block_warps / p.warps;
  const double operands = l * 2 * (first + later) / (8.0 * p.tiles) + l * 2 * (first + later) / 64;
  const double fold = folds * first * 8 / p.items;
  const double steps = 600 * chunks / p.items;  // barriers and what is too small to be counted: a guess
  const double load = l * 2 * shape.dim / p.unit_items + (p.later < 0 ? l * 2 * later / (8.0 * p.tiles) : 0.0);
  return std::max(mma, operands / shared_bytes) + (fold + load) / cache_bytes + steps;
}

/// The cheapest division for warps of at most `max_tiles` tiles. A history of at most 40 KB stays on chip where that is
/// possible. Then the counts decide, and that a block with a multiprocessor of its own waits more (by an eighth: a
/// guess). Throws invalid_argument when none fits.
inline Partition choose_partition(const Shape& shape, int target, int max_tiles) {
  constexpr int min_events = 16;
  constexpr double alone = 1.125;
  const int64_t history_bytes = int64_t{2} * (shape.dim + row_padding) * shape.longest_history;
  const bool stays = history_bytes <= 40 << 10;
  Partition best;
  double best_clocks = 0;
  const int rows = shape.hidden[0];
  const auto consider = [&](Partition p, int64_t limit) {
    p = place(shape, p, limit);
    if (p.bytes > limit || p.events == 0 || (p.events < min_events && p.events < shape.longest_history)) return;
    const double clocks = clocks_per_item(shape, p) * (p.blocks == 1 ? alone : 1);
    const bool is_on_chip = p.events >= shape.longest_history, best_is_on_chip = best.events >= shape.longest_history;
    const bool is_better = stays && is_on_chip != best_is_on_chip ? is_on_chip : clocks < best_clocks;
    if (best.warps == 0 || is_better) best = p, best_clocks = clocks;
  };
  for (const int blocks : {2, 1})
    for (const int warps : {8, 4, 2, 1})
      for (int tiles = max_tiles; tiles >= 1; tiles /= 2)
        for (int items = max_items; items >= 1; --items)
          for (const int fold_rows : {rows, (rows / 2 + 15) / 16 * 16, (rows / 4 + 15) / 16 * 16, 16})
            for (const int unit_items : {16, 8, items}) {
              Partition p;
              p.blocks = blocks, p.warps = warps, p.tiles = tiles;
              p.items = items, p.fold_rows = fold_rows, p.unit_items = unit_items;
              consider(p, device::shared_limit(target, blocks));
            }
  if (best.warps == 0)
    raise(invalid_argument("DIN attention", "a network that fits in shared memory",
                           std::to_string(shape.dim) + " columns and a first layer of " + std::to_string(rows)));
  return best;
}

}}}  // namespace warprank::v0::detail::din
