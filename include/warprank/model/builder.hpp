// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The model language. A function `Outputs model(Builder& b)` describes a model; `build(model)` makes the Graph.
///
///     Outputs two_towers(Builder& b) {
///       auto user = b.axis("user"), item = b.axis("item", user);
///       auto u = b.embed(b.ids("user_id", user), b.hashed_table("user", {.dim = 32}));
///       auto i = b.embed(b.ids("film_id", item), b.table("film", {.dim = 32}));
///       return {{"ctr", b.sigmoid(b.mlp("tower", b.concat({b.expand(u, item), i}), {64, 1}, relu))}};
///     }
///
/// Everything lives on a named axis; combining tensors of different axes without `expand` is an error. All errors of a
/// model are thrown together as one invalid_argument, each with the file and line of the call.
/// Learned tensors are named after the layer; model/parameters.hpp lists them.

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "warprank/core/compiled.hpp"
#include "warprank/core/error.hpp"
#include "warprank/model/graph.hpp"

namespace warprank { inline namespace v0 {

class Builder;

/// Handles: cheap to copy, valid while their Builder lives.
struct Axis {
  int index = -1;
};
struct Table {
  int index = -1;
};
struct Ids {
  int index = -1;
};
struct Tensor {
  Builder* builder = nullptr;
  int node = -1;  ///< -1: the call that makes it has an error
};

/// A tensor or a number in an expression, with the place where it was written.
struct Operand {
  Operand(Tensor tensor, SourceLine at = SourceLine::current()) : tensor(tensor), at(at) {}  // NOLINT: an expression
  template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
  Operand(Number number, SourceLine at = SourceLine::current())  // NOLINT: an expression
      : number(static_cast<float>(number)), at(at) {}

