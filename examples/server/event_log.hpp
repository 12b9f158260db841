// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What happens to a server, as a line of JSON for each event, for collectors of logs.

#include <chrono>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace kserve {

class EventLog {
 public:
  using Fields = nlohmann::ordered_json;

  /// The file outlives it.
  explicit EventLog(std::FILE* file) : file_(file) {}

  /// Any threads at once.
  void write(const char* event, const Fields& fields = Fields::object()) {
    Fields line = {{"time", now()}, {"event", event}};
    line.update(fields);
    // Messages may have bytes of a client's names that are not UTF-8.
    const std::string text = line.dump(-1, ' ', false, Fields::error_handler_t::replace) + "\n";
    const std::lock_guard<std::mutex> lock(mutex_);
    std::fwrite(text.data(), 1, text.size(), file_);
    std::fflush(file_);
  }

 private:
  /// UTC, with milliseconds.
  static std::string now() {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
    const std::time_t seconds = ms / 1000;
    std::tm utc;
    gmtime_r(&seconds, &utc);
    char text[40];
    const size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    std::snprintf(text + length, sizeof text - length, ".%03dZ", static_cast<int>(ms % 1000));
    return text;
  }

  std::FILE* const file_;
  std::mutex mutex_;
};

}  // namespace kserve
