// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What kernels execute and move, counted by the executor, for the tables of scripts/kernel_report.sh.
///
/// A test whose suite is called ...Counts runs shapes, expects of each what must be counted, and adds it to a table:
///
///     TEST(FmCounts, ReadsEachFieldOnce) {
///       if (build != Build::plain) return;
///       CountTable table({"target", "rows", "sectors", "/ least"});
///       for (const int64_t rows : all_counts() ? Sizes{1, 100, 500} : Sizes{1}) {
///         ... run and EXPECT ...
///         table.add(target, rows, counters().global_load_sectors, over(counters().global_load_sectors, least));
///       }
///     }
///
/// Tests run the small shapes on each change, and what they count is held against tests/counts.json: whoever means a
/// change writes it there (scripts/check_counts.py). The report runs tests/ops/<op>_kernel_test.cpp, as it was built,
/// with WARPRANK_COUNT_ALL=1 and --gtest_filter='*Counts.*', and prints each test's table. Both find it in gtest's JSON
/// as the property "counts".

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace kernel_testing {

/// Whether shapes are counted that take long, too.
inline bool all_counts() { return std::getenv("WARPRANK_COUNT_ALL") != nullptr; }

/// One for each test.
class CountTable {
 public:
  explicit CountTable(const std::vector<const char*>& columns) {
    for (const char* column : columns) add_cell(column);
  }
  ~CountTable() { testing::Test::RecordProperty("counts", text_.str()); }
  CountTable(const CountTable&) = delete;
  CountTable& operator=(const CountTable&) = delete;

  /// A row: numbers and text, as many as there are columns.
  template <class... Cells>
  void add(const Cells&... cells) {
    text_ << '\n';
    is_first_ = true;
    (add_cell(cells), ...);
  }
  /// As many cells as the program finds out.
  void add_row(const std::vector<std::string>& cells) {
    text_ << '\n';
    is_first_ = true;
    for (const std::string& cell : cells) add_cell(cell);
  }

 private:
  template <class Cell>
  void add_cell(const Cell& cell) {
    text_ << (is_first_ ? "" : "\t") << cell;
    is_first_ = false;
  }

  std::ostringstream text_;
  bool is_first_ = true;
};

/// count / least, to three digits behind the point; 1 where both are 0.
inline std::string over(int64_t count, double least) {
  if (count == 0 && least == 0) return "1.000";
  std::ostringstream text;
  text.precision(3);
  text << std::fixed << static_cast<double>(count) / least;
  return text.str();
}

}  // namespace kernel_testing
