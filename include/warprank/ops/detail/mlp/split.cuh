// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/mlp.cuh for few rows: several blocks share a tile of 16 or 32 rows, and each computes some outputs
/// of every layer, so that none reads more than its part of the weights.
///
/// In a block the warps share the inputs of a layer, 32 at a time. A fragment of weights, and one of activations, is
/// wanted by one lane alone and goes from global memory straight to its registers (linear/fragments.cuh), also x where
/// its rows are whole vectors; the warps' sums meet in shared memory and are added as a tree, so that a row has the
/// same bits however blocks share the outputs. A warp that has few steps of a layer keeps their activations for all of
/// the block's outputs, and asks for the weights of the next outputs, be they of the next layer, before it adds the
/// sums of these.
///
/// Blocks exchange activations through the second-level cache, and the data is its own flag: a word is two FP16 values,
/// and 0 says that nothing has been written yet. Two zeros are sent as one of them negative, which changes no sum. Two
/// sets of words serve in turns; who writes one of this launch clears the one of the next. Which set it is tells a
/// counter of the blocks that have ended, which every block adds to once in a launch.
///
/// No block depends on another to begin: one that has looked in vain for long enough computes all layers by itself but
/// for the last, of which it has its own part to do. What two blocks write of a word is the same.
///
/// From launch to store: descriptors, count, rows; then for each layer one exchange and, for each of the block's shares
/// of the outputs, one barrier or two. In flight at first: 32 or 64 KB of weights and half or twice of it of rows. The
/// prototype of this kernel took 1,900 clocks to the first product and 1,300 for each layer behind it (policy.hpp has
/// times).
///
/// What a layer costs is the instructions of a warp, of which products are few. So what blocks ask of a layer is found
/// on the host (SplitProducts, SplitFinish), and branches end what a warp has no steps for. 600-256-256-256-1 over 16
/// blocks takes the busiest warp of sm_75 1,489 instructions; 2,814 when every step was looked up, tested and cleared
/// by itself.

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "warprank/device/collectives.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/ops/detail/mlp/descriptor.cuh"
#include "warprank/ops/detail/mlp/epilogue.cuh"
#include "warprank/ops/detail/mlp/policy.hpp"
#include "warprank/ops/detail/mlp/product.cuh"
#include "warprank/ops/detail/mlp/split_steps.cuh"

namespace warprank { inline namespace v0 { namespace detail::mlp {

struct SplitStorage {
  Descriptor layers[max_fused_layers];
  int64_t bias_rows[SplitBlock::max_rows];  ///< what bias_row_of gives for the rows, where a layer has a row bias
};

static_assert(sizeof(SplitStorage) <= SplitBlock::static_shared_bytes);
static_assert(split_shared_bytes({1, 2, 2}, staged_stride(SplitBlock::max_staged_inputs)) +
                  SplitBlock::static_shared_bytes <=
              SplitBlock::t4_shared_bytes);
static_assert(split_shared_bytes({1, 4, 1}, staged_stride(SplitBlock::max_staged_inputs_of_32)) +
                  SplitBlock::static_shared_bytes <=
              SplitBlock::t4_shared_bytes);
static_assert(split_sums_floats({1, 2, 1}) >= 16 * max_mixed_experts);
static_assert(split_sums_floats({1, 4, 1}) >= 32 * max_mixed_experts);

/// One block's part of a stack for one tile of rows.
template <int Target, int Strips, int Pairs>
class SplitChain {
 public:
  static constexpr int rows = 8 * Strips, columns = 16 * Pairs;
  static constexpr int num_words = rows * columns / 2;  ///< of a share: one for each thread, or for some
  static constexpr int num_sums = SplitPolicy{1, Strips, Pairs}.num_sums();
  static constexpr int sums_floats = static_cast<int>(split_sums_floats({1, Strips, Pairs}));
  static_assert(num_words <= SplitBlock::threads && rows <= SplitBlock::max_rows);

  WARPRANK_DEVICE SplitChain(SplitStorage& shared, int depth, const SplitExchange& exchange, const HeadFactor* factors)
      : shared_(shared),
        depth_(depth),
        exchange_(exchange),
        factors_(factors),
        first_(shared.layers[0].is_done ? 1 : 0) {}

