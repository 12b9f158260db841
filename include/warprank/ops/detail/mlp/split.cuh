// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/mlp.cuh for few rows: several blocks share a tile of 16 or 32 rows, and each computes some outputs
/// of every layer, so that none reads more than its part of the weights.
///
/// In a block the warps share the inputs of a layer, 32 at a time. A fragment of weights, and one of activations, is
/// wanted by one lane alone and goes from global memory straight to its registers (linear/fragments.cuh), also x where
/// its rows are whole vectors; the warps' sums meet in shared memory and are added as a tree, so that a row has the
/// same bits however blocks share the outputs. A warp that has few steps of a layer keeps their activations for all of
/// the block's outputs, and asks for the weights of the next outputs before it adds the sums of these.
///
/// Blocks exchange activations through the second-level cache, and the data is its own flag: a word is two FP16 values,
/// inverted. 0 would be two NaNs that no conversion makes, and says that nothing has been written yet. Two sets of
/// words serve in turns; who writes one of this launch clears the one of the next. Which set it is tells a counter of
/// the blocks that have ended, which every block adds to once in a launch.
///
/// No block depends on another to begin: one that has looked in vain for long enough computes all layers by itself but
/// for the last, of which it has its own part to do. What two blocks write of a word is the same.
///
/// From launch to store: descriptors, count, rows; then for each layer one exchange and, for each of the block's shares
/// of the outputs, one barrier. In flight at first: 32 or 64 KB of weights and half or twice of it of rows. The
/// prototype of this kernel took 1,900 clocks to the first product and 1,300 for each layer behind it (policy.hpp has
/// times).

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "warprank/device/collectives.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/ops/detail/linear/fragments.cuh"
#include "warprank/ops/detail/mlp/descriptor.cuh"
#include "warprank/ops/detail/mlp/epilogue.cuh"
#include "warprank/ops/detail/mlp/policy.hpp"
#include "warprank/ops/detail/mlp/product.cuh"

namespace warprank::detail {

/// Device memory by which the blocks of a tile exchange activations; 0 before the first launch.
struct SplitExchange {
  static constexpr int64_t fragment_words = 128;  ///< of 8 rows and 32 outputs, as a warp reads them

  uint32_t* ended;       ///< [stacks, tiles]: of two launches in turns, how many blocks have
  uint32_t* words;       ///< [stacks, tiles, 2, fragments, fragment_words]
  int64_t fragments;     ///< of all layers but the last
  int64_t input_stride;  ///< of rows that lie in shared memory first, in halves
  int max_looks;         ///< for what another block computes, before a block computes it itself

  static constexpr int64_t ended_bytes(int64_t tiles) { return 4 * tiles; }
  static constexpr int64_t words_bytes(int64_t tiles, int64_t fragments) {
    return tiles * 2 * fragments * fragment_words * 4;
  }
};

struct SplitStorage {
  MlpDescriptor layers[max_fused_layers];
  int64_t bias_rows[SplitBlock::max_rows];  ///< what bias_row_of gives for the rows
  uint32_t ended;
};

static_assert(split_shared_bytes({1, 2, 2}, staged_stride(SplitBlock::max_staged_inputs)) +
                  int64_t{sizeof(SplitStorage)} <=
              64 << 10);
static_assert(split_shared_bytes({1, 4, 1}, staged_stride(SplitBlock::max_staged_inputs_of_32)) +
                  int64_t{sizeof(SplitStorage)} <=
              64 << 10);
static_assert(split_sums_floats({1, 2, 1}) >= 16 * max_mixed_experts);
static_assert(split_sums_floats({1, 4, 1}) >= 32 * max_mixed_experts);

/// One block's part of a stack for one tile of rows.
template <int Target, int Strips, int Pairs>
class SplitChain {
 public:
  static constexpr int rows = 8 * Strips, columns = 16 * Pairs;
  static constexpr int steps_at_once = 4;               ///< of 32 inputs, whose operands are in flight together
  static constexpr int num_words = rows * columns / 2;  ///< of a share: one for each thread, or for some
  static constexpr int sums_stride = columns + 4;       ///< floats from row to row: no two lanes meet in a bank
  static constexpr int num_sums = SplitPolicy{1, Strips, Pairs}.num_sums();
  static constexpr int64_t sums_floats = split_sums_floats({1, Strips, Pairs});
  static_assert(num_words <= SplitBlock::threads && rows <= SplitBlock::max_rows);

