// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/mlp.cuh for few rows: several blocks share a tile of 16 rows, and each computes some outputs of
/// every layer, so that none reads more than its part of the weights.
///
/// In a block the warps share the inputs of a layer, 16 at a time. A fragment of weights, and one of activations, is
/// wanted by one lane alone and goes from global memory straight to its registers; the warps' sums meet in shared
/// memory and are added as a tree, so that a row has the same bits however blocks share the outputs. The accumulators
/// of two tiles of 8 outputs are the fragment of 16 inputs of the next layer: nobody transposes.
///
/// Blocks exchange activations through the second-level cache, and the data is its own flag: a word is two FP16 values,
/// inverted. 0 would be two NaNs that no conversion makes, and says that nothing has been written yet. Two sets of
/// words serve in turns; who writes one of this launch clears the one of the next. Which set it is tells a counter of
/// the blocks that have ended, which every block adds to once in a launch.
///
/// No block depends on another to begin: one that has looked in vain for long enough computes all layers by itself but
/// for the last, of which it has its own part to do. What two blocks write of a word is the same.
///
/// From launch to store: descriptors, count, rows; then for each layer one exchange and one barrier. In flight at
/// first: 20 KB of weights and all rows of a tile. The prototype of this kernel took 1,900 clocks to the first product
/// and 1,300 for each layer behind it (policy.hpp has times).

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "warprank/device/collectives.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/ops/detail/mlp.cuh"
#include "warprank/ops/detail/mlp/epilogue.cuh"
#include "warprank/ops/detail/mlp/policy.hpp"

namespace warprank::detail {

/// Device memory by which the blocks of a tile exchange activations; 0 before the first launch.
struct SplitExchange {
  static constexpr int64_t fragment_words = 128;  ///< of 16 rows and 16 outputs

  uint32_t* ended;       ///< [stacks, tiles]: of two launches in turns, how many blocks have
  uint32_t* words;       ///< [stacks, tiles, 2, fragments, fragment_words]
  int64_t fragments;     ///< of all layers but the last
  int64_t input_stride;  ///< of the rows in shared memory, in halves

  static constexpr int64_t ended_bytes(int64_t tiles) { return 4 * tiles; }
  static constexpr int64_t words_bytes(int64_t tiles, int64_t fragments) {
    return tiles * 2 * fragments * fragment_words * 4;
  }
};

struct SplitStorage {
  MlpDescriptor layers[max_fused_layers];
  int64_t bias_rows[SplitBlock::rows];  ///< what bias_row_of gives for the rows
  uint32_t ended;
};

/// Sums of one layer's share of outputs: of each warp, two sets in turns.
constexpr int64_t split_sums_floats(int pairs) { return int64_t{SplitBlock::num_warps} * pairs * 2 * 32 * 4; }
constexpr int64_t split_shared_bytes(int pairs, int64_t input_stride) {
  return 2 * split_sums_floats(pairs) * 4 + SplitBlock::rows * input_stride * 2;
}
/// From one row of inputs to the next, in halves: an odd number of 16 bytes.
constexpr int64_t split_input_stride(int64_t inputs) { return (inputs + 15) / 16 * 16 + 8; }
static_assert(split_shared_bytes(2, split_input_stride(SplitBlock::max_inputs)) + int64_t{sizeof(SplitStorage)} <=
              64 << 10);
static_assert(split_sums_floats(1) >= SplitBlock::rows * max_mixed_experts);

/// What a warp computes of a layer: its part of the inputs, for `Pairs` pairs of 16 outputs.
template <int Target, int Pairs>
struct SplitProduct {
  using Fragment = device::Vector<uint32_t, 4>;

  const MlpDescriptor& layer;
  int first_pair, num_pairs;  ///< of those that are computed together
  int num_steps, begin, end;  ///< of 16 inputs: of the layer, and of the warp
  float sums[2 * Pairs][4] = {};

  WARPRANK_DEVICE SplitProduct(const MlpDescriptor& layer, int share)
      : layer(layer), first_pair(share * Pairs), num_steps((layer.inputs + 15) / 16) {
    const int warp = device::thread_rank() / device::warp_size;
    num_pairs = static_cast<int>((layer.epilogue.width + 15) / 16) - first_pair;
    begin = warp * num_steps / SplitBlock::num_warps;
    end = (warp + 1) * num_steps / SplitBlock::num_warps;
  }

