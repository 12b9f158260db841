// SPDX-License-Identifier: Apache-2.0

#include "warprank/core/sieve.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace {

struct Entry {
  int number;
  bool was_asked_for = false, is_in_use = false;
};
using Sieve = warprank::Sieve<Entry>;

bool stays(Entry& entry) { return entry.is_in_use || std::exchange(entry.was_asked_for, false); }

/// The numbers of all entries in the order in which they go.
std::vector<int> emptied(Sieve& sieve) {
  std::vector<int> order;
  Sieve::Entries gone;
  while (const auto first = sieve.first(stays)) {
    order.push_back((*first)->number);
    sieve.remove(*first, gone);
  }
  return order;
}

TEST(Sieve, EntriesGoInTheOrderInWhichTheyCameButForThoseThatWereAskedFor) {
  Sieve sieve;
  EXPECT_FALSE(sieve.first(stays));
  std::vector<Sieve::Place> places;
  for (int i = 0; i < 5; ++i) places.push_back(sieve.add({i}));
  places[0]->was_asked_for = places[2]->was_asked_for = true;
  EXPECT_EQ(emptied(sieve), (std::vector<int>{1, 3, 4, 0, 2}));
}

TEST(Sieve, TheHandGoesOnWhereItWas) {
  Sieve sieve;
  std::vector<Sieve::Place> places;
  Sieve::Entries gone;
  for (int i = 0; i < 3; ++i) places.push_back(sieve.add({i}));
  places[0]->was_asked_for = true;
  ASSERT_EQ((*sieve.first(stays))->number, 1);
  sieve.remove(places[0], gone);  // behind the hand
  sieve.remove(places[1], gone);  // which it asks next
  sieve.add({3});
  EXPECT_EQ(emptied(sieve), (std::vector<int>{2, 3}));
  EXPECT_EQ(gone.size(), 2);
}

TEST(Sieve, NoneGoesWhereAllStay) {
  Sieve sieve;
  const auto one = sieve.add({1, false, true}), two = sieve.add({2, true, true});
  EXPECT_FALSE(sieve.first(stays));
  two->is_in_use = false;
  EXPECT_EQ((*sieve.first(stays))->number, 2) << "it was asked for, and the hand passes twice";
  one->is_in_use = false;
  EXPECT_EQ(emptied(sieve).size(), 2);
}

}  // namespace
