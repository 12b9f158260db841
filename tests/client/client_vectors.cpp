// SPDX-License-Identifier: Apache-2.0

/// Prints random requests as tools/client takes them, and what the library packs them to, whole and of the items' side
/// alone: a line of JSON for each.
/// Fails where examples/rank_client, which knows the layout as a server tells it, packs other bytes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "../../examples/rank_client/json_request.hpp"
#include "../../examples/rank_client/later_request.hpp"
#include "../../examples/server/layout_json.hpp"
#include "warprank/model.hpp"
#include "warprank/plan/divide.hpp"

namespace {

using namespace warprank;
using nlohmann::json;

Outputs model(Builder& b, bool narrow) {
  const IdsOptions ids = narrow ? IdsOptions{.wire = IdsWire::i32, .out_of_range = OutOfRange::saturate} : IdsOptions{};
  const DenseOptions half =
      narrow ? DenseOptions{.wire = DenseWire::f16, .out_of_range = OutOfRange::saturate} : DenseOptions{};
  const DenseOptions brain = narrow ? DenseOptions{.wire = DenseWire::bf16} : DenseOptions{};
  auto user = b.axis("user"), item = b.axis("item", user), genres = b.axis("genres", item, keep_last(2));
  auto history = b.axis("history", user, keep_last(3)), words = b.axis("words", history);
  auto table = [&](const char* name) { return b.table(name, {.dim = 4}); };
  auto u =
      b.concat({b.embed(b.ids("user_id", user), table("users")), b.dense("hour", user, 1, {.default_value = 12.5f}),
                b.pool(b.concat({b.embed(b.ids("seen", history, ids), table("seen_films")),
                                 b.embed_bag(b.ids("word", words, {.default_id = -1}), table("all_words"), sum)}),
                       sum)});
  auto i = b.concat({b.embed(b.ids("film_id", item, ids), table("films")), b.dense("context", item, 3, half),
                     b.dense("price", item, 1, brain), b.embed_bag(b.ids("genre", genres), table("all_genres"), mean)});
  return {{"y", b.sigmoid(b.linear("top", b.concat({b.expand(u, item), i}), 1))}};
}

/// Values on the axes of a model.
class RandomRequest {
 public:
  RandomRequest(const BatchLayout& layout, uint64_t seed) : layout_(layout), random_(seed) {
    rows_.push_back(1);
    for (size_t a = 1; a < layout.axes().size(); ++a) {
      const int64_t parents = rows_[static_cast<size_t>(layout.axes()[a].parent)];
      std::vector<int64_t> offsets = {0};
      for (int64_t p = 0; p < parents; ++p) offsets.push_back(offsets.back() + below(6));
      rows_.push_back(offsets.back());
      if (layout.axes()[a].parent != 0) json_[layout.axes()[a].name + ".offsets"] = offsets;
      offsets_.push_back(std::move(offsets));
    }
  }

  void fill(Request request) {
    for (size_t i = 0; i < layout_.ids().size(); ++i) {
      const IdsInfo& info = layout_.ids()[i];
      if (info.default_id && below(2) == 0) continue;
      std::vector<int64_t> ids;
      for (int64_t r = 0; r < rows(info.axis); ++r) ids.push_back(below(8) == 0 ? int64_t{1} << 40 : below(1000) - 1);
      request.ids(IdsSlot{static_cast<int>(i)}, ids);
      json_[info.name] = ids;
    }
    for (size_t d = 0; d < layout_.dense().size(); ++d) {
      const DenseInfo& info = layout_.dense()[d];
      if (info.default_value && below(2) == 0) continue;
      std::uniform_real_distribution<float> uniform(-2, 2);
      std::vector<float> values;
      json rows_of_json = json::array();
      for (int64_t r = 0; r < rows(info.axis); ++r) {
        json row = json::array();
        for (int64_t c = 0; c < info.width; ++c) {
          values.push_back(below(8) == 0 ? 1e5f * uniform(random_) : uniform(random_));
          row.push_back(values.back());
        }
        rows_of_json.push_back(std::move(row));
      }
      if (rows(info.axis) == 0) continue;  // JSON does not tell [0, width] from [0]
      request.dense(DenseSlot{static_cast<int>(d)}, values);
      json_[info.name] = std::move(rows_of_json);
    }
    for (size_t a = 1; a < layout_.axes().size(); ++a)
      if (layout_.axes()[a].parent != 0) request.offsets(AxisSlot{static_cast<int>(a)}, Offsets(offsets_[a - 1]));
  }
  const json& as_json() const { return json_; }

 private:
  int64_t rows(int axis) const { return rows_[static_cast<size_t>(axis)]; }
  int64_t below(int64_t end) { return std::uniform_int_distribution<int64_t>(0, end - 1)(random_); }

  const BatchLayout& layout_;
  std::mt19937_64 random_;
  std::vector<int64_t> rows_;
  std::vector<std::vector<int64_t>> offsets_;  // [axes - 1]
  json json_ = json::object();
};

}  // namespace

namespace {

/// Of a batch of one; empty when the request is wrong.
std::string hex_of(Batch& batch) {
  batch.close();
  std::string hex;
  if (!batch.status(0).ok()) return hex;
  const BlobView blob = batch.blob(0);
  for (int64_t i = 0; i < blob.bytes(); ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(blob.data()[i]));
    hex += digits;
  }
  return hex;
}

}  // namespace

int main() {
  for (const bool narrow : {false, true}) {
    const Plan plan = compile([&](Builder& b) { return model(b, narrow); });
    const BatchLayout later_layout = divide(plan, "item").later_requests;
    for (uint64_t seed = 0; seed < 100; ++seed) {
      Batch batch = plan.batch();
      RandomRequest random(plan.layout(), seed);
      random.fill(batch.add_request());
      const std::string hex = hex_of(batch);
      Batch by_client(kserve::layout_of(kserve::layout_json(plan.layout())));
      rank_client::fill(by_client.add_request(), by_client.layout(), random.as_json());
      if (const std::string other = hex_of(by_client); other != hex) {
        std::fprintf(stderr, "%s: expected %s, got %s\n", random.as_json().dump().c_str(), hex.c_str(), other.c_str());
        return 1;
      }
      Batch later(kserve::layout_of(kserve::layout_json(later_layout)));
      if (!hex.empty()) rank_client::add_later(later, by_client.layout(), by_client.blob(0));
      const json line = {{"layout", json::parse(kserve::layout_json(plan.layout()))},
                         {"request", random.as_json()},
                         {"status", batch.status(0).message},
                         {"blob", hex},
                         {"later_layout", json::parse(kserve::layout_json(later_layout))},
                         {"later_blob", hex.empty() ? "" : hex_of(later)}};
      std::printf("%s\n", line.dump().c_str());
    }
  }
}