  WARPRANK_DEVICE SplitChain(SplitStorage& shared, int depth, const SplitExchange& exchange, const HeadFactor* factors)
      : shared_(shared),
        depth_(depth),
        exchange_(exchange),
        factors_(factors),
        first_(shared.layers[0].is_done ? 1 : 0) {
    const MlpDescriptor& layer = shared.layers[first_];
    is_staged_ = first_ == 1 || layer.mix.num_own > 0 || !layer.x_is_aligned || layer.inputs % 8 != 0;
  }

  /// Computes all layers, unless there are no rows.
  WARPRANK_DEVICE void run() {
    begin_layer(first_);
    bool has_weights = rank() < shares_of(shared_.layers[first_]);
    if (has_weights) request_weights(rank(), begin_);
    find_rows();
    if (num_rows_ == 0) return;
    if (is_staged_) {
      compute_input();
    } else {
      find_input_rows();
      device::sync_block();  // bias_rows, ended
    }
    choose_words();
    bool is_alone = false;
    int64_t received = 0, sent = 0;  // words before those of the layer's inputs and of its outputs
    for (int i = first_; i < depth_;) {
      if (run_layer(i, received, sent, is_alone, has_weights)) {
        received = sent;
        sent += words_of(shared_.layers[i]);
        ++i;
      } else {
        is_alone = true;
        received = sent = 0;
        i = first_;
      }
      has_weights = false;
      if (i < depth_) begin_layer(i);
    }
    if (device::thread_rank() == 0)
      device::take_ticket<device::Order::relaxed, device::Scope::device>(exchange_.ended + tile(),
                                                                         static_cast<uint32_t>(2 * num_blocks() - 1));
  }

 private:
  using Sums = float[Pairs][Strips][4];

  static WARPRANK_DEVICE int rank() { return static_cast<int>(device::block_index().x); }
  static WARPRANK_DEVICE int num_blocks() { return static_cast<int>(device::grid_dim().x); }
  /// Of all stacks.
  static WARPRANK_DEVICE int64_t tile() {
    return static_cast<int64_t>(device::block_index().z) * device::grid_dim().y + device::block_index().y;
  }
  static WARPRANK_DEVICE int num_pairs_of(const MlpDescriptor& layer) { return (layer.outputs + 15) / 16; }
  static WARPRANK_DEVICE int shares_of(const MlpDescriptor& layer) { return (num_pairs_of(layer) + Pairs - 1) / Pairs; }
  static WARPRANK_DEVICE int steps_of(int inputs) { return (inputs + 31) / 32; }
  /// That a layer's outputs take of a set.
  static WARPRANK_DEVICE int64_t words_of(const MlpDescriptor& layer) {
    return Strips * steps_of(layer.outputs) * SplitExchange::fragment_words;
  }
  /// [num_sums, warps, rows, sums_stride]
  static WARPRANK_DEVICE float* sums() { return device::dynamic_shared<float>(); }
  static WARPRANK_DEVICE half* input() { return reinterpret_cast<half*>(sums() + num_sums * sums_floats); }

  /// Which inputs of a layer are the warp's.
  WARPRANK_DEVICE void begin_layer(int i) {
    const int num_steps = steps_of(shared_.layers[i].inputs), warp = device::warp_index();
    layer_ = &shared_.layers[i];
    begin_ = warp * num_steps / SplitBlock::num_warps;
    end_ = (warp + 1) * num_steps / SplitBlock::num_warps;
  }