  Tensor tensor;
  std::optional<float> number;  ///< none: the operand is a tensor
  SourceLine at;
};

/// Limits an axis to the last `rows` rows of each parent row; 0: all rows.
struct KeepLast {
  int64_t rows = 0;
};
inline KeepLast keep_last(int64_t rows) { return {rows}; }

struct TableOptions {
  int64_t dim = 0;   ///< columns of a row; must be given
  int64_t rows = 0;  ///< rows, or keys of a hashed table; checked at load; 0: as many as the file has
};
struct IdsOptions {
  std::optional<int64_t> default_id = {};        ///< of requests that do not set the input
  std::optional<int64_t> padding = {};           ///< an id that adds nothing in hashed tables (direct tables: -1)
  IdsWire wire = IdsWire::i64;                   ///< the type of the ids in requests
  OutOfRange out_of_range = OutOfRange::refuse;  ///< ids that `wire` cannot hold: `refuse`, or `saturate` to nearest
};
struct DenseOptions {
  std::optional<float> default_value = {};       ///< of requests that do not set the input; not rounded to `wire`
  DenseWire wire = DenseWire::f32;               ///< the type of the values in requests
  OutOfRange out_of_range = OutOfRange::refuse;  ///< values too large for `wire`: `refuse`, or `saturate` to largest
};
struct LinearOptions {
  bool bias = true;            ///< added to the product
  Activation activation = {};  ///< of the result
};
struct MlpOptions {
  bool bias = true;                   ///< of every layer
  Activation output_activation = {};  ///< of the last layer
  bool batch_norm = false;            ///< between product and activation of every layer but the last: "<name>.<i>.norm"
  float batch_norm_eps = 1e-5f;       ///< added to the batch norms' variances
};
struct DinOptions {
  std::vector<int64_t> hidden = {80, 40};             ///< widths of the scoring MLP's layers before its one output
  Activation activation = dice;                       ///< of these layers
  Normalization normalization = Normalization::none;  ///< of the scores of a history
  bool scaled = false;                                ///< divide scores by sqrt(D) before the normalisation
};
struct AttentionOptions {
  int64_t heads = 1;     ///< number of heads, side by side
  int64_t head_dim = 0;  ///< columns of a head; 0: query width / heads
  int64_t out = 0;       ///< width after the output projection; 0: query width
  bool bias = true;      ///< of the four projections
  bool causal = false;   ///< of an axis over itself: an event sees itself and earlier events
};
struct SelfAttentionOptions {
  int64_t heads = 1;                       ///< number of heads, side by side, each of width / heads columns
  int64_t hidden = 0;                      ///< width of the feed-forward's hidden layer; 0: 4 x width
  Activation activation = warprank::relu;  ///< of the feed-forward's hidden layer
  bool norm_first = false;                 ///< layer norms before attention and feed-forward, not after the residuals
  bool causal = false;                     ///< an event sees itself and earlier events
  float eps = 1e-5f;                       ///< added to the layer norms' variances
};
struct HstuOptions {
  int64_t heads = 1;       ///< number of heads, side by side
  int64_t head_dim = 0;    ///< columns of a head, of queries, keys, values and gates; 0: width / heads
  int64_t max_length = 1;  ///< of a sequence: attention's weights are divided by it
  float scale = 0;         ///< of attention's scores; 0: 1 / sqrt(head_dim)
  float eps = 1e-6f;       ///< added to the layer norms' variances
  bool targets = true;     ///< the last part of several are targets, which see themselves and no other target
  int64_t contexts = 0;    ///< so many of the first parts have no order: their rows see all rows of all of them
  bool contexts_see_events = false;  ///< and all rows of the parts in order
  int64_t window = 0;                ///< events before a row that it sees, of the one part in order; 0: all
  int64_t full_last = 0;             ///< so many last events, and if it is not 0 targets, have no window
  HstuGate gate = HstuGate::beside;  ///< how u gates what was attended to
  Activation activation = identity;  ///< of v, q and k; silu in the paper
  bool norm_by_part = false;         ///< each part has layer norms of its own, as domains of MTGR have
  bool norm_by_head = false;         ///< the second layer norm norms each head by itself, with its own scale and shift
  bool out_bias = false;             ///< of the output's linear layer
  int64_t positions = 0;             ///< distances that have a bias of their own in the scores, from 0 on; 0: none
  bool clamp_positions = false;      ///< longer distances have the bias of the longest; false: there may be none
  int64_t time_buckets = 0;          ///< of differences of time that have a bias, behind the first bucket; 0: none
  float time_bucket_width = 0.301f;  ///< bucket = log(max(1, difference)) / width, rounded down
  bool bias_by_head = false;         ///< each head has biases of its own
  std::vector<Tensor> times = {};    ///< when the rows of each part but contexts were, [axis, 1]; with time_buckets
  std::vector<Tensor> next_times = {};  ///< when what follows each of them was; empty: the same as `times`
};
struct FieldLinearOptions {
  bool bias = true;                  ///< one of each new field
  Activation activation = identity;  ///< of the new fields
  int64_t kept = -1;                 ///< so many of the new fields, the first, are in the result; -1: all
  int64_t summed = 0;                ///< so many, the last, are each summed over its columns, behind the fields
};
struct CinOptions {
  std::vector<int64_t> layers = {};        ///< maps of each layer
  bool split_half = true;                  ///< half of the maps goes on, half is in the result; false: all do both
  bool bias = true;                        ///< one of each map
  Activation activation = warprank::relu;  ///< of the maps
};
struct FieldAttentionOptions {
  int64_t heads = 1;                       ///< number of heads, side by side
  int64_t head_dim = 0;                    ///< columns of a head; 0: columns of a field / heads
  bool residual = true;                    ///< a projection of the field itself is added
  Activation activation = warprank::relu;  ///< of the result
  float scale = 1;                         ///< of the scores; 0: 1 / sqrt(head_dim)
};
struct AugruOptions {
  bool update_gate = true;  ///< false: DIEN's AGRU
  float scale = 1;          ///< of the scores; 0: 1 / sqrt(columns of a query)
};
struct AutoIntOptions {
  int64_t layers = 3;                      ///< number of layers, one after another
  int64_t heads = 2;                       ///< of each layer, side by side
  int64_t head_dim = 0;                    ///< columns of a head; 0: columns of a field of the first layer / heads
  bool residual = true;                    ///< a projection of the field itself is added
  Activation activation = warprank::relu;  ///< of each layer
  float scale = 1;                         ///< of the scores; 0: 1 / sqrt(head_dim)
};
struct RankMixerOptions {
  int64_t tokens = 1;                      ///< equal parts of the columns, each projected to a token
  int64_t dim = 0;                         ///< columns of a token, a multiple of `tokens`; 0: of a part, as it is
  int64_t hidden = 0;                      ///< columns inside a token's feed-forward network; 0: 4 * dim
  int64_t layers = 1;                      ///< number of layers, one after another
  int64_t experts = 0;                     ///< feed-forward networks of a token, with a router; 0: one, without it
  int64_t top_k = 0;                       ///< of up to 256 experts, by a softmax of logits; 0: all, by relu of them
  Activation activation = warprank::gelu;  ///< inside the feed-forward networks
  float eps = 1e-5f;                       ///< added to the layer norms' variances
};
struct WukongOptions {
  int64_t layers = 3;                      ///< number of layers, one after another
  int64_t machine_fields = 16;             ///< new fields of a layer's factorisation machine block
  int64_t linear_fields = 16;              ///< new fields of its linear compression block
  int64_t rank = 16;                       ///< mixtures of fields, with which the block multiplies each field
  std::vector<int64_t> hidden = {};        ///< inner layers of the block's MLP; none: a linear layer
  Activation activation = warprank::relu;  ///< of the inner layers
  float eps = 1e-5f;                       ///< added to the layer norms' variances
};
struct CrossOptions {
  int64_t layers = 1;  ///< number of layers, one after another
  int64_t rank = 0;    ///< 0: full matrices; else W (V x) with an inner width of `rank`
};
struct DotOptions {
  DotOrder order = DotOrder::lower;  ///< of the pairs: `lower` triangle (DLRM), `upper`, or `lower_padded` by a zero
  bool self = false;                 ///< also pairs of a field with itself
};
struct PleOptions {
  int64_t tasks = 2;                              ///< number of tasks, with one output each
  int64_t task_experts = 2;                       ///< experts of each task
  int64_t shared_experts = 2;                     ///< experts that all tasks share
  std::vector<std::vector<int64_t>> levels = {};  ///< layer sizes of the experts, level by level
  Activation activation = warprank::relu;         ///< of every layer of the experts
};
struct BatchNormOptions {
  float eps = 1e-5f;   ///< added to the variances
  bool affine = true;  ///< with a learned scale and shift
};
struct LayerNormOptions {
  float eps = 1e-5f;     ///< added to the variance
  bool affine = true;    ///< with a learned scale and shift
  int64_t groups = 1;    ///< equal parts of a row, up to 4,096, each normed by itself: tokens, or domains
  bool stacked = false;  ///< each part has a scale and a shift of its own
};

using Outputs = std::vector<std::pair<std::string, Tensor>>;

class Builder {
 public:
  Builder() = default;
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  // --- inputs ---

