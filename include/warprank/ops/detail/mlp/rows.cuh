// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/mlp.cuh for many rows: a block computes all layers of a stack for its 16 or 32 rows, whose
/// activations stay in shared memory as FP16. Each warp has outputs of its own, up to 32 of 256, whose weights go past
/// from the second-level cache to its registers: 16 KB of a block are on their way at any time, also across layers, as
/// the first weights of a layer are requested before the last products of the layer before. One barrier a layer.
///
/// As in linear/fragments.cuh the weights are A and rows are B. The sums of a lane are of one output and two rows;
/// where an activation is the identity or relu, lanes swap half of them and store two neighbours at a time. Everything
/// else goes by way of shared memory, 8 rows at a time, so that its code is there once.
///
/// H100, prototype of this kernel, us of whole stacks (the kernel that was before and cuBLASLt's chain beside it):
///
///     600-256-256-256-1       500 rows: 8.2   1000: 8.5   4096: 10.9 (32 rows a block)
///          before, cuBLASLt   29, 12.3        29, 12.9    43, 17.4
///     256-128-64-1            1000: 3.9       4096: 5.0
///          before, cuBLASLt   13, 8.0         20, 9.0

#include <cstdint>

#include "warprank/device/collectives.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/ops/detail/linear/fragments.cuh"
#include "warprank/ops/detail/linear/head.cuh"
#include "warprank/ops/detail/mlp/descriptor.cuh"
#include "warprank/ops/detail/mlp/epilogue.cuh"
#include "warprank/ops/detail/mlp/policy.hpp"

namespace warprank { inline namespace v0 { namespace detail::mlp {

template <int Rows>
struct RowsStorage {
  Descriptor layers[max_fused_layers];
  int64_t bias_rows[Rows];  ///< what bias_row_of gives for the rows
};

/// The outputs of a layer that are a warp's.
struct WarpOutputs {
  const uint32_t* weights = nullptr;  ///< of the lane: its first pair of 8 outputs, step 0
  int num_steps = 0;                  ///< of 32 inputs; 0: nothing is computed by products
  int first_pair = 0, num_pairs = 0;  ///< that exist
  int num_written = 0;                ///< pairs: whole steps of the next layer are written
};

/// One block's rows of a stack.
template <int Target, MlpTile Tile>
class RowsChain {
 public:
  using Block = RowsBlock;
  static constexpr int rows = rows_of_tile(Tile), strips = rows / 8, pairs = Block::pairs, ahead = Block::steps_ahead;
  static constexpr int steps_of_part = static_cast<int>(Block::max_inputs_at_once(Tile) / 32);  ///< of x
  static constexpr int narrow_stride = static_cast<int>(staged_stride(max_fused_width));
  static constexpr int wide_stride = static_cast<int>(staged_stride(max_first_width));
  static_assert(steps_of_part % ahead == 0);

  /// The stack's descriptors are in `shared`; `factors` are of all heads.
  WARPRANK_DEVICE RowsChain(RowsStorage<rows>& shared, int depth, int input_stride, const HeadFactor* factors)
      : shared_(shared), depth_(depth), odd_stride_(input_stride), factors_(factors) {
    even_stride_ = shared.layers[0].outputs > max_fused_width ? wide_stride : narrow_stride;
    staging_ = device::dynamic_shared<float>();
    odd_ = reinterpret_cast<float16*>(staging_ + Block::staging_floats);
    even_ = odd_ + rows * odd_stride_;
  }

  /// Computes rows from `row` on, of which there is one at least.
  WARPRANK_DEVICE void run(int64_t row, int num_rows) {
    row_ = row;
    num_rows_ = num_rows;
    const Descriptor& first = shared_.layers[0];
    WarpOutputs next = outputs_of(first.is_done ? 1 : 0, 0);
    WARPRANK_UNROLL
    for (int u = 0; u < ahead; ++u) request(u, next, u);
    find_bias_rows<rows, Block::threads>(first, shared_.layers[depth_ - 1], row, num_rows, shared_.bias_rows);
    if (first.is_done || first.mix.num_own > 0) compute_input();
    for (int i = first.is_done ? 1 : 0; i < depth_; ++i) {
      const Descriptor& layer = shared_.layers[i];
      if (layer.is_head) {
        run_last_head<rows, Block::threads>(layer, factors_, from(i), from_stride(i), shared_.bias_rows, row, num_rows);
        break;  // a head is the last
      }
      const int num_tiles = column_tiles_of(layer);
      for (int tile = 0; tile < num_tiles; ++tile) {
        const WarpOutputs own = next;
        next = tile + 1 < num_tiles ? outputs_of(i, tile + 1) : outputs_of(i + 1, 0);
        Sums sums = {};
        if (i == 0 && first.mix.num_own == 0)
          multiply_rows(sums, own, next, tile);
        else
          multiply(sums, own, next, from(i), from_stride(i), 0, own.num_steps);
        if (is_simple(i))
          finish_simple(i, own, sums);
        else
          finish(i, own, sums);
      }
      device::sync_block();
    }
  }

