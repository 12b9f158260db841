// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The pages that users ask for: random ones, or those of MovieLens' users.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "../movielens/features.hpp"
#include "../movielens/inputs.hpp"
#include "support/divided.hpp"
#include "support/random_data.hpp"
#include "warprank/host.hpp"

namespace feed {

using namespace warprank;
using test_support::PlainRequest;

using Blob = std::vector<std::byte>;

constexpr int64_t table_rows = 1000;  ///< of random tables

/// What users ask for.
struct Asked {
  int64_t users = 100, pages = 4, items = 20, events = 50;
};

/// In each row of the axis' parent.
inline int64_t rows_of(const AxisInfo& axis, const Asked& asked) {
  if (axis.name == "item") return asked.items;
  return axis.parent == 0 ? asked.events : 3;  // histories, and the genres of a film
}

/// [users][pages]; pages of a user differ in their items alone.
using Requests = std::vector<std::vector<PlainRequest>>;

namespace detail {

/// A request of the first one's user about the items of the other.
inline PlainRequest page_of(const DividedPlan& divided, PlainRequest first, const PlainRequest& other) {
  const PlainRequest items = part_of(other, divided.later_requests);
  for (const auto& [name, ids] : items.ids) first.ids[name] = ids;
  for (const auto& [name, values] : items.dense) first.dense[name] = values;
  for (size_t a = 0; a < divided.is_of_items.size(); ++a) {
    const std::string& axis = divided.whole.layout().axes()[a].name;
    if (divided.is_of_items[a]) first.lengths[axis] = other.lengths.at(axis);
  }
  return first;
}

inline Blob packed(const PlainRequest& request, const BatchLayout& layout) {
  Batch batch(layout);
  const Request added = add_to(batch, part_of(request, layout));
  if (!added.status().ok()) throw std::runtime_error(added.status().message);
  return {batch.blob(0).data(), batch.blob(0).data() + batch.blob(0).bytes()};
}

}  // namespace detail

inline Requests random_requests(const DividedPlan& divided, const Asked& asked) {
  const BatchLayout& layout = divided.whole.layout();
  test_support::RequestShape shape;
  shape.table_rows = table_rows;
  for (const AxisInfo& axis : layout.axes()) shape.rows[axis.name] = rows_of(axis, asked);
  std::mt19937 random(1);
  Requests requests(static_cast<size_t>(asked.users));
  for (std::vector<PlainRequest>& pages : requests) {
    const PlainRequest first = random_request(layout, shape, random);
    for (int64_t p = 0; p < asked.pages; ++p)
      pages.push_back(detail::page_of(divided, first, random_request(layout, shape, random)));
  }
  return requests;
}

/// The first users of MovieLens, each about the films that the user has not rated, from the first on, and from the
/// beginning again when they end.
inline Requests movielens_requests(const Plan& plan, const movielens::Data& data, const Asked& asked) {
  const movielens::Features features(data);
  const movielens::Inputs inputs(plan);
  Requests requests(static_cast<size_t>(std::min(asked.users, static_cast<int64_t>(data.users.size()))));
  for (size_t u = 0; u < requests.size(); ++u) {
    const auto user = static_cast<int64_t>(u);
    const std::vector<int64_t> unseen = features.unseen_films(user);
    if (unseen.empty()) throw std::runtime_error("a user of the data has rated all films");
    size_t next = 0;
    for (int64_t p = 0; p < asked.pages; ++p) {
      std::vector<int64_t> films;
      for (int64_t i = 0; i < asked.items; ++i) films.push_back(unseen[next++ % unseen.size()]);
      Batch batch = plan.batch();
      inputs.fill(batch.add_request(), features.request(user, films));
      requests[u].push_back(test_support::plain_of(batch.blob(0), plan.layout()));
    }
  }
  return requests;
}

/// A page as a whole request and as a later one, and its scores.
struct Page {
  Blob whole, later;
  std::vector<std::vector<float>> scores;
};

/// [users][pages]. The context is one of the undivided plan.
inline std::vector<std::vector<Page>> make_pages(const DividedPlan& divided, Context context,
                                                 const Requests& requests) {
  std::vector<std::vector<Page>> users(requests.size());
  for (size_t u = 0; u < requests.size(); ++u)
    for (const PlainRequest& request : requests[u]) {
      Page& page = users[u].emplace_back();
      page.whole = detail::packed(request, divided.whole.layout());
      page.later = detail::packed(request, divided.later_requests);
      Batch batch = divided.whole.batch();
      batch.add_blob(Span<const std::byte>(page.whole));
      const Scores scores = context.run(batch);
      for (const OutputInfo& output : divided.whole.graph().outputs)
        page.scores.emplace_back(scores[output.name].of(0).begin(), scores[output.name].of(0).end());
    }
  return users;
}

}  // namespace feed