  /// The outermost axis: one row per request. There is exactly one.
  Axis axis(std::string name, SourceLine at = SourceLine::current());
  /// An axis nested in another: any number of rows for each row of `parent`.
  Axis axis(std::string name, Axis parent, KeepLast keep = {}, SourceLine at = SourceLine::current());
  /// A table whose ids are row numbers.
  Table table(std::string name, TableOptions options, SourceLine at = SourceLine::current());
  /// A table whose ids are any 64-bit values.
  Table hashed_table(std::string name, TableOptions options, SourceLine at = SourceLine::current());
  /// One 64-bit id per row of `axis`; several inputs on one axis are aligned. Requests may hold the ids in 32 bits.
  Ids ids(std::string name, Axis axis, IdsOptions options = {}, SourceLine at = SourceLine::current());
  /// `width` FP32 values per row of `axis`. Requests may hold the values rounded, in half the bytes.
  Tensor dense(std::string name, Axis axis, int64_t width, DenseOptions options = {},
               SourceLine at = SourceLine::current());

  // --- look-ups and moving between axes ---

  /// [axis of ids, dim]: the table's row for each id.
  Tensor embed(Ids ids, Table table, SourceLine at = SourceLine::current());
  /// [parent of the ids' axis, dim]: the rows of each bag pooled, optionally weighted by a tensor [ids' axis, 1].
  Tensor embed_bag(Ids ids, Table table, Pooling pooling, Tensor weights = {}, SourceLine at = SourceLine::current());
  /// [parent, width]: rows of a nested axis pooled.
  Tensor pool(Tensor x, Pooling pooling, SourceLine at = SourceLine::current());
  /// [axis, width]: each row of an ancestor axis, repeated for the rows nested in it. Costs nothing if the planner can
  /// move it behind the ops that read it.
  Tensor expand(Tensor x, Axis axis, SourceLine at = SourceLine::current());
  /// [axis, sum of the widths]: columns side by side.
  Tensor concat(const std::vector<Tensor>& parts, SourceLine at = SourceLine::current());
  /// [axis, end - begin]: columns [begin, end).
  Tensor slice(Tensor x, int64_t begin, int64_t end, SourceLine at = SourceLine::current());

