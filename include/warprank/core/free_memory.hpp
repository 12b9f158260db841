// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How much memory this process could still take.

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

namespace warprank { inline namespace v0 {
namespace detail {

/// The number behind `name` in a file of lines "name number"; -1 when there is none.
inline int64_t number_of(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string word; file >> word;)
    if (int64_t number = 0; word == name) return file >> number ? number : -1;
  return -1;
}

/// The number that a file consists of; -1 when there is none, as for "max".
inline int64_t number_in(const std::string& path) {
  int64_t number = 0;
  return std::ifstream(path) >> number ? number : -1;
}

/// The free memory of a control group; cached files count as free. The largest number if it has no limit.
inline int64_t free_in_group(const std::string& folder, const char* limit, const char* usage, const char* prefix) {
  const int64_t most = number_in(folder + limit), used = number_in(folder + usage);
  if (most < 0 || used < 0) return std::numeric_limits<int64_t>::max();
  int64_t cached = 0;
  for (const char* name : {"inactive_file", "active_file"})
    cached += std::max<int64_t>(0, number_of(folder + "memory.stat", std::string(prefix) + name));
  return std::max<int64_t>(0, most - std::max<int64_t>(0, used - cached));
}

/// The path of this process's control group: of the one that has a memory controller, or of the only one.
inline std::string group_of(const std::string& root, const std::string& controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "4:memory:/a/b" or "0::/a/b"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second != std::string::npos && line.substr(first + 1, second - first - 1) == controller)
      return line.substr(second + 1);
  }
  return "";
}

}  // namespace detail

/// Bytes that are free on this machine (MemAvailable), or that the control groups of this process still allow,
/// whichever is less. Linux; if nothing can be read, the largest number. `root` is the folder of /proc and /sys, for
/// tests.
inline int64_t free_memory(const std::string& root = "") {
  int64_t free = std::numeric_limits<int64_t>::max();
  const int64_t kilobytes = detail::number_of(root + "/proc/meminfo", "MemAvailable:");
  if (kilobytes >= 0) free = kilobytes * 1024;
  const auto limit_by = [&](const std::string& hierarchy, std::string group, const char* limit, const char* usage,
                            const char* prefix) {
    for (;; group.erase(group.rfind('/'))) {  // a group's limit holds for those below it
      while (!group.empty() && group.back() == '/') group.pop_back();
      free = std::min(free, detail::free_in_group(root + hierarchy + group + "/", limit, usage, prefix));
      if (group.find('/') == std::string::npos) return;
    }
  };
  limit_by("/sys/fs/cgroup", detail::group_of(root, ""), "memory.max", "memory.current", "");
  limit_by("/sys/fs/cgroup/memory", detail::group_of(root, "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes",
           "total_");
  return free;
}

}}  // namespace warprank::v0
