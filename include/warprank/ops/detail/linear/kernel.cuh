// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/linear.cuh. A block computes a tile of one layer of the launch: rows straight to registers where
/// they are few (linear/direct.cuh), by stages in shared memory where they are many (linear/staged.cuh). Sums of deep
/// layers may be cut into parts: the last block of a tile to arrive adds them in their order.
///
/// From launch to store a block waits for its descriptor, for weights and beside them the number of rows, and for x:
/// three loads one after another, four where it has to find its layer among several, and as many again in each further
/// turn of a warp through its steps or of a stage. Where all blocks fit a card at once, weights are requested ahead of
/// the wait for the launch before. A block has 48 to 96 KB of operands on their way; direct tiles have one barrier,
/// staged ones one for each stage and two before the outputs, whose rows are stored by whole vectors.
///
/// Plain layers (is_plain) have kernels of their own, without groups and gathering, and but for tiles of 64 x 64
/// without switches; cross layers, those with the row bias of a late broadcast or a residual and a user's shares of
/// either are among them where all rows are whole vectors. They have 80 registers a thread where the general kernel has
/// 94, in tiles of 16 x 16, and a third of its code.
///
/// On an H100 the prototype of these kernels took 1.9-2.7 us for up to 100 rows of (256, 256) and (600, 256), where
/// cuBLASLt took 2.6-3.3 and the library's former kernel 5.2-7.8; for 1000 rows of (1024, 1024) it took 9.7, and those
/// two 5.9 and 48. There x did not wait for the number of rows, and the problem was a parameter.

#include <cstdint>
#include <type_traits>

#include "warprank/device/launch.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/device/target.hpp"
#include "warprank/ops/detail/common/descriptors.cuh"
#include "warprank/ops/detail/linear/direct.cuh"
#include "warprank/ops/detail/linear/head.cuh"
#include "warprank/ops/detail/linear/plain.cuh"
#include "warprank/ops/detail/linear/staged.cuh"

namespace warprank { inline namespace v0 { namespace detail::linear {

/// Scales of weights in INT8, which PackedInt8Layout has behind the biases.
WARPRANK_DEVICE const float* scales_behind(const float* biases, int outputs) {
  return biases + (outputs + 15) / 16 * 16;
}

/// The place of a block in its layer.
struct Work {
  int row_tile, column_tile, part;