  // --- dense layers ---

  /// [axis, out]: act(x W^T + b); "<name>.weight" [out, width of x], "<name>.bias" [out].
  Tensor linear(std::string name, Tensor x, int64_t out, LinearOptions options = {},
                SourceLine at = SourceLine::current());
  /// [axis, sizes.back()]: layers "<name>.0", "<name>.1", ... with `activation` behind all but the last, which has
  /// `output_activation`.
  Tensor mlp(const std::string& name, Tensor x, const std::vector<int64_t>& sizes,
             Activation activation = warprank::relu, MlpOptions options = {}, SourceLine at = SourceLine::current());
  /// `count` MLPs with every layer activated, side by side: [axis, count * sizes.back()] (MMoE; Ma et al. 2018).
  Tensor experts(const std::string& name, Tensor x, int64_t count, const std::vector<int64_t>& sizes,
                 Activation activation = warprank::relu, SourceLine at = SourceLine::current());
  /// [axis, sizes.back()]: as `experts`, but each row goes only through the expert that its scene id in [0, count)
  /// names; another id gives zeros.
  Tensor scene_experts(const std::string& name, Tensor x, Ids scene, int64_t count, const std::vector<int64_t>& sizes,
                       Activation activation = warprank::relu, SourceLine at = SourceLine::current());
  /// Gate logits [axis, experts]; `mix` normalises them.
  Tensor gate(std::string name, Tensor x, int64_t experts, SourceLine at = SourceLine::current());
  /// [axis, width of one expert]: sum_e normalization(gate)_e experts_e.
  Tensor mix(Tensor experts, Tensor gate, Normalization normalization = Normalization::softmax,
             SourceLine at = SourceLine::current());
  /// Progressive layered extraction (Tang et al. 2020): one tensor per task. Experts "<name>.<level>.task<t>" and
  /// "<name>.<level>.shared", gates "<name>.<level>.gate<t>" over the task's own experts, then the shared ones;
  /// "<name>.<level>.shared_gate" over all experts, in every level but the last.
  std::vector<Tensor> ple(const std::string& name, Tensor x, const PleOptions& options,
                          SourceLine at = SourceLine::current());

  // --- attention ---

  /// [axis of q, width]: DIN attention pooling of the history `k` for each row of `q`; formula at DinAttentionOp.
  Tensor din_attention(std::string name, Tensor q, Tensor k, DinOptions options = {},
                       SourceLine at = SourceLine::current());
  /// [axis of q, out]: multi-head scaled dot-product attention of `q` over `k`, with projections "<name>.q", ".k",
  /// ".v", ".out".
  Tensor target_attention(const std::string& name, Tensor q, Tensor k, AttentionOptions options = {},
                          SourceLine at = SourceLine::current());
  /// A transformer encoder block over a nested axis: attention ("<name>.q", ".k", ".v", ".out"), residual, layer norm
  /// ("<name>.norm1"), feed-forward ("<name>.ffn.0", ".ffn.1"), residual, layer norm ("<name>.norm2").
  Tensor self_attention(const std::string& name, Tensor x, SelfAttentionOptions options = {},
                        SourceLine at = SourceLine::current());

