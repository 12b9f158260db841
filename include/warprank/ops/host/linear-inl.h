// SPDX-License-Identifier: Apache-2.0

// The micro-kernel of linear layers and the loops around it.

HWY_BEFORE_NAMESPACE();
namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Panels of four vectors reach 92 to 97 % of the FMA peak on AVX2 and AVX-512. On AVX-512 14 rows x 2 vectors are as
// good until rows of x share a cache set (82 % at 1,024 columns), and slower for one row, where chains are few.
inline constexpr int panel_vectors = 4;
static_assert(vectors_of_panel(100) == panel_vectors);
// Of 32 or 16 vector registers, all but one hold sums and elements of x.
#if HWY_MAX_BYTES == 64 || HWY_ARCH_ARM
inline constexpr int tile_rows = 6;
#else
inline constexpr int tile_rows = 3;
#endif

// A part of a panel of this many elements stays in the second-level cache while a block of rows passes it, whose sums
// wait for the next part on the stack (27 KB). Blocks of 108 rows read the weights once for 100 rows: DCN-v2 with its
// 64 MB of them takes 1 to 2 % less than with blocks of 72, other models as long.
inline constexpr int64_t max_depth = 1024, block_tiles = 108 / tile_rows;

/// Weights that other tiles will need: while a tile is computed, `per_k` bytes of them are fetched for each k.
/// Layers of ranking models together are larger than the second-level cache. Without this, the first tile of each panel
/// would wait for the third level: 0.6 in the place of 0.9 of the FMA peak with 100 rows.
struct NextWeights {
  const char* begin;
  int64_t per_k;
};

/// The micro-kernel: acc[r][v] += sum_k x[r * x_stride + k] * panel[k][v] over `depth` elements, k ascending, in FP32.
/// panel [depth, Vectors * lanes], aligned to a vector. acc stays in registers if it is a local array of the caller's,
/// of at most tile_rows x panel_vectors.
template <class Products, int Rows, int Vectors, class D, class Element, class V = hn::Vec<D>>
HWY_INLINE void multiply_panel(D d, const Element* x, int64_t x_stride, int64_t depth,
                               const Element* HWY_RESTRICT panel, NextWeights next, V (&acc)[Rows][Vectors]) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  // A fetch is asked for once for each line: on Zen 2 a fetch for each k took 9 % of the time with 100 rows. Four k or
  // more go together, or the two loops would take as much with one row.
  constexpr int64_t line = 64;
  const int64_t step = next.per_k == 0 ? depth : std::max<int64_t>(line / next.per_k, 4);
  for (int64_t k = 0; k < depth;) {
    for (int64_t i = 0; i < step * next.per_k; i += line) prefetch_second_level(next.begin + k * next.per_k + i);
    for (const int64_t end = std::min(k + step, depth); k < end; ++k) {
      V elements[Rows];
      WARPRANK_UNROLL
      for (int r = 0; r < Rows; ++r) elements[r] = Products::broadcast(d, x + r * x_stride + k);
      // One vector of weights at a time: 12 sums, 3 elements and it are the 16 registers of AVX2.
      WARPRANK_UNROLL
      for (int v = 0; v < Vectors; ++v) {
        const V weights = Products::load(d, panel + (k * Vectors + v) * lanes);
        WARPRANK_UNROLL
        for (int r = 0; r < Rows; ++r) acc[r][v] = Products::multiply_add(elements[r], weights, acc[r][v]);
      }
    }
  }
}

/// Rows of x times one panel.
template <class Element>
struct LinearTile {
  const Element* x;
  int64_t x_stride;
  int64_t depth;         ///< in elements
  const Element* panel;  ///< [depth, width]
  NextWeights next;
  const float* bias;             ///< [width]
  const float* const* row_bias;  ///< for each row its [width], or null
  float floor;                   ///< results below it become it: 0 for relu, -infinity for none
  float* y;                      ///< [rows, width]
  int64_t y_stride;
};