  /// Computes all layers, unless there are no rows.
  WARPRANK_DEVICE void run() {
    const SplitFinish& first = shared_.layers[first_].finish;
    is_staged_ = first.is_staged;
    steps_.begin_layer(shared_.layers[first_]);
    int i = first_, share = rank() - num_blocks();
    bool is_alone = false, has_share = advance(i, share, is_alone);
    if (has_share) steps_.request_weights(share, 0);
    if (!find_rows()) return;
    bool has_inputs = !is_staged_ && i == first_;
    if (has_inputs) steps_.request_inputs(0);
    find_words();
    if (first.has_bias_rows)
      find_bias_rows<rows, SplitBlock::threads>(shared_.layers[0], shared_.layers[depth_ - 1], row_, num_rows_,
                                                shared_.bias_rows);
    if (is_staged_)
      compute_input();
    else if (first.has_bias_rows)
      device::sync_block();
    while (has_share) {
      if (run_share(i, share, is_alone, has_inputs, has_share)) continue;
      is_alone = true;
      has_inputs = false;
      steps_.begin_layer(shared_.layers[first_]);
      i = first_, share = -1;
      has_share = advance(i, share, is_alone);
      if (has_share) steps_.request_weights(share, 0);
    }
    if (device::thread_rank() == 0)
      device::take_ticket<device::Order::relaxed, device::Scope::device>(exchange_.ended + tile(),
                                                                         static_cast<uint32_t>(2 * num_blocks() - 1));
  }

 private:
  using Steps = SplitSteps<Target, Strips, Pairs>;
  using Sums = typename Steps::Sums;
  /// Two zeros as blocks exchange them, as a word of 0 is none: one of them is negative, which changes no sum.
  static constexpr uint32_t zeros = 0x80000000u;

  static WARPRANK_DEVICE int rank() { return static_cast<int>(device::block_index().x); }
  static WARPRANK_DEVICE int num_blocks() { return static_cast<int>(device::grid_dim().x); }
  /// Of all stacks.
  static WARPRANK_DEVICE int64_t tile() {
    return static_cast<int64_t>(device::block_index().z) * device::grid_dim().y + device::block_index().y;
  }
  /// Of each share, as `num_words` says.
  static WARPRANK_DEVICE bool has_word() {
    return num_words == SplitBlock::threads || device::thread_rank() < num_words;
  }
  /// [num_sums, warps, Strips, Pairs, lanes]: four sums of each lane, as products leave them
  static WARPRANK_DEVICE float* sums() { return device::dynamic_shared<float>(); }
  static WARPRANK_DEVICE float16* input() { return reinterpret_cast<float16*>(sums() + num_sums * sums_floats); }
  /// Where a lane's four sums lie, so that no two of what threads read together are in one bank.
  static WARPRANK_DEVICE int place_of(int lane) { return lane ^ (lane / 8 % 2 * 2); }

  /// Moves to the block's next share, be it of a later layer; false where there is none. Who is alone computes all
  /// shares of every layer but the last.
  WARPRANK_DEVICE bool advance(int& i, int& share, bool is_alone) {
    share += is_alone && i + 1 < depth_ ? 1 : num_blocks();
    while (share >= steps_.num_shares()) {
      if (++i == depth_) return false;
      steps_.begin_layer(shared_.layers[i]);
      share = is_alone && i + 1 < depth_ ? 0 : rank();
    }
    return true;
  }
  /// Waits for the launch before and finds the rows of the tile, and the words of this launch; false: there are none.
  WARPRANK_DEVICE bool find_rows() {
    if constexpr (Target >= 80) prefetch_weights();
    device::wait_for_previous_launch();
    const Descriptor& layer = shared_.layers[0];
    int64_t num_rows = layer.max_rows;
    if (layer.num_rows != nullptr) num_rows = device::load_ahead(layer.num_rows);
    ended_ = device::load<device::Order::relaxed, device::Scope::device>(exchange_.ended + tile());
    if constexpr (Target < 80) prefetch_weights();  // while those come, as no launch before is waited for
    device::use_from_here(num_rows);
    if (num_rows > layer.max_rows) num_rows = layer.max_rows;
    row_ = static_cast<int64_t>(device::block_index().y) * rows;
    num_rows_ = linear::neighbours(row_, num_rows, rows).count;
    if (num_rows_ <= 0) return false;
    // Of the first layer, be the share that comes first of a later one: who is alone computes all.
    if (!is_staged_) steps_.find_input_rows(layer, row_, num_rows_);
    return true;
  }