  /// A layer of HSTU (Zhai et al. 2024) over a nested axis, and over the targets that follow each of its sequences:
  /// layer norm ("<name>.norm"), projections ("<name>.u", ".v", ".q", ".k"), attention with the weights of silu, its
  /// layer norm ("<name>.attention_norm") gated by silu(u), output ("<name>.out") and residual. `sequence` is {events},
  /// {events, targets}, or more parts of one sequence, each on its axis; as many tensors are the result. A row sees all
  /// rows of the parts before its own, of its own itself and those before, and targets only themselves; rows of
  /// contexts, which are without order, see one another. All use the same weights, but norms by part, which are
  /// "<name>.norm.<part>" and "<name>.attention_norm.<part>".
  ///
  /// Scores may have relative biases, but not those of contexts: "<name>.position_bias" [positions] by how many places
  /// an event is before a row, where targets are one place behind the last event, and "<name>.time_bias" [time_buckets
  /// + 1] by the bucket of |next time of the row - time of the event|; a target is 0 places and no time away from
  /// itself. Times are FP32, which holds whole seconds up to 2^24, 194 days, exactly: give them from a moment of the
  /// request, not from 1970. Times that decrease are fine, as differences are absolute.
  std::vector<Tensor> hstu(const std::string& name, const std::vector<Tensor>& sequence,
                           const HstuOptions& options = {}, SourceLine at = SourceLine::current());

  // --- recurrence ---

  /// [axis of x, hidden]: the states of a GRU over the events of a nested axis; formula at RecurrentOp. A linear layer
  /// "<name>.input" makes its gates of all events, "<name>.hidden.weight" is [3 * hidden, hidden], as PyTorch's nn.GRU
  /// has them.
  Tensor gru(const std::string& name, Tensor x, int64_t hidden, SourceLine at = SourceLine::current());
  /// [axis of q, hidden]: the last state of a GRU over the events `x` for each row of `q`, in which events have their
  /// shares of the attention of q to `k`: the AUGRU of DIEN (Zhou et al. 2019); formula at RecurrentOp. q and k have
  /// one width; the layers are those of `gru`.
  Tensor augru(const std::string& name, Tensor q, Tensor k, Tensor x, int64_t hidden, AugruOptions options = {},
               SourceLine at = SourceLine::current());

  // --- interactions ---