template <class Products, int Rows, int Vectors>
void run_tile(const LinearTile<typename Products::Element>& tile) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V acc[Rows][Vectors];
  WARPRANK_UNROLL
  for (int r = 0; r < Rows; ++r) {
    WARPRANK_UNROLL
    for (int v = 0; v < Vectors; ++v) acc[r][v] = hn::LoadU(d, tile.bias + v * lanes);
  }
  if (tile.row_bias != nullptr) {
    WARPRANK_UNROLL
    for (int r = 0; r < Rows; ++r) {
      WARPRANK_UNROLL
      for (int v = 0; v < Vectors; ++v) acc[r][v] = hn::Add(acc[r][v], hn::LoadU(d, tile.row_bias[r] + v * lanes));
    }
  }
  multiply_panel<Products>(d, tile.x, tile.x_stride, tile.depth, tile.panel, tile.next, acc);
  const V floor = hn::Set(d, tile.floor);
  WARPRANK_UNROLL
  for (int r = 0; r < Rows; ++r) {
    WARPRANK_UNROLL
    for (int v = 0; v < Vectors; ++v)
      hn::StoreU(hn::IfThenElse(hn::Lt(acc[r][v], floor), floor, acc[r][v]), d, tile.y + r * tile.y_stride + v * lanes);
  }
}

template <class Element>
using RunTile = void (*)(const LinearTile<Element>&);

template <class Products, int... Kernel>
RunTile<typename Products::Element> choose_tile(int64_t rows, int64_t vectors, std::integer_sequence<int, Kernel...>) {
  static constexpr RunTile<typename Products::Element> kernels[] = {
      &run_tile<Products, Kernel % tile_rows + 1, Kernel / tile_rows + 1>...};
  return kernels[(vectors - 1) * tile_rows + rows - 1];
}

/// The row bias of ascending rows.
class RowBias {
 public:
  explicit RowBias(const LinearInputs& inputs) : matrix_(inputs.row_bias), segments_(inputs.row_bias_segments) {}
  bool exists() const { return matrix_.data != nullptr; }
  const float* of(int64_t row) {
    while (segments_.end(segment_) <= row) ++segment_;
    return matrix_.row(segment_);
  }

 private:
  Matrix<const float> matrix_;
  Segments segments_;
  int64_t segment_ = 0;
};

/// The epilogue behind the sums of some rows; no data: none.
struct LinearEnd {
  Matrix<const float> multiply, residual;  ///< [rows, out]
  bool residual_first;
};

/// f, multiply and residual for outputs [first, first + count) of the rows, whose sums are z [rows, .].
inline void finish_tile(const LinearGroup& group, const float* z, int64_t z_stride, int64_t first, int64_t count,
                        Matrix<float> y, const LinearEnd& end) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < y.rows; ++r)
    for (int64_t c = 0; c < count; c += lanes) {
      const size_t used = static_cast<size_t>(std::min(lanes, count - c));
      const int64_t output = first + c;
      auto v = hn::Load(d, z + r * z_stride + c);
      const bool has_residual = end.residual.data != nullptr;
      if (has_residual && end.residual_first) v = hn::Add(v, load_first(d, end.residual.row(r) + output, used));
      v = group.precision == Precision::bf16
              ? apply_rough_activation(d, group.activation, output, static_cast<size_t>(lanes), v)
              : apply_activation(d, group.activation, output, static_cast<size_t>(lanes), v);
      if (end.multiply.data != nullptr) v = hn::Mul(v, load_first(d, end.multiply.row(r) + output, used));
      if (has_residual && !end.residual_first) v = hn::Add(v, load_first(d, end.residual.row(r) + output, used));
      store_first(v, d, y.row(r) + output, used);
    }
}

inline Matrix<const float> rows_of(Matrix<const float> matrix, int64_t begin, int64_t count) {
  return matrix.data == nullptr ? matrix : matrix.row_range(begin, count);
}
inline LinearEnd rows_of(const LinearEnd& end, int64_t begin, int64_t count) {
  return {rows_of(end.multiply, begin, count), rows_of(end.residual, begin, count), end.residual_first};
}