  /// Waits for the launch before and finds the rows of the tile. What it writes to shared memory is for all after a
  /// barrier.
  WARPRANK_DEVICE void find_rows() {
    prefetch_weights();
    device::wait_for_previous_launch();
    const MlpDescriptor& layer = shared_.layers[0];
    row_ = static_cast<int64_t>(device::block_index().y) * rows;
    const int existing = neighbours(row_, rows_of(layer), rows).count;
    num_rows_ = existing < 0 ? 0 : existing;
    if (num_rows_ == 0) return;
    if (device::thread_rank() == 0)
      shared_.ended = device::load<device::Order::relaxed, device::Scope::device>(exchange_.ended + tile());
    find_bias_rows<rows, SplitBlock::threads>(layer, shared_.layers[depth_ - 1], row_, num_rows_, shared_.bias_rows);
  }

  /// The lane's rows of x, where they are read from where they lie.
  WARPRANK_DEVICE void find_input_rows() {
    const MlpDescriptor& layer = shared_.layers[0];
    WARPRANK_UNROLL
    for (int r = 0; r < Strips; ++r) {
      const int row = r * 8 + device::lane_index() / 4;
      x_rows_[r] = row < num_rows_ ? layer.x + (row_ + row) * layer.x_stride + device::lane_index() % 4 * 8 : nullptr;
    }
  }

  /// Brings what the first of the layers reads to shared memory, up to a whole step. Ends with a barrier.
  WARPRANK_DEVICE void compute_input() const {
    const MlpDescriptor& layer = shared_.layers[0];
    const int stride = static_cast<int>(exchange_.input_stride);
    const int width = first_ == 1 ? layer.outputs : layer.inputs;
    // mix_experts and finish_done_layer leave the columns from a multiple of 16 on; so there are none of a whole step.
    const int pieces = steps_of(width) * 4;
    const RowSource source = source_of(layer, {row_, num_rows_, nullptr});
    const bool copies = first_ == 0 && layer.mix.num_own == 0;
    for (int at = device::thread_rank(); at < rows * pieces; at += SplitBlock::threads) {
      const int row = at / pieces, column = at % pieces * 8;
      device::Vector<half, 8> piece{};
      if (copies) piece = load_columns_of_row(source, row, column);
      device::store_vector(input() + row * stride + column, piece);
    }
    if (!copies) {
      device::sync_block();  // and bias_rows
      if (first_ == 1)
        finish_done_layer<SplitBlock::threads>(layer, row_, num_rows_, shared_.bias_rows, input(), stride);
      else
        mix_experts<rows, SplitBlock::threads>(layer.mix, row_, num_rows_, layer.inputs, sums(), input(), stride);
    }
    device::sync_block();
  }

  /// Which words are those of this launch.
  WARPRANK_DEVICE void choose_words() {
    const int64_t set_words = exchange_.fragments * SplitExchange::fragment_words;
    const bool is_odd = shared_.ended >= static_cast<uint32_t>(num_blocks());
    uint32_t* const sets = exchange_.words + tile() * 2 * set_words;
    now_ = sets + (is_odd ? set_words : 0);
    next_ = sets + (is_odd ? 0 : set_words);
  }

  /// Asks for the weights of the later layers that the block is going to read.
  WARPRANK_DEVICE void prefetch_weights() const {
    constexpr int line = 128, step_bytes = step_words * 4;
    for (int i = first_ + 1; i < depth_; ++i) {
      const MlpDescriptor& layer = shared_.layers[i];
      if (layer.is_head) continue;
      const int num_pairs = num_pairs_of(layer), bytes_of_pair = steps_of(layer.inputs) * step_bytes;
      const auto* from = static_cast<const char*>(layer.weights);
      for (int pair = rank() * Pairs; pair < num_pairs; pair += num_blocks() * Pairs) {
        const int bytes = (num_pairs - pair < Pairs ? num_pairs - pair : Pairs) * bytes_of_pair;
        for (int at = device::thread_rank() * line; at < bytes; at += SplitBlock::threads * line)
          device::prefetch(from + static_cast<int64_t>(pair) * bytes_of_pair + at);
      }
    }
  }