  /// [axis, 1], or [axis, dim] without `reduce`: second-order factorisation machine over fields of `dim` columns, of
  /// which each tensor holds one or more; formula at FmOp.
  Tensor fm(const std::vector<Tensor>& fields, int64_t dim, FmOptions options = {},
            SourceLine at = SourceLine::current());
  /// [axis, number of pairs]: dot products of all pairs of fields of `dim` columns; formula at DotOp.
  Tensor dot(const std::vector<Tensor>& fields, int64_t dim, DotOptions options = {},
             SourceLine at = SourceLine::current());
  /// [axis, fields * others]: dot products of each field of `dim` columns with each of the others, row-major; formula
  /// at DotOp.
  Tensor dot_between(const std::vector<Tensor>& fields, const std::vector<Tensor>& others, int64_t dim,
                     SourceLine at = SourceLine::current());
  /// DCN-v2 (Wang et al. 2021): x <- x0 * (W x + b) + x, or with a rank x0 * (W (V x) + b) + x.
  /// Layers "<name>.<i>", with a rank "<name>.<i>.v" and "<name>.<i>.w".
  Tensor cross(const std::string& name, Tensor x0, CrossOptions options = {}, SourceLine at = SourceLine::current());
  /// [axis, kept * dim + summed]: a linear layer over fields of `dim` columns, with `out` new fields, or over the
  /// products of the fields of two tensors; formula at FieldLinearOp. "<name>.weight" is [out, fields], or
  /// [out, fields of the first * fields of the second].
  Tensor field_linear(std::string name, const std::vector<Tensor>& x, int64_t dim, int64_t out,
                      FieldLinearOptions options = {}, SourceLine at = SourceLine::current());
  /// [axis, maps]: the compressed interaction network of xDeepFM (Lian et al. 2018) over fields of `dim` columns. A map
  /// is act(sum_ij W[i, j] x[i] * fields[j] + b); x are the maps of the layer before that go on, the first halves, and
  /// for the first layer the fields. Maps of the result are summed over their columns and stand side by side; those of
  /// the last layer all belong to it. "<name>.<i>.weight" is [maps, maps before * fields].
  Tensor cin(const std::string& name, Tensor fields, int64_t dim, const CinOptions& options,
             SourceLine at = SourceLine::current());
  /// [axis, fields * heads * head_dim]: each field of `dim` columns attends to all fields of its row, the interacting
  /// layer of AutoInt (Song et al. 2019); formula at FieldAttentionOp. "<name>.query.weight", ".key.weight",
  /// ".value.weight" and ".residual.weight" are [heads * head_dim, dim].
  Tensor field_attention(std::string name, Tensor x, int64_t dim, FieldAttentionOptions options = {},
                         SourceLine at = SourceLine::current());
  /// [axis, fields * heads * head_dim]: the layers of AutoInt over fields of `dim` columns, each a `field_attention`
  /// over the fields of the one before: "<name>.<i>.query.weight" and so on.
  Tensor auto_int(const std::string& name, Tensor x, int64_t dim, AutoIntOptions options = {},
                  SourceLine at = SourceLine::current());
  /// Token mixing of RankMixer (Zhu et al. 2025) over tokens side by side, each token plus its parts of all tokens,
  /// then normed; formula at MixTokensOp. "<name>.weight" and "<name>.bias" are of one token.
  Tensor mix_tokens(std::string name, Tensor x, int64_t tokens, float eps = 1e-5f,
                    SourceLine at = SourceLine::current());
  /// [axis, dim]: RankMixer (Zhu et al. 2025), the mean of its tokens. Equal parts of the columns are projected to
  /// tokens ("<name>.tokens"); each layer mixes them ("<name>.<i>.mix") and has a feed-forward network for each token
  /// ("<name>.<i>.ffn.0", ".1", stacked), a residual, and a norm of each token ("<name>.<i>.norm"). With `experts` the
  /// network of a token is sum_e w_e expert_e, weighed by its router ("<name>.<i>.router", stacked), and ".0" is
  /// [tokens, experts * hidden, dim], ".1" [tokens * experts, dim, hidden].
  Tensor rank_mixer(const std::string& name, Tensor x, RankMixerOptions options, SourceLine at = SourceLine::current());
  /// [axis, (machine_fields + linear_fields) * dim]: the layers of Wukong (Zhang et al. 2024) over fields X of `dim`
  /// columns. A layer has a factorisation machine block, an MLP "<name>.<i>.machine.<j>" over the layer norm
  /// ("<name>.<i>.products") of the products of each field with each of `rank` mixtures of fields, and behind its
  /// fields a linear compression block; X is added, and each field normed ("<name>.<i>.norm", of `dim` columns).
  /// Mixtures, compressed fields, and the new fields to be added where X has another number of fields, are the rows of
  /// one weight in this order, "<name>.<i>.fields.weight" [rows, fields of X].
  Tensor wukong(const std::string& name, Tensor x, int64_t dim, const WukongOptions& options,
                SourceLine at = SourceLine::current());
  /// [axis, 1]: the wide part, the sum of all columns of all terms plus "<name>.bias" [1].
  Tensor wide(const std::string& name, const std::vector<Tensor>& terms, SourceLine at = SourceLine::current());

  // --- norms, activations, arithmetic ---

  /// Inference-time batch norm; folded into neighbouring linears where possible.
  Tensor batch_norm(std::string name, Tensor x, BatchNormOptions options = {}, SourceLine at = SourceLine::current());
  /// (x - mean) / sqrt(var + eps) over the columns of a row, or of each of its `groups` parts; with `affine` times
  /// "<name>.weight" plus "<name>.bias", of one part, or [groups, columns of one] where they are `stacked`.
  Tensor layer_norm(std::string name, Tensor x, LayerNormOptions options = {}, SourceLine at = SourceLine::current());
  /// Softmax over the columns of a row.
  Tensor softmax(Tensor x, SourceLine at = SourceLine::current());
  /// [axis, 1]: the columns pooled.
  Tensor reduce(Tensor x, Pooling pooling, SourceLine at = SourceLine::current());
  /// Any activation; PReLU ("<name>.prelu.alpha") and Dice ("<name>.dice....") need `name`.
  Tensor activate(Tensor x, Activation activation, const std::string& name = "", SourceLine at = SourceLine::current());
  Tensor relu(Tensor x, SourceLine at = SourceLine::current()) { return activate(x, warprank::relu, "", at); }
  Tensor sigmoid(Tensor x, SourceLine at = SourceLine::current()) { return activate(x, warprank::sigmoid, "", at); }
  Tensor tanh(Tensor x, SourceLine at = SourceLine::current()) { return activate(x, hyperbolic_tangent, "", at); }
  /// Any function of up to three operands; a number or a tensor of one column serves all columns.
  Tensor apply(ElementwiseFunction function, const std::vector<Operand>& operands,
               SourceLine at = SourceLine::current());
  /// condition != 0 ? if_nonzero : if_zero, element by element.
  Tensor select(Operand condition, Operand if_nonzero, Operand if_zero, SourceLine at = SourceLine::current()) {
    return apply(ElementwiseFunction::select, {if_nonzero, if_zero, condition}, at);
  }

