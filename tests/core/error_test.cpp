// SPDX-License-Identifier: Apache-2.0

#include "warprank/core/error.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "warprank/core/cuda_error.hpp"
#include "warprank/engine/swap.hpp"
#include "warprank/store/parameter_store.hpp"

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

// What is caught as one of the library's and as one of the standard library's says the same.
template <class Standard, class Error>
void expect_both(const Error& thrown, const std::string& text) {
  try {
    raise(thrown);
    FAIL() << "expected an exception";
  } catch (const error& e) {
    EXPECT_EQ(e.what(), text);
  }
  try {
    raise(thrown);
    FAIL() << "expected an exception";
  } catch (const Standard& e) {
    EXPECT_EQ(e.what(), text);
  }
}

TEST(Error, IsOneOfTheLibraryAndOneOfTheStandardLibrary) {
  expect_both<std::invalid_argument>(invalid_argument("a", "b", "c"), "a: expected b, got c");
  expect_both<std::logic_error>(usage_error("again"), "again");
  expect_both<std::logic_error>(internal_error("fault"), "fault");
  expect_both<std::runtime_error>(cuda_error("copy", 700, "cudaErrorIllegalAddress"),
                                  "copy: CUDA error 700 (cudaErrorIllegalAddress)");
  expect_both<std::runtime_error>(out_of_device_memory("tables", 3, 1, 2),
                                  "tables: expected 3 bytes of device memory, got 1 free of 2");
  expect_both<std::runtime_error>(swap_refused("memory"), "memory");
  expect_both<std::runtime_error>(no_model("none"), "none");
  expect_both<std::runtime_error>(store_error("get", "an answer", "none"), "get: expected an answer, got none");
}

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