  /// Asks for the weights of the steps [step, step + Steps) below the end.
  template <int Steps>
  WARPRANK_DEVICE void request(Fragment (&weights)[Steps][Pairs], int step) const {
    const auto* from =
        static_cast<const uint32_t*>(layer.weights) +
        ((static_cast<int64_t>(first_pair) * num_steps + step) * device::warp_size + device::lane_index()) * 4;
    WARPRANK_UNROLL
    for (int s = 0; s < Steps; ++s) {
      WARPRANK_UNROLL
      for (int j = 0; j < Pairs; ++j)
        if (step + s < end && j < num_pairs)
          weights[s][j] = device::load_vector_read_only<4>(from + (static_cast<int64_t>(j) * num_steps + s) *
                                                                      device::warp_size * 4);
    }
  }

  template <int Steps>
  WARPRANK_DEVICE void multiply(const Fragment (&weights)[Steps][Pairs], const uint32_t (&a)[Steps][4], int step) {
    WARPRANK_UNROLL
    for (int s = 0; s < Steps; ++s) multiply_step(weights[s], a[s], step + s);
  }
  WARPRANK_DEVICE void multiply_step(const Fragment (&weights)[Pairs], const uint32_t (&a)[4], int step) {
    if (step >= end) return;
    const bool has_second_half = step * 16 + 8 < layer.inputs;
    WARPRANK_UNROLL
    for (int j = 0; j < Pairs; ++j) {
      if (j >= num_pairs) continue;
      detail::multiply_step<Target>(sums[2 * j], a, weights[j][0], weights[j][1], has_second_half);
      detail::multiply_step<Target>(sums[2 * j + 1], a, weights[j][2], weights[j][3], has_second_half);
    }
  }

  /// A layer of one output: FP32 weights, two steps. The sums of rows g and g + 8 are those of column 0.
  struct HeadWeights {
    float low[2][2], high[2][2];  ///< by step, of the inputs 2t and 2t + 8 and their neighbours
  };
  WARPRANK_DEVICE HeadWeights request_head(int step) const {
    HeadWeights weights{};
    const auto* from = static_cast<const float*>(layer.weights);
    WARPRANK_UNROLL
    for (int s = 0; s < 2; ++s) {
      if (step + s >= end) continue;
      const int k = (step + s) * 16 + device::lane_index() % 4 * 2;
      const auto low = device::load_vector_read_only<2>(from + PackedLinearLayout::head_index(k));
      const auto high = device::load_vector_read_only<2>(from + PackedLinearLayout::head_index(k + 8));
      weights.low[s][0] = low[0], weights.low[s][1] = low[1];
      weights.high[s][0] = high[0], weights.high[s][1] = high[1];
    }
    return weights;
  }
  WARPRANK_DEVICE void multiply_head(const HeadWeights& weights, const uint32_t (&a)[2][4], int step) {
    const auto add = [](float& sum, uint32_t pair, const float(&w)[2]) {
      sum = std::fma(device::widen(device::low_half(pair)), w[0], sum);
      sum = std::fma(device::widen(device::high_half(pair)), w[1], sum);
    };
    WARPRANK_UNROLL
    for (int s = 0; s < 2; ++s) {
      if (step + s >= end) continue;
      add(sums[0][0], a[s][0], weights.low[s]);
      add(sums[0][2], a[s][1], weights.low[s]);
      add(sums[0][0], a[s][2], weights.high[s]);
      add(sums[0][2], a[s][3], weights.high[s]);
    }
  }
  WARPRANK_DEVICE void add_lanes_of_head() {
    sums[0][0] = device::Tile<4>::sum(sums[0][0]);
    sums[0][2] = device::Tile<4>::sum(sums[0][2]);
  }
};

/// Brings a fragment of activations for each of `Steps` steps, of which `count` exist, when all are there; false when
/// they still are not after so many looks. Whole warps call.
template <int Steps>
WARPRANK_DEVICE bool receive(uint32_t (&a)[Steps][4], const uint32_t* from, int count, bool waits) {
  using Fragment = device::Vector<uint32_t, 4>;
  const auto* at = reinterpret_cast<const Fragment*>(from) + device::lane_index();
  for (int looks = 1;; ++looks) {
    bool all = true;
    Fragment fragments[Steps];
    WARPRANK_UNROLL
    for (int s = 0; s < Steps; ++s)
      if (s < count)
        fragments[s] = device::load<device::Order::relaxed, device::Scope::device>(at + s * device::warp_size);
    WARPRANK_UNROLL
    for (int s = 0; s < Steps; ++s) {
      if (s >= count) continue;
      WARPRANK_UNROLL
      for (int c = 0; c < 4; ++c) {
        all = all && fragments[s][c] != 0;
        a[s][c] = ~fragments[s][c];
      }
    }
    if (device::all(device::full_warp, all)) return true;
    if (!waits && looks == SplitBlock::max_looks) return false;
  }
}

/// Copies the rows of a block to shared memory, [rows, stride], up to a whole step of inputs: 16 threads to a row.
WARPRANK_DEVICE void copy_input(const RowSource& source, half* to, int stride) {
  static_assert(SplitBlock::threads == 16 * SplitBlock::rows);
  using Piece = device::Vector<half, 8>;
  constexpr int at_once = 5;
  const int row = device::thread_rank() / 16, num_pieces = (source.num_columns + 15) / 16 * 2;
  half* const to_row = to + row * stride;
  if (source.is_aligned && source.num_columns % 8 == 0) {
    const half* from = source.row(row);
    const int existing = row < source.num_rows ? source.num_columns / 8 : 0;
    for (int first = device::thread_rank() % 16; first < num_pieces; first += at_once * 16) {
      Piece pieces[at_once] = {};
      WARPRANK_UNROLL
      for (int i = 0; i < at_once; ++i)
        if (first + i * 16 < existing) pieces[i] = device::load_vector<8>(from + (first + i * 16) * 8);
      WARPRANK_UNROLL
      for (int i = 0; i < at_once; ++i)
        if (first + i * 16 < num_pieces) device::store_vector(to_row + (first + i * 16) * 8, pieces[i]);
    }
  } else {
    for (int piece = device::thread_rank() % 16; piece < num_pieces; piece += 16)
      device::store_vector(to_row + piece * 8, load_columns_of_row(source, row, piece * 8));
  }
}

/// One block's part of a stack for one tile of rows.
template <int Target, int Pairs>
struct SplitChain {
  using Product = SplitProduct<Target, Pairs>;
  using Fragment = typename Product::Fragment;
  static constexpr int first_steps = 5, next_steps = 2;  ///< whose weights are in flight together
  static constexpr int64_t sums_floats = split_sums_floats(Pairs);

