// SPDX-License-Identifier: Apache-2.0
//
// Ids on the host are TensorFlow's, whatever their text, and wrong slots, boundaries and bucket counts are told.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ids/vectors.hpp"
#include "warprank/ids/buckets.hpp"
#include "warprank/ids/slot.hpp"

namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using warprank::invalid_argument;
using namespace warprank::ids;
namespace vectors = id_vectors;

TEST(Scheme, IsThatOfTheVectors) { EXPECT_EQ(vectors::document()["scheme"], scheme); }

TEST(Fingerprints, OfTextsAreTensorFlows) {
  for (const auto& vector : vectors::document()["texts"]) {
    const std::string text = vectors::bytes(vector["bytes"]);
    EXPECT_EQ(Fingerprint(text).value(), vectors::fingerprint(vector["fingerprint"])) << text.size() << " bytes";
  }
}

TEST(Fingerprints, AreThoseThatTheManualsOfDatabasesShow) {
  const auto signed_fingerprint = [](std::string_view text) { return static_cast<int64_t>(Fingerprint(text).value()); };
  EXPECT_EQ(signed_fingerprint("1footrue"), -1541654101129638711);  // BigQuery
  EXPECT_EQ(signed_fingerprint("2applefalse"), 2794438866806483259);
  EXPECT_EQ(signed_fingerprint("3true"), -4880158226897771312);
  EXPECT_EQ(signed_fingerprint("Amazon Redshift"), 8085098817162212970);  // Redshift
}

TEST(Fingerprints, DependOnNothingBesideTheText) {
  const std::string_view text = "Berlin";
  const std::string longer = "xBerlinx";
  EXPECT_EQ(Fingerprint(std::string_view(longer).substr(1, 6)).value(), Fingerprint(text).value());
  EXPECT_EQ(Fingerprint::of_bytes(longer.data() + 1, 6).value(), Fingerprint("Berlin").value());
}

TEST(Fingerprints, OfIntegersAreThoseOfTheirDecimalText) {
  for (const auto& vector : vectors::document()["integers"]) {
    const auto integer = vector["integer"].get<int64_t>();
    EXPECT_EQ(Fingerprint(integer).value(), vectors::fingerprint(vector["fingerprint"])) << integer;
  }
  EXPECT_EQ(Fingerprint(std::numeric_limits<uint64_t>::max()).value(), Fingerprint("18446744073709551615").value());
  EXPECT_EQ(Fingerprint(int8_t{-128}).value(), Fingerprint("-128").value());
  EXPECT_EQ(Fingerprint(uint8_t{65}).value(), Fingerprint("65").value());
}

TEST(Fingerprints, AreNotMadeOfWhatHasNoPlainText) {
  static_assert(!std::is_constructible_v<Fingerprint, bool>);
  static_assert(!std::is_constructible_v<Fingerprint, char>);
  static_assert(!std::is_constructible_v<Fingerprint, float>);
  static_assert(!std::is_constructible_v<Fingerprint, double>);
  __extension__ using Wide = __int128;
  static_assert(!std::is_constructible_v<Fingerprint, Wide>);
  static_assert(std::is_constructible_v<Fingerprint, int64_t> && std::is_constructible_v<Fingerprint, std::string>);
}

/// Crosses have their number of parts in their type.
Fingerprint cross_of(const std::vector<Fingerprint>& p) {
  switch (p.size()) {
    case 2:
      return cross({p[0], p[1]});
    case 3:
      return cross({p[0], p[1], p[2]});
    case 4:
      return cross({p[0], p[1], p[2], p[3]});
    case 5:
      return cross({p[0], p[1], p[2], p[3], p[4]});
    default:
      return cross({p.at(0), p.at(1), p.at(2), p.at(3), p.at(4), p.at(5)});
  }
}

TEST(Crosses, AreTensorFlows) {
  for (const auto& vector : vectors::document()["crosses"])
    EXPECT_EQ(cross_of(vectors::parts(vector["parts"])).value(), vectors::fingerprint(vector["fingerprint"])) << vector;
}

TEST(Crosses, MixTextIntegersAndCrosses) {
  EXPECT_EQ(cross({"Berlin", 17}).value(), cross({"Berlin", "17"}).value());
  EXPECT_NE(cross({"Berlin", 17}).value(), cross({17, "Berlin"}).value());
  EXPECT_NE(cross({"a", cross({"b", "c"})}).value(), cross({"a", "b", "c"}).value());
}

TEST(Ids, AreTheSlotAboveTheLowestBitsOfTheFingerprint) {
  for (const auto& vector : vectors::document()["ids"]) {
    const Slot slot("any", vector["slot"].get<int64_t>());
    const std::string text = vectors::bytes(vector["bytes"]);
    const int64_t id = encode(slot, text);
    EXPECT_EQ(id, vector["id"].get<int64_t>()) << vector;
    EXPECT_EQ(decode(id).slot, slot.number);
    EXPECT_EQ(decode(id).hash, Fingerprint(text).value() % (uint64_t{1} << 44));
  }
}

TEST(Ids, AreConstantsWhereTheValueIsOne) {
  constexpr Slot city{"city", 12}, city_hour{"city x hour", 13};
  constexpr int64_t berlin = encode(city, "Berlin");
  constexpr int64_t berlin_at_17 = encode(city_hour, cross({"Berlin", 17}));
  static_assert(decode(berlin).slot == 12 && decode(berlin_at_17).slot == 13);
  EXPECT_EQ(berlin, encode(city, std::string("Berlin")));
}

