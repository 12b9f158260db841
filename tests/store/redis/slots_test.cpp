// SPDX-License-Identifier: Apache-2.0
#include "warprank/store/redis/slots.hpp"

#include <gtest/gtest.h>

#include <string>

namespace warprank { inline namespace v0 { namespace redis { namespace {

using namespace std::string_view_literals;

// The value that the cluster's specification gives.
TEST(Slots, AreOfCrc16Xmodem) {
  static_assert(crc16("123456789"sv) == 0x31c3);
  EXPECT_EQ(crc16(""), 0);
  EXPECT_EQ(slot_of("123456789"), 0x31c3);
  EXPECT_EQ(slot_of("foo"), 12182);  // as CLUSTER KEYSLOT says
  EXPECT_EQ(slot_of("bar"), 5061);
}

TEST(Slots, AreOfWhatIsInTheFirstBraces) {
  EXPECT_EQ(slot_of("{user1000}.following"), slot_of("user1000"));
  EXPECT_EQ(slot_of("a{user1000}.{followers}"), slot_of("user1000"));
  EXPECT_EQ(slot_of("foo{}{bar}"), crc16("foo{}{bar}"sv) % num_slots);  // nothing in them: all
  EXPECT_EQ(slot_of("foo{{bar}}zap"), slot_of("{bar"));
  EXPECT_EQ(slot_of("foo{bar"), crc16("foo{bar"sv) % num_slots);
  EXPECT_EQ(slot_of("}foo{"), crc16("}foo{"sv) % num_slots);
  EXPECT_EQ(slot_of("{\xff\0\n}x"sv), slot_of("\xff\0\n"sv));
}

}}}}  // namespace warprank::v0::redis
