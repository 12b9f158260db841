// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A model whose users are asked about again, and calls about these.

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "../../examples/server/call_user.hpp"
#include "../../examples/server/tensor.hpp"
#include "examples/infer_requests.hpp"
#include "support/divided.hpp"
#include "support/plain_request.hpp"
#include "warprank/model.hpp"

namespace kserve {

using warprank::test_support::add_to;
using warprank::test_support::part_of;
using warprank::test_support::PlainRequest;

/// A history of sessions that a user has, and films of these sessions that a page shows, with genres.
inline warprank::Outputs page_model(warprank::Builder& b) {
  const auto user = b.axis("user"), event = b.axis("event", user, warprank::keep_last(6));
  const auto session = b.axis("session", user), item = b.axis("item", session), genres = b.axis("genres", item);
  const auto films = b.table("films", {.dim = 8, .rows = 40});
  const auto age = b.mlp("tower", b.dense("age", user, 3), {8, 4}, warprank::relu);
  const auto seen = b.pool(b.embed(b.ids("seen", event), films), warprank::sum);
  const auto of_user = b.mlp("user_tower", b.concat({seen, age}), {16, 8}, warprank::relu);
  const auto mood = b.linear("mood_tower", b.dense("mood", session, 1), 2);
  const auto film = b.embed(b.ids("film", item), films);
  const auto genre = b.embed_bag(b.ids("genre", genres), films, warprank::mean);
  const auto all = b.concat({film, genre, b.expand(of_user, item), b.expand(mood, item)});
  return {{"score", b.mlp("top", all, {8, 1})}};
}

/// Pages of users, whose user's side is the same for all pages.
inline PlainRequest page_of(int user, int page) {
  PlainRequest request;
  std::mt19937 random(static_cast<uint32_t>(user));
  const auto below = [&](int64_t end) { return static_cast<int64_t>(random() % static_cast<uint32_t>(end)); };
  const auto id = [&] { return below(40); };
  const int64_t events = user % 4, sessions = 1 + user % 2;  // some have no history
  request.lengths["event"] = {events};
  request.lengths["session"] = {sessions};
  request.ids["seen"] = {};
  for (int64_t e = 0; e < events; ++e) request.ids["seen"].push_back(id());
  for (int i = 0; i < 3; ++i) request.dense["age"].push_back(static_cast<float>(below(100)) / 50);
  for (int64_t s = 0; s < sessions; ++s) request.dense["mood"].push_back(static_cast<float>(below(100)) / 50);
  random.seed(static_cast<uint32_t>(1000 + page));
  request.ids["film"] = request.ids["genre"] = {};
  for (int64_t s = 0; s < sessions; ++s) {
    request.lengths["item"].push_back(2 + below(3));
    for (int64_t i = 0; i < request.lengths["item"].back(); ++i) {
      request.ids["film"].push_back(id());
      request.lengths["genres"].push_back(below(3));
      for (int64_t g = 0; g < request.lengths["genres"].back(); ++g) request.ids["genre"].push_back(id());
    }
  }
  return request;
}

/// The inputs that a layout has of a request, as named tensors.
inline ModelInferRequest named(const PlainRequest& plain, const warprank::BatchLayout& layout) {
  ModelInferRequest request;
  request.set_model_name("model");
  const PlainRequest part = part_of(plain, layout);
  for (const auto& [axis, lengths] : part.lengths) {
    std::vector<int64_t> offsets = {0};
    for (const int64_t length : lengths) offsets.push_back(offsets.back() + length);
    add_raw(request, axis + ".offsets", "INT64", {static_cast<int64_t>(offsets.size())}, bytes(offsets));
  }
  for (const auto& [name, ids] : part.ids)
    add_raw(request, name, "INT64", {static_cast<int64_t>(ids.size())}, bytes(ids));
  for (const auto& [name, values] : part.dense) {
    const int64_t width = layout.dense(layout.dense(name)).width;
    add_raw(request, name, "FP32", {static_cast<int64_t>(values.size()) / width, width}, bytes(values));
  }
  return request;
}
inline std::string blob_of(const PlainRequest& plain, const warprank::BatchLayout& layout) {
  warprank::Batch batch(layout);
  add_to(batch, part_of(plain, layout));
  const warprank::BlobView view = batch.blob(0);
  return {reinterpret_cast<const char*>(view.data()), static_cast<size_t>(view.bytes())};
}
inline ModelInferRequest packed(const std::vector<std::string>& blobs) {
  ModelInferRequest request;
  request.set_model_name("model");
  std::string raw;
  for (const std::string& blob : blobs) raw += bytes(std::vector<uint32_t>{static_cast<uint32_t>(blob.size())}) + blob;
  add_raw(request, blobs_name, "BYTES", {static_cast<int64_t>(blobs.size())}, raw);
  return request;
}
inline ModelInferRequest about(const std::string& user, ModelInferRequest request) {
  (*request.mutable_parameters())[user_state].set_string_param(user);
  return request;
}

}  // namespace kserve