 private:
  using Sums = float[pairs][strips][4];

  /// What layer `i` reads and writes: x and the outputs of odd layers lie in one place, those of even ones in another.
  WARPRANK_DEVICE const float16* from(int i) const { return i % 2 == 0 ? odd_ : even_; }
  WARPRANK_DEVICE int from_stride(int i) const { return i % 2 == 0 ? odd_stride_ : even_stride_; }
  WARPRANK_DEVICE float16* to(int i) const { return i % 2 == 0 ? even_ : odd_; }
  WARPRANK_DEVICE int to_stride(int i) const { return i % 2 == 0 ? even_stride_ : odd_stride_; }

  static WARPRANK_DEVICE int steps_of(int inputs) { return (inputs + 31) / 32; }
  static WARPRANK_DEVICE int column_tiles_of(const Descriptor& layer) {
    return (layer.outputs + Block::columns - 1) / Block::columns;
  }

  WARPRANK_DEVICE WarpOutputs outputs_of(int i, int column_tile) const {
    constexpr int pairs_of_tile = Block::columns / 16;
    WarpOutputs own;
    if (i == depth_ || shared_.layers[i].is_head) return own;
    const Descriptor& layer = shared_.layers[i];
    const int end = (layer.outputs + 15) / 16, written = (end + 1) / 2 * 2;  // pairs
    const int per_warp = end - column_tile * pairs_of_tile > Block::num_warps ? 2 : 1;
    const auto clamp = [&](int count) { return count < 0 ? 0 : count > per_warp ? per_warp : count; };
    own.num_steps = steps_of(layer.inputs);
    own.first_pair = column_tile * pairs_of_tile + device::warp_index() * per_warp;
    own.num_pairs = clamp(end - own.first_pair);
    own.num_written = clamp(written - own.first_pair);
    own.weights = layer.tiles() + (static_cast<int64_t>(own.first_pair) * own.num_steps * linear::step_words) +
                  device::lane_index() * 4;
    return own;
  }

  /// Asks for the weights of a step, into slot `u`.
  WARPRANK_DEVICE void request(int u, const WarpOutputs& of, int step) {
    if (step >= of.num_steps) return;
    WARPRANK_UNROLL
    for (int j = 0; j < pairs; ++j) {
      WARPRANK_UNROLL
      for (int h = 0; h < 2; ++h)
        if (j < of.num_pairs)
          weights_[u][h][j] = device::load_vector_read_only<4>(
              of.weights + (static_cast<int64_t>(j) * of.num_steps + step) * linear::step_words +
              h * linear::half_step_words);
    }
  }

  WARPRANK_DEVICE void load_rows(linear::Fragment (&x)[strips], const float16* from, int stride, int step) const {
    const int g = device::lane_index() / 4, t = device::lane_index() % 4;
    WARPRANK_UNROLL
    for (int r = 0; r < strips; ++r)
      x[r] = *reinterpret_cast<const linear::Fragment*>(from + (r * 8 + g) * stride + step * 32 + t * 8);
  }

  /// sums += products over the steps [begin, end), the first a multiple of `ahead`, of rows whose step `begin` is first
  /// in `rows`. Requests what comes behind, of the next outputs where these have no more.
  WARPRANK_DEVICE void multiply(Sums& sums, const WarpOutputs& own, const WarpOutputs& next, const float16* from,
                                int stride, int begin, int end) {
    linear::Fragment x[2][strips];
    if (own.num_pairs > 0) load_rows(x[0], from, stride, 0);
    for (int first = begin; first < end; first += ahead) {
      const bool is_last = first + ahead >= own.num_steps;
      // Each member by itself: a reference to one of two would put both into memory.
      const WarpOutputs behind{is_last ? next.weights : own.weights, is_last ? next.num_steps : own.num_steps, 0,
                               is_last ? next.num_pairs : own.num_pairs, 0};
      const int step_behind = is_last ? 0 : first + ahead;
      WARPRANK_UNROLL
      for (int u = 0; u < ahead; ++u) {
        const int step = first + u;
        if (own.num_pairs > 0 && step < end) {
          if (step + 1 < end) load_rows(x[(u + 1) % 2], from, stride, step + 1 - begin);
          WARPRANK_UNROLL
          for (int j = 0; j < pairs; ++j) {
            if (j >= own.num_pairs) continue;
            WARPRANK_UNROLL
            for (int r = 0; r < strips; ++r) {
              linear::multiply_half_step<Target, 0>(sums[j][r], weights_[u][0][j], x[u % 2][r]);
              linear::multiply_half_step<Target, 1>(sums[j][r], weights_[u][1][j], x[u % 2][r]);
            }
          }
        }
        request(u, behind, step_behind + u);
      }
    }
  }

