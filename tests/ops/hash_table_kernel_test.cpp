// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/hash_table.cuh"

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <unordered_map>

#include "ops/hash_table_testing.hpp"
#include "warprank/hash_table/build.hpp"

namespace {

using namespace hash_table_testing;  // NOLINT: these are its tests
using warprank::detail::UpdateProtocol;

const std::vector<int64_t> special_keys = {0,
                                           1,
                                           -1,
                                           -2,
                                           -3,
                                           -4,
                                           2,
                                           3,
                                           std::numeric_limits<int64_t>::min(),
                                           std::numeric_limits<int64_t>::min() + 1,
                                           std::numeric_limits<int64_t>::max(),
                                           std::numeric_limits<int64_t>::max() - 1};

/// The special keys and others, `count` in all.
std::vector<int64_t> some_keys(int count) {
  std::vector<int64_t> keys = special_keys;
  std::mt19937_64 random(5);
  while (static_cast<int>(keys.size()) < count) keys.push_back(static_cast<int64_t>(random()));
  keys.resize(static_cast<size_t>(count));
  return keys;
}

const std::vector<Format> formats = {{DType::f32, 1},  {DType::f16, 1},  {DType::f16, 3},  {DType::bf16, 9},
                                     {DType::f32, 12}, {DType::i8, 37},  {DType::f32, 16}, {DType::bf16, 65},
                                     {DType::i8, 200}, {DType::f32, 256}};

// ---- One at a time

TEST(HashTable, DoesWhatAMapDoes) {
  for (const Format& format : {Format{DType::f32, 16}, Format{DType::f16, 3}}) {
    SCOPED_TRACE(format.text());
    int operations = 0;
    in_every_order(
        [&] {
          std::mt19937 random(static_cast<unsigned>(++operations));
          Table table(format, {4, 4, 2});
          std::unordered_map<int64_t, uint64_t> model;
          std::vector<int64_t> universe = some_keys(130);  // the table has room for 112
          for (uint64_t version = 1; version <= 12; ++version) {
            std::shuffle(universe.begin(), universe.end(), random);
            std::vector<int64_t> keys(universe.begin(), universe.begin() + static_cast<int>(random() % 60));
            const bool is_erase = random() % 3 == 0;
            const std::vector<Status> statuses = is_erase ? table.erase(keys) : table.insert(keys, version);
            for (size_t i = 0; i < keys.size(); ++i) {
              const bool was_there = model.count(keys[i]) != 0;
              switch (statuses[i]) {
                case Status::inserted:
                  EXPECT_TRUE(!was_there && !is_erase);
                  model[keys[i]] = version;
                  break;
                case Status::updated:
                  EXPECT_TRUE(was_there && !is_erase);
                  model[keys[i]] = version;
                  break;
                case Status::erased:
                  EXPECT_TRUE(was_there && is_erase);
                  model.erase(keys[i]);
                  break;
                case Status::absent:
                  EXPECT_TRUE(!was_there && is_erase);
                  break;
                case Status::full:
                  EXPECT_TRUE(!was_there && !is_erase);
                  break;
                case Status::deferred:
                  break;
              }
            }
            EXPECT_EQ(table.size(), model.size());
            if (random() % 2 == 0) table.pass_grace();
            const auto rows = table.find(universe);
            for (size_t i = 0; i < universe.size(); ++i) {
              const auto expected = model.find(universe[i]);
              ASSERT_EQ(rows[i].has_value(), expected != model.end()) << universe[i];
              if (rows[i]) {
                ASSERT_EQ(*rows[i], row_of(universe[i], expected->second, format.bytes())) << universe[i];
              }
            }
          }
        },
        5);
  }
}

// ---- Readers and updates together

/// What a look-up may answer: versions of keys that are always there, from those that were known to be in the table
/// when it was launched; any version of those that come and go.
struct Reading {
  std::unique_ptr<LookUp> look_up;
  std::map<int64_t, uint64_t> at_least;
};

/// Look-ups in one stream while keys are changed, erased and inserted in another. Returns the first thing that is
/// wrong, or nothing.
template <class Protocol>
std::string read_while_updating(uint64_t seed) {
  Config config;
  config.seed = seed;
  config.preemption = 2;
  config.resident_blocks = 6;
  reset(config);
  const Format format{DType::f32, 16};
  // Every other time so many keys that they spill and overflow.
  const bool is_tight = seed % 2 == 0;
  const int part = is_tight ? 28 : 18;
  const std::vector<int64_t> all = some_keys(3 * part);
  const std::vector<int64_t> stable(all.begin(), all.begin() + part);
  std::vector<int64_t> coming(all.begin() + part, all.begin() + 2 * part), going(all.begin() + 2 * part, all.end());
  try {
    std::mt19937 random(static_cast<unsigned>(seed));
    Table table(format, is_tight ? Size{4, 4, 2} : Size{4});
    std::map<int64_t, uint64_t> known;  // versions that updates are known to have written
    table.insert(stable, 0);
    table.insert(going, 0);
    for (const int64_t key : stable) known[key] = 0;
    std::vector<Reading> readings;
    std::vector<std::unique_ptr<Update>> updates;
    size_t num_known = 0;
    constexpr uint64_t rounds = 4;
    for (uint64_t version = 1; version <= rounds; ++version) {
      readings.push_back({std::make_unique<LookUp>(table.view(), all, table.readers), known});
      std::vector<int64_t> changing = stable;
      std::shuffle(changing.begin(), changing.end(), random);
      changing.resize(8);
      Epoch epoch = table.epochs.begin();
      updates.push_back(std::make_unique<Update>(table.view(), changing, version, epoch, table.updates, Protocol{}));
      updates.push_back(std::make_unique<Update>(table.view(), going, std::nullopt, epoch, table.updates, Protocol{}));
      table.epochs.end(table.updates);
      readings.push_back({std::make_unique<LookUp>(table.view(), all, table.readers), known});
      epoch = table.epochs.begin();
      updates.push_back(std::make_unique<Update>(table.view(), coming, version, epoch, table.updates, Protocol{}));
      table.epochs.end(table.updates);
      std::swap(coming, going);
      if (random() % 2 == 0) {
        synchronize(table.updates);
        for (; num_known < updates.size(); ++num_known) {
          const Update& update = *updates[num_known];
          for (size_t i = 0; i < update.keys().size(); ++i) {
            if (update.version && update.statuses[i] == Status::updated) known[update.keys()[i]] = *update.version;
          }
        }
      }
      if (random() % 3 == 0) synchronize(table.readers);
    }
    for (const Reading& reading : readings) {
      const auto rows = reading.look_up->rows();
      for (size_t i = 0; i < all.size(); ++i) {
        const auto at_least = reading.at_least.find(all[i]);
        const bool always_there = at_least != reading.at_least.end();
        if (!rows[i]) {
          if (always_there && i < stable.size()) return "a key that is always there was not found";
          continue;
        }
        bool right = false;
        for (uint64_t version = always_there ? at_least->second : 0; version <= rounds; ++version) {
          right |= *rows[i] == row_of(all[i], version, format.bytes());
        }
        if (!right) return "a row that is no whole version of its key, or an old one";
      }
    }
  } catch (const simt::Error& error) {
    return error.what();
  }
  return "";
}

/// Look-ups of erased keys while their positions, after the grace period, are given to other keys.
template <class Protocol>
std::string read_while_positions_pass_on(uint64_t seed) {
  Config config;
  config.seed = seed;
  config.preemption = 2;
  config.resident_blocks = 6;
  reset(config);
  const std::vector<int64_t> all = some_keys(40);
  std::vector<int64_t> coming(all.begin(), all.begin() + 20), going(all.begin() + 20, all.end());
  try {
    Table table({DType::f32, 1}, {4});
    for (int round = 0; round < 4; ++round) {
      const LookUp of_gone(table.view(), going, table.readers);
      const Update update(table.view(), coming, 1, table.epochs.begin(), table.updates, Protocol{});
      table.epochs.end(table.updates);
      for (const auto& row : of_gone.rows()) {
        if (row) return "a row was found for a key that was erased before";
      }
      const Update end(table.view(), coming, std::nullopt, table.epochs.begin(), table.updates, Protocol{});
      table.epochs.end(table.updates);
      table.pass_grace();
      std::swap(coming, going);
    }
  } catch (const simt::Error& error) {
    return error.what();
  }
  return "";
}

/// What is wrong in the first of some schedules in which something is.
template <class Scenario>
std::string first_violation(Scenario scenario, int seeds) {
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(seeds); ++seed) {
    const std::string violation = scenario(seed);
    if (!violation.empty()) return "seed " + std::to_string(seed) + ": " + violation;
  }
  return "";
}