/// The panels of a layer as they were packed, `in` elements deep, without the first `skipped` of them.
template <class Products>
struct PackedPanels {
  using Element = typename Products::Element;
  static constexpr int64_t bytes = sizeof(Element);  ///< of an element
  const Element* weight;
  int64_t in, skipped = 0;

  /// Elements of k that many tiles are multiplied with together.
  static int64_t most_together(int64_t) { return max_depth; }
  /// The elements of k of a panel that is `width` wide and starts at output `first`.
  const char* address(int64_t first, int64_t width, int64_t k) const {
    return reinterpret_cast<const char*>(part(first, width, k, 0));
  }
  /// Elements [k, k + depth) of it.
  const Element* part(int64_t first, int64_t width, int64_t k, int64_t) const {
    return weight + first * in + (skipped + k) * width;
  }
};

/// The same of a layer in INT8, which are widened where they are needed.
template <class Products>
struct Int8Panels {
  using Element = typename Products::Element;
  static constexpr int64_t bytes = Products::values;
  const int8_t* weight;
  const float* scale;  ///< [padded_out]
  int64_t in;
  Element* widened;  ///< [depth, width] of the largest part, aligned to a vector

  /// For few tiles as many as stay in the first-level cache until they are multiplied.
  static int64_t most_together(int64_t num_tiles) { return num_tiles <= 4 ? 128 : max_depth; }
  const char* address(int64_t first, int64_t width, int64_t k) const {
    return reinterpret_cast<const char*>(weight + (first * in + k * width) * Products::values);
  }
  const Element* part(int64_t first, int64_t width, int64_t k, int64_t depth) const {
    const hn::ScalableTag<float> d;
    const hn::Rebind<int32_t, decltype(d)> integers;
    const hn::Rebind<int8_t, decltype(d)> bytes_of_vector;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const int8_t* from = weight + (first * in + k * width) * Products::values;
    Element* to = widened;
    for (int64_t i = 0; i < depth; ++i)
      for (int64_t o = 0; o < width; o += lanes, from += Products::values * lanes, to += lanes) {
        const auto scales = hn::LoadU(d, scale + first + o);
        const auto weights_at = [&](int value) HWY_ATTR {
          const auto whole = hn::PromoteTo(integers, hn::LoadU(bytes_of_vector, from + value * lanes));
          return hn::Mul(hn::ConvertTo(d, whole), scales);
        };
        Products::store_elements(d, weights_at, to);
      }
    // What whole tiles read behind them, times 0.
    if (Products::are_of_tiles) std::fill(to, widened + round_up(depth, amx_pairs) * width, Element{});
    return widened;
  }
};

