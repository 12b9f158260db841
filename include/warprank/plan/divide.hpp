// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One plan as two: what depends on the user alone, which is computed once, and the items' rest, for each of several
/// requests about the same user.

#include <cstdint>
#include <string>
#include <vector>

#include "warprank/batch/layout.hpp"
#include "warprank/core/compiled.hpp"
#include "warprank/plan/plan.hpp"

namespace warprank { inline namespace v0 {

/// How states are kept between the two plans.
enum class StateType {
  f32,         ///< as the host engine has values
  as_on_a_gpu  ///< as FP16 what a GPU keeps as FP16: half the bytes, and a GPU rounds nothing more
};

/// A value of the user's side that the items' plan reads. An output of the user's plan is a dense input of the items'
/// plan; an input of the user's plan is an input of the items' plan, too. Both have the same name.
struct UserState {
  enum class Source { output, ids_input, dense_input };  ///< in the user's plan

  std::string name;
  Source source = Source::output;
  int axis = 0;  ///< of both plans
  int64_t width = 0;
  int64_t row_bytes = 0;  ///< of one row of the axis
};

/// Two plans whose scores together are those of the undivided one: bit for bit on the host, with StateType::f32. On a
/// GPU with StateType::as_on_a_gpu bit for bit where the same kernels compute the layers, but for sums of a softmax, a
/// norm or a reduction: their order depends on where values lie and on what shares the launch.
///
///     const auto requests = std::make_shared<const DividedRequests>(divide(plan, "item"));
///     const Servable both = Servable::bind(requests, weights, tables);   // engine/servable.hpp
///     ServableContext contexts(both, {});
///     DividedBatch batch(requests);                                      // engine/divided_batch.hpp
///     batch.add(first.blob(0), nullptr);                                 // a whole request
///     batch.add(later.blob(0), states);                                  // one about a user who is known
///     const Scores scores = batch.run(contexts.users(), contexts.context());
///     states = batch.states(0);                                          // of the first request's user
///
/// A RankingService does this, and keeps the states. Both plans take the weights and Tables of the undivided plan. All
/// axes are in all plans and layouts.
struct DividedPlan {
  Plan whole;  ///< undivided
  Plan user, items;
  std::vector<UserState> states;
  BatchLayout later_requests;     ///< about a user whose states are known: the inputs of `items` that are not states
  BatchLayout kept_states;        ///< of a user
  std::vector<bool> is_of_items;  ///< by axis: whether it is the items', or nested in it

  /// What was cut: each state with its shape and bytes, and the FLOPs and bytes of both plans for one request of the
  /// first capacity.
  WARPRANK_HOST_INLINE std::string describe() const;
};

/// Divides a plan: everything on an axis, on those nested in it, and whatever reads these values is the items' side,
/// the rest the user's. Of all cuts behind the user's work that with the fewest bytes is taken: columns that are only
/// copied, sliced or repeated are so on the items' side where that is fewer bytes for each user. Outputs that depend on
/// the user alone are outputs of the items' plan, too. Throws invalid_argument for an unknown axis, for the outermost
/// axis, and if either side has nothing to compute.
WARPRANK_HOST_INLINE DividedPlan divide(const Plan& plan, const std::string& axis, StateType type = StateType::f32);

}}  // namespace warprank::v0

#if !defined(WARPRANK_HOST_COMPILED)
#include "warprank/plan/divide_definitions.hpp"
#endif