  explicit WARPRANK_DEVICE Work(const ProductDescriptor& layer) {
    const auto of_layer = static_cast<int>(device::block_index().x - layer.first_block);
    row_tile = of_layer % layer.row_tiles;
    part = of_layer / layer.row_tiles % layer.parts;
    column_tile = of_layer / layer.row_tiles / layer.parts;
  }
  WARPRANK_DEVICE int64_t tile(const ProductDescriptor& layer) const {
    return int64_t{column_tile} * layer.row_tiles + row_tile;
  }
  /// Steps of 32 inputs.
  WARPRANK_DEVICE int begin(const ProductDescriptor& layer) const { return part * layer.steps_of_part; }
  WARPRANK_DEVICE int end(const ProductDescriptor& layer) const {
    const int num_steps = (layer.inputs + 31) / 32, end = begin(layer) + layer.steps_of_part;
    return end < num_steps ? end : num_steps;
  }
};

/// Which product a tile is computed by.
template <int Target, LinearTile Tile, bool IsPlain, class Weight>
using ProductOf = std::conditional_t<tile_shape(Tile).is_direct(), DirectProduct<Target, Tile, IsPlain, Weight>,
                                     StagedProduct<Target, Tile, IsPlain, Weight>>;

template <class Product>
WARPRANK_DEVICE Product make_product(const ProductDescriptor& layer, const Work& work) {
  const int first_column = work.column_tile * Product::shape.columns;
  if constexpr (Product::is_direct)
    return Product(layer, first_column);
  else
    return Product(layer, first_column, work.begin(layer), work.end(layer), device::dynamic_shared<char>());
}

/// Requests the weights, and has `find` say which rows there are, whichever is to be first. False: none.
template <class Product, class Find>
WARPRANK_DEVICE bool begin_product(Product& product, bool weights_first, BlockRows& rows, const Find& find) {
  if (!weights_first && (rows = find()).count <= 0) return false;
  product.request_weights();
  if (!weights_first) return true;
  rows = find();
  if (rows.count <= 0) product.give_up();
  return rows.count > 0;
}

/// The sums of a staged tile in parts; false for all blocks but the last.
template <class Product>
WARPRANK_DEVICE bool add_parts(typename Product::Sums& sums, const ProductDescriptor& layer, const Work& work,
                               float* partials, uint32_t* tickets, bool& is_last) {
  if constexpr (Product::can_be_cut) {
    if (layer.parts == 1) return true;
    const int64_t tile = work.tile(layer);
    float* const own = partials + layer.first_partial + tile * layer.parts * Product::part_size;
    return Product::add_parts(sums, work.part, layer.parts, own, tickets + layer.first_ticket + tile, is_last);
  }
  return true;
}

/// All layers are plain, and have weights of this type. The partials and tickets are those of the descriptors; tickets
/// are 0 before and after.
template <int Target, LinearTile Tile, class Weight>
WARPRANK_KERNEL(tile_shape(Tile).threads(), tile_shape(Tile).min_blocks)
plain_linear_kernel(const Descriptor* layers, int num_layers, float* partials, uint32_t* tickets) {
  using Product = ProductOf<Target, Tile, true, Weight>;
  constexpr int tile_rows = Product::shape.rows, tile_columns = Product::shape.columns, threads = Product::threads;
  constexpr bool takes_operands = Product::shape.takes_operands, is_int8 = std::is_same_v<Weight, int8_t>;
  auto& shared = device::static_shared<PlainStorage<tile_rows, tile_columns, is_int8 && !Product::is_direct>>();
  const int rank = device::thread_rank();
  const Descriptor* const own =
      layers + (num_layers == 1 ? 0 : problem_of_block(layers, num_layers, device::block_index().x));
  const auto layer = read_descriptor(static_cast<const ProductDescriptor*>(own));
  const float* const biases = device::load_read_only(&own->epilogue.bias);
  auto* const y = static_cast<float16*>(device::load_read_only(&own->epilogue.y.data));
  const int64_t y_stride = device::load_read_only(&own->epilogue.y.stride);

  const Work work(layer);
  const int first_column = work.column_tile * tile_columns;
  auto product = make_product<Product>(layer, work);
  BlockRows rows{};
  const auto find = [&] {
    device::wait_for_previous_launch();
    return neighbours(int64_t{work.row_tile} * tile_rows, rows_of(layer), tile_rows);
  };
  if (!begin_product(product, layer.weights_first, rows, find)) return;
  if (rank == 0) {
    shared.y = y + rows.first * y_stride + first_column;
    shared.y_stride = y_stride;
    shared.first_row = rows.first;
    shared.first_column = first_column;
    shared.num_rows = rows.count;
    shared.num_columns = layer.outputs - first_column;
    shared.is_relu = layer.is_relu;
    shared.has_operands = layer.has_operands;
    shared.has_switches = layer.has_switches;
  }

  if constexpr (Product::is_direct) {
    product.request_rows(rows);
    if constexpr (takes_operands)
      if (layer.has_operands) {
        shared.template find_operands<threads>(*own);
        shared.find_bias_rows(*own, rows);
      }
    static_assert(Product::fours <= threads);  // a thread has four columns of one row, or nothing
    const int column = Product::column_of(rank);
    device::Vector<float, 4> bias{}, scale{};
    if (rank < Product::fours && first_column + column < layer.outputs) {
      bias = device::load_vector_read_only<4>(biases + first_column + column);
      if constexpr (is_int8)
        scale = device::load_vector_read_only<4>(scales_behind(biases, layer.outputs) + first_column + column);
    }
    auto* const sums_of_warps = device::dynamic_shared<float>();
    product.multiply(sums_of_warps);
    device::sync_block();
    const int row = Product::row_of(rank);
    if (rank >= Product::fours || row >= shared.num_rows || column >= shared.num_columns) return;
    float sums[4];
    Product::sum_warps(sums_of_warps, rank, sums);
    if constexpr (is_int8) {
      WARPRANK_UNROLL
      for (int c = 0; c < 4; ++c) sums[c] *= scale[c];
    }
    if (takes_operands && shared.has_operands) {
      WARPRANK_UNROLL
      for (int c = 0; c < 4; ++c) sums[c] += bias[c];
      shared.finish_with_operands(row, column, sums);
    } else {
      device::Vector<float16, 4> values;
      WARPRANK_UNROLL
      for (int c = 0; c < 4; ++c) values[c] = shared.finished(sums[c], bias[c]);
      device::store_vector(shared.y + row * shared.y_stride + column, values);
    }
  } else {
    static_assert(tile_columns <= threads);
    if (rank < tile_columns) {
      const bool exists = first_column + rank < layer.outputs;
      shared.bias[rank] = exists ? device::load_read_only(biases + first_column + rank) : 0;
      if constexpr (is_int8) {
        const float* const scales = scales_behind(biases, layer.outputs);
        shared.scale[rank] = exists ? device::load_read_only(scales + first_column + rank) : 0;
      }
    }
    if (layer.has_operands) {
      shared.template find_operands<threads>(*own);
      shared.find_bias_rows(*own, rows);
    }
    typename Product::Sums sums;
    product.multiply(rows, sums);
    if (!add_parts<Product>(sums, layer, work, partials, tickets, shared.is_last)) return;
    device::sync_block();  // all have left the stages
    /// f(row, column) for the first of each so many columns that exist.
    const auto for_each_piece = [&](auto count, auto f) {
      constexpr int across = tile_columns / decltype(count)::value;
      for (int i = rank; i < tile_rows * across; i += threads) {
        const int row = i / across, column = i % across * decltype(count)::value;
        if (row < shared.num_rows && column < shared.num_columns) f(row, column);
      }
    };
    if (shared.has_operands) {
      constexpr int stride = tile_columns + 4;
      auto* const staged = device::dynamic_shared<float>();
      Product::for_each_sum(sums, [&](int row, int column, float sum) {
        staged[row * stride + column] = shared.scaled(sum, column) + shared.bias[column];
      });
      device::sync_block();
      const auto finish = [&](auto f) {
        for_each_piece(std::integral_constant<int, 4>{}, [&](int row, int column) {
          const auto four = *reinterpret_cast<const device::Vector<float, 4>*>(staged + row * stride + column);
          float values[4] = {four[0], four[1], four[2], four[3]};
          f(row, column, values);
        });
      };
      const auto with_operands = [&](int row, int column, float(&values)[4]) {
        shared.finish_with_operands(row, column, values);
      };
      if constexpr (Product::takes_switches) {
        const auto by_switches = [&](int row, int column, float(&values)[4]) {
          shared.finish_by_switches(row, column, values);
        };
        shared.has_switches ? finish(by_switches) : finish(with_operands);
      } else {
        finish(with_operands);
      }
    } else {
      constexpr int stride = tile_columns + 8;
      auto* const staged = device::dynamic_shared<float16>();
      Product::for_each_sum(sums, [&](int row, int column, float sum) {
        staged[row * stride + column] = shared.finished(shared.scaled(sum, column), shared.bias[column]);
      });
      device::sync_block();
      for_each_piece(std::integral_constant<int, 8>{}, [&](int row, int column) {
        device::store_vector(shared.y + row * shared.y_stride + column,
                             *reinterpret_cast<const device::Vector<float16, 8>*>(staged + row * stride + column));
      });
    }
  }
}

template <int Rows>
struct Storage {
  Descriptor layer;
  int64_t bias_rows[Rows];  ///< what bias_row_of gives for the rows
  int32_t rows[Rows];       ///< of a group
  bool is_last;
};

/// The same for all layers.
template <int Target, LinearTile Tile, class Weight>
WARPRANK_KERNEL(tile_shape(Tile).threads(), tile_shape(Tile).min_general_blocks())
linear_kernel(const Descriptor* layers, int num_layers, float* partials, uint32_t* tickets) {
  using Product = ProductOf<Target, Tile, false, Weight>;
  constexpr int tile_rows = Product::shape.rows, tile_columns = Product::shape.columns, threads = Product::threads;
  constexpr int rows_of_head_tile = threads / head_lanes;
  constexpr int most_rows = tile_rows < rows_of_head_tile ? rows_of_head_tile : tile_rows;
  static_assert(most_rows <= threads);
  auto& shared = device::static_shared<Storage<most_rows>>();
  read_descriptors(layers + (num_layers == 1 ? 0 : problem_of_block(layers, num_layers, device::block_index().x)), 1,
                   &shared.layer);
  const gemm::Epilogue& epilogue = shared.layer.epilogue;
  const Work work(shared.layer);
  const int rows_of_tile = shared.layer.is_head ? rows_of_head_tile : tile_rows;
  const int first_column = work.column_tile * tile_columns;
  const bool has_groups = shared.layer.groups.num_groups != 0;

  BlockRows rows{};
  if (has_groups) {
    device::wait_for_previous_launch();
    const GroupTile tile = tile_of_groups(shared.layer.groups, work.row_tile, rows_of_tile);
    if (tile.count <= 0) return;
    rows = {0, tile.count, shared.rows};
    if (device::thread_rank() < tile.count)
      shared.rows[device::thread_rank()] = device::load(&shared.layer.groups.rows[tile.begin + device::thread_rank()]);
    const bool has_group = tile.group < shared.layer.groups.num_groups;
    if (device::thread_rank() == 0 && has_group) select_group(shared.layer, tile.group);
    device::sync_block();
    if (!has_group) {
      if (work.part == 0) clear_rows(epilogue, rows, first_column, tile_columns, threads);
      return;
    }
  }
  const ProductDescriptor layer = shared.layer;
  const auto find = [&] {
    if (has_groups) return rows;
    device::wait_for_previous_launch();
    return neighbours(int64_t{work.row_tile} * rows_of_tile, rows_of(layer), rows_of_tile);
  };
  const auto find_bias_rows = [&] {
    for (int r = device::thread_rank(); r < rows.count; r += threads)
      shared.bias_rows[r] = gemm::bias_row_of(epilogue, rows[r]);
  };
  auto* const sums_of_tile = device::dynamic_shared<float>();
  constexpr int stride = tile_columns + 4, across = tile_columns / gemm::columns_at_once;  // of staged sums
  if (layer.is_head) {
    rows = find();
    find_bias_rows();
    sum_heads(layer, rows, sums_of_tile);
  } else {
    auto product = make_product<Product>(layer, work);
    if (!begin_product(product, layer.weights_first, rows, find)) return;
    if constexpr (Product::is_direct) {
      product.request_rows(rows);
      find_bias_rows();
      product.multiply(sums_of_tile);
    } else {
      find_bias_rows();
      typename Product::Sums sums;
      product.multiply(rows, sums);
      if (!add_parts<Product>(sums, layer, work, partials, tickets, shared.is_last)) return;
      device::sync_block();  // all have left the stages
      Product::for_each_sum(sums, [&](int row, int column, float sum) { sums_of_tile[row * stride + column] = sum; });
    }
  }
  device::sync_block();
  // One loop for all: its code is the most of the kernel's.
  const int fours_of_row = layer.is_head ? 1 : across;
  for (int i = device::thread_rank(); i < rows.count * fours_of_row; i += threads) {
    const int row = i / fours_of_row, column = i % fours_of_row * gemm::columns_at_once;
    if (first_column + column >= epilogue.width) continue;
    float sums[gemm::columns_at_once] = {};
    if (layer.is_head) {
      sums[0] = sums_of_tile[row];
    } else if constexpr (Product::is_direct) {
      Product::sum_warps(sums_of_tile, i, sums);
    } else {
      const auto four = *reinterpret_cast<const device::Vector<float, 4>*>(sums_of_tile + row * stride + column);
      WARPRANK_UNROLL
      for (int c = 0; c < gemm::columns_at_once; ++c) sums[c] = four[c];
    }
    if (std::is_same_v<Weight, int8_t> && !layer.is_head) {
      float scales[gemm::columns_at_once];
      gemm::load_operand({scales_behind(epilogue.bias, layer.outputs), 0, false, true}, 0, first_column + column,
                         epilogue.width, scales);
      WARPRANK_UNROLL
      for (int c = 0; c < gemm::columns_at_once; ++c) sums[c] *= scales[c];
    }
    gemm::finish_columns(epilogue, rows[row], shared.bias_rows[row], first_column + column, sums);
  }
}

}}}  // namespace warprank::v0::detail::linear