/// The panel of outputs from `first` for one block of rows; row_bias [rows], or null.
template <class Products, class Panels, class Element = typename Products::Element>
void run_block(const LinearGroup& group, const Panels& panels, int64_t first, Matrix<const Element> x, Matrix<float> y,
               const float* const* row_bias, const LinearEnd& end) {
  constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));
  constexpr int64_t width = panel_vectors * lanes;
  const int64_t vectors = vectors_of_panel((group.padded_out - first) / lanes);
  const int64_t count = std::min(vectors * lanes, group.out - first);
  const ActivationKind kind = group.activation.spec.kind;
  const bool is_relu = kind == ActivationKind::relu, is_whole = count == vectors * lanes;
  const bool needs_finish = !is_whole || !(is_relu || kind == ActivationKind::identity) ||
                            end.multiply.data != nullptr || end.residual.data != nullptr;
  const float zeros[width] = {}, *start[tile_rows];
  HWY_ALIGN float sums[block_tiles * tile_rows][width];

  // Tiles of nearly even height, for instance 4 and 3 rows rather than 6 and 1.
  const int64_t num_tiles = (x.rows + tile_rows - 1) / tile_rows;
  const int64_t most = Panels::most_together(num_tiles), num_parts = (x.cols + most - 1) / most;
  for (int64_t part = 0; part < num_parts; ++part) {
    const int64_t k = x.cols * part / num_parts, depth = x.cols * (part + 1) / num_parts - k;
    const bool is_first = part == 0, is_last = part + 1 == num_parts, to_y = is_last && !needs_finish;
    const Element* const panel = panels.part(first, vectors * lanes, k, depth);
    // The weights that are needed next lie behind this part, and each tile fetches its share of as many.
    const bool is_end = is_last && first + count == group.out;
    const int64_t share = is_end ? 0 : (vectors * lanes * Panels::bytes + num_tiles - 1) / num_tiles;
    const char* const next = panels.address(first, vectors * lanes, k + depth);
    for (int64_t t = 0; t < num_tiles; ++t) {
      const int64_t row = x.rows * t / num_tiles, rows = x.rows * (t + 1) / num_tiles - row;
      float(*z)[width] = sums + row;
      for (int64_t r = 0; r < rows; ++r) {
        start[r] = z[r];
        if (!is_first || row_bias == nullptr) continue;
        const float* bias = row_bias[row + r] + first;
        if (is_whole)
          start[r] = bias;
        else
          std::copy_n(bias, count, z[r]);  // since a whole vector of it may not be read
      }
      const RunTile<Element> run =
          choose_tile<Products>(rows, vectors, std::make_integer_sequence<int, panel_vectors * tile_rows>());
      run({x.row(row) + k,
           x.stride,
           depth,
           panel,
           {next + t * depth * share, share},
           is_first ? group.bias + first : zeros,
           is_first && row_bias == nullptr ? nullptr : start,
           is_last && is_relu && !needs_finish ? 0.0f : -std::numeric_limits<float>::infinity(),
           to_y ? y.row(row) + first : z[0],
           to_y ? y.stride : width});
      if (is_last && needs_finish)
        finish_tile(group, z[0], width, first, count, y.row_range(row, rows), rows_of(end, row, rows));
    }
  }
}

#if HWY_ARCH_X86_64 && HWY_MAX_BYTES == 64 && defined(__linux__)
/// The same by AMX; behind the rows of x there are others up to a multiple of amx_rows, of any values.
template <class Panels>
void run_block_of_tiles(AmxTiles& tiles, const LinearGroup& group, const Panels& panels, int64_t first,
                        Matrix<const Bf16Pair> x, Matrix<float> y, const float* const* row_bias, const LinearEnd& end) {
  static_assert(panel_vectors * amx_pairs == amx_width && max_depth % amx_pairs == 0);
  const int64_t width = vectors_of_panel((group.padded_out - first) / amx_pairs) * amx_pairs;
  const int64_t count = std::min(width, group.out - first);
  HWY_ALIGN float sums[round_up(block_tiles * tile_rows, amx_rows)][amx_width];
  sum_panel(tiles, panels, {first, width, count, max_depth}, x, group.bias, row_bias, sums);
  finish_tile(group, sums[0], amx_width, first, count, y, end);
}
#endif

/// All panels for one block of rows.
template <class Products, class Panels, class Element = typename Products::Element>
void run_rows(const LinearGroup& group, const Panels& panels, Matrix<const Element> x, Matrix<float> y,
              const float* const* row_bias, const LinearEnd& end) {
  constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));
  const auto behind = [&](int64_t first) {
    return first + vectors_of_panel((group.padded_out - first) / lanes) * lanes;
  };
#if HWY_ARCH_X86_64 && HWY_MAX_BYTES == 64 && defined(__linux__)
  if constexpr (Products::are_of_tiles) {
    AmxTiles tiles;
    for (int64_t first = 0; first < group.out; first = behind(first))
      run_block_of_tiles(tiles, group, panels, first, x, y, row_bias, end);
    return;
  }
#endif
  for (int64_t first = 0; first < group.out; first = behind(first))
    run_block<Products>(group, panels, first, x, y, row_bias, end);
}