  /// Asks for the weights of a share's outputs for the warp's steps from `step` on.
  WARPRANK_DEVICE void request_weights(int share, int step) {
    if (layer_->is_head) return request_head(step);
    const int num_steps = steps_of(layer_->inputs), num_pairs = num_pairs_of(*layer_) - share * Pairs;
    const uint32_t* const from = layer_->tiles() +
                                 (static_cast<int64_t>(share) * Pairs * num_steps + step) * step_words +
                                 device::lane_index() * 4;
    WARPRANK_UNROLL
    for (int s = 0; s < steps_at_once; ++s) {
      WARPRANK_UNROLL
      for (int j = 0; j < Pairs; ++j) {
        WARPRANK_UNROLL
        for (int h = 0; h < 2; ++h) {
          weights_[s][h][j] = {};
          if (step + s < end_ && j < num_pairs)
            weights_[s][h][j] = device::load_vector_read_only<4>(
                from + (static_cast<int64_t>(j) * num_steps + s) * step_words + h * half_step_words);
        }
      }
    }
  }
  /// The FP32 weights of the lane's 8 inputs of each step.
  WARPRANK_DEVICE void request_head(int step) {
    const auto* const from = static_cast<const uint32_t*>(layer_->weights);
    WARPRANK_UNROLL
    for (int s = 0; s < steps_at_once; ++s) {
      const int64_t at = PackedLinearLayout::head_index((step + s) * 32 + device::lane_index() % 4 * 8);
      WARPRANK_UNROLL
      for (int h = 0; h < 2; ++h) {
        weights_[s][h][0] = {};
        if (step + s < end_)
          weights_[s][h][0] = device::load_vector_read_only<4>(from + at + h * (PackedLinearLayout::head_step / 2));
      }
    }
  }

  /// Brings the layer's inputs of the warp's steps from `step` on; false when they have not come. Whole warps call.
  WARPRANK_DEVICE bool bring_inputs(bool is_first, const uint32_t* received, int step, bool is_alone) {
    if (!is_first) return receive(received, step, is_alone);
    WARPRANK_UNROLL
    for (int s = 0; s < steps_at_once; ++s) {
      WARPRANK_UNROLL
      for (int r = 0; r < Strips; ++r) {
        const int k = (step + s) * 32;
        x_[s][r] = {};
        if (step + s >= end_) continue;
        if (is_staged_) {
          const half* from =
              input() + (r * 8 + device::lane_index() / 4) * exchange_.input_stride + k + device::lane_index() % 4 * 8;
          x_[s][r] = *reinterpret_cast<const LinearFragment*>(from);
        } else if (x_rows_[r] != nullptr && k + device::lane_index() % 4 * 8 < layer_->inputs) {
          x_[s][r] = device::load_vector<4>(reinterpret_cast<const uint32_t*>(x_rows_[r] + k));
        }
      }
    }
    return true;
  }

  /// Looks for what other blocks have computed of the layer before until it is there, or until it has looked so often.
  WARPRANK_DEVICE bool receive(const uint32_t* from, int step, bool waits) {
    const int num_steps = steps_of(layer_->inputs), written = (layer_->inputs + 15) / 16 * 16;
    const auto* at = reinterpret_cast<const LinearFragment*>(from) + step * device::warp_size + device::lane_index();
    for (int looks = 1;; ++looks) {
      bool all = true;
      WARPRANK_UNROLL
      for (int s = 0; s < steps_at_once; ++s) {
        const bool exists = step + s < end_ && (step + s) * 32 + device::lane_index() % 4 * 8 < written;
        WARPRANK_UNROLL
        for (int r = 0; r < Strips; ++r) {
          x_[s][r] = {{~0u, ~0u, ~0u, ~0u}};
          if (exists)
            x_[s][r] = device::load<device::Order::relaxed, device::Scope::device>(at + (r * num_steps + s) *
                                                                                            device::warp_size);
        }
      }
      WARPRANK_UNROLL
      for (int s = 0; s < steps_at_once; ++s) {
        WARPRANK_UNROLL
        for (int r = 0; r < Strips; ++r) {
          WARPRANK_UNROLL
          for (int c = 0; c < 4; ++c) {
            all = all && x_[s][r][c] != 0;
            x_[s][r][c] = ~x_[s][r][c];
          }
        }
      }
      if (device::all(device::full_warp, all)) return true;
      if (!waits && looks >= exchange_.max_looks) return false;
    }
  }

