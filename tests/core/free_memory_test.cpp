// SPDX-License-Identifier: Apache-2.0

#include "warprank/core/free_memory.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace {

using warprank::free_memory;

/// A folder that looks like /.
class FreeMemory : public testing::Test {
 protected:
  FreeMemory() { std::filesystem::remove_all(root_); }
  ~FreeMemory() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  const std::string root_ = testing::TempDir() + "warprank_free_memory";
};

TEST_F(FreeMemory, IsWhatTheSystemSays) {
  EXPECT_EQ(free_memory(root_), std::numeric_limits<int64_t>::max()) << "nothing can be read";
  write("/proc/meminfo", "MemTotal:  9000 kB\nMemFree:    10 kB\nMemAvailable:    3000 kB\n");
  EXPECT_EQ(free_memory(root_), 3000 * 1024);
  EXPECT_GT(free_memory(), 1 << 20) << "of this machine";
}

TEST_F(FreeMemory, IsAtMostWhatTheControlGroupsAllow) {
  write("/proc/meminfo", "MemAvailable: 3000 kB\n");
  write("/proc/self/cgroup", "0::/pod/container\n");
  write("/sys/fs/cgroup/pod/container/memory.max", "max\n");
  write("/sys/fs/cgroup/pod/container/memory.current", "500000\n");
  EXPECT_EQ(free_memory(root_), 3000 * 1024) << "no limit";
  write("/sys/fs/cgroup/pod/container/memory.max", "1000000\n");
  EXPECT_EQ(free_memory(root_), 500000);
  write("/sys/fs/cgroup/pod/container/memory.stat", "anon 1\ninactive_file 100000\nactive_file 20000\n");
  EXPECT_EQ(free_memory(root_), 620000) << "cached files make room";
  write("/sys/fs/cgroup/pod/memory.max", "700000\n");
  write("/sys/fs/cgroup/pod/memory.current", "600000\n");
  EXPECT_EQ(free_memory(root_), 100000) << "of the group above";
  write("/sys/fs/cgroup/pod/memory.current", "800000\n");
  EXPECT_EQ(free_memory(root_), 0);
}

TEST_F(FreeMemory, KnowsControlGroupsOfTheFirstVersion) {
  write("/proc/meminfo", "MemAvailable: 3000 kB\n");
  write("/proc/self/cgroup", "5:cpu:/x\n4:memory:/a\n0::/\n");
  write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000000");
  write("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "900000");
  write("/sys/fs/cgroup/memory/a/memory.stat", "inactive_file 7\ntotal_inactive_file 50000\n");
  EXPECT_EQ(free_memory(root_), 150000);
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "12345");
  EXPECT_EQ(free_memory(root_), 150000);
}

}  // namespace