template <class Products, class Panels>
void run_panels(const LinearGroup& group, const Panels& panels, Matrix<const float> x, Matrix<float> y,
                const LinearInputs& inputs, Span<float> workspace) {
  constexpr int64_t max_rows = block_tiles * tile_rows;
  const int64_t num_tiles = (x.rows + tile_rows - 1) / tile_rows, num_blocks = (x.rows + max_rows - 1) / max_rows;
  const LinearEnd end{inputs.multiply, inputs.residual, inputs.residual_first};
  RowBias bias_of(inputs);
  const float* row_bias[max_rows];
  for (int64_t block = 0; block < num_blocks; ++block) {
    // Blocks of whole tiles.
    const int64_t row = num_tiles * block / num_blocks * tile_rows;
    const int64_t rows = std::min(num_tiles * (block + 1) / num_blocks * tile_rows, x.rows) - row;
    if (bias_of.exists())
      for (int64_t r = 0; r < rows; ++r) row_bias[r] = bias_of.of(row + r);
    run_rows<Products>(group, panels, Products::elements_of(x.row_range(row, rows), workspace), y.row_range(row, rows),
                       bias_of.exists() ? row_bias : nullptr, rows_of(end, row, rows));
  }
}

/// In the workspace widened weights come first, from a whole vector on, and rounded rows of x behind them.
template <class Products>
void run_stored(const LinearGroup& group, const typename Products::Element* weight, Matrix<const float> x,
                Matrix<float> y, const LinearInputs& inputs, Span<float> workspace) {
  const int64_t in = (group.in + Products::values - 1) / Products::values;
  if (group.int8 == nullptr || x.rows == 0)
    return run_panels<Products>(group, PackedPanels<Products>{weight, in}, x, y, inputs, workspace);
  constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));
  constexpr uintptr_t vector = lanes * sizeof(float);
  const uintptr_t aligned = (reinterpret_cast<uintptr_t>(workspace.data()) + vector - 1) / vector * vector;
  const int64_t size = std::min(round_up(in, amx_pairs), max_depth) * panel_vectors * lanes + lanes;
  run_panels<Products>(
      group,
      Int8Panels<Products>{group.int8, group.int8_scale, in, reinterpret_cast<typename Products::Element*>(aligned)}, x,
      y, inputs, {workspace.data() + size, workspace.size() - size});
}

/// sums[o * sums_stride + r] = sum_k x[r][k] weight[first + o][k], each in as many chains as a vector has lanes.
template <int Rows, int Outputs>
void run_dots(const LinearGroup& group, int64_t first, const float* x, int64_t x_stride, float* sums,
              int64_t sums_stride) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V acc[Rows][Outputs];
  WARPRANK_UNROLL
  for (int r = 0; r < Rows; ++r) {
    WARPRANK_UNROLL
    for (int o = 0; o < Outputs; ++o) acc[r][o] = hn::Zero(d);
  }
  for (int64_t k = 0; k < group.in; k += lanes) {
    const size_t used = static_cast<size_t>(std::min(lanes, group.in - k));
    V elements[Rows];
    WARPRANK_UNROLL
    for (int r = 0; r < Rows; ++r) elements[r] = load_first(d, x + r * x_stride + k, used);
    WARPRANK_UNROLL
    for (int o = 0; o < Outputs; ++o) {
      const V weights = hn::Load(d, group.weight + (first + o) * group.padded_in + k);
      WARPRANK_UNROLL
      for (int r = 0; r < Rows; ++r) acc[r][o] = hn::MulAdd(elements[r], weights, acc[r][o]);
    }
  }
  WARPRANK_UNROLL
  for (int r = 0; r < Rows; ++r) {
    WARPRANK_UNROLL
    for (int o = 0; o < Outputs; ++o) sums[o * sums_stride + r] = hn::GetLane(hn::SumOfLanes(d, acc[r][o]));
  }
}