  SplitStorage& shared;
  int depth, rank, num_blocks;
  const SplitExchange& exchange;
  int input_stride;          ///< of the rows that layer `first` reads, in shared memory behind the sums
  int first = 0;             ///< layer that is computed; 1 where layer 0 is done
  int64_t row = 0;           ///< of the tile, the first
  int num_rows = -1;         ///< of the tile that exist; not known yet
  uint32_t* now = nullptr;   ///< words of this launch
  uint32_t* next = nullptr;  ///< and of the one behind it
  int turn = 0;              ///< which of the sums are used

  /// [2, warps, 2 Pairs tiles of 8, lanes, 4]
  static WARPRANK_DEVICE float* sums() { return device::dynamic_shared<float>(); }
  static WARPRANK_DEVICE half* input() { return reinterpret_cast<half*>(sums() + 2 * sums_floats); }

  /// Computes all layers, unless there are no rows.
  WARPRANK_DEVICE void run() {
    if (shared.layers[0].is_done || shared.layers[0].mix.num_own > 0) {
      find_rows();
      if (num_rows == 0) return;
      compute_input();
    }
    bool is_alone = false;
    int64_t received = 0, sent = 0;  // words before those of the layer's inputs and of its outputs
    for (int i = first; i < depth;) {
      const int num_pairs = num_pairs_of(shared.layers[i]), shares = (num_pairs + Pairs - 1) / Pairs;
      const bool does_all = is_alone && i + 1 < depth;
      // At first also without a share: somebody must bring the input.
      const int end = i == first && shares <= rank ? rank + 1 : shares;
      bool is_complete = true;
      for (int share = does_all ? 0 : rank; share < end && is_complete; share += does_all ? 1 : num_blocks) {
        is_complete = run_share(i, share, received, sent, is_alone);
        if (num_rows == 0) return;
      }
      if (is_complete) {
        received = sent;
        sent += num_pairs * SplitExchange::fragment_words;
        ++i;
      } else {
        is_alone = true;
        received = sent = 0;
        i = first;
      }
    }
    if (device::thread_rank() == 0)
      device::take_ticket<device::Order::relaxed, device::Scope::device>(exchange.ended + tile(),
                                                                         static_cast<uint32_t>(2 * num_blocks - 1));
  }

 private:
  static WARPRANK_DEVICE int num_pairs_of(const MlpDescriptor& layer) {
    return static_cast<int>((layer.epilogue.width + 15) / 16);
  }
  /// Of all stacks.
  static WARPRANK_DEVICE int64_t tile() {
    return static_cast<int64_t>(device::block_index().z) * device::grid_dim().y + device::block_index().y;
  }

