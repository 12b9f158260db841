// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A model with its queue, and what the protocol tells of it.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "answer.hpp"
#include "event_log.hpp"
#include "inference.pb.h"
#include "layout_json.hpp"
#include "metrics.hpp"
#include "named_requests.hpp"
#include "recorder.hpp"
#include "statistics.hpp"
#include "tier_metrics.hpp"
#include "user_metrics.hpp"
#include "warprank/serving.hpp"
#include "warprank/store/change_follower.hpp"

namespace kserve {

struct HostedOptions {
  std::string name = "model";
  warprank::ServiceOptions service = {};
  int64_t most_requests = 256;  ///< in a call
  /// Metadata has tensors that calls of one request do without, too: blobs, and offsets of axes directly in the
  /// outermost. Clients that make up values of all tensors, as perf_analyzer does, would make up wrong ones of these.
  bool describes_all = false;
  /// Every so many-th request is kept, 100 of them, and scored by the next model before it takes over; 0: none.
  int64_t record_every = 100;
  /// By which their scores may differ, or the next model is refused.
  double most_difference = std::numeric_limits<double>::infinity();
  warprank::LoaderPriority loader = warprank::SwapOptions{}.loader;  ///< unless a load says otherwise
  double loader_share = warprank::SwapOptions{}.loader_share;        ///< of a core
  EventLog* log = nullptr;                                           ///< outlives the model
  const warprank::ChangeFollower* follower = nullptr;                ///< of its tables; outlives it
  std::function<RedisCounters()> redis = nullptr;                    ///< of its tables' store, where that is Redis
  warprank::UserStates* users = nullptr;  ///< where states of users are kept, of a divided model; outlives it
};

/// Requests about users whose states are kept: the items' side alone.
struct LaterRequests {
  const warprank::BatchLayout& layout;
  const TensorNames names;

  /// Whether tensors are all of such a request; others are of a whole one.
  bool have_all(const std::vector<Tensor>& tensors) const {
    return std::all_of(tensors.begin(), tensors.end(),
                       [&](const Tensor& tensor) { return names.find(tensor.name) != nullptr; });
  }
};

class HostedModel {
 public:
  using Load = std::function<warprank::NextModel()>;

  /// `served` outlives it; `load` gives what ModelLoad is to exchange it for. Throws warprank::invalid_argument.
  HostedModel(warprank::ServedModel& served, Load load, const HostedOptions& options)
      : options_(options),
        served_(served),
        load_(std::move(load)),
        names_(served.plan().source()),
        outputs_(served.plan().source()),
        recorder_(served.plan(), options.record_every, 100),
        service_(options.users == nullptr ? warprank::RankingService(served, options.service)
                                          : warprank::RankingService(served, *options.users, options.service)) {
    if (options.users == nullptr) return;
    const warprank::BatchLayout& later = served.requests()->plan().later_requests;
    later_.emplace(LaterRequests{later, TensorNames(served.plan().source(), later)});
  }

  const std::string& name() const { return options_.name; }
  std::string version() const { return std::to_string(served_.version()); }
  bool is_ready() const { return is_ready_; }
  const HostedOptions& options() const { return options_; }
  const warprank::BatchLayout& layout() const { return served_.plan().layout(); }
  const TensorNames& names() const { return names_; }
  const ModelOutputs& outputs() const { return outputs_; }
  /// None: no states of users are kept.
  const std::optional<LaterRequests>& later() const { return later_; }
  warprank::RankingService& service() { return service_; }
  Statistics& statistics() { return statistics_; }
  Recorder& recorder() { return recorder_; }