TEST(HashTable, RowsAreWholeWhileTheyAreReplaced) {
  EXPECT_EQ(first_violation([](uint64_t seed) { return read_while_updating<UpdateProtocol>(seed); }, 12), "");
}

TEST(HashTable, KeysThatWereErasedStayUnknownWhenTheirPlacesAreUsedAgain) {
  EXPECT_EQ(first_violation([](uint64_t seed) { return read_while_positions_pass_on<UpdateProtocol>(seed); }, 20), "");
}

// Each weakening of the protocol must be noticed; otherwise the tests above would show nothing.

struct PublishRelaxed : UpdateProtocol {
  static constexpr auto publish = warprank::device::Order::relaxed;
};
struct UseAgainAtOnce : UpdateProtocol {
  static constexpr bool waits_for_readers = false;
};
struct KeepErasedKeys : UpdateProtocol {
  static constexpr bool overwrites_erased_keys = false;
};
struct WriteInPlace : UpdateProtocol {
  static constexpr bool writes_aside = false;
};
struct TakeNoLock : UpdateProtocol {
  static constexpr bool locks = false;
};

template <class Protocol>
std::string violation_of_updates() {
  return first_violation([](uint64_t seed) { return read_while_updating<Protocol>(seed); }, 20);
}

TEST(HashTable, ReadersNoticeWhatTheProtocolLacks) {
  if (build == Build::race) {  // where relaxed stores are late
    EXPECT_NE(violation_of_updates<PublishRelaxed>(), "");
  }
  EXPECT_NE(violation_of_updates<UseAgainAtOnce>(), "");
  EXPECT_NE(violation_of_updates<WriteInPlace>(), "");
  EXPECT_NE(violation_of_updates<TakeNoLock>(), "");
  EXPECT_NE(first_violation([](uint64_t seed) { return read_while_positions_pass_on<KeepErasedKeys>(seed); }, 20), "");
}

}  // namespace