  /// Waits for the launch before and finds the rows of the tile. What it writes to shared memory is for all after a
  /// barrier.
  WARPRANK_DEVICE void find_rows() {
    prefetch_weights();
    device::wait_for_previous_launch();
    const MlpDescriptor& layer = shared.layers[0];
    row = static_cast<int64_t>(device::block_index().y) * SplitBlock::rows;
    const int existing = neighbours(row, rows_of(layer), SplitBlock::rows).count;
    num_rows = existing < 0 ? 0 : existing;
    if (num_rows == 0) return;
    if (device::thread_rank() == 0)
      shared.ended = device::load<device::Order::relaxed, device::Scope::device>(exchange.ended + tile());
    find_bias_rows<SplitBlock::rows, SplitBlock::threads>(layer, shared.layers[depth - 1], row, num_rows,
                                                          shared.bias_rows);
  }

  /// Computes what the first of the layers reads, where that is more than rows of x.
  WARPRANK_DEVICE void compute_input() const {
    const MlpDescriptor& layer = shared.layers[0];
    if (layer.is_done) {
      device::sync_block();  // bias_rows
      finish_done_layer<SplitBlock::threads>(layer, row, num_rows, shared.bias_rows, input(), input_stride);
      device::sync_block();
    } else {
      mix_experts<SplitBlock::rows, SplitBlock::threads>(layer.mix, row, num_rows, layer.inputs, sums(), input(),
                                                         input_stride);
    }
  }

  /// Which words are those of this launch.
  WARPRANK_DEVICE void choose_words() {
    const int64_t set_words = exchange.fragments * SplitExchange::fragment_words;
    const bool is_odd = shared.ended >= static_cast<uint32_t>(num_blocks);
    uint32_t* const sets = exchange.words + tile() * 2 * set_words;
    now = sets + (is_odd ? set_words : 0);
    next = sets + (is_odd ? 0 : set_words);
  }

  /// Asks for the weights of the later layers that the block is going to read.
  WARPRANK_DEVICE void prefetch_weights() const {
    constexpr int line = 128;
    for (int i = first + 1; i < depth; ++i) {
      const MlpDescriptor& layer = shared.layers[i];
      if (layer.is_head) continue;
      const int left = num_pairs_of(layer) - rank * Pairs;
      const int bytes_of_pair = (layer.inputs + 15) / 16 * static_cast<int>(PackedLinearLayout::fragment_bytes);
      const auto* from = static_cast<const char*>(layer.weights) + static_cast<int64_t>(rank) * Pairs * bytes_of_pair;
      const int bytes = (left < Pairs ? left : Pairs) * bytes_of_pair;
      for (int at = device::thread_rank() * line; at < bytes; at += SplitBlock::threads * line)
        device::prefetch(from + at);
    }
  }