  WARPRANK_DEVICE void multiply(Sums& sums, int step) {
    WARPRANK_UNROLL
    for (int s = 0; s < steps_at_once; ++s) {
      if (step + s >= end_) break;
      multiply_half_steps<Target, 0>(sums, weights_[s][0], x_[s]);
      multiply_half_steps<Target, 1>(sums, weights_[s][1], x_[s]);
    }
  }
  /// The lane's part of the sums of its rows, one of each strip.
  WARPRANK_DEVICE void multiply_as_head(Sums& sums) const {
    WARPRANK_UNROLL
    for (int s = 0; s < steps_at_once; ++s) {
      WARPRANK_UNROLL
      for (int r = 0; r < Strips; ++r) {
        WARPRANK_UNROLL
        for (int c = 0; c < 4; ++c) {
          const LinearFragment& w = weights_[s][c / 2][0];
          float& sum = sums[0][r][0];
          sum = std::fma(device::widen(device::low_half(x_[s][r][c])), device::float_of_bits(w[c % 2 * 2]), sum);
          sum = std::fma(device::widen(device::high_half(x_[s][r][c])), device::float_of_bits(w[c % 2 * 2 + 1]), sum);
        }
      }
    }
  }

  /// Leaves the warp's sums in shared memory.
  WARPRANK_DEVICE void store_sums(const Sums& sums, float* to) const {
    const int g = device::lane_index() / 4, t = device::lane_index() % 4;
    if (layer_->is_head) {
      WARPRANK_UNROLL
      for (int r = 0; r < Strips; ++r) {
        const float sum = device::Tile<4>::sum(sums[0][r][0]);
        if (t == 0)
          device::store_vector(to + (device::warp_index() * rows + r * 8 + g) * sums_stride,
                               device::Vector<float, 2>{{sum, 0}});
      }
      return;
    }
    float* const own = to + (device::warp_index() * rows + 2 * t) * sums_stride + g;
    WARPRANK_UNROLL
    for (int j = 0; j < Pairs; ++j) {
      WARPRANK_UNROLL
      for (int r = 0; r < Strips; ++r) {
        WARPRANK_UNROLL
        for (int c = 0; c < 4; ++c) own[(r * 8 + c % 2) * sums_stride + j * 16 + c / 2 * 8] = sums[j][r][c];
      }
    }
  }