TEST(Ids, OfPackedIntegersKeepThem) {
  constexpr uint64_t largest = (uint64_t{1} << 44) - 1;
  for (const uint64_t integer : {uint64_t{0}, uint64_t{17}, largest}) {
    for (const int32_t number : {0, 12, num_slots - 1}) {
      const Decoded decoded = decode(pack(Slot("film", number), integer));
      EXPECT_EQ(decoded.hash, integer);
      EXPECT_EQ(decoded.slot, number);
    }
  }
  EXPECT_EQ(pack(Slot("film", 3), largest + 18), pack(Slot("film", 3), 17)) << "higher bits are cut off";
  EXPECT_EQ(pack(Slot("last", num_slots - 1), largest), -1);
}

TEST(Slots, OutOfRangeAreRefused) {
  EXPECT_NO_THROW(Slot("city", 0));
  EXPECT_NO_THROW(Slot("city", num_slots - 1));
  EXPECT_THAT([] { Slot("city", num_slots); },
              ThrowsMessage<invalid_argument>("slot 'city': expected a number from 0 to 1048575, got 1048576"));
  EXPECT_THROW(Slot("city", -1), invalid_argument);
  EXPECT_THROW(Slot("city", int64_t{1} << 32), invalid_argument);
}

TEST(Slots, WithOneNumberAreNamedTogether) {
  EXPECT_NO_THROW(check_distinct({Slot("city", 12), Slot("hour", 13)}));
  EXPECT_NO_THROW(check_distinct({}));
  try {
    check_distinct({Slot("city", 12), Slot("hour", 13), Slot("film", 12), Slot("genre", 13)});
    FAIL();
  } catch (const invalid_argument& error) {
    ASSERT_EQ(error.problems().size(), 2u);
    EXPECT_EQ(error.problems()[0].to_string(),
              "slot 'film': expected a number of its own, got 12, which is that of 'city'");
    EXPECT_THAT(error.what(), HasSubstr("slot 'genre'"));
  }
}

TEST(HashedBuckets, AreTensorFlows) {
  for (const auto& vector : vectors::document()["hash_buckets"]) {
    const HashBuckets buckets(vector["num_buckets"].get<int64_t>());
    EXPECT_EQ(buckets.bucket(vectors::bytes(vector["bytes"])), vector["bucket"].get<int64_t>()) << vector;
  }
  static_assert(HashBuckets(1000).num_buckets() == 1000);
}

TEST(HashedBuckets, AreAtLeastOne) {
  EXPECT_THAT([] { HashBuckets(0); },
              ThrowsMessage<invalid_argument>("hash buckets: expected a number of at least 1, got 0"));
  EXPECT_THROW(HashBuckets(-1), invalid_argument);
}

TEST(Intervals, AreTensorFlowsForNaNToo) {
  int64_t num_checked = 0;
  for (const auto& vector : vectors::document()["boundaries"]) {
    const std::vector<float> boundaries = vectors::numbers(vector["boundaries"]), x = vectors::numbers(vector["x"]);
    const auto size = static_cast<int64_t>(boundaries.size());
    EXPECT_NO_THROW(check_boundaries(boundaries.data(), size));
    for (size_t i = 0; i < x.size(); ++i, ++num_checked)
      EXPECT_EQ(bucketize(x[i], boundaries.data(), size), vector["bucket"][i].get<int64_t>()) << vector << x[i];
  }
  EXPECT_GT(num_checked, 50);
}

TEST(Intervals, AreFoundAmongAnyNumberOfBoundaries) {
  std::vector<float> boundaries;
  for (int size = 1; size < 40; ++size) {
    boundaries.push_back(static_cast<float>(size));  // 1, 2, ... size
    for (int i = 0; i <= size; ++i) {
      EXPECT_EQ(bucketize(static_cast<float>(i), boundaries.data(), size), i);
      EXPECT_EQ(bucketize(static_cast<float>(i) + 0.5f, boundaries.data(), size), i);
    }
  }
}

TEST(Intervals, MayBeConstants) {
  constexpr Boundaries age_groups{18, 25, 35.5};
  static_assert(age_groups.num_buckets() == 4);
  static_assert(age_groups.bucket(17.9f) == 0 && age_groups.bucket(18.f) == 1 && age_groups.bucket(35.5f) == 3);
  EXPECT_EQ(age_groups.bucket(std::nanf("")), 3);
}

TEST(Intervals, NeedAscendingBoundaries) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT([] { Boundaries(18, 35, 25); },
              ThrowsMessage<invalid_argument>(
                  "boundary 2: expected a number greater than the one before it, got 25.000000 after 35.000000"));
  EXPECT_THROW(Boundaries(18, 18), invalid_argument);
  EXPECT_THROW(Boundaries(18, nan, 25), invalid_argument);
  EXPECT_THROW(Boundaries(16777216, 16777217), invalid_argument) << "one float";
  EXPECT_THAT([] { (void)Boundaries(nan); }, ThrowsMessage<invalid_argument>(HasSubstr("boundary 0")));
  EXPECT_THAT([] { check_boundaries(nullptr, 0); },
              ThrowsMessage<invalid_argument>("boundaries: expected at least one, got 0"));
}

}  // namespace
