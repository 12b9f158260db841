// SPDX-License-Identifier: Apache-2.0

/// docs/TABLE_FORMAT.md says what the code does: tables that its Python program writes are read.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "hash_table/table_testing.hpp"
#include "warprank/hash_table/file.hpp"

namespace {

using namespace warprank;

std::vector<float> row_of(const HashTable& table, int64_t key) {
  std::vector<float> row(static_cast<size_t>(table.view().dim));
  if (table.find(key) == nullptr) return {};
  std::memcpy(row.data(), table.find(key), row.size() * sizeof(float));
  return row;
}

TEST(TableFormatDocument, HasAPythonProgramThatWritesTables) {
  if (std::system("python3 -c '' 2> /dev/null") != 0) GTEST_SKIP() << "no python3";
  std::ifstream file(std::string(WARPRANK_TEST_DATA) + "/../docs/TABLE_FORMAT.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}}, fence = "```python\n";
  const size_t begin = text.find(fence) + fence.size();
  const test::Folder folder("table_format");
  std::ofstream(folder.path() + "write.py") << text.substr(begin, text.find("```", begin) - begin);
  ASSERT_EQ(std::system(("python3 " + folder.path() + "write.py " + folder.path()).c_str()), 0);

  const HashTable narrow = load_hash_table(folder.path() + "narrow.hash_table");
  const HashTable wide = load_hash_table(folder.path() + "wide.hash_table");
  EXPECT_EQ(narrow.size(), 100);
  EXPECT_EQ(wide.size(), 100);
  EXPECT_EQ(narrow.view().shape.layout, hash_table::Layout::in_line);
  EXPECT_EQ(wide.view().shape.layout, hash_table::Layout::header);
  for (int64_t key = 0; key < 100; ++key) {
    const auto x = static_cast<float>(key);
    EXPECT_EQ(row_of(narrow, key * key * key - 50), (std::vector<float>{x, -x, 0.5f}));
    std::vector<float> expected;
    for (int c = 0; c < 20; ++c) expected.push_back(x + static_cast<float>(c));
    EXPECT_EQ(row_of(wide, key - 20), expected);
  }
  EXPECT_EQ(wide.find(80), nullptr);
}

}  // namespace
