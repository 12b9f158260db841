// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/dot.cuh for any dim, number of fields and alignment: a warp for each row. A block takes
/// neighbouring rows; where they have the same ancestors, it loads the ancestors' fields and multiplies them once. For
/// products between two sets of fields it multiplies all pairs, too, and writes those that are wanted.

#include <algorithm>
#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/mma.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/device/target.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/model/dot_pairs.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/detail/common/axis_input.cuh"
#include "warprank/ops/detail/gemm/tile.cuh"

namespace warprank { inline namespace v0 { namespace detail::dot {

inline constexpr int max_inputs = 8, max_warps = 4, max_rows_of_block = 64;
inline constexpr int64_t max_dim = 4096, max_fields = 1024;
inline constexpr int64_t max_shared_bytes = 64 << 10;        // what sm_75 has
inline constexpr int64_t preferred_shared_bytes = 32 << 10;  // for two blocks or more there
inline constexpr int vector_size = 8;                        // halves of a load where everything is aligned
inline constexpr int step = 16;                              // of the dim, of one multiplication

/// Dynamic shared memory, in bytes: fields on ancestors; for each warp its row's other fields; for each warp its row of
/// y; the fields' numbers by place. From a field to the next it is an odd number of 16 bytes: no two of eight meet in a
/// bank.
struct Layout {
  int stride = 0;  // of a field, in halves
  int own_fields = 0, own_fields_of_warp = 0, outputs = 0, outputs_of_warp = 0, numbers = 0;
  int64_t bytes = 0;
};

inline Layout layout_for(int64_t dim, int64_t num_ancestor_fields, int64_t num_own_fields, int64_t output_bytes,
                         int64_t num_warps) {
  const int64_t stride = (dim + step - 1) / step * step + 8;
  const int64_t ancestors = num_ancestor_fields * stride * 2, own = num_own_fields * stride * 2;
  const int64_t outputs = (output_bytes + 3) / 4 * 4, numbers = ancestors + num_warps * (own + outputs);
  const int64_t bytes = numbers + (num_ancestor_fields + num_own_fields) * 4;
  if (bytes > max_shared_bytes) return {0, 0, 0, 0, 0, 0, bytes};
  const auto narrow = [](int64_t value) { return static_cast<int>(value); };
  return {narrow(stride),  narrow(ancestors), narrow(own), narrow(ancestors + num_warps * own),
          narrow(outputs), narrow(numbers),   bytes};
}

/// What the kernel is given, by value. Fields have a place beside their number: those on ancestors come first.
template <class Out>
struct Arguments {
  AxisInput<float16> inputs[max_inputs];  // those on ancestors first
  int first_field[max_inputs];            // the number of each input's first field
  int num_inputs, num_inputs_on_ancestors;
  int num_ancestor_fields, num_own_fields;
  int dim;
  bool aligned;  // whether `vector_size` elements may be loaded at once
  DotOrder order;
  bool self;
  int num_left;  // 0: all pairs; the order is `lower` otherwise
  Matrix<Out> y;
  const int64_t* num_rows;
  Layout layout;
  int num_warps, rows_per_block;  // of a block
};

/// Where the product of fields f and g stands in a row of y.
WARPRANK_DEVICE int column_of(DotOrder order, bool self, int num_fields, int f, int g) {
  const int low = f < g ? f : g, high = f < g ? g : f;
  if (order == DotOrder::upper) {
    return self ? low * (2 * num_fields - low + 1) / 2 + high - low
                : low * (2 * num_fields - low - 1) / 2 + high - low - 1;
  }
  return self ? high * (high + 1) / 2 + low : high * (high - 1) / 2 + low;
}

/// The same for products between two sets of fields; -1 for fields of one set.
WARPRANK_DEVICE int column_between(int num_left, int num_fields, int f, int g) {
  const int left = f < g ? f : g, right = (f < g ? g : f) - num_left;
  return left < num_left && right >= 0 ? left * (num_fields - num_left) + right : -1;
}

/// Copies the fields of the inputs [first, last) that serve row n to `to`, by `count` threads.
template <class Out>
WARPRANK_DEVICE void copy_fields(const Arguments<Out>& arguments, int first, int last, int64_t n, float16* to, int rank,
                                 int count) {
  using namespace device;       // NOLINT: the vocabulary of kernels
  constexpr int in_flight = 4;  // loads
  using Part = Vector<float16, vector_size>;
  for (int i = first; i < last; ++i) {
    const AxisInput<float16>& input = arguments.inputs[i];
    const float16* row = input.values.data + row_serving(input, n) * input.values.stride;
    const int cols = static_cast<int>(input.values.cols), dim = arguments.dim;
    const auto place = [&](int column) { return to + column / dim * arguments.layout.stride + column % dim; };
    if (arguments.aligned) {
      const int distance = count * vector_size;
      for (int column = rank * vector_size; column < cols; column += in_flight * distance) {
        Part parts[in_flight];
        WARPRANK_UNROLL
        for (int j = 0; j < in_flight; ++j) {
          const int at = column + j * distance;
          if (at < cols) parts[j] = load_vector_read_only<vector_size>(row + at);
        }
        WARPRANK_UNROLL
        for (int j = 0; j < in_flight; ++j) {
          const int at = column + j * distance;
          if (at < cols) *reinterpret_cast<Part*>(place(at)) = parts[j];
        }
      }
    } else {
      for (int column = rank; column < cols; column += count) *place(column) = load_read_only(row + column);
    }
    to += cols / dim * arguments.layout.stride;
  }
}

/// Fields in shared memory, by place.
struct Fields {
  const float16* first;
  int count;
};

/// Calls write(i, j, product) for each field i of a and j of b; with `triangle`, where a is b, only for j < i, with
/// `self` j <= i. The caller's warp takes the strips of 16 fields of a from `first_strip` on.
template <int Target, class Write>
WARPRANK_DEVICE void multiply_fields(const Fields& a, const Fields& b, int dim, int stride, bool triangle, bool self,
                                     int first_strip, int strip_step, Write write) {
  constexpr int rows = 16, tile_columns = 8, pairs = 2, columns = pairs * 2 * tile_columns;
  const int lane = device::lane_index(), num_steps = (dim + step - 1) / step;
  // Fields beyond the last are the last again; what they give is not written.
  const auto field = [&](const Fields& fields, int i) {
    return fields.first + (i < fields.count ? i : fields.count - 1) * stride;
  };
  for (int row0 = first_strip * rows; row0 < a.count; row0 += strip_step * rows) {
    const int end = triangle && row0 + rows < b.count ? row0 + rows : b.count;
    for (int column0 = 0; column0 < end; column0 += columns) {
      float sums[2 * pairs][4] = {};
      const float16* a_row = field(a, row0 + lane % 16) + lane / 16 * 8;
      for (int k = 0; k < num_steps; ++k) {
        uint32_t fragment_a[4];
        device::load_matrices(fragment_a, a_row + k * step);
        WARPRANK_UNROLL
        for (int j = 0; j < pairs; ++j) {
          const int column = column0 + j * 2 * tile_columns;
          if (column >= end) continue;
          // Two tiles of 8 fields, each as two matrices of 8 elements of the dim.
          uint32_t fragment_b[4];
          device::load_matrices(fragment_b, field(b, column + lane / 16 * 8 + lane % 8) + k * step + lane / 8 % 2 * 8);
          const bool has_second_half = k * step + 8 < dim;
          gemm::multiply_step<Target>(sums[2 * j], fragment_a, fragment_b[0], fragment_b[1], has_second_half);
          gemm::multiply_step<Target>(sums[2 * j + 1], fragment_a, fragment_b[2], fragment_b[3], has_second_half);
        }
      }
      WARPRANK_UNROLL
      for (int tile = 0; tile < 2 * pairs; ++tile) {
        WARPRANK_UNROLL
        for (int c = 0; c < 4; ++c) {
          const int i = row0 + lane / 4 + c / 2 * 8, j = column0 + tile * tile_columns + lane % 4 * 2 + c % 2;
          if (i < a.count && (triangle ? j < i || (self && j == i) : j < b.count)) write(i, j, sums[tile][c]);
        }
      }
    }
  }
}

/// The first row behind n, at most `end`, that an ancestor of row n does not serve. Always behind n, although rows that
/// no segment has are served by one that ends before them.
template <class Out>
WARPRANK_DEVICE int64_t end_of_run(const Arguments<Out>& arguments, int64_t n, int64_t end) {
  for (int i = 0; i < arguments.num_inputs_on_ancestors; ++i) {
    const AxisInput<float16>& input = arguments.inputs[i];
    const int64_t end_of_segment = device::load_read_only(&input.offsets[row_serving(input, n) + 1]);
    if (end_of_segment < end) end = end_of_segment;
  }
  return end > n ? end : n + 1;
}

/// `Between`: for products between two sets of fields.
template <int Target, bool Between, class Out>
WARPRANK_KERNEL(max_warps* device::warp_size, 4)
dot_kernel(Arguments<Out> arguments) {
  using namespace device;  // NOLINT: the vocabulary of kernels
  wait_for_previous_launch();
  const Layout& layout = arguments.layout;
  auto* memory = dynamic_shared<unsigned char>();
  const int num_warps = static_cast<int>(block_dim().x) / warp_size, warp = warp_index(), lane = lane_index();
  auto* ancestor_fields = reinterpret_cast<float16*>(memory);
  auto* own_fields = reinterpret_cast<float16*>(memory + layout.own_fields + warp * layout.own_fields_of_warp);
  const auto output_of = [&](int w) {
    return reinterpret_cast<Out*>(memory + layout.outputs + w * layout.outputs_of_warp);
  };
  auto* numbers = reinterpret_cast<int*>(memory + layout.numbers);
  const int num_fields = arguments.num_ancestor_fields + arguments.num_own_fields;
  const Fields ancestors{ancestor_fields, arguments.num_ancestor_fields}, own{own_fields, arguments.num_own_fields};
  /// Calls write(column) for the product of the fields at places f and g, if it has one.
  const auto with_column = [&](int f, int g, auto write) {
    if constexpr (Between) {
      const int column = column_between(arguments.num_left, num_fields, numbers[f], numbers[g]);
      if (column >= 0) write(column);
    } else {
      write(column_of(arguments.order, arguments.self, num_fields, numbers[f], numbers[g]));
    }
  };

  // What stays: the fields' numbers, zeros behind each field's dim, and the zero of lower_padded.
  int place = 0;
  for (int i = 0; i < arguments.num_inputs; ++i) {
    const int count = static_cast<int>(arguments.inputs[i].values.cols) / arguments.dim;
    for (int j = thread_rank(); j < count; j += static_cast<int>(block_dim().x)) {
      numbers[place + j] = arguments.first_field[i] + j;
    }
    place += count;
  }
  const int padding = layout.stride - 8 - arguments.dim;
  const int num_in_memory = ancestors.count + num_warps * own.count;
  for (int i = thread_rank(); i < num_in_memory * padding; i += static_cast<int>(block_dim().x)) {
    ancestor_fields[i / padding * layout.stride + arguments.dim + i % padding] = {0};
  }
  const int columns = static_cast<int>(arguments.y.cols);
  if (arguments.order == DotOrder::lower_padded && lane == 0) output_of(warp)[columns - 1] = narrow<Out>(0);
  sync_block();

  const int64_t num_rows = device::true_count(arguments.num_rows, arguments.y.rows);
  const int64_t rows_in_grid = int64_t{grid_dim().x} * arguments.rows_per_block;
  for (int64_t first = int64_t{block_index().x} * arguments.rows_per_block; first < num_rows; first += rows_in_grid) {
    const int64_t last = first + arguments.rows_per_block < num_rows ? first + arguments.rows_per_block : num_rows;
    for (int64_t begin = first; begin < last;) {
      const int64_t end = end_of_run(arguments, begin, last);
      if (ancestors.count > 0) {
        sync_block();  // the rows before are done
        copy_fields(arguments, 0, arguments.num_inputs_on_ancestors, begin, ancestor_fields, thread_rank(),
                    static_cast<int>(block_dim().x));
        sync_block();
        multiply_fields<Target>(ancestors, ancestors, arguments.dim, layout.stride, true, arguments.self, warp,
                                num_warps, [&](int i, int j, float product) {
                                  with_column(i, j, [&](int to) {
                                    for (int w = 0; w < num_warps; ++w) output_of(w)[to] = narrow<Out>(product);
                                  });
                                });
        sync_block();
      }
      Out* output = output_of(warp);
      for (int64_t n = begin + warp; n < end; n += num_warps) {
        copy_fields(arguments, arguments.num_inputs_on_ancestors, arguments.num_inputs, n, own_fields, lane, warp_size);
        sync_warp();
        const auto write_own = [&](int i, int j, float product) {
          with_column(ancestors.count + i, ancestors.count + j, [&](int to) { output[to] = narrow<Out>(product); });
        };
        multiply_fields<Target>(own, own, arguments.dim, layout.stride, true, arguments.self, 0, 1, write_own);
        const auto write_mixed = [&](int i, int j, float product) {
          with_column(ancestors.count + i, j, [&](int to) { output[to] = narrow<Out>(product); });
        };
        multiply_fields<Target>(own, ancestors, arguments.dim, layout.stride, false, false, 0, 1, write_mixed);
        sync_warp();
        Out* y = arguments.y.data + n * arguments.y.stride;
        for (int i = lane; i < columns; i += warp_size) store(y + i, output[i]);
      }
      begin = end;
    }
  }
}

/// The arguments for a valid call.
template <class Out>
Arguments<Out> arguments_for(Span<const AxisInput<float16>> inputs, int64_t dim, const DotPairs& pairs, Matrix<Out> y,
                             const int64_t* num_rows, int64_t num_multiprocessors) {
  Arguments<Out> arguments{};
  arguments.dim = static_cast<int>(dim);
  arguments.aligned = dim % vector_size == 0;
  arguments.num_left = static_cast<int>(pairs.num_left);
  arguments.order = pairs.num_left > 0 ? DotOrder::lower : pairs.order;
  arguments.self = pairs.self && pairs.num_left == 0;
  arguments.y = y;
  arguments.num_rows = num_rows;
  for (const bool on_ancestor : {true, false}) {
    int field = 0;
    for (const AxisInput<float16>& input : inputs) {
      const int count = static_cast<int>(input.values.cols / dim);
      if (input.on_ancestor() == on_ancestor) {
        arguments.inputs[arguments.num_inputs] = input;
        arguments.first_field[arguments.num_inputs++] = field;
        (on_ancestor ? arguments.num_ancestor_fields : arguments.num_own_fields) += count;
        const auto address = reinterpret_cast<uintptr_t>(input.values.data);
        arguments.aligned &= address % (vector_size * sizeof(float16)) == 0 && input.values.stride % vector_size == 0;
      }
      field += count;
    }
    if (on_ancestor) arguments.num_inputs_on_ancestors = arguments.num_inputs;
  }
  // Few rows: a warp has one. Many: a block has enough of them to use its ancestors' fields often.
  constexpr int64_t blocks_per_multiprocessor = 4;
  const int64_t share = y.rows / (num_multiprocessors * blocks_per_multiprocessor);
  arguments.rows_per_block =
      static_cast<int>(std::clamp<int64_t>(share / max_warps * max_warps, max_warps, max_rows_of_block));
  return arguments;
}

/// Gives each block as many warps as its shared memory is good for. Returns the bytes that one warp needs.
template <class Out>
int64_t lay_out(Arguments<Out>& arguments) {
  for (int num_warps = max_warps; num_warps >= 1; num_warps /= 2) {
    arguments.num_warps = num_warps;
    arguments.layout = layout_for(arguments.dim, arguments.num_ancestor_fields, arguments.num_own_fields,
                                  arguments.y.cols * static_cast<int64_t>(sizeof(Out)), num_warps);
    if (arguments.layout.bytes <= preferred_shared_bytes) break;
  }
  return arguments.layout.bytes;
}

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_DOT)
template <class Out>
WARPRANK_HIDDEN void launch_general(const Arguments<Out>& arguments, int target, device::Stream stream) {
  const int64_t blocks = (arguments.y.rows + arguments.rows_per_block - 1) / arguments.rows_per_block;
  if (arguments.y.cols == 0) return;
  constexpr int64_t max_blocks = 1 << 16;
  const device::LaunchConfig config(static_cast<unsigned>(std::min(blocks, max_blocks)),
                                    static_cast<unsigned>(arguments.num_warps * device::warp_size),
                                    arguments.layout.bytes, stream);
  device::dispatch_target<75, 80>(target, [&](auto chosen) {
    const auto kernel = arguments.num_left > 0 ? dot_kernel<chosen(), true, Out> : dot_kernel<chosen(), false, Out>;
    device::launch_overlapping(config, kernel, arguments);
  });
}
#endif

}}}  // namespace warprank::v0::detail::dot
