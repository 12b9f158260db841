// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What became of requests about users whose states are kept, and of these states.

#include <cstdint>
#include <string>

#include "metrics.hpp"
#include "warprank/serving.hpp"

namespace kserve {

struct UserMetrics {
  warprank::UserStatesCounters states;
  warprank::DeviceStatesCounters on_device;
  warprank::ServiceCounters requests;

  void write(MetricsText& to, const std::string& model) const {
    const auto one = [&](const char* metric, const char* type, const char* help, auto value) {
      to.begin(metric, type, help);
      to.add(static_cast<double>(value), {{"model", model}});
    };
    const auto add = [&](const char* label, const char* is, int64_t value) {
      to.add(static_cast<double>(value), {{"model", model}, {label, is}});
    };
    to.begin("warprank_user_lookups_total", "counter", "Look-ups of a user's states, by what was found.");
    add("result", "hit", states.hits);
    add("result", "absent", states.misses - states.expired - states.outdated);
    add("result", "expired", states.expired);
    add("result", "outdated", states.outdated);
    one("warprank_user_hit_age_seconds_total", "counter", "Age of the states that were found, of all together.",
        states.hit_age_seconds);
    to.begin("warprank_user_changes_total", "counter", "States that came to the store, found no place, or made room.");
    add("change", "kept", states.kept);
    add("change", "refused", states.refused);
    add("change", "evicted", states.evicted);
    one("warprank_user_states", "gauge", "States that are kept.", states.states);
    one("warprank_user_state_bytes", "gauge", "Memory of the states that are kept.", states.bytes);
    to.begin("warprank_user_device_lookups_total", "counter",
             "States of users that a batch has read in a GPU's memory, and that it had to bring.");
    add("result", "hit", on_device.hits);
    add("result", "miss", on_device.misses);
    to.begin("warprank_user_device_changes_total", "counter",
             "States of users that found no place in a GPU's memory, or made room.");
    add("change", "refused", on_device.refused);
    add("change", "evicted", on_device.evicted);
    one("warprank_user_device_states", "gauge", "States that a GPU's memory has.", on_device.states);
    one("warprank_user_device_state_bytes", "gauge", "A GPU's memory that states have.", on_device.bytes);
    to.begin("warprank_user_requests_total", "counter",
             "Requests that were scored by kept states, and whose states were of another user's side.");
    add("user", "known", requests.known_users);
    add("user", "changed", requests.changed_users);
  }
};

}  // namespace kserve