  /// Exchanges the model for what is on disk now, which first scores the recorded requests, and takes requests again.
  /// Throws what ServedModel::swap throws.
  void load(warprank::SwapMode mode, warprank::LoaderPriority loader) {
    const auto begin = std::chrono::steady_clock::now();
    EventLog::Fields event = {{"model", name()}, {"mode", warprank::to_string(mode)}};
    const auto log = [&](const char* result) {
      event["result"] = result;
      event["version"] = served_.version();
      event["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      write_event("swap", event);
    };
    try {
      warprank::NextModel next = load_();
      if (mode == warprank::SwapMode::dense_and_rows) next.tables = warprank::Weights::from_tensors({});
      const warprank::SwapReport report = served_.swap(next, mode,
                                                       {.recorded = recorder_.blobs(),
                                                        .most_difference = options_.most_difference,
                                                        .loader = loader,
                                                        .loader_share = options_.loader_share});
      event["comparison"] = report.comparison.to_string();
      event["contexts_behind"] = report.contexts_behind;
    } catch (const std::exception& error) {
      ++failed_swaps_;
      event["error"] = error.what();
      log("failed");
      throw;
    }
    ++swaps_;
    is_ready_ = true;
    log("done");
  }
  /// Takes no more requests; the model stays in memory.
  void unload() {
    is_ready_ = false;
    write_event("unload", {{"model", name()}});
  }
  /// An event for requests that were refused since the last call, if there are any but those of unknown users, which
  /// are sent again. By one thread.
  void log_refusals() {
    const warprank::ServiceCounters counters = service_.counters();
    EventLog::Fields event = {{"model", name()}};
    for (const auto& [reason, label] : refusals) event[label] = counters.refused(reason) - logged_.refused(reason);
    event["scored"] = counters.scored - logged_.scored;
    const auto refused = [](const warprank::ServiceCounters& all) {
      return all.refused() - all.refused(warprank::Refusal::unknown_user);
    };
    if (refused(counters) > refused(logged_)) write_event("refused", event);
    logged_ = counters;
  }
  /// Takes no more requests, and returns when those that wait are answered.
  void stop() {
    is_ready_ = false;
    service_.stop();
  }

  /// Metrics in the text format of Prometheus.
  std::string metrics() const {
    MetricsText text;
    const MetricsText::Labels model = {{"model", name()}};
    const auto with = [&](const char* label, const std::string& value) {
      return MetricsText::Labels{{"model", name()}, {label, value}};
    };
    const auto one = [&](const char* metric, const char* type, const char* help, auto value) {
      text.begin(metric, type, help);
      text.add(static_cast<double>(value), model);
    };
    const warprank::ServiceCounters counters = service_.counters();
    text.begin("warprank_requests_total", "counter", "Requests by what became of them.");
    text.add(static_cast<double>(counters.scored), with("outcome", "scored"));
    text.add(static_cast<double>(counters.bad), with("outcome", "bad_request"));
    text.add(static_cast<double>(counters.refused()), with("outcome", "refused"));
    text.add(static_cast<double>(counters.failed), with("outcome", "failed"));
    text.begin("warprank_refused_total", "counter", "Requests that were refused, by reason.");
    for (const auto& [reason, label] : refusals)
      text.add(static_cast<double>(counters.refused(reason)), with("reason", label));
    one("warprank_batches_total", "counter", "Batches that were scored.", counters.batches);
    one("warprank_waiting_requests", "gauge", "Requests that wait.", service_.waiting());
    one("warprank_ready", "gauge", "1 while the model takes requests.", is_ready() ? 1 : 0);
    one("warprank_model_version", "gauge", "Of the model that serves.", served_.version());
    text.begin("warprank_swaps_total", "counter", "Exchanges of the model.");
    text.add(static_cast<double>(swaps_), with("result", "done"));
    text.add(static_cast<double>(failed_swaps_), with("result", "failed"));
    one("warprank_contexts_behind", "gauge", "Contexts that have an old model.", served_.contexts_behind().count);
    const std::vector<warprank::FeatureCounters> features = served_.counters();
    text.begin("warprank_ids_total", "counter", "Ids that were looked up, by feature.");
    for (const auto& [feature, met] : features) text.add(static_cast<double>(met.ids), with("feature", feature));
    text.begin("warprank_unknown_ids_total", "counter", "Those of them that the feature's table has no row of.");
    for (const auto& [feature, met] : features)
      text.add(static_cast<double>(met.unknown + met.out_of_range), with("feature", feature));
    text.begin("warprank_memory_bytes", "gauge", "Memory by what it is for.");
    for (const auto& [part, bytes] : served_.memory()) text.add(static_cast<double>(bytes), with("part", part));
    TierCounters tiers{served_.store_counters(), cache_counters(), followed()};
    if (options_.redis) tiers.redis = options_.redis();
    tiers.write(text, name());
    one("warprank_failed_cache_passes_total", "counter", "Passes over caches of rows that failed.",
        failed_passes_.load());
    if (options_.users != nullptr)
      UserMetrics{options_.users->counters(), service_.device_states_counters(), counters}.write(text, name());
    statistics_.write(text, model);
    return text.text();
  }

  void describe(inference::ModelMetadataResponse& to) const {
    to.set_name(name());
    to.add_versions(version());
    to.set_platform("warprank");
    const auto add = [](auto& tensor, const std::string& name, const char* datatype,
                        const std::vector<int64_t>& shape) {
      tensor.set_name(name);
      tensor.set_datatype(datatype);
      for (const int64_t extent : shape) tensor.add_shape(extent);
    };
    each_input([&](const std::string& name, const char* datatype, const std::vector<int64_t>& shape) {
      add(*to.add_inputs(), name, datatype, shape);
    });
    for (const ModelOutputs::Output& output : outputs_.list)
      add(*to.add_outputs(), output.name, "FP32", {-1, output.width});
  }
  void describe(inference::ModelConfig& to) const {
    to.set_name(name());
    (*to.mutable_parameters())["layout"].set_string_value(layout_json(layout()));
    if (later_) (*to.mutable_parameters())["later_layout"].set_string_value(layout_json(later_->layout));
    to.set_platform("warprank");
    to.set_backend("warprank");
    each_input([&](const std::string& name, const std::string& datatype, const std::vector<int64_t>& shape) {
      inference::ModelInput& input = *to.add_input();
      input.set_name(name);
      input.set_data_type(datatype == "INT64"  ? inference::TYPE_INT64
                          : datatype == "FP32" ? inference::TYPE_FP32
                                               : inference::TYPE_STRING);
      for (const int64_t extent : shape) input.add_dims(extent);
      input.set_optional(true);  // either blobs or the others, and those may have defaults
    });
    for (const ModelOutputs::Output& output : outputs_.list) {
      inference::ModelOutput& described = *to.add_output();
      described.set_name(output.name);
      described.set_data_type(inference::TYPE_FP32);
      described.add_dims(-1);
      described.add_dims(output.width);
    }
  }

 private:
  static constexpr std::pair<warprank::Refusal, const char*> refusals[] = {
      {warprank::Refusal::full, "full"},           {warprank::Refusal::displaced, "displaced"},
      {warprank::Refusal::late, "late"},           {warprank::Refusal::stopping, "stopping"},
      {warprank::Refusal::cancelled, "cancelled"}, {warprank::Refusal::unknown_user, "unknown_user"}};

  void write_event(const char* event, const EventLog::Fields& fields) const {
    if (options_.log != nullptr) options_.log->write(event, fields);
  }

  /// Nothing where a pass has failed since the last call; the next one tells again.
  std::map<std::string, warprank::CacheCounters> cache_counters() const {
    try {
      return served_.cache_counters();
    } catch (const std::exception&) {
      ++failed_passes_;
      return {};
    }
  }

  warprank::ChangeFollower::Counters followed() const {
    return options_.follower == nullptr ? warprank::ChangeFollower::Counters() : options_.follower->counters();
  }

  template <class Call>
  void each_input(const Call& call) const {
    for (const warprank::IdsInfo& ids : layout().ids()) call(ids.name, "INT64", {-1});
    for (const warprank::DenseInfo& dense : layout().dense()) call(dense.name, "FP32", {-1, dense.width});
    for (size_t a = 1; a < layout().axes().size(); ++a)
      if (options_.describes_all || layout().axes()[a].parent > 0)
        call(layout().axes()[a].name + ".offsets", "INT64", {-1});
    if (options_.describes_all) call(blobs_name, "BYTES", {-1});
  }

  const HostedOptions options_;
  warprank::ServedModel& served_;
  const Load load_;
  const TensorNames names_;
  const ModelOutputs outputs_;
  std::optional<LaterRequests> later_;
  Recorder recorder_;
  Statistics statistics_;
  std::atomic<bool> is_ready_{true};
  std::atomic<int64_t> swaps_{0}, failed_swaps_{0};
  mutable std::atomic<int64_t> failed_passes_{0};
  warprank::ServiceCounters logged_;  // log_refusals'
  warprank::RankingService service_;
};

}  // namespace kserve