  /// The sums of all warps, added as a tree; `from` are those of the first.
  static WARPRANK_DEVICE void add_warps(const float* from, float (&values)[2]) {
    constexpr int num_warps = SplitBlock::num_warps, distance = rows * sums_stride;
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

  /// Computes the block's shares of a layer; false where its inputs did not come. With `has_weights` the first of the
  /// first share are on their way.
  WARPRANK_DEVICE bool run_layer(int i, int64_t received, int64_t sent, bool is_alone, bool has_weights) {
    const MlpDescriptor& layer = *layer_;
    const bool is_first = i == first_, is_last = i + 1 == depth_, does_all = is_alone && !is_last;
    const int shares = shares_of(layer), distance = does_all ? 1 : num_blocks();
    const int num_columns = layer.is_head ? 2 : num_pairs_of(layer) * 16;
    // Of a share's words the thread's, by rows.
    const int row_of_tile = device::thread_rank() / (columns / 2), of_row = device::thread_rank() % (columns / 2);
    const int64_t some_row = row_ + (row_of_tile < num_rows_ ? row_of_tile : num_rows_ - 1);
    bool has_inputs = false;
    for (int share = does_all ? 0 : rank(); share < shares; share += distance) {
      const int column = share * columns + of_row * 2;
      const bool finishes = device::thread_rank() < num_words && column < num_columns;
      if (!has_weights) request_weights(share, begin_);
      float added[2] = {};
      if (finishes) load_added(layer.epilogue, some_row, &shared_.bias_rows[row_of_tile], column, added);
      Sums sums_of_lane = {};
      bool is_complete = true;
      for (int step = begin_; step < end_ && is_complete; step += steps_at_once) {
        if (step > begin_) request_weights(share, step);
        if (!has_inputs) is_complete = bring_inputs(is_first, now_ + received, step, is_alone);
        if (layer.is_head)
          multiply_as_head(sums_of_lane);
        else
          multiply(sums_of_lane, step);
      }
      has_inputs = end_ - begin_ <= steps_at_once;
      has_weights = share + distance < shares;
      if (has_weights) request_weights(share + distance, begin_);

      float* const own = sums() + turn_ * sums_floats;
      if constexpr (num_sums == 1)
        device::sync_block();  // all have read those before
      else
        turn_ ^= 1;
      store_sums(sums_of_lane, own);
      if (device::sync_block_any(!is_complete)) return false;
      if (!finishes) continue;
      float values[2];
      add_warps(own + row_of_tile * sums_stride + of_row * 2, values);
      values[0] += added[0], values[1] += added[1];
      if (is_last) {
        if (row_of_tile >= num_rows_) continue;
        finish_pair(layer.epilogue, row_ + row_of_tile, column, values);
        if (column == 0) multiply_head(factors_, layer.first_factor, layer.num_factors, row_ + row_of_tile, values[0]);
      } else {
        activate_pair(layer.epilogue, column, values);
        const uint32_t activations = pack_activations(layer.epilogue, column, values);
        const int fragment = row_of_tile / 8 * steps_of(layer.outputs) + column / 32;
        const int64_t to = sent + fragment * SplitExchange::fragment_words + row_of_tile % 8 * 16 + column % 32 / 2;
        device::store<device::Order::relaxed, device::Scope::device>(now_ + to, ~activations);
        device::store<device::Order::relaxed, device::Scope::device>(next_ + to, uint32_t{0});
      }
    }
    return true;
  }

  SplitStorage& shared_;
  int depth_;
  const SplitExchange& exchange_;
  const HeadFactor* factors_;        ///< of all heads
  int first_;                        ///< layer that is computed; 1 where layer 0 is done
  bool is_staged_;                   ///< what that layer reads lies in shared memory, behind the sums
  int64_t row_ = 0;                  ///< of the tile, the first
  int num_rows_ = 0;                 ///< of the tile that exist
  const half* x_rows_[Strips] = {};  ///< of the lane; null: none
  uint32_t* now_ = nullptr;          ///< words of this launch
  uint32_t* next_ = nullptr;         ///< and of the one behind it
  int turn_ = 0;                     ///< which of the sums are used
  const MlpDescriptor* layer_ = nullptr;
  int begin_ = 0, end_ = 0;  ///< steps of the layer that are the warp's
  LinearFragment weights_[steps_at_once][2][Pairs], x_[steps_at_once][Strips];
};

/// layers: those of all stacks, `depth` of each, and behind them the factors of products. Grid: blocks of a tile,
/// tiles, stacks.
template <int Target, int Strips, int Pairs>
WARPRANK_KERNEL(SplitBlock::threads, 1)
split_mlp_kernel(const MlpDescriptor* layers, int depth, SplitExchange exchange) {
  auto& shared = device::static_shared<SplitStorage>();
  read_descriptors(layers + static_cast<int64_t>(device::block_index().z) * depth, depth, shared.layers);
  SplitChain<Target, Strips, Pairs> chain(
      shared, depth, exchange, reinterpret_cast<const HeadFactor*>(layers + int64_t{depth} * device::grid_dim().z));
  chain.run();
}

}  // namespace warprank::detail
