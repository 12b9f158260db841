// SPDX-License-Identifier: Apache-2.0

#include "../../examples/movielens/data.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>

#include "../../examples/movielens/text.hpp"

namespace {

using movielens::Data;
using movielens::load;

/// A folder with two users, three films and two genres, of which tests change files.
class MovielensData : public testing::Test {
 protected:
  MovielensData() {
    std::filesystem::create_directories(folder_);
    for (const auto& [name, text] : good_) write(name, text);
  }
  ~MovielensData() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }

  /// What load complains of with `text` as the file, without the name of the folder.
  std::string complaint(const std::string& name, const std::string& text) const {
    write(name, text);
    std::string message = "none";
    try {
      load(folder_);
    } catch (const warprank::invalid_argument& error) {
      message = error.what();
    }
    write(name, good_.at(name));
    const std::string prefix = folder_.string() + "/";
    for (size_t at = message.find(prefix); at != std::string::npos; at = message.find(prefix))
      message.erase(at, prefix.size());
    return message;
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("warprank_movielens_" + std::to_string(getpid()));
  const std::map<std::string, std::string> good_ = {
      {"u.genre", "Drama|0\nWar|1\n\n"},
      {"u.user", "7|24|M|technician|85711\n2|53|F|other|94043\n"},
      {"u.item", "3|Third (1995)|01-Jan-1995||http://a|1|0\n1|First (1990) (V)|01-Jan-1990|||1|1\n2|Second|||x|0|0\n"},
      {"u.data", "7\t1\t5\t20\n2\t3\t1\t10\n7\t3\t4\t20\n7\t2\t3\t19\n"}};
};

TEST_F(MovielensData, ReadsThePublishersFilesAndSortsThem) {
  const Data data = load(folder_);
  EXPECT_EQ(data.genres, (std::vector<std::string>{"Drama", "War"}));
  ASSERT_EQ(data.users.size(), 2u);
  EXPECT_EQ(data.users[0].id, 2);
  EXPECT_EQ(data.users[0].gender, 'F');
  EXPECT_EQ(data.users[1].age, 24);
  EXPECT_EQ(data.users[1].occupation, "technician");
  ASSERT_EQ(data.films.size(), 3u);
  EXPECT_EQ(data.films[0].title, "First (1990) (V)");
  EXPECT_EQ(data.films[0].genres, (std::vector<int64_t>{0, 1}));
  EXPECT_TRUE(data.films[1].genres.empty());
  // By user, then time, then film.
  std::string order;
  for (const movielens::Rating& r : data.ratings)
    order += std::to_string(r.user) + std::to_string(r.film) + std::to_string(r.stars) + " ";
  EXPECT_EQ(order, "021 113 105 124 ");
}

TEST_F(MovielensData, ReadsLinesThatEndInCarriageReturnAndALastLineWithoutAnEnd) {
  write("u.user", "7|24|M|technician|85711\r\n2|53|F|other|94043");
  const Data data = load(folder_);
  ASSERT_EQ(data.users.size(), 2u);
  EXPECT_EQ(data.users[0].occupation, "other");
}

TEST_F(MovielensData, ReadsTitlesInLatin1AndInUtf8) {
  write("u.item", "1|Mis\xe9rables, Les|||x|0|0\n2|Mis\xc3\xa9rables, Les|||x|0|0\n3|A|||x|0|0\n");
  const Data data = load(folder_);
  EXPECT_EQ(data.films[0].title, "Mis\xc3\xa9rables, Les");
  EXPECT_EQ(data.films[1].title, data.films[0].title);
}

TEST(MovielensText, TakesForLatin1WhateverIsNotUtf8) {
  using movielens::to_utf8;
  EXPECT_EQ(to_utf8("\xe2\x82\xac \xf0\x9f\x8e\xac"), "\xe2\x82\xac \xf0\x9f\x8e\xac");  // three and four bytes
  EXPECT_EQ(to_utf8("\xc1"), "\xc3\x81");
  EXPECT_EQ(to_utf8("\xc3"), "\xc3\x83");                                      // cut short
  EXPECT_EQ(to_utf8("\xc0\xaf"), "\xc3\x80\xc2\xaf");                          // '/' in two bytes
  EXPECT_EQ(to_utf8("\xe0\x80\xaf"), "\xc3\xa0\xc2\x80\xc2\xaf");              // and in three
  EXPECT_EQ(to_utf8("\xed\xa0\x80"), "\xc3\xad\xc2\xa0\xc2\x80");              // a surrogate
  EXPECT_EQ(to_utf8("\xf4\x90\x80\x80"), "\xc3\xb4\xc2\x90\xc2\x80\xc2\x80");  // above U+10FFFF
}

TEST_F(MovielensData, NamesEveryMissingFile) {
  std::filesystem::remove(folder_ / "u.item");
  std::filesystem::remove(folder_ / "u.data");
  try {
    load(folder_);
    FAIL();
  } catch (const warprank::invalid_argument& error) {
    ASSERT_EQ(error.problems().size(), 2u);
    EXPECT_EQ(error.problems()[0].what, (folder_ / "u.item").string());
    EXPECT_EQ(error.problems()[1].got, "no such file");
  }
}

TEST_F(MovielensData, SaysWhichLineIsWrongWhatItExpectedAndWhatItGot) {
  EXPECT_EQ(complaint("u.genre", "Drama|0\nWar|2\n"), "u.genre:2: expected a genre's index from 1 to 1, got '2'");
  EXPECT_EQ(complaint("u.genre", "Drama\n"), "u.genre:1: expected 2 fields with '|' between them, got 1");
  EXPECT_EQ(complaint("u.genre", "\n\n"), "u.genre: expected at least one line, got none");

  EXPECT_EQ(complaint("u.user", "7|old|M|x|1\n"), "u.user:1: expected an age from 0 to 150, got 'old'");
  EXPECT_EQ(complaint("u.user", "7|-1|M|x|1\n"), "u.user:1: expected an age from 0 to 150, got '-1'");
  EXPECT_EQ(complaint("u.user", "7|24|m|x|1\n"), "u.user:1: expected a gender, M or F, got 'm'");
  EXPECT_EQ(complaint("u.user", "0|24|M|x|1\n"), "u.user:1: expected a user from 1 to 2147483647, got '0'");
  EXPECT_EQ(complaint("u.user", "7|24|M|x|1\n\n7|25|M|x|1\n"),
            "u.user:3: expected a user not listed before, got 7 again");

  EXPECT_EQ(complaint("u.item", "1|First|||x|0|2\n"),
            "u.item:1: expected the flag of genre 'War' from 0 to 1, got '2'");
  EXPECT_EQ(complaint("u.item", "1|First|||x|0\n"), "u.item:1: expected 7 fields with '|' between them, got 6");
  EXPECT_EQ(complaint("u.item", "99999999999999999999|First|||x|0|0\n"),
            "u.item:1: expected a film from 1 to 2147483647, got '99999999999999999999'");

  EXPECT_EQ(complaint("u.data", "7 1 5 20\n"), "u.data:1: expected 4 fields with '?' between them, got 1");
  EXPECT_EQ(complaint("u.data", "7\t1\t6\t20\n"), "u.data:1: expected a rating from 1 to 5, got '6'");
  EXPECT_EQ(complaint("u.data", "7\t1\t5 \t20\n"), "u.data:1: expected a rating from 1 to 5, got '5 '");
  EXPECT_EQ(complaint("u.data", "7\t1\t5\t\n"), "u.data:1: expected a time in seconds from 0 to 1099511627776, got ''");
  EXPECT_EQ(complaint("u.data", "8\t1\t5\t20\n"), "u.data:1: expected a user of u.user, got '8'");
  EXPECT_EQ(complaint("u.data", "7\t4\t5\t20\n"), "u.data:1: expected a film of u.item, got '4'");
  EXPECT_EQ(complaint("u.data", "7\t1\t5\t20\n7\t1\t4\t21\n"),
            "u.data:2: expected a film that user '7' has not rated before, got '1' again");
  EXPECT_EQ(complaint("u.data", ""), "u.data: expected at least one line, got none");
}

TEST_F(MovielensData, ShowsLongAndBinaryFieldsInShort) {
  EXPECT_EQ(complaint("u.data", "7\t1\t" + std::string(100, 'x') + "\t20\n"),
            "u.data:1: expected a rating from 1 to 5, got '" + std::string(40, 'x') + "'..");
  EXPECT_EQ(complaint("u.data", "7\t1\t\x1b[2J\t20\n"), "u.data:1: expected a rating from 1 to 5, got '?[2J'");
}

TEST_F(MovielensData, GathersWhatIsWrongInAFileUpToTenLines) {
  EXPECT_EQ(complaint("u.data", "7\t1\n7\t1\t5\t20\n7\t3\t9\t20\n"),
            "2 problems:\n  u.data:1: expected 4 fields with '?' between them, got 2\n"
            "  u.data:3: expected a rating from 1 to 5, got '9'");
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += "x\n";
  const std::string message = complaint("u.data", lines);
  EXPECT_NE(message.find("u.data:10:"), std::string::npos);
  EXPECT_EQ(message.find("u.data:11:"), std::string::npos);
  EXPECT_NE(message.find("the lines after them were not read"), std::string::npos);
}

TEST_F(MovielensData, ReadsOrRefusesFilesWithAnyBytesChanged) {
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    auto file = std::next(good_.begin(), random() % 4);
    std::string text = file->second;
    for (int change = 0; change < 3; ++change) {
      const size_t at = random() % text.size();
      if (random() % 3 == 0)
        text.erase(at, 1 + random() % 5);
      else
        text[at] = static_cast<char>(random() % 256);
      if (text.empty()) break;
    }
    refused += complaint(file->first, text) != "none";
  }
  EXPECT_GT(refused, 100);
  EXPECT_LT(refused, 400);
}

TEST(MovielensRealData, HasTheSizeItsPublisherStates) {
  const char* const folder = std::getenv("WARPRANK_DATA");
  if (folder == nullptr || *folder == '\0') GTEST_SKIP() << "WARPRANK_DATA is not set";
  const Data data = load(folder);
  EXPECT_EQ(data.genres.size(), 19u);
  EXPECT_EQ(data.users.size(), 943u);
  EXPECT_EQ(data.films.size(), 1682u);
  EXPECT_EQ(data.ratings.size(), 100000u);
}

}  // namespace
