// SPDX-License-Identifier: Apache-2.0

#include "warprank/engine/placement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/table_update_testing.hpp"
#include "support/message_of.hpp"
#include "warprank/host.hpp"

namespace warprank { namespace {

using namespace table_update_testing;  // NOLINT: for tables and their weights
using test_support::message_of;
using testing::AllOf;
using testing::HasSubstr;

TEST(Placement, PatternsFitWholeNames) {
  const auto fits = [](const char* pattern, const char* name) { return fits_pattern(pattern, name); };
  for (const char* pattern : {"film", "f*", "*", "*m", "f??m", "f*l*m", "**film", "film*", "?*?"})
    EXPECT_TRUE(fits(pattern, "film")) << pattern;
  for (const char* pattern : {"", "fil", "films", "ilm", "f?m", "F*", "*x", "?film", "f*lx*m", "[f]ilm"})
    EXPECT_FALSE(fits(pattern, "film")) << pattern;
  EXPECT_TRUE(fits("", ""));
  EXPECT_TRUE(fits("*", ""));
  EXPECT_FALSE(fits("?", ""));
  EXPECT_TRUE(fits("a*ab", "aaab")) << "the star takes more than it did at first";
  EXPECT_TRUE(fits("*a*b*c", "xaxxbcbc"));
  EXPECT_FALSE(fits("*a*b*c", "xaxxbcb"));
}

TEST(Placement, TheFirstThatFitsCounts) {
  const TablePlacement on_host{Placement::host, 0}, cached{Placement::cached, 1 << 20};
  const TablePlacements placements{{"user_?", {}}, {"user_*", cached}, {"*", on_host}};
  EXPECT_EQ(placement_of(placements, "user_1"), TablePlacement{});
  EXPECT_EQ(placement_of(placements, "user_10"), cached);
  EXPECT_EQ(placement_of(placements, "film"), on_host);
  EXPECT_EQ(placement_of({}, "film"), TablePlacement{});
}

TEST(Placement, IsGivenAsTheDocumentSays) {
  warprank::LoadOptions options;
  options.placement = {{"country", {}},
                       {"user_*", {warprank::Placement::cached, int64_t{2} << 30}},
                       {"*", {warprank::Placement::host, 0}}};
  EXPECT_EQ(placement_of(options.placement, "country"), TablePlacement{});
  EXPECT_EQ(placement_of(options.placement, "user_city").device_bytes, 1LL << 31);
  EXPECT_EQ(placement_of(options.placement, "film").where, Placement::host);
}

class PlacedTables : public testing::Test {
 protected:
  const std::vector<VersionedTable> tables_{versioned_table("film", DType::f32, 16, false, first_keys(5)),
                                            versioned_table("user", DType::i8, 13, true, first_keys(5)),
                                            versioned_table("wide", DType::f16, 513, false, first_keys(5))};
  const Plan plan_ = plan_of(tables_);
  const Weights weights_ = weights_of(tables_);

  std::string refusal(const TablePlacements& placement) const {
    LoadOptions options;
    options.placement = placement;
    return message_of([&] { Tables::load(plan_, weights_, host(), options); });
  }
};

TEST_F(PlacedTables, HaveCachesOfWholeBuckets) {
  // A line of keys, and 15 rows of 64 bytes, or of 13 bytes with scale and offset, which are kept in 32.
  EXPECT_EQ(least_cache_bytes(DType::f32, 16), 4 * (128 + 15 * 64 + 64));
  EXPECT_EQ(least_cache_bytes(DType::i8, 13), 4 * (128 + 15 * 32 + 32));
  EXPECT_EQ(refusal({{"film", {Placement::cached, 4 * 1152}}, {"user", {Placement::cached, 4 * 640}}}), "");
  EXPECT_EQ(refusal({{"film", {Placement::cached, 4 * 1152 - 1}}}),
            "table 'film', device_bytes: expected at least 4608, 4 buckets of its rows, got 4607");
  EXPECT_THAT(refusal({{"*r", {Placement::cached, -1}}}),
              HasSubstr("table 'user', device_bytes: expected at least 2560, 4 buckets of its rows, got -1"));
  EXPECT_EQ(refusal({{"wide", {Placement::cached, 1 << 30}}}),
            "table 'wide': expected rows of at most 1024 bytes, as they are cached, got 1026");
  EXPECT_EQ(refusal({{"wide", {Placement::host, 0}}}), "");
}

TEST_F(PlacedTables, AreRefusedWithAllThatIsWrong) {
  EXPECT_THAT(refusal({{"films", {Placement::host, 0}}, {"film", {Placement::host, 5}}, {"user", {{}, -5}}}),
              AllOf(HasSubstr("LoadOptions::placement of 'films': expected a table's name, or a pattern that fits one, "
                              "got none of that name"),
                    HasSubstr("LoadOptions::placement of 'film', device_bytes: expected 0, as the tables are of "
                              "placement host, got 5"),
                    HasSubstr("placement device, got -5")));
}

TEST_F(PlacedTables, AreTold) {
  EXPECT_EQ(Tables::load(plan_, weights_, host()).describe(),
            "film  5 x 16 F32         memory, 384 B\n"
            "user  5 x 13 I8, hashed  memory, 692 B\n"
            "wide  5 x 513 F16        memory, 7.18 KB\n");
}

TEST_F(PlacedTables, AreOfDevicesThatAreEachNamedOnce) {
  const auto refusal = [this](const std::vector<int>& devices, const TablePlacement& placement) {
    LoadOptions options;
    options.devices = devices;
    options.placement = {{"*", placement}};
    return message_of([&] { Tables::load(plan_, weights_, host(), options); });
  };
  const TablePlacement sharded{Placement::sharded, 0};
  EXPECT_EQ(refusal({0, 3, 1}, sharded), "");
  EXPECT_EQ(
      refusal({}, sharded),
      "LoadOptions::placement of '*': expected LoadOptions::devices, as the tables are of placement sharded, got none");
  EXPECT_THAT(refusal({1, 0, 1}, sharded),
              HasSubstr("LoadOptions::devices: expected each number once, from 0 on, got 1"));
  EXPECT_THAT(refusal({1, 0, -2}, {}), HasSubstr("LoadOptions::devices: expected each number once, from 0 on, got -2"));
  EXPECT_THAT(refusal({0, 1}, {Placement::cached, 1 << 20}),
              HasSubstr("another placement than cached, as there are several LoadOptions::devices, got cached"));
  EXPECT_THAT(refusal({0}, {Placement::sharded, 5}), HasSubstr("0, as the tables are of placement sharded, got 5"));
}

TEST_F(PlacedTables, AreOnTheHostAsEverOnTheHostEngine) {
  LoadOptions options;
  options.placement = {{"film", {Placement::host, 0}}, {"user", {Placement::cached, 1 << 20}}};
  EXPECT_EQ(Tables::load(plan_, weights_, host(), options).memory(), Tables::load(plan_, weights_, host()).memory());
  options.placement = {{"*", {Placement::sharded, 0}}};
  options.devices = {2, 4};
  const Tables sharded = Tables::load(plan_, weights_, host(), options);
  EXPECT_EQ(sharded.memory(), Tables::load(plan_, weights_, host()).memory());
  EXPECT_EQ(sharded.on(4).store(), sharded.store()) << "the host engine is one device, whatever they are";
  EXPECT_EQ(message_of([&] { sharded.on(3); }), "Tables::on: expected one of LoadOptions::devices, got 3");
}

}}  // namespace warprank
