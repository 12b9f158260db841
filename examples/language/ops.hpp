// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Every function of the model language once, in a small model. docs/LANGUAGE.md is made from this file: of each
/// function the text above it and its lines, what model/builder.hpp says of it, and what its plan shows.

#include <warprank/model.hpp>

namespace language {

using namespace warprank;

// ## Inputs

/// ### axis
///
/// Axes say what rows are: of users, of the items of a user, of the events of a history. A request has any number of
/// rows on a nested axis, none as well; nothing is padded. `keep_last(n)` leaves out all but the last n rows of each
/// parent row when a batch is packed.
inline Outputs axis(Builder& b) {
  auto user = b.axis("user");
  auto item = b.axis("item", user);
  auto history = b.axis("history", user, keep_last(50));

  auto film = b.table("film", {.dim = 16});
  auto seen = b.embed_bag(b.ids("hist_film_id", history), film, mean);
  auto candidate = b.embed(b.ids("film_id", item), film);
  return {{"ctr", b.sigmoid(b.mlp("tower", b.concat({b.expand(seen, item), candidate}), {64, 1}))}};
}

/// ### table
///
/// Ids are row numbers, from 0. -1 is padding: it adds nothing. Another id that is no row gives the default row and is
/// counted. Rows lie in FP32, FP16, BF16 or INT8, as the weights are loaded; [TABLE_FORMAT.md](TABLE_FORMAT.md)
/// has the bytes.
///
/// | here | PyTorch | Keras |
/// |---|---|---|
/// | `<name>` [rows, dim] | `Embedding.weight`, `EmbeddingBag.weight` as it is | `Embedding.embeddings` as it is |
inline Outputs table(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  auto genre = b.table("genre", {.dim = 8, .rows = 19});
  return {{"genre", b.embed(b.ids("genre", item), genre)}};
}

/// ### hashed_table
///
/// Ids are any 64-bit values, a hash of a string for one; the table knows its keys. A key that it does not have gives
/// the default row and is counted. Rows can be added and changed while it serves.
///
/// | here | PyTorch |
/// |---|---|
/// | rows [rows, dim] | `Embedding.weight` |
/// | keys [rows] | the ids, in the order of its rows |
inline Outputs hashed_table(Builder& b) {
  auto user = b.axis("user");
  auto device = b.hashed_table("device", {.dim = 32});
  return {{"device", b.embed(b.ids("device_id", user), device)}};
}

/// ### ids
///
/// Row r of the axis has the r-th id of every input on it. Ids of 32 bits (`IdsWire::i32`) halve what is sent.
inline Outputs ids(Builder& b) {
  auto user = b.axis("user");
  auto city = b.ids("city", user, {.default_id = 0, .wire = IdsWire::i32});
  return {{"city", b.embed(city, b.table("city", {.dim = 8}))}};
}

/// ### dense
///
/// An input that requests hold as FP16 or BF16 is rounded where a request is made, to nearest. For raw values (seconds,
/// cents) FP32 is right.
inline Outputs dense(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  auto price = b.dense("price", item, 1, {.default_value = 0.0f});
  auto image = b.dense("image", item, 64, {.wire = DenseWire::f16});
  return {{"quality", b.linear("quality", b.concat({price, image}), 1)}};
}

// ## Look-ups, and moving between axes

/// ### embed
///
/// y_r = table[id_r].
///
/// | here | PyTorch | Keras |
/// |---|---|---|
/// | `embed(ids, table)` | `F.embedding(ids, weight)` | `Embedding(rows, dim)(ids)` |
inline Outputs embed(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  return {{"film", b.embed(b.ids("film_id", item), b.table("film", {.dim = 16}))}};
}

/// ### embed_bag
///
/// For the rows t of a bag with the weights w_t, all 1 where none are given:
///
/// | pooling | y | PyTorch | TensorFlow |
/// |---|---|---|---|
/// | `sum` | sum_t w_t x_t | `EmbeddingBag(mode="sum")` | `combiner="sum"` |
/// | `mean` | sum_t w_t x_t / sum_t w_t | `mode="mean"`, which takes no weights | `combiner="mean"` |
/// | `sqrtn` | sum_t w_t x_t / sqrt(sum_t w_t^2) | | `combiner="sqrtn"` |
/// | `maximum` | max_t x_t, no weights | `mode="max"` | |
///
/// Zeros for a bag without rows.
inline Outputs embed_bag(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  auto tags = b.axis("tags", item);
  auto weight = b.dense("tag_weight", tags, 1);
  return {{"tags", b.embed_bag(b.ids("tag", tags), b.table("tag", {.dim = 16}), mean, weight)}};
}

/// ### pool
///
/// As `embed_bag` without weights, over rows that were computed. Zeros where there are none.
inline Outputs pool(Builder& b) {
  auto user = b.axis("user");
  auto history = b.axis("history", user);
  auto event = b.embed(b.ids("hist_film_id", history), b.table("film", {.dim = 16}));
  return {{"interest", b.pool(b.linear("event", event, 8, {.activation = relu}), maximum)}};
}

/// ### expand
///
/// y_r = x_s, s being the row of x's axis in which r is nested. It is how user features meet items: written here, it is
/// done as late as possible ("late broadcast"). A layer over [user, item] is computed as W_u u + W_i i, the first
/// product once for each user, so that the expanded tensor is never written.
inline Outputs expand(Builder& b) {
  auto user = b.axis("user"), item = b.axis("item", user);
  auto profile = b.dense("profile", user, 64);
  auto features = b.dense("features", item, 32);
  return {{"ctr", b.linear("ctr", b.concat({b.expand(profile, item), features}), 1)}};
}

/// ### concat
///
/// Where it can be, whoever makes a part writes it into its place, and the concat costs nothing.
///
/// | here | PyTorch | Keras |
/// |---|---|---|
/// | `concat({x, y})` | `torch.cat([x, y], dim=-1)` | `Concatenate()([x, y])` |
inline Outputs concat(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  auto film = b.embed(b.ids("film_id", item), b.table("film", {.dim = 16}));
  return {{"features", b.concat({film, b.dense("price", item, 1)})}};
}

/// ### slice
///
/// A view: it costs nothing.
///
/// | here | PyTorch |
/// |---|---|
/// | `slice(x, begin, end)` | `x[..., begin:end]` |
inline Outputs slice(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  auto both = b.linear("both", b.dense("features", item, 32), 16);
  return {{"gated", b.slice(both, 0, 8) * b.sigmoid(b.slice(both, 8, 16))}};
}

// ## Dense layers

/// ### linear
///
/// | here | PyTorch `Linear` | Keras `Dense` |
/// |---|---|---|
/// | `<name>.weight` [out, in] | `weight` as it is | `kernel` [in, out], transposed |
/// | `<name>.bias` [out] | `bias` | `bias` |
inline Outputs linear(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  return {{"y", b.linear("layer", b.dense("x", item, 32), 16, {.activation = relu})}};
}

/// ### mlp
///
/// Layers one after the other; of the kind `linear`, with its tensors. With `batch_norm` a layer is
/// act(norm(x W^T + b)); the norm's scale and shift become part of W and b when weights are bound.
///
/// | here | PyTorch `Sequential(Linear, ReLU, Linear)` | Keras |
/// |---|---|---|
/// | `<name>.0.weight`, `<name>.1.weight` | `0.weight`, `2.weight` | the kernels, transposed |
/// | `<name>.0.norm.running_mean` ... | `BatchNorm1d`'s | `batch_norm` below |
inline Outputs mlp(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  return {{"ctr", b.mlp("tower", b.dense("x", item, 64), {64, 32, 1}, relu,
                        {.output_activation = sigmoid, .batch_norm = true})}};
}

/// ### experts
///
/// All read the same x. The weights of a layer are stacked over the experts.
///
/// | here | PyTorch, `experts` being a `ModuleList` |
/// |---|---|
/// | `<name>.<i>.weight` [count, out, in] | `torch.stack([e[2 * i].weight for e in experts])` |
/// | `<name>.<i>.bias` [count, out] | `torch.stack([e[2 * i].bias for e in experts])` |
///
/// Keras: the transposed kernels, stacked.
inline Outputs experts(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  return {{"experts", b.experts("experts", b.dense("x", item, 64), 4, {32, 16})}};
}

/// ### scene_experts
///
/// One expert for each scene (a page, a city, a slot): the row's scene id says which one it goes through, and only that
/// one is computed. Rows are sorted by scene on the device.
inline Outputs scene_experts(Builder& b) {
  auto user = b.axis("user"), item = b.axis("item", user);
  auto scene = b.ids("scene", user);
  return {{"y", b.scene_experts("scenes", b.dense("x", item, 64), scene, 4, {32, 16})}};
}

/// ### gate, mix
///
/// The logits are x W^T + b. The experts are any tensor of E * D columns.
///
/// | here | PyTorch | Keras |
/// |---|---|---|
/// | `<name>.weight` [experts, in] | the gate's `Linear.weight` | `Dense.kernel`, transposed |
/// | `<name>.bias` [experts]; zeros where the gate has none | `Linear.bias` | `Dense.bias` |
inline Outputs mix(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  auto x = b.dense("x", item, 64);
  auto experts = b.experts("experts", x, 4, {32, 16});
  return {{"mixed", b.mix(experts, b.gate("gate", x, 4))}};
}

/// ### ple
///
/// The experts of a level read what the gates of the level before gave.
inline Outputs ple(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  auto tasks = b.ple("ple", b.dense("x", item, 64), {.tasks = 2, .levels = {{32}, {16}}});
  return {{"ctr", b.mlp("ctr", tasks[0], {1})}, {"cvr", b.mlp("cvr", tasks[1], {1})}};
}

// ## Attention

/// ### din_attention
///
/// s_t = MLP([q, k_t, q - k_t, q k_t]), a score for each event t; w = normalization(s), s divided by sqrt(D) first when
/// `scaled`; y = sum_t w_t k_t; zeros for an empty history (Zhou et al. 2018). Published implementations differ:
/// DeepCTR-Torch and FuxiCTR do not normalise, the paper's code has a softmax.
///
/// | here | PyTorch | Keras |
/// |---|---|---|
/// | `<name>.<i>.weight` [hidden_i, in] | the scoring MLP's i-th `Linear.weight` | `Dense.kernel`, transposed |
/// | `<name>.<i>.dice.alpha` [hidden_i] | `Dice`'s alpha | `Dice`'s alphas |
/// | `<name>.<i>.dice.running_mean`, `.running_var` | `Dice`'s `BatchNorm1d` | moving_mean, moving_variance |
///
/// The first layer has 4 D columns, in the order q, k, q - k, q k; code that concatenates in another order has them in
/// another. The epsilon of Dice's norm and its scale and shift differ, too; `Activation` has both.
inline Outputs din_attention(Builder& b) {
  auto user = b.axis("user"), item = b.axis("item", user), history = b.axis("history", user);
  auto film = b.table("film", {.dim = 32});
  auto query = b.embed(b.ids("film_id", item), film);
  auto events = b.embed(b.ids("hist_film_id", history), film);
  return {{"interest",
           b.din_attention("din", query, events, {.hidden = {64, 16}, .normalization = Normalization::softmax})}};
}

/// ### target_attention
///
/// softmax(q k^T / sqrt(d)) v for each head, then the output projection. Zeros through the heads for an empty history:
/// the result is the projection's bias.
///
/// | here | PyTorch `MultiheadAttention` | Keras `MultiHeadAttention` |
/// |---|---|---|
/// | `<name>.q.weight` | rows [0, E) of `in_proj_weight` | `query/kernel` [in, heads, d] |
/// | `<name>.k.weight` | rows [E, 2 E), or `k_proj_weight` | `key/kernel` |
/// | `<name>.v.weight` | rows [2 E, 3 E), or `v_proj_weight` | `value/kernel` |
/// | `<name>.out.weight` | `out_proj.weight` | `attention_output/kernel` [heads, d, out] |
///
/// Of Keras' kernels heads and d become one dimension, and the matrix is transposed; of its biases they become one,
/// too.
inline Outputs target_attention(Builder& b) {
  auto user = b.axis("user"), item = b.axis("item", user), history = b.axis("history", user);
  auto film = b.table("film", {.dim = 64});
  auto query = b.embed(b.ids("film_id", item), film);
  auto events = b.embed(b.ids("hist_film_id", history), film);
  return {{"interest", b.target_attention("attention", query, events, {.heads = 4})}};
}

/// ### self_attention
///
/// Of a causal one an event sees itself and those before.
///
/// | here | PyTorch `TransformerEncoderLayer(batch_first=True)` |
/// |---|---|
/// | `<name>.q`, `.k`, `.v` | thirds of `self_attn.in_proj_weight`, `self_attn.in_proj_bias` |
/// | `<name>.out` | `self_attn.out_proj` |
/// | `<name>.ffn.0`, `.ffn.1` | `linear1`, `linear2` |
/// | `<name>.norm1`, `.norm2` | `norm1`, `norm2` |
///
/// Keras: as `target_attention` and `layer_norm`, whose epsilon is another there.
inline Outputs self_attention(Builder& b) {
  auto history = b.axis("history", b.axis("user"));
  auto events = b.embed(b.ids("hist_film_id", history), b.table("film", {.dim = 64}));
  return {{"interest", b.pool(b.self_attention("block", events, {.heads = 4, .hidden = 128}), mean)}};
}

/// ### gru
///
/// The states of a GRU behind all events of a history; `h' = (1 - z) n + z h` as in PyTorch, from 0 on. The product
/// with the events is a linear layer of all of them, `<name>.input`; the steps are one launch on a GPU, of up to 128
/// hidden columns.
///
/// | here | PyTorch `GRU(batch_first=True)` |
/// |---|---|
/// | `<name>.input.weight`, `.input.bias` [3 * hidden, columns], [3 * hidden] | `weight_ih_l0`, `bias_ih_l0` |
/// | `<name>.hidden.weight`, `.hidden.bias` [3 * hidden, hidden], [3 * hidden] | `weight_hh_l0`, `bias_hh_l0` |
inline Outputs gru(Builder& b) {
  auto history = b.axis("history", b.axis("user"), keep_last(50));
  auto events = b.embed(b.ids("hist_film_id", history), b.table("film", {.dim = 32}));
  return {{"interest", b.pool(b.gru("interests", events, 36), maximum)}};
}

/// ### augru
///
/// The GRU of DIEN (Zhou et al. 2019) in which an event changes the state the more, the larger its share `a` of an
/// attention is: of the query to the keys of the history, `softmax(scale * q @ k.T)`. Its update gate `z` is DIEN's
/// `u`: `h' = (1 - a z) h + a z n`, where in a GRU `z` is what is kept. Without `update_gate` it is DIEN's AGRU, `h' =
/// (1 - a) h + a n`. Each row of the query has the last state, or 0 if its user has no events. Layers are those of
/// `gru`.
inline Outputs augru(Builder& b) {
  auto user = b.axis("user"), item = b.axis("item", user), history = b.axis("history", user, keep_last(50));
  auto film = b.table("film", {.dim = 32});
  auto states = b.gru("interests", b.embed(b.ids("hist_film_id", history), film), 36);
  auto query = b.linear("query", b.embed(b.ids("film_id", item), film), 36, {.bias = false});
  return {{"interest", b.augru("evolution", query, states, states, 36)}};
}

/// ### hstu
///
/// HSTU's attention has no softmax: an event weighs silu(q k^T / sqrt(d)) / max_length, whatever the others are. So a
/// target sees the same as in a sequence that ends with it alone, and all targets of a request share the keys and
/// values of its events, which are computed once (late broadcast; M-FALCON is the same by hand). In the last layer of a
/// stack the events' own results are not needed, and nothing computes them.
///
/// | here | `STULayer` of generative-recommenders |
/// |---|---|
/// | `<name>.norm` | `_input_norm_weight`, `_input_norm_bias` |
/// | `<name>.u`, `.v`, `.q`, `.k` | quarters of `_uvqk_weight`, transposed, and of `_uvqk_beta` |
/// | `<name>.attention_norm` | `_output_norm_weight`, `_output_norm_bias` |
/// | `<name>.out` | `_output_weight`, transposed |
///
/// Positions and times may be ids that are embedded and added to the events, as there, or biases of the scores. A
/// sequence may have more parts, each on an axis of its own, and options say who sees whom:
///
/// | here | |
/// |---|---|
/// | `{context, events, targets}` | `DlrmHSTU`: the user's own tokens begin the sequence |
/// | with `contexts = 1, contexts_see_events = true` | `contextual_seq_len` of `STULayer` |
/// | `{profile, history, today, targets}`, `contexts = 2` | MTGR (Han et al. 2025): its mask of events by their time |
/// | `window`, `full_last` | `max_attn_len`, `min_full_attn_seq_len`; parts before the events are always seen |
/// | `gate = HstuGate::before_norm, norm_by_part = true` | MTGR's layer norms by group of tokens |
/// | `norm_by_head` | `use_group_norm`, whose weight of a head stands for each of its columns |
///
/// With `positions` and `time_buckets` the scores have the relative biases of the paper, silu(q k^T / sqrt(d) + bias) /
/// max_length, those of `RelativeBucketedTimeAndPositionBasedBias`, which divides no scores: `scale = 1`. It looks back
/// from the time of the next event, which a second column gives, `next_times`.
///
/// | here | `RelativeBucketedTimeAndPositionBasedBias` |
/// |---|---|
/// | `<name>.position_bias` [positions], by distance | `_pos_w[max_seq_len - 1 - distance]` |
/// | `<name>.time_bias` [time_buckets + 1] | `_ts_w`; of its `bucketization_fn` the logarithm by 0.301 |
///
/// A distance is that of a row and an event in the one part in order; targets are one place behind all events, and
/// contexts have no biases. A model is refused whose events may be further away than `positions` has numbers for, as
/// their axis keeps more of them, unless `clamp_positions` gives all of these the last one. Times are FP32, which holds
/// whole seconds up to 2^24, 194 days, exactly: measure them from the request, or from one moment of the day where
/// states of users are kept for later requests, not from 1970, where they are 128
/// seconds apart. Differences are absolute, so that times may decrease. Buckets are found by comparison with limits in
/// FP32, the same on all machines; PyTorch's logarithm may take a difference at the very end of a bucket for the next.
/// On a GPU times are dense inputs that nothing else reads, as layers would have them in FP16; a model that does is
/// refused by name.
///
/// Not yet here: values of another width than keys.
inline Outputs hstu(Builder& b) {
  auto user = b.axis("user"), item = b.axis("item", user), history = b.axis("history", user);
  auto film = b.table("film", {.dim = 64});
  auto place = b.embed(b.ids("hist_position", history), b.table("position", {.dim = 64}));
  auto events = b.embed(b.ids("hist_film_id", history), film) + place;
  auto sequence = b.hstu("layer0", {events, b.embed(b.ids("film_id", item), film)},
                         {.heads = 2, .max_length = 256, .window = 64, .full_last = 16});
  sequence = b.hstu("layer1", sequence, {.heads = 2, .max_length = 256});
  return {{"interest", sequence[1]}};
}

// ## Interactions

/// ### mix_tokens
///
/// Token mixing of RankMixer (Zhu et al. 2025): a row is tokens side by side, and each token has as many parts. A token
/// takes its part of every token, in their order; what it had is added, and the sum normed. So tokens exchange columns
/// without a product, where attention over fields would compare them.
///
/// With x of [batch, 4, 8] in PyTorch, `norm(x + x.view(batch, 4, 4, 2).transpose(1, 2).reshape(batch, 4, 8))` for
/// `norm = LayerNorm(8)`.
inline Outputs mix_tokens(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  return {{"y", b.mix_tokens("mix", b.dense("x", item, 32), 4)}};
}

/// ### rank_mixer
///
/// RankMixer (Zhu et al. 2025) as a whole: equal parts of the columns become tokens by a layer for each; every layer
/// mixes them and has a feed-forward network for each token; the result is the mean of the tokens. A layer of it is
/// three launches on a GPU: the norms on both sides of the mixing are one with it, and each layer of the feed-forward
/// networks is one launch for all tokens.
///
/// | here | PyTorch |
/// |---|---|
/// | `<name>.tokens`, if a `dim` is given | a `Linear` for each part of the columns, stacked: [tokens, dim, columns] |
/// | `<name>.<i>.mix` | the `LayerNorm` behind the mixing |
/// | `<name>.<i>.ffn.0`, `.1` | the `Linear`s of the tokens, stacked: [tokens, out, in] |
/// | `<name>.<i>.router`, with `experts` | a `Linear` of each token to its experts, stacked: [tokens, experts, dim] |
/// | `<name>.<i>.norm` | the `LayerNorm` behind the feed-forward networks |
///
/// With `experts` a token has so many feed-forward networks, those of one token side by side in `.0` and one after
/// another in `.1`, and their sum weighed by its router: by `relu` of the router's values, the sparse experts of the
/// paper, or by the softmax of the `top_k` largest ones. Of values that are as large as the last of these all count.
/// All experts are computed, also those with a weight of 0.
inline Outputs rank_mixer(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  auto mixed = b.rank_mixer("mixer", b.dense("x", item, 96), {.tokens = 8, .dim = 64, .hidden = 128, .layers = 2});
  mixed = b.rank_mixer("sparse", mixed, {.tokens = 4, .hidden = 32, .experts = 4, .top_k = 2});
  return {{"ctr", b.linear("head", mixed, 1, {.activation = sigmoid})}};
}

/// ### field_linear
///
/// A linear layer over fields, the same for each of their columns: with x of [batch, 6, 16] in PyTorch,
/// `torch.einsum("hf,bfd->bhd", weight, x) + bias[:, None]`, which is Wukong's linear compression of fields (Zhang et
/// al. 2024). With two tensors it is over the products of their fields: `torch.einsum("hk,bkd->bhd", weight,
/// torch.einsum("bid,bjd->bijd", a, b).flatten(1, 2))`. A GPU has the products in registers only.
///
/// The result has the first `kept` of the new fields, and behind them a column for each of the last `summed`, its sum.
/// Fields of up to 64 columns can be summed.
inline Outputs field_linear(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  auto fields = b.dense("fields", item, 96);
  auto fewer = b.field_linear("fewer", {fields}, 16, 4, {.bias = false});
  auto products = b.field_linear("products", {fewer, fields}, 16, 8, {.activation = relu, .kept = 0, .summed = 8});
  return {{"y", b.concat({fewer, products})}};
}

/// ### cin
///
/// The compressed interaction network of xDeepFM (Lian et al. 2018): a map of a layer is a weighted sum of the products
/// of all maps before it and all fields, column by column, through the activation; the results are sums of maps over
/// their columns. Each layer is one launch on a GPU.
///
/// | here | DeepCTR-Torch's `CIN` |
/// |---|---|
/// | `<name>.<i>.weight` [maps, maps before * fields] | `conv1ds.<i>.weight` [maps, maps before * fields, 1] |
/// | half of the maps goes on, the first; those of the last layer are all results | `split_half=True` |
/// | `split_half = false`: all go on, and all are results, as in the paper | `split_half=False` |
inline Outputs cin(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  auto maps = b.cin("cin", b.dense("fields", item, 96), 16, {.layers = {32, 32, 8}});
  return {{"ctr", b.linear("head", maps, 1, {.activation = sigmoid})}};
}

/// ### field_attention
///
/// The interacting layer of AutoInt (Song et al. 2019): each field of a row attends to all fields of the row. With x of
/// [batch, 6, 16] in PyTorch and h heads, `q, k, v = (x @ w.T).unflatten(2, (h, -1)).transpose(1, 2)` for each of the
/// weights, and `act(scaled_dot_product_attention(q, k, v, scale=scale).transpose(1, 2).flatten(2) + x @ residual.T)`.
/// The result has as many fields, of heads * head_dim columns. It is one launch on a GPU, where queries, keys and
/// values are in no memory, of up to 128 fields.
///
/// | here | DeepCTR-Torch's `InteractingLayer` |
/// |---|---|
/// | `<name>.query.weight` [heads * head_dim, dim] | `W_Query`, transposed |
/// | `<name>.key.weight`, `.value.weight` | `W_key`, `W_Value`, transposed |
/// | `<name>.residual.weight` | `W_Res`, transposed |
/// | `scale = 1`, as published; 0: 1 / sqrt(head_dim) | `scaling=False`; `True` |
inline Outputs field_attention(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  auto fields = b.dense("fields", item, 96);
  return {{"y", b.field_attention("interacting", fields, 16, {.heads = 2, .head_dim = 12, .scale = 0})}};
}

/// ### auto_int
///
/// The layers of AutoInt (Song et al. 2019) one after another, each a `field_attention` over the fields of the one
/// before.
inline Outputs auto_int(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  auto fields = b.auto_int("layers", b.dense("fields", item, 96), 16, {.layers = 2, .head_dim = 32});
  return {{"ctr", b.linear("head", fields, 1, {.activation = sigmoid})}};
}

/// ### wukong
///
/// The layers of Wukong (Zhang et al. 2024): LN(concat(FMB(X), LCB(X)) + X) with FMB(X) = MLP(LN(X (Y X)^T)) and
/// LCB(X) = W X. A layer is five launches on a GPU: all linear layers over its fields are one, and the norms of the
/// compressed fields are in the launch of the norm of the products.
///
/// | here | PyTorch, with X [rows, fields, dim] |
/// |---|---|
/// | `<name>.<i>.fields` [rank + linear_fields, fields] | Y, then W: `torch.cat([y.T, lcb.weight])` |
/// | the same, where X has another number of fields | the weight of the residual's projection behind them |
/// | `<name>.<i>.products` | the `LayerNorm` of the flat products, field by field |
/// | `<name>.<i>.machine.<j>` | the `Linear`s of the MLP, whose result is machine_fields side by side |
/// | `<name>.<i>.norm` | `LayerNorm(dim)` of each field |
inline Outputs wukong(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  auto fields = b.wukong("wukong", b.dense("fields", item, 128), 16,
                         {.layers = 2, .machine_fields = 4, .linear_fields = 4, .rank = 8, .hidden = {64}});
  return {{"ctr", b.linear("head", fields, 1, {.activation = sigmoid})}};
}

/// ### fm
///
/// The factorisation machine's second order (Rendle 2010): 1/2 [(sum_f e_f)^2 - sum_f e_f^2], summed over the columns
/// when `reduce`, else a value for each column (bi-interaction, NFM). No tensors are learned here; the first order is
/// `wide`.
inline Outputs fm(Builder& b) {
  auto user = b.axis("user"), item = b.axis("item", user);
  auto gender = b.embed(b.ids("gender", user), b.table("gender", {.dim = 16}));
  auto film = b.embed(b.ids("film_id", item), b.table("film", {.dim = 16}));
  return {{"fm", b.fm({b.expand(gender, item), film}, 16)}};
}

/// ### dot
///
/// DLRM's interaction (Naumov et al. 2019): the dot products of all pairs of fields, without those of a field with
/// itself unless `self`. The dense features' vector is not in the result; put it in front by `concat`.
///
/// | `DotOrder` | as in |
/// |---|---|
/// | `lower` | DLRM's own code: pairs (1,0), (2,0), (2,1), ... |
/// | `upper` | torchrec's `InteractionArch`: (0,1), (0,2), ... |
/// | `lower_padded` | HugeCTR: `lower`, then a zero |
inline Outputs dot(Builder& b) {
  auto user = b.axis("user"), item = b.axis("item", user);
  auto gender = b.embed(b.ids("gender", user), b.table("gender", {.dim = 16}));
  auto film = b.embed(b.ids("film_id", item), b.table("film", {.dim = 16}));
  auto dense = b.mlp("bottom", b.dense("dense", item, 13), {32, 16}, relu, {.output_activation = relu});
  return {{"features", b.concat({dense, b.dot({dense, b.expand(gender, item), film}, 16)})}};
}

/// ### dot_between
///
/// The dot products of each field with each of some others, as one matrix product a row: Wukong's X Y^T (Zhang et al.
/// 2024), where the fields Y are mixtures of the fields X, made by `field_linear`. Column i * others + j has field i
/// with the other field j.
///
/// | PyTorch | here |
/// |---|---|
/// | `torch.bmm(x, y.transpose(1, 2)).flatten(1)`, x [rows, fields, dim] | `b.dot_between({x}, {y}, dim)` |
inline Outputs dot_between(Builder& b) {
  auto user = b.axis("user"), item = b.axis("item", user);
  auto gender = b.expand(b.embed(b.ids("gender", user), b.table("gender", {.dim = 16})), item);
  auto film = b.embed(b.ids("film_id", item), b.table("film", {.dim = 16}));
  auto mixtures = b.field_linear("mixtures", {b.concat({gender, film})}, 16, 3, {.bias = false});
  return {{"products", b.dot_between({gender, film}, {mixtures}, 16)}};
}

/// ### cross
///
/// | here | torchrec | TensorFlow Recommenders' `dcn.Cross` |
/// |---|---|---|
/// | `<name>.<i>.weight` [in, in] | `CrossNet.kernels[i]` | `kernel`, transposed |
/// | `<name>.<i>.v.weight` [rank, in] | `LowRankCrossNet.V_kernels[i]` | the first projection's kernel, transposed |
/// | `<name>.<i>.w.weight` [in, rank] | `LowRankCrossNet.W_kernels[i]` | the second's, transposed |
inline Outputs cross(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  return {{"crossed", b.cross("cross", b.dense("x", item, 64), {.layers = 2, .rank = 16})}};
}

/// ### wide
///
/// The linear part of Wide & Deep, DeepFM and the like: tables with one column, whose rows are the weights of ids,
/// summed with whatever else has columns.
///
/// | here | PyTorch |
/// |---|---|
/// | a table of dim 1 | `Embedding(rows, 1)` or `EmbeddingBag(rows, 1, mode="sum")` |
/// | `<name>.bias` [1] | the bias beside them |
inline Outputs wide(Builder& b) {
  auto user = b.axis("user"), item = b.axis("item", user);
  auto city = b.embed(b.ids("city", user), b.table("city_wide", {.dim = 1}));
  auto film = b.embed(b.ids("film_id", item), b.table("film_wide", {.dim = 1}));
  return {{"wide", b.wide("wide", {b.expand(city, item), film})}};
}

// ## Norms, activations, arithmetic

/// ### batch_norm
///
/// y = (x - running_mean) / sqrt(running_var + eps) * weight + bias. Before or behind a linear layer it costs nothing:
/// it becomes part of its weight and bias when weights are bound. That of dense inputs alone stays, since raw values
/// (seconds, cents) must come into a range before they are rounded to FP16.
///
/// | here | PyTorch `BatchNorm1d` | Keras `BatchNormalization` |
/// |---|---|---|
/// | `<name>.running_mean`, `.running_var` | the same | `moving_mean`, `moving_variance` |
/// | `<name>.weight`, `.bias`, with `affine` | the same | `gamma`, `beta` |
/// | `eps` | 1e-5 unless given | 1e-3 unless given |
inline Outputs batch_norm(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  auto x = b.batch_norm("input_norm", b.dense("x", item, 32), {.affine = false});
  auto h = b.batch_norm("norm", b.linear("layer", x, 16, {.bias = false}));
  return {{"y", b.linear("head", b.relu(h), 1)}};
}

/// ### layer_norm
///
/// | here | PyTorch `LayerNorm` | Keras `LayerNormalization` |
/// |---|---|---|
/// | `<name>.weight`, `.bias`, with `affine` | the same | `gamma`, `beta` |
/// | `eps` | 1e-5 unless given | 1e-3 unless given |
///
/// With `groups` a row is so many tokens side by side, and each is normed by itself, as PyTorch's `LayerNorm(8)` does
/// with [batch, 4, 8]: all have one weight and one bias [8]. If they are `stacked`, each token has its own, [4, 8].
inline Outputs layer_norm(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  auto x = b.dense("x", item, 32);
  return {{"y", b.layer_norm("norm", x)}, {"tokens", b.layer_norm("by_token", x, {.groups = 4})}};
}

/// ### softmax
///
/// y_c = exp(x_c - m) / sum_j exp(x_j - m), m being the largest.
inline Outputs softmax(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  return {{"y", b.softmax(b.dense("x", item, 4))}};
}

/// ### reduce
///
/// | here | PyTorch |
/// |---|---|
/// | `reduce(x, sum)` | `x.sum(-1, keepdim=True)` |
/// | `reduce(x, mean)` | `x.mean(-1, keepdim=True)` |
/// | `reduce(x, maximum)` | `x.amax(-1, keepdim=True)` |
inline Outputs reduce(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  return {{"y", b.reduce(b.dense("x", item, 32), mean)}};
}

/// ### activate, relu, sigmoid, tanh
///
/// Behind a layer it is part of the layer; after other arithmetic it is part of that.
///
/// | `Activation` | formula | PyTorch | Keras |
/// |---|---|---|---|
/// | `relu` | max(x, 0) | `ReLU` | `relu` |
/// | `leaky_relu(alpha)` | x > 0 ? x : alpha x | `LeakyReLU`, 0.01 unless given | `LeakyReLU`, 0.3 unless given |
/// | `elu(alpha)` | x > 0 ? x : alpha (exp(x) - 1) | `ELU` | `elu` |
/// | `prelu` | x > 0 ? x : a_c x | `PReLU(width)`: `weight` is `<name>.prelu.alpha` | `PReLU`: `alpha` |
/// | `dice` | x (p + a_c (1 - p)), p = sigmoid(norm(x)) | DeepCTR-Torch's, FuxiCTR's `Dice` | DeepCTR's `Dice` |
/// | `sigmoid` | 1 / (1 + exp(-x)) | `Sigmoid` | `sigmoid` |
/// | `hyperbolic_tangent` | tanh(x) | `Tanh` | `tanh` |
/// | `gelu` | x Phi(x) | `GELU()` | `gelu` |
/// | `gelu_tanh` | its approximation | `GELU("tanh")` | `gelu(approximate=True)` |
/// | `silu` | x sigmoid(x) | `SiLU` | `silu`, `swish` |
inline Outputs activate(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  auto x = b.dense("x", item, 32);
  return {{"y", b.tanh(b.linear("to_one", b.activate(x, prelu, "first"), 1))},
          {"z", b.sigmoid(b.linear("to_two", b.relu(x), 2))}};
}

/// ### apply, select
///
/// Arithmetic is written as such: `+`, `-`, `*`, `/` between tensors and numbers; all else by `apply` with an
/// `ElementwiseFunction` (comparisons, `min`, `max`, `exp`, `log`, `sqrt`, `square`, `abs`, `sin`, `cos`, `atan2`,
/// ...). A tensor of one column serves all columns. Whatever can be computed together is: a chain is one program that
/// reads its inputs once.
inline Outputs select(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  auto ctr = b.sigmoid(b.linear("ctr", b.dense("x", item, 32), 1));
  auto bid = b.dense("bid", item, 1);
  auto is_ad = b.apply(ElementwiseFunction::greater, {bid, 0});
  return {{"rank_score", b.select(is_ad, ctr * bid * 1000, ctr)}};
}

// ## Everything else

/// ### custom
///
/// A function of the caller's, for the host and for a stream, which is given by name when weights are bound. The graph
/// holds its name, its settings and its width.
inline Outputs custom(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  return {{"calibrated", b.custom("calibrate", {b.dense("logit", item, 1)}, item, 1, R"({"bins": 100})")}};
}

/// ### label
///
/// `Context::tap` shows the value of that name ([SERVING.md](SERVING.md)).
inline Outputs label(Builder& b) {
  auto item = b.axis("item", b.axis("user"));
  auto hidden = b.label("hidden", b.linear("layer", b.dense("x", item, 32), 16, {.activation = relu}));
  return {{"ctr", b.linear("head", hidden, 1, {.activation = sigmoid})}};
}

}  // namespace language
