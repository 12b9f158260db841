// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Options of the command line for a model that is divided, and for the states of users (docs/SERVING.md).

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "warprank/engine/servable.hpp"
#include "warprank/engine/served_model.hpp"
#include "warprank/plan/divide.hpp"
#include "warprank/serving.hpp"

namespace kserve {

/// The rows of a served model as a ChangeFollower changes them: states of users that were computed from rows before a
/// change end some time after it.
class ChangedRows {
 public:
  /// What is not null outlives it. No `states`, or no time: states go on.
  ChangedRows(warprank::ServedModel& served, warprank::UserStates* states,
              std::optional<std::chrono::milliseconds> expire_after)
      : served_(served), states_(states), expire_after_(expire_after) {}

  warprank::UpdateReport refresh(const warprank::Weights& delta) {
    warprank::UpdateReport report = served_.refresh(delta);
    changed();
    return report;
  }
  void forget_rows(const std::string& table) {
    served_.forget_rows(table);
    changed();
  }

 private:
  void changed() {
    if (states_ != nullptr && expire_after_) states_->expire_after(*expire_after_);
  }

  warprank::ServedModel& served_;
  warprank::UserStates* const states_;
  const std::optional<std::chrono::milliseconds> expire_after_;
};

class UserOptions {
 public:
  /// Behind the options of tables, of which one is needed.
  void add_to(CLI::App& app) {
    auto* keep =
        app.add_option("--keep-users", axis_,
                       "AXIS of the items, such as item: the model is divided there, and what it computes of a "
                       "user alone is kept for later requests about the user");
    app.add_option("--user-bytes", states_.most_bytes, "Of all that is kept of users at most")
        ->check(CLI::Range(least_bytes, std::numeric_limits<int64_t>::max()))
        ->capture_default_str()
        ->needs(keep);
    app.add_option(
           "--user-device-bytes", on_device_.most_bytes,
           "Of a GPU's memory for what is kept of users, so that requests about them need not bring it; 0: none")
        ->check(CLI::Range(warprank::DeviceStates::page_bytes, std::numeric_limits<int64_t>::max()))
        ->capture_default_str()
        ->needs(keep);
    app.add_option("--user-seconds", seconds_, "For which it is kept at most")
        ->check(CLI::Range(0.001, 1e9))
        ->capture_default_str()
        ->needs(keep);
    app.add_option("--user-update-seconds", update_seconds_,
                   "For which it is kept at most after rows of tables have changed; without it, on and on")
        ->check(CLI::Range(0.0, 1e9))
        ->needs(keep)
        ->needs(app.get_option("--follow-changes"));
    app.add_flag("--compare-users", compares_,
                 "Compare the user's side of each whole request with what is kept, to find callers that are wrong")
        ->needs(keep);
  }

  /// Binds the plan, or both that it is divided into. Throws warprank::invalid_argument also for an axis that is none
  /// of the items.
  warprank::Servable bind(const warprank::Plan& plan, const warprank::NextModel& model, const warprank::Tables& tables,
                          warprank::StateType type) const {
    if (axis_.empty()) return warprank::Model::bind(plan, model.dense, tables, model.bind);
    return warprank::Servable::bind(warprank::divide(plan, axis_, type), model.dense, tables, model.bind);
  }
  /// Null: nothing is kept.
  std::unique_ptr<warprank::UserStates> states() const {
    if (axis_.empty()) return nullptr;
    warprank::UserStatesOptions options = states_;
    options.most_age = milliseconds(seconds_);
    options.most_state_bytes =
        std::min(options.most_state_bytes, options.most_bytes - warprank::UserStates::record_bytes);
    return std::make_unique<warprank::UserStates>(options);
  }
  void set(warprank::ServiceOptions& options) const {
    options.compare_users = compares_;
    options.device_states = on_device_;
  }
  ChangedRows changed_rows(warprank::ServedModel& served, warprank::UserStates* states) const {
    return {served, states, update_seconds_ ? std::optional(milliseconds(*update_seconds_)) : std::nullopt};
  }

 private:
  static constexpr int64_t least_bytes = 1024;
  static_assert(least_bytes > warprank::UserStates::record_bytes);

  static std::chrono::milliseconds milliseconds(double seconds) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
  }

  std::string axis_;
  warprank::UserStatesOptions states_;
  warprank::DeviceStatesOptions on_device_;
  double seconds_ = std::chrono::duration<double>(warprank::UserStatesOptions().most_age).count();
  std::optional<double> update_seconds_;
  bool compares_ = false;
};

}  // namespace kserve
