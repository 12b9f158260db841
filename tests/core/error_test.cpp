// SPDX-License-Identifier: Apache-2.0

#include "warprank/core/error.hpp"

#include <gtest/gtest.h>

#include <string>

namespace {

using namespace warprank;

SourceLine called_from(SourceLine line = SourceLine::current()) { return line; }

TEST(Error, SaysWhatWasExpectedAndWhatWasGot) {
  const invalid_argument error("linear 'tower'", "8 columns", "7");
  EXPECT_STREQ(error.what(), "linear 'tower': expected 8 columns, got 7");
  ASSERT_EQ(error.problems().size(), 1u);
  EXPECT_EQ(error.problems()[0].what, "linear 'tower'");
  EXPECT_EQ(error.problems()[0].expected, "8 columns");
  EXPECT_EQ(error.problems()[0].got, "7");
}

TEST(Error, StartsWithThePlaceWhenThereIsOne) {
  EXPECT_EQ((Problem{"model.cpp:12", "concat", "one axis", "two"}.to_string()),
            "model.cpp:12: concat: expected one axis, got two");
}

TEST(Error, IsAStandardException) { EXPECT_THROW(throw invalid_argument("a", "b", "c"), std::invalid_argument); }

TEST(Error, ListsSeveralProblemsOnTheirOwnLines) {
  Problems problems;
  problems.add("x", "1", "2");
  problems.add({"f.cpp:3", "y", "4", "5"});
  try {
    problems.throw_if_any();
    FAIL() << "expected an exception";
  } catch (const invalid_argument& error) {
    EXPECT_STREQ(error.what(), "2 problems:\n  x: expected 1, got 2\n  f.cpp:3: y: expected 4, got 5");
    EXPECT_EQ(error.problems().size(), 2u);
  }
}

TEST(Error, IsNotThrownWhenNothingWasCollected) {
  const Problems problems;
  EXPECT_TRUE(problems.empty());
  EXPECT_NO_THROW(problems.throw_if_any());
}

TEST(SourceLine, IsWhereTheFunctionWasCalled) {
  const SourceLine line = called_from();
  EXPECT_EQ(line.line, __LINE__ - 1);
  EXPECT_STREQ(line.file, __FILE__);
}

}  // namespace
