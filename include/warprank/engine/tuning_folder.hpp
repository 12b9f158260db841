// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The measurements that bind keeps (AutoTuning): a file for the steps of a plan at a place.

#include <string>
#include <vector>

#include "warprank/core/compiled.hpp"
#include "warprank/engine/tuning.hpp"

namespace warprank { inline namespace v0 { namespace detail {

class TuningFolder {
 public:
  /// An empty folder has nothing and keeps nothing.
  TuningFolder(std::string folder, TunedOn here, const std::vector<std::vector<LinearShape>>& steps);

  const std::string& path() const { return path_; }

  /// The kept choices; nothing, with the reason in `line`, if they are of another place. Throws invalid_argument for a
  /// file that cannot be read or is no tuning: remove it.
  std::vector<LinearChoice> load(std::string& line) const;

  /// Keeps choices; `line` says where, or why it could not.
  void save(const std::vector<LinearChoice>& choices, std::string& line) const;

 private:
  std::string folder_, path_;
  TunedOn here_;
};

}}}  // namespace warprank::v0::detail

#if !defined(WARPRANK_HOST_COMPILED)
#include "warprank/engine/tuning_folder_definitions.hpp"
#endif