  /// The first layer, whose rows are copied from x, a part of their inputs after another.
  WARPRANK_DEVICE void multiply_rows(Sums& sums, const WarpOutputs& own, const WarpOutputs& next, int column_tile) {
    const Descriptor& layer = shared_.layers[0];
    const int num_steps = steps_of(layer.inputs);
    for (int begin = 0; begin < num_steps; begin += steps_of_part) {
      const int end = begin + steps_of_part < num_steps ? begin + steps_of_part : num_steps;
      if (column_tile == 0) {
        if (begin > 0) device::sync_block();
        copy_rows(begin * 32, end * 32);
        device::sync_block();
      }
      multiply(sums, own, next, odd_, odd_stride_, begin, end);
    }
  }

  /// Copies the inputs [begin, end) of the rows to shared memory, 0 where there are none.
  WARPRANK_DEVICE void copy_rows(int begin, int end) const {
    constexpr int threads_of_row = Block::threads / rows, at_once = 5;
    const gemm::RowSource source = linear::source_of(shared_.layers[0], {row_, num_rows_, nullptr});
    const int row = device::thread_rank() / threads_of_row;
    float16* const to_row = odd_ + row * odd_stride_;
    for (int first = begin + device::thread_rank() % threads_of_row * 8; first < end;
         first += at_once * threads_of_row * 8) {
      device::Vector<float16, 8> pieces[at_once];
      WARPRANK_UNROLL
      for (int i = 0; i < at_once; ++i) {
        const int column = first + i * threads_of_row * 8;
        pieces[i] = {};
        if (column < end) pieces[i] = gemm::load_columns_of_row(source, row, column);
      }
      WARPRANK_UNROLL
      for (int i = 0; i < at_once; ++i) {
        const int column = first + i * threads_of_row * 8;
        if (column < end) device::store_vector(to_row + column - begin, pieces[i]);
      }
    }
  }

  /// What the first layer that is computed by products reads, where that is not x. Ends with a barrier.
  WARPRANK_DEVICE void compute_input() const {
    const Descriptor& layer = shared_.layers[0];
    float16* const input = layer.is_done ? even_ : odd_;
    const int stride = layer.is_done ? even_stride_ : odd_stride_;
    // Not all columns of a whole step are written, nor all rows.
    const int pieces = steps_of(layer.is_done ? layer.outputs : layer.inputs) * 4;
    for (int at = device::thread_rank(); at < rows * pieces; at += Block::threads)
      device::store_vector(input + at / pieces * stride + at % pieces * 8, device::Vector<float16, 8>{});
    device::sync_block();  // and bias_rows
    if (layer.is_done)
      finish_done_layer<Block::threads>(layer, row_, num_rows_, shared_.bias_rows, input, stride);
    else
      mix_experts<rows, Block::threads>(layer.mix, row_, num_rows_, layer.inputs, staging_, input, stride);
    device::sync_block();
  }

  /// Whether nothing is behind a layer's sums but its bias and maybe relu, and its outputs stay here.
  WARPRANK_DEVICE bool is_simple(int i) const {
    const gemm::Epilogue& epilogue = shared_.layers[i].epilogue;
    const ActivationKind f = epilogue.activation.kind;
    return i + 1 < depth_ && (f == ActivationKind::relu || f == ActivationKind::identity) &&
           epilogue.row_bias.data == nullptr;
  }

  /// Stores the activations of a simple layer.
  WARPRANK_DEVICE void finish_simple(int i, const WarpOutputs& own, const Sums& sums) const {
    const gemm::Epilogue& epilogue = shared_.layers[i].epilogue;
    const int g = device::lane_index() / 4, t = device::lane_index() % 4;
    const bool is_odd = g % 2 == 1;
    const int width = shared_.layers[i].outputs;
    float16* const to_rows = to(i) + (2 * t + is_odd) * to_stride(i);
    WARPRANK_UNROLL
    for (int j = 0; j < pairs; ++j) {
      if (j >= own.num_written) continue;
      WARPRANK_UNROLL
      for (int h = 0; h < 2; ++h) {
        const int column = (own.first_pair + j) * 16 + h * 8 + g - is_odd;
        device::Vector<float, 2> bias{};
        if (j < own.num_pairs) bias = device::load_vector_read_only<2>(epilogue.bias + column);
        WARPRANK_UNROLL
        for (int r = 0; r < strips; ++r) {
          // Of this output and its neighbour, the rows 2t and 2t + 1: an even lane gets both of the first.
          const float low = sums[j][r][2 * h], high = sums[j][r][2 * h + 1];
          const float other = device::shuffle_xor(device::full_warp, is_odd ? low : high, 4);
          float values[2] = {(is_odd ? other : low) + bias[0], (is_odd ? high : other) + bias[1]};
          activate_simple(epilogue, values);
          const uint32_t activations = pack_activations(width, column, values);
          *reinterpret_cast<uint32_t*>(to_rows + r * 8 * to_stride(i) + column) = activations;
        }
      }
    }
  }

