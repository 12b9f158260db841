// SPDX-License-Identifier: Apache-2.0

#include "warprank/core/shared_library.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace warprank { inline namespace v0 { namespace detail { namespace {

using testing::HasSubstr;

TEST(SharedLibrary, IsTheFirstThatTheMachineHas) {
  SharedLibrary library({"libwarprank_has_none.so.7", "libm.so.6", "libc.so.6"});
  EXPECT_EQ(library.name(), "libm.so.6");
  double (*cosine)(double) = nullptr;
  library.find("cos", cosine);
  ASSERT_NE(cosine, nullptr);
  EXPECT_EQ(cosine(0.0), 1.0);
  EXPECT_TRUE(library.is_whole());
  EXPECT_EQ(library.problem(), "");
}

TEST(SharedLibrary, SaysWhatItLacks) {
  SharedLibrary library({"libm.so.6"});
  void (*function)() = [] {};
  library.find("warprank_has_none", function);
  EXPECT_EQ(function, nullptr);
  library.find("cos", function);
  library.find("warprank_has_no_other", function);
  EXPECT_FALSE(library.is_whole());
  EXPECT_EQ(library.problem(), "libm.so.6 has no warprank_has_none, warprank_has_no_other");
}

TEST(SharedLibrary, IsNothingWhereTheMachineHasNone) {
  SharedLibrary library({"libwarprank_has_none.so.7", "libwarprank_has_none.so.6"});
  EXPECT_FALSE(library.is_whole());
  EXPECT_THAT(library.problem(), HasSubstr("libwarprank_has_none.so.7: "));
  EXPECT_THAT(library.problem(), HasSubstr("; libwarprank_has_none.so.6: "));
  void (*function)() = [] {};
  library.find("cos", function);
  EXPECT_EQ(function, nullptr);
}

}}}}  // namespace warprank::v0::detail
