// SPDX-License-Identifier: Apache-2.0

#include "warprank/core/suggest.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

using namespace warprank;

TEST(UnknownName, SuggestsOnlyWhatIsNear) {
  EXPECT_EQ(unknown_name("scores", {"raw", "score"}), "an unknown name; did you mean 'score'?");
  EXPECT_EQ(unknown_name("ctr", {"raw", "score"}), "an unknown name");
  EXPECT_EQ(unknown_name("ctr", {}), "an unknown name");
}

TEST(EditDistance, CountsInsertionsDeletionsAndReplacements) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("abc", "abc"), 0u);
  EXPECT_EQ(edit_distance("weight", "weihgt"), 2u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("saturday", "sunday"), 3u);
}

TEST(NearestName, IsTheFirstOfTheNearest) {
  EXPECT_EQ(nearest_name("tower.weight", {"tower.bias", "towre.weight", "tower.wieght"}), "towre.weight");
}

TEST(NearestName, IsNotOneThatSharesLessThanHalf) {
  EXPECT_EQ(nearest_name("abcd", {"abxy"}), "abxy");
  EXPECT_EQ(nearest_name("abcd", {"axyz", "", "abcdefghi"}), "");
  EXPECT_EQ(nearest_name("abcd", {}), "");
}

TEST(NearestName, LooksAtAThousandNamesOnly) {
  std::vector<std::string> names(1000, "zzzz");
  names.push_back("abcd");
  EXPECT_EQ(nearest_name("abcd", names), "");
}

}  // namespace