  /// Computes a share of a layer's outputs; false where its inputs did not come.
  WARPRANK_DEVICE bool run_share(int i, int share, int64_t received, int64_t sent, bool is_alone) {
    const MlpDescriptor& layer = shared.layers[i];
    const bool is_first = i == first, is_last = i + 1 == depth;
    Product product(layer, share);
    Fragment first_weights[first_steps][Pairs];
    if (is_first && !layer.is_head) product.request(first_weights, product.begin);
    if (num_rows < 0) {
      find_rows();
      if (num_rows == 0) return true;
      copy_input(source_of(layer, {row, num_rows, nullptr}), input(), input_stride);
      device::sync_block();
    }
    if (is_first) choose_words();
    // Of the block's words, in the order of a fragment: pair, lane, register.
    const int word = device::thread_rank(), pair = word / 128, lane = word / 4 % 32;
    const int row_of_tile = lane / 4 + word % 2 * 8;
    const int column = (product.first_pair + pair) * 16 + lane % 4 * 2 + word / 2 % 2 * 8;
    const bool finishes = pair < Pairs && pair < product.num_pairs;
    const int64_t some_row = row + (row_of_tile < num_rows ? row_of_tile : num_rows - 1);
    float added[2] = {};
    if (finishes) load_added(layer.epilogue, some_row, &shared.bias_rows[row_of_tile], column, added);

    const uint32_t* const from = now + received;
    bool is_complete = true;
    if (layer.is_head) {
      for (int step = product.begin; step < product.end && is_complete; step += 2) {
        const auto weights = product.request_head(step);
        uint32_t a[2][4];
        if (is_first)
          load_input(a, step, product.end);
        else
          is_complete = receive(a, from + step * SplitExchange::fragment_words, product.end - step, is_alone);
        product.multiply_head(weights, a, step);
      }
      product.add_lanes_of_head();
    } else if (is_first) {
      for (int step = product.begin; step < product.end; step += first_steps) {
        if (step > product.begin) product.request(first_weights, step);
        multiply_input(product, first_weights, step);
      }
    } else {
      for (int step = product.begin; step < product.end && is_complete; step += next_steps) {
        Fragment weights[next_steps][Pairs];
        product.request(weights, step);
        uint32_t a[next_steps][4];
        is_complete = receive(a, from + step * SplitExchange::fragment_words, product.end - step, is_alone);
        product.multiply(weights, a, step);
      }
    }

    float* const own = sums() + turn * sums_floats;
    turn ^= 1;
    WARPRANK_UNROLL
    for (int j = 0; j < 2 * Pairs; ++j) {
      device::Vector<float, 4> four;
      WARPRANK_UNROLL
      for (int c = 0; c < 4; ++c) four[c] = product.sums[j][c];
      device::store_vector(own + ((device::thread_rank() / 32 * 2 * Pairs + j) * 32 + device::lane_index()) * 4, four);
    }
    if (device::sync_block_any(!is_complete)) return false;
    if (!finishes) return true;
    float values[2];
    add_warps(own + ((pair * 2 + word / 2 % 2) * 32 + lane) * 4 + word % 2 * 2, values);
    values[0] += added[0], values[1] += added[1];
    if (is_last) {
      if (row_of_tile < num_rows) finish_pair(layer.epilogue, row + row_of_tile, column, values);
    } else {
      activate_pair(layer.epilogue, column, values);
      const int64_t to = sent + product.first_pair * SplitExchange::fragment_words + word;
      const uint32_t activations = pack_activations(layer.epilogue, column, values);
      device::store<device::Order::relaxed, device::Scope::device>(now + to, ~activations);
      device::store<device::Order::relaxed, device::Scope::device>(next + to, uint32_t{0});
    }
    return true;
  }

  /// The products of the rows in shared memory; their fragments are loaded a step ahead.
  WARPRANK_DEVICE void multiply_input(Product& product, const Fragment (&weights)[first_steps][Pairs], int step) const {
    uint32_t a[2][1][4];
    load_input(a[0], step, product.end);
    WARPRANK_UNROLL
    for (int s = 0; s < first_steps; ++s) {
      if (s + 1 < first_steps) load_input(a[(s + 1) % 2], step + s + 1, product.end);
      product.multiply_step(weights[s], a[s % 2][0], step + s);
    }
  }

  /// Fragments of the rows in shared memory.
  template <int Steps>
  WARPRANK_DEVICE void load_input(uint32_t (&a)[Steps][4], int step, int end) const {
    WARPRANK_UNROLL
    for (int s = 0; s < Steps; ++s)
      if (step + s < end) load_rows(a[s], input() + (step + s) * 16, input_stride);
  }

  /// The sums of all warps, added as a tree; `from` are those of the first.
  static WARPRANK_DEVICE void add_warps(const float* from, float (&values)[2]) {
    constexpr int num_warps = SplitBlock::num_warps, distance = 2 * Pairs * 32 * 4;
    device::Vector<float, 2> parts[num_warps];
    WARPRANK_UNROLL
    for (int w = 0; w < num_warps; ++w) parts[w] = device::load_vector<2>(from + w * distance);
    WARPRANK_UNROLL
    for (int n = num_warps / 2; n > 0; n /= 2) {
      WARPRANK_UNROLL
      for (int w = 0; w < n; ++w) parts[w][0] += parts[w + n][0], parts[w][1] += parts[w + n][1];
    }
    values[0] = parts[0][0], values[1] = parts[0][1];
  }
};

/// layers: those of all stacks, `depth` of each. Grid: blocks of a tile, tiles, stacks.
template <int Target, int Pairs>
WARPRANK_KERNEL(SplitBlock::threads, 1)
split_mlp_kernel(const MlpDescriptor* layers, int depth, SplitExchange exchange) {
  auto& shared = device::static_shared<SplitStorage>();
  read_descriptors(layers + static_cast<int64_t>(device::block_index().z) * depth, depth, shared.layers);
  SplitChain<Target, Pairs> chain{shared,
                                  depth,
                                  static_cast<int>(device::block_index().x),
                                  static_cast<int>(device::grid_dim().x),
                                  exchange,
                                  static_cast<int>(exchange.input_stride)};
  chain.first = shared.layers[0].is_done ? 1 : 0;
  chain.run();
}

}  // namespace warprank::detail