  // --- everything else ---

  /// [axis, width]: a user's own function; inputs are on `axis` or above, and need no `expand`.
  Tensor custom(std::string function, const std::vector<Tensor>& inputs, Axis axis, int64_t width,
                std::string settings = "", SourceLine at = SourceLine::current());
  /// Names a tensor for `tap` and messages; returns it.
  Tensor label(std::string name, Tensor x, SourceLine at = SourceLine::current());

  /// The finished graph; throws all problems together, as one invalid_argument.
  Graph finish(const Outputs& outputs);

 private:
  Tensor append(Op op, const std::vector<Tensor>& inputs, std::string name, SourceLine at, int axis = 0,
                int64_t width = 0);
  Table add_table(TableInfo table, SourceLine at);
  Tensor recurrent(const std::string& name, RecurrentOp op, std::vector<Tensor> attention, Tensor x, SourceLine at);
  Tensor stack(const std::string& name, Tensor x, LinearOp layer, const std::vector<int64_t>& sizes, SourceLine at);
  Tensor of_each_part(const std::string& name, Tensor x, int64_t parts, int64_t columns, Activation activation,
                      SourceLine at);
  Tensor add_routed(Tensor x, Tensor experts, Tensor router, const RankMixerOptions& options, SourceLine at);
  Tensor largest_of(Tensor x, int64_t count, SourceLine at);
  void problem(SourceLine at, std::string what, std::string expected, std::string got);
  void check_name(SourceLine at, const char* what, const std::string& name);
  bool check_handle(SourceLine at, const std::string& what, const char* expected, int index, size_t count);
  bool check_axis(SourceLine at, const std::string& what, Axis axis);
  bool check_ids(SourceLine at, const std::string& what, Ids ids);
  bool check_table(SourceLine at, const std::string& what, Table table);
  bool check_tensor(SourceLine at, const std::string& what, Tensor x);
  int64_t width_of(Tensor x) const { return graph_.node(x.node).width; }
  static std::string place(SourceLine at);

  Graph graph_;
  Problems problems_;
  detail::UniqueNames node_names_;
  std::set<std::string> names_;  // of axes, tables and inputs, with their kind
};

using ModelFunction = std::function<Outputs(Builder&)>;

/// Runs a model function and returns its graph; throws all problems together, as one invalid_argument.
inline Graph build(const ModelFunction& model) {
  Builder builder;
  const Outputs outputs = model(builder);
  return builder.finish(outputs);
}

namespace detail {
inline Tensor apply_operator(ElementwiseFunction function, const warprank::Operand& a, const warprank::Operand& b) {
  Builder* builder = a.tensor.builder != nullptr ? a.tensor.builder : b.tensor.builder;
  return builder == nullptr ? Tensor{} : builder->apply(function, {a, b}, a.at);
}
}  // namespace detail

inline Tensor operator+(Operand a, Operand b) { return detail::apply_operator(ElementwiseFunction::add, a, b); }
inline Tensor operator-(Operand a, Operand b) { return detail::apply_operator(ElementwiseFunction::sub, a, b); }
inline Tensor operator*(Operand a, Operand b) { return detail::apply_operator(ElementwiseFunction::mul, a, b); }
inline Tensor operator/(Operand a, Operand b) { return detail::apply_operator(ElementwiseFunction::div, a, b); }
inline Tensor operator-(Operand a) {
  return a.tensor.builder == nullptr ? Tensor{} : a.tensor.builder->apply(ElementwiseFunction::neg, {a}, a.at);
}

}}  // namespace warprank::v0

#if !defined(WARPRANK_HOST_COMPILED)
#include "warprank/model/builder_blocks_definitions.hpp"
#include "warprank/model/builder_hstu_definitions.hpp"
#include "warprank/model/builder_ops_definitions.hpp"
#endif