  /// Which words are those of this launch, and which word of a share is the thread's.
  ///
  /// A warp has all of 16 outputs for 4 rows, so that it stores whole sectors: of each lane below, half of what it left
  /// in shared memory, the sums of two rows of an output. Half of the threads finish the first of the rows, the others
  /// the second, with their neighbour's sums of the next output.
  WARPRANK_DEVICE void find_words() {
    const int set_words = static_cast<int>(exchange_.fragments * SplitExchange::fragment_words);
    const bool is_odd = ended_ >= static_cast<uint32_t>(num_blocks());
    now_ = device::in_register(exchange_.words + (tile() * 2 + (is_odd ? 1 : 0)) * set_words);
    to_next_ = is_odd ? -set_words : set_words;
    const int thread = device::thread_rank(), half = thread % 2, t = thread / 2 % 2 + thread / 32 % 2 * 2,
              g = thread / 4 % 8, fragment = thread / 64, strip = fragment / Pairs, pair = fragment % Pairs;
    is_odd_output_ = g % 2 == 1;
    word_from_ = device::in_register(fragment * 128 + place_of(g * 4 + t) * 4 + half * 2);
    word_row_ = device::in_register(strip * 8 + t * 2 + g % 2);
    word_column_ = device::in_register(pair * 16 + half * 8 + g / 2 * 2);
  }