  /// The same for all layers; those of the last go to y.
  WARPRANK_DEVICE void finish(int i, const WarpOutputs& own, const Sums& sums) const {
    constexpr int stride = Block::staging_stride, fours = pairs * 16 / gemm::columns_at_once;
    const gemm::Epilogue& epilogue = shared_.layers[i].epilogue;
    const bool is_last = i + 1 == depth_;
    const int lane = device::lane_index(), g = lane / 4, t = lane % 4;
    const int end = is_last ? static_cast<int>(epilogue.width) : (own.first_pair + own.num_written) * 16;
    if (own.num_written == 0) return;
    float* const staging = staging_ + device::warp_index() * 8 * stride;
    for (int strip = 0; strip < strips; ++strip) {
      WARPRANK_UNROLL
      for (int r = 0; r < strips; ++r) {
        if (r != strip) continue;
        WARPRANK_UNROLL
        for (int j = 0; j < pairs; ++j) {
          WARPRANK_UNROLL
          for (int c = 0; c < 4; ++c) staging[(2 * t + c % 2) * stride + j * 16 + c / 2 * 8 + g] = sums[j][r][c];
        }
      }
      device::sync_warp();
      for (int at = lane; at < 8 * fours; at += device::warp_size) {
        const int of_block = strip * 8 + at / fours, of_warp = at % fours * gemm::columns_at_once;
        const int column = own.first_pair * 16 + of_warp;
        if (of_warp >= own.num_written * 16 || column >= end || (is_last && of_block >= num_rows_)) continue;
        const auto four = device::load_vector<gemm::columns_at_once>(staging + at / fours * stride + of_warp);
        float values[gemm::columns_at_once];
        WARPRANK_UNROLL
        for (int c = 0; c < gemm::columns_at_once; ++c) values[c] = four[c];
        const int64_t some_row = row_ + (of_block < num_rows_ ? of_block : num_rows_ - 1);
        gemm::combine_columns(epilogue, some_row, shared_.bias_rows[of_block], column, values);
        if (is_last) {
          gemm::store_operand(epilogue.y, some_row, column, epilogue.width, values);
          continue;
        }
        WARPRANK_UNROLL
        for (int c = 0; c < gemm::columns_at_once; ++c)
          if (column + c >= epilogue.width) values[c] = 0;  // also in a row of infinities
        store_activations(to(i) + of_block * to_stride(i) + column, values);
      }
      device::sync_warp();
    }
  }

  RowsStorage<rows>& shared_;
  int depth_, odd_stride_, even_stride_;
  const HeadFactor* factors_;
  float* staging_;
  float16 *odd_, *even_;
  int64_t row_ = 0;
  int num_rows_ = 0;
  linear::Fragment weights_[ahead][2][pairs];
};

/// layers: those of all stacks, one stack after another.
template <int Target, MlpTile Tile>
WARPRANK_KERNEL(RowsBlock::threads, 1)
mlp_kernel(const Descriptor* layers, int num_layers, int input_stride) {
  using Chain = RowsChain<Target, Tile>;
  auto& shared = device::static_shared<RowsStorage<Chain::rows>>();
  const int64_t block = device::block_index().x;
  // All layers of a stack begin at its first block: what is found is the last.
  const int last = problem_of_block(layers, num_layers, block);
  const int depth = device::load_read_only(&layers[last].stack_depth);
  read_descriptors(layers + last + 1 - depth, depth, shared.layers);
  device::wait_for_previous_launch();
  const Descriptor& first = shared.layers[0];
  const int64_t row = (block - first.first_block) * Chain::rows;
  const int num_rows = linear::neighbours(row, linear::rows_of(first), Chain::rows).count;
  if (num_rows <= 0) return;
  Chain chain(shared, depth, input_stride, reinterpret_cast<const HeadFactor*>(layers + num_layers));
  chain.run(row, num_rows);
}

}}}  // namespace warprank::v0::detail::mlp