/// Outputs [first, first + Outputs), a vector of rows at a time, so that f costs no more than in wide layers.
template <int Outputs>
void run_head(const LinearGroup& group, int64_t first, Matrix<const float> x, Matrix<float> y,
              const LinearInputs& inputs) {
  const hn::ScalableTag<float> d;
  constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));
  constexpr int rows_at_once = Outputs == 1 ? 4 : 2;
  const ChannelActivation& f = group.activation;
  const auto learned = [&](Span<const float> values, int64_t output)
                           HWY_ATTR { return hn::Set(d, values.empty() ? 0.0f : values[output]); };
  float z[Outputs][lanes] = {}, factor[lanes] = {}, addend[lanes] = {};
  RowBias bias_of(inputs);
  for (int64_t row = 0; row < x.rows; row += lanes) {
    const int64_t rows = std::min(lanes, x.rows - row);
    int64_t r = 0;
    for (; r + rows_at_once <= rows; r += rows_at_once)
      run_dots<rows_at_once, Outputs>(group, first, x.row(row + r), x.stride, z[0] + r, lanes);
    for (; r < rows; ++r) run_dots<1, Outputs>(group, first, x.row(row + r), x.stride, z[0] + r, lanes);
    for (r = 0; r < rows; ++r) {
      const float* row_bias = bias_of.exists() ? bias_of.of(row + r) + first : nullptr;
      for (int64_t o = 0; o < Outputs; ++o)
        z[o][r] += group.bias[first + o] + (row_bias == nullptr ? 0.0f : row_bias[o]);
    }
    for (int64_t o = 0; o < Outputs; ++o) {
      const int64_t output = first + o;
      auto v = hn::LoadU(d, z[o]);
      if (inputs.residual.data != nullptr)
        for (r = 0; r < rows; ++r) addend[r] = inputs.residual.row(row + r)[output];
      if (inputs.residual_first) v = hn::Add(v, hn::LoadU(d, addend));
      v = apply_activation(d, f.spec, v, learned(f.alpha, output), learned(f.scale, output), learned(f.shift, output));
      if (inputs.multiply.data != nullptr) {
        for (r = 0; r < rows; ++r) factor[r] = inputs.multiply.row(row + r)[output];
        v = hn::Mul(v, hn::LoadU(d, factor));
      }
      if (inputs.residual.data != nullptr && !inputs.residual_first) v = hn::Add(v, hn::LoadU(d, addend));
      hn::StoreU(v, d, z[o]);
      for (r = 0; r < rows; ++r) y.row(row + r)[output] = z[o][r];
    }
  }
}

inline void run_heads(const LinearGroup& group, Matrix<const float> x, Matrix<float> y, const LinearInputs& inputs) {
  int64_t first = 0;
  for (; first + 4 <= group.out; first += 4) run_head<4>(group, first, x, y, inputs);
  switch (group.out - first) {
    case 1:
      return run_head<1>(group, first, x, y, inputs);
    case 2:
      return run_head<2>(group, first, x, y, inputs);
    case 3:
      return run_head<3>(group, first, x, y, inputs);
  }
}

inline void run_linear(const LinearGroup& group, Matrix<const float> x, Matrix<float> y, const LinearInputs& inputs,
                       Span<float> workspace) {
  if (group.out <= max_dot_outputs) return run_heads(group, x, y, inputs);
  if constexpr (compiles_bf16_products)
    if (group.precision == Precision::bf16)
      return (has_amx_products() ? &run_stored<AmxProducts> : &run_stored<Bf16Products>)(group, group.pairs, x, y,
                                                                                         inputs, workspace);
  run_stored<Fp32Products>(group, group.weight, x, y, inputs, workspace);
}

inline LinearTarget linear_kernels() {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  return {hwy::TargetName(HWY_TARGET), lanes,     tile_rows,           panel_vectors * lanes,
          block_tiles * tile_rows,     max_depth, has_bf16_products(), &run_linear};
}

}}}  // namespace warprank::v0::host_ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