  /// Brings what the first of the layers reads to shared memory, up to a whole step. Ends with a barrier.
  WARPRANK_DEVICE void compute_input() const {
    const Descriptor& layer = shared_.layers[0];
    const int stride = static_cast<int>(exchange_.input_stride);
    const int width = first_ == 1 ? layer.outputs : layer.inputs;
    // mix_experts and finish_done_layer leave the columns from a multiple of 16 on; so there are none of a whole step.
    const int pieces = Steps::steps_of(width) * 4;
    const gemm::RowSource source = linear::source_of(layer, {row_, num_rows_, nullptr});
    const bool copies = first_ == 0 && layer.mix.num_own == 0;
    for (int at = device::thread_rank(); at < rows * pieces; at += SplitBlock::threads) {
      const int row = at / pieces, column = at % pieces * 8;
      device::Vector<float16, 8> piece{};
      if (copies) piece = gemm::load_columns_of_row(source, row, column);
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

  /// Asks for the weights of the later layers that the block is going to read. Every other warp takes a layer.
  WARPRANK_DEVICE void prefetch_weights() const {
    constexpr int line = 128, step_bytes = linear::step_words * 4, threads = SplitBlock::threads / 2;
    const int warp = device::warp_index(), first = (warp / 2 * device::warp_size + device::lane_index()) * line;
    WARPRANK_ROLLED
    for (int i = first_ + 1 + warp % 2; i < depth_; i += 2) {
      const Descriptor& layer = shared_.layers[i];
      if (layer.is_head) continue;
      const SplitProducts shape = layer.products;
      const int bytes_of_pair = shape.num_steps * step_bytes, bytes_of_share = Pairs * bytes_of_pair;
      const auto* from = device::global(static_cast<const char*>(layer.weights)) + rank() * bytes_of_share;
      WARPRANK_ROLLED
      for (int share = rank(); share < shape.shares; share += num_blocks(), from += num_blocks() * bytes_of_share) {
        const int bytes = Steps::has_whole_share(shape, share) ? bytes_of_share : bytes_of_pair;
        WARPRANK_ROLLED
        for (int at = first; at < bytes; at += threads * line) device::prefetch(from + at);
      }
    }
  }

  /// Leaves the warp's sums in shared memory.
  WARPRANK_DEVICE void store_sums(const Sums& sums_of_lane) const {
    float* const own = sums() + turn_ + device::warp_index() * (sums_floats / SplitBlock::num_warps) +
                       place_of(device::lane_index()) * 4;
    WARPRANK_UNROLL
    for (int r = 0; r < Strips; ++r) {
      WARPRANK_UNROLL
      for (int j = 0; j < Pairs; ++j) {
        const float(&four)[4] = sums_of_lane[j][r];
        device::store_vector(own + (r * Pairs + j) * 128,
                             device::Vector<float, 4>{{four[0], four[1], four[2], four[3]}});
      }
    }
  }

  /// The two values of the thread's word, of the sums of all warps, added as a tree. Whole warps call.
  WARPRANK_DEVICE void add_warps(const float* from, float (&values)[2]) const {
    constexpr int num_warps = SplitBlock::num_warps, distance = sums_floats / num_warps;
    const float* const own = from + word_from_;
    device::Vector<float, 2> parts[num_warps];
    WARPRANK_UNROLL
    for (int w = 0; w < num_warps; ++w) parts[w] = device::load_vector<2>(own + w * distance);
    WARPRANK_UNROLL
    for (int n = num_warps / 2; n > 0; n /= 2) {
      WARPRANK_UNROLL
      for (int w = 0; w < n; ++w) parts[w][0] += parts[w + n][0], parts[w][1] += parts[w + n][1];
    }
    // Two rows of an output; its neighbour has those of the other.
    const float low = parts[0][0], high = parts[0][1];
    const float other = device::shuffle_xor(device::full_warp, is_odd_output_ ? low : high, 4);
    values[0] = is_odd_output_ ? other : low;
    values[1] = is_odd_output_ ? high : other;
  }

  /// Computes a share of layer `i` and moves to the next; false where its inputs did not come. Its first weights are on
  /// their way, with `has_inputs` the first inputs are or have come.
  WARPRANK_DEVICE bool run_share(int& i, int& share, bool is_alone, bool& has_inputs, bool& has_share) {
    const Descriptor& layer = shared_.layers[i];
    const SplitFinish& finish = layer.finish;
    const bool is_last = i + 1 == depth_;
    const int column = share * columns + word_column_;
    float added[2] = {};
    if (has_word()) load_added(layer.epilogue, finish, column, added);
    Sums sums_of_lane = {};
    bool is_complete = true;
    for (int step = 0;;) {
      if (!has_inputs) is_complete = bring_inputs(i > first_, step, is_alone);
      steps_.multiply(sums_of_lane, step);
      step += Steps::at_once;
      if (step >= steps_.count() || !is_complete) break;
      has_inputs = false;
      steps_.request_weights(share, step);
    }
    steps_.arrange(sums_of_lane);
    // Ahead of the sums, for which all wait.
    const bool keeps_inputs = steps_.count() <= Steps::at_once;
    const int before = i;
    has_share = advance(i, share, is_alone);
    has_inputs = keeps_inputs && i == before;
    if (has_share) steps_.request_weights(share, 0);

    if constexpr (num_sums == 1) device::sync_block();  // all have read those before
    store_sums(sums_of_lane);
    if (device::sync_block_any(!is_complete)) return false;
    const float* const from = sums() + turn_;
    if constexpr (num_sums == 2) turn_ ^= sums_floats;
    if (!has_word()) return true;
    float values[2];
    add_warps(from, values);
    values[0] += added[0], values[1] += added[1];
    if (finish.is_simple) {
      values[0] = values[0] < finish.least ? finish.least : values[0];
      values[1] = values[1] < finish.least ? finish.least : values[1];
    } else {
      activate(layer.epilogue.activation, values, column, layer.epilogue.width);
    }
    if (!is_last) {
      send(finish, column, values);
    } else if (word_row_ < num_rows_) {
      const int64_t row = row_ + word_row_;
      finish_pair(layer.epilogue, row, column, values);
      if (column == 0) multiply_head(factors_, layer.first_factor, layer.num_factors, row, values[0]);
    }
    return true;
  }

  /// Brings the layer's inputs of the warp's steps from `step` on; false when they have not come. Whole warps call.
  WARPRANK_DEVICE bool bring_inputs(bool is_exchanged, int step, bool is_alone) {
    if (is_exchanged) return steps_.receive(now_, step, is_alone ? 0 : exchange_.max_looks);
    if (is_staged_)
      steps_.read_inputs(input(), static_cast<int>(exchange_.input_stride), step);
    else
      steps_.request_inputs(step);
    return true;
  }

  /// What is added to the sums of the thread's word.
  WARPRANK_DEVICE void load_added(const gemm::Epilogue& epilogue, const SplitFinish& finish, int column,
                                  float (&added)[2]) const {
    // Of a pair that does not exist the bias of another one, as of its weights.
    const auto bias = device::load_vector_read_only<2>(device::global(epilogue.bias) +
                                                       (Pairs == 1 || column < finish.outputs ? column : 0));
    added[0] = bias[0], added[1] = bias[1];
    if (!finish.has_added) return;
    add_operands(epilogue, row_ + (word_row_ < num_rows_ ? word_row_ : num_rows_ - 1), &shared_.bias_rows[word_row_],
                 column, added);
  }

  /// Stores two activations where other blocks look for them; 0 behind the last, up to a whole step.
  WARPRANK_DEVICE void send(const SplitFinish& finish, int column, float (&values)[2]) const {
    constexpr int fragment_words = static_cast<int>(SplitExchange::fragment_words);
    const int fragment = (word_row_ >> 3) * Steps::steps_of(finish.outputs) + (column >> 5);
    uint32_t* const to =
        now_ + (finish.first_output + fragment * fragment_words + (word_row_ & 7) * 16 + ((column & 31) >> 1));
    const auto store = [&](int at, uint32_t word) {
      device::store<device::Order::relaxed, device::Scope::device>(to + at, word == 0 ? zeros : word);
      device::store<device::Order::relaxed, device::Scope::device>(to + to_next_ + at, uint32_t{0});
    };
    store(0, pack_activations(finish.outputs, column, values));
    if (Pairs == 1 && (column & 16) == 0 && (column | 15) + 1 >= finish.outputs) store(8, 0);
  }

  SplitStorage& shared_;
  int depth_;
  const SplitExchange& exchange_;
  const HeadFactor* factors_;  ///< of all heads
  int first_;                  ///< layer that is computed; 1 where layer 0 is done
  bool is_staged_ = false;     ///< what that layer reads lies in shared memory, behind the sums
  int64_t row_ = 0;            ///< of the tile, the first
  int num_rows_ = 0;           ///< of the tile that exist
  uint32_t ended_ = 0;         ///< blocks of the tile in two launches, so far
  uint32_t* now_ = nullptr;    ///< words of this launch
  int to_next_ = 0;            ///< from there to those of the one behind it
  int turn_ = 0;               ///< floats before the sums that are used
  // Of the thread's word: where its sums lie, and its place in a share.
  int word_from_ = 0, word_row_ = 0, word_column_ = 0;
  bool is_odd_output_ = false;
  Steps steps_;
};

/// layers: those of all stacks, `depth` of each, and behind them the factors of products. Grid: blocks of a tile,
/// tiles, stacks.
template <int Target, int Strips, int Pairs>
WARPRANK_KERNEL(SplitBlock::threads, (blocks_of_multiprocessor(Target, {1, Strips, Pairs})))
split_mlp_kernel(const Descriptor* layers, int depth, SplitExchange exchange) {
  auto& shared = device::static_shared<SplitStorage>();
  read_descriptors(layers + static_cast<int64_t>(device::block_index().z) * depth, depth, shared.layers);
  SplitChain<Target, Strips, Pairs> chain(
      shared, depth, exchange, reinterpret_cast<const HeadFactor*>(layers + int64_t{depth} * device::grid_dim().z));
  chain.run();
}

}}}  // namespace warprank::v0::detail::mlp
