// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Definitions of engine/tuning_folder.hpp.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "warprank/core/compiled.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/json.hpp"
#include "warprank/engine/tuning_folder.hpp"
#include "warprank/engine/tuning_json.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// Of how names are made and what files mean.
inline constexpr int tuning_file_version = 2;

inline uint64_t hash_of_name(const std::string& text) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

WARPRANK_HOST_INLINE TuningFolder::TuningFolder(std::string folder, TunedOn here,
                                                const std::vector<std::vector<LinearShape>>& steps)
    : folder_(std::move(folder)), here_(std::move(here)) {
  if (folder_.empty()) return;
  Json key = Json::array({tuning_file_version, to_json(here_), Json::array()});
  for (const std::vector<LinearShape>& step : steps) key[2].push_back(to_json(step));
  std::string card;
  for (const char c : here_.card) {
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    card += is_plain ? c : '_';
  }
  char hash[17];
  std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(hash_of_name(text_of(key, "tuning"))));
  const std::string name = "linears-" + card + "-sm_" + std::to_string(here_.target) + "-" + hash + ".json";
  path_ = (std::filesystem::path(folder_) / name).string();
}

WARPRANK_HOST_INLINE std::vector<LinearChoice> TuningFolder::load(std::string& line) const {
  std::error_code error;
  if (path_.empty() || !std::filesystem::exists(path_, error)) return {};
  const Tuning tuning = load_tuning(path_);
  try {
    check_tuning(tuning, here_);
  } catch (const invalid_argument& foreign) {
    line = path_ + " is ignored: " + foreign.what();
    return {};
  }
  return tuning.choices;
}

WARPRANK_HOST_INLINE void TuningFolder::save(const std::vector<LinearChoice>& choices, std::string& line) const {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);  // what is wrong is found by writing the file
  try {
    save_tuning({here_, choices}, path_);
    line = "kept in " + path_;
  } catch (const invalid_argument& error) {
    line = std::string("not kept: ") + error.what();
  }
}

}}}  // namespace warprank::v0::detail
