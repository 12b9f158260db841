// SPDX-License-Identifier: Apache-2.0

// Hash tables: look-ups that hit, miss or both, at several load factors, against linear probing by one thread a key
// with rows apart from the keys, and against a plain gather of the same rows, which knows where they lie; look-ups of
// models, pooled or not, of keys that are asked for evenly or often, against those of the same rows of a direct table;
// and updates of rows that are there, and of keys that come, or go and come.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include "measure_cuda.cuh"
#include "policies.cuh"
#include "support/zipf.hpp"
#include "warprank/hash_table/build.hpp"
#include "warprank/hash_table/image.hpp"
#include "warprank/ops/embedding_bag.cuh"
#include "warprank/ops/hash_table.cuh"

namespace warprank::bench {
namespace {

constexpr int64_t absent = -1;

int64_t key_of(int64_t row) { return static_cast<int64_t>(hash_table::fmix64(static_cast<uint64_t>(row) + 1)); }

/// The rows of a table, of FP16, in another order than their keys would be sorted in.
std::vector<float16> make_rows(int64_t num_rows, int64_t dim) {
  std::vector<float16> rows(static_cast<size_t>(num_rows * dim));
  for (size_t i = 0; i < rows.size(); ++i) rows[i].bits = static_cast<uint16_t>(0x3800 | (i * 40503 >> 5 & 0x3ff));
  return rows;
}

/// A table as the library has it, in device memory.
struct DeviceTable {
  DeviceTable(Memory& memory, int64_t num_rows, int64_t dim, double load, bool is_mutable)
      : num_rows(num_rows), dim(dim), rows(make_rows(num_rows, dim)) {
    for (int64_t r = 0; r < num_rows; ++r) keys.push_back(key_of(r));
    HashTableOptions options;
    options.load_factor = load;
    const HashTable table =
        build_hash_table({DType::f16, dim, is_mutable}, {num_rows, keys.data(), rows.data()}, options);
    view = view_hash_table(make_hash_table_header(table.view(), static_cast<uint64_t>(table.size())),
                           memory.upload(table.image()));
  }
  int64_t num_rows, dim;
  std::vector<int64_t> keys;
  std::vector<float16> rows;
  HashTableView view;
};

/// The table that several benchmarks in a row look up in.
const DeviceTable& shared_table(int64_t num_rows, int64_t dim, double load, bool is_mutable = false) {
  static std::unique_ptr<Memory>& memory = *new std::unique_ptr<Memory>;
  static std::unique_ptr<DeviceTable>& table = *new std::unique_ptr<DeviceTable>;
  static double load_of_table = 0;
  if (table == nullptr || table->num_rows != num_rows || table->dim != dim || load_of_table != load ||
      table->view.is_mutable != is_mutable) {
    table.reset(), memory = std::make_unique<Memory>();
    table = std::make_unique<DeviceTable>(*memory, num_rows, dim, load, is_mutable);
    load_of_table = load;
  }
  return *table;
}

// ---- Baselines. Rows are copied in pieces of 16 bytes.

using Piece = device::Vector<uint32_t, 4>;

/// rows[i] = from[index[i]], where there is one.
WARPRANK_KERNEL(256, 1)
gather_kernel(const Piece* from, const int64_t* index, int64_t num_wanted, int64_t pieces, Piece* rows) {
  for (int64_t i = device::global_thread_rank(); i < num_wanted * pieces; i += device::num_threads()) {
    const int64_t row = device::load_read_only(&index[i / pieces]);
    if (row != absent) device::store(&rows[i], device::load_read_only(&from[row * pieces + i % pieces]));
  }
}

struct ProbedSlot {
  int64_t key, row;  ///< row absent: empty
};

WARPRANK_KERNEL(256, 1)
linear_probing_kernel(const ProbedSlot* slots, uint64_t num_slots, const Piece* from, const int64_t* keys,
                      int64_t num_wanted, int64_t pieces, Piece* rows, uint8_t* found) {
  for (int64_t i = device::global_thread_rank(); i < num_wanted; i += device::num_threads()) {
    const int64_t key = device::load_read_only(&keys[i]);
    uint64_t at = hash_table::scale_hash(hash_table::fmix64(static_cast<uint64_t>(key)), num_slots);
    const auto read = [&](uint64_t slot) {
      const auto words = device::load_vector_read_only<2>(reinterpret_cast<const uint64_t*>(&slots[slot]));
      return ProbedSlot{static_cast<int64_t>(words[0]), static_cast<int64_t>(words[1])};
    };
    ProbedSlot slot = read(at);
    while (slot.row != absent && slot.key != key) {
      at = at + 1 == num_slots ? 0 : at + 1;
      slot = read(at);
    }
    device::store(&found[i], static_cast<uint8_t>(slot.row != absent));
    if (slot.row == absent) continue;
    for (int64_t p = 0; p < pieces; ++p)
      device::store(&rows[i * pieces + p], device::load_read_only(&from[slot.row * pieces + p]));
  }
}

std::vector<ProbedSlot> probed_slots(const std::vector<int64_t>& keys, double load) {
  const auto size = static_cast<uint64_t>(static_cast<double>(keys.size()) / load) + 1;
  std::vector<ProbedSlot> slots(size, {0, absent});
  for (size_t row = 0; row < keys.size(); ++row) {
    uint64_t at = hash_table::scale_hash(hash_table::fmix64(static_cast<uint64_t>(keys[row])), size);
    while (slots[at].row != absent) at = at + 1 == size ? 0 : at + 1;
    slots[at] = {keys[row], static_cast<int64_t>(row)};
  }
  return slots;
}

unsigned blocks_for(int64_t threads) {
  return static_cast<unsigned>(std::min<int64_t>((threads + 255) / 256, 1 << 16));
}

// ---- Benchmarks

/// `hits` of a hundred keys are in the table, drawn from a Zipf distribution.
void find(Run& run, int64_t dim, double load, int64_t hits, double alpha) {
  const int64_t num_wanted = size_for(1 << 18, 300);
  const DeviceTable& table = shared_table(size_for(2000000, 2000), dim, load);
  const test_support::Zipf zipf(table.num_rows, alpha);
  std::mt19937_64 random(1);
  std::vector<int64_t> keys, index;
  for (int64_t i = 0; i < num_wanted; ++i) {
    const bool hit = static_cast<int64_t>(test_support::uniform_01(random) * 100) < hits;
    index.push_back(hit ? zipf(random) : absent);
    keys.push_back(hit ? key_of(index.back()) : key_of(table.num_rows + i));
  }
  const int64_t row_bytes = 2 * dim, pieces = row_bytes / 16;
  const auto* const wanted = run.upload(keys);
  const auto* const places = run.upload(index);
  const auto* const plain_rows = reinterpret_cast<const Piece*>(run.upload(table.rows));
  const std::vector<ProbedSlot> slots = probed_slots(table.keys, load);
  const auto num_slots = static_cast<uint64_t>(slots.size());
  const auto* const probed = run.upload(slots);
  Piece* rows[3];
  uint8_t* found[3];
  for (int i = 0; i < 3; ++i) {
    rows[i] = run.allocate<Piece>(num_wanted * pieces);
    found[i] = run.allocate<uint8_t>(num_wanted);
  }
  const auto check = [&](int result, bool tells_found) {
    return [&, result, tells_found] {
      const auto got = run.read(reinterpret_cast<const float16*>(rows[result]), num_wanted * dim);
      const auto got_found = run.read(found[result], num_wanted);
      for (int64_t i = 0; i < num_wanted; ++i) {
        const int64_t row = index[static_cast<size_t>(i)];
        if (tells_found && (got_found[static_cast<size_t>(i)] != 0) != (row != absent))
          throw WrongResult("find: whether key " + std::to_string(i) + " is there");
        for (int64_t c = 0; row != absent && c < dim; ++c)
          if (got[static_cast<size_t>(i * dim + c)].bits != table.rows[static_cast<size_t>(row * dim + c)].bits)
            throw WrongResult("find: another row of key " + std::to_string(i));
      }
    };
  };

  // A line of 128 bytes for each key, and the row where it lies behind the line.
  const bool is_inline = table.view.shape.layout == hash_table::Layout::in_line;
  const auto moved = [&](double num_hits, double num_misses) {
    const double of_key = 128 + static_cast<double>(is_inline ? 0 : row_bytes);
    return num_hits * of_key + num_misses * 128;
  };
  std::unordered_set<int64_t> unique(index.begin(), index.end());
  unique.erase(absent);
  const auto num_hits =
      static_cast<double>(std::count_if(index.begin(), index.end(), [](int64_t r) { return r != absent; }));
  const double num_misses = static_cast<double>(num_wanted) - num_hits;
  const double beside = 9.0 * static_cast<double>(num_wanted) + num_hits * static_cast<double>(row_bytes);
  Work work{moved(static_cast<double>(unique.size()), num_misses) + beside};
  work.requested_bytes = moved(num_hits, num_misses) + beside;
  run.measure(work,
              {[&](device::Stream stream) {
                 hash_table::find(table.view, {wanted, num_wanted, nullptr}, rows[0], row_bytes, found[0], stream);
               },
               check(0, true)},
              {{"linear_probing",
                {[&](device::Stream stream) {
                   device::launch({blocks_for(num_wanted), 256, 0, stream}, linear_probing_kernel, probed, num_slots,
                                  plain_rows, wanted, num_wanted, pieces, rows[1], found[1]);
                 },
                 check(1, true)}},
               {"gather",
                {[&](device::Stream stream) {
                   device::launch({blocks_for(num_wanted * pieces), 256, 0, stream}, gather_kernel, plain_rows, places,
                                  num_wanted, pieces, rows[2]);
                 },
                 check(2, false)}}});
}

// ---- By EmbeddingBag

/// Which rows are looked up: `absent` by a key that the table does not have, and beyond the rows of a direct one.
struct Wanted {
  std::vector<int64_t> rows, keys, ids;
};
Wanted wanted_rows(int64_t num_rows, int64_t count, int64_t hits, double alpha) {
  const test_support::Zipf zipf(num_rows, alpha);
  std::mt19937_64 random(2);
  Wanted wanted;
  for (int64_t i = 0; i < count; ++i) {
    const bool hit = static_cast<int64_t>(test_support::uniform_01(random) * 100) < hits;
    const int64_t row = hit ? zipf(random) : absent;
    wanted.rows.push_back(row);
    wanted.keys.push_back(key_of(hit ? row : num_rows + i));
    wanted.ids.push_back(hit ? row : num_rows + i);
  }
  return wanted;
}

/// One feature of `bag_size` ids in each bag, of a hashed table or of one with rows in the order of their numbers.
class LookUps {
 public:
  LookUps(Run& run, const DeviceTable& table, const float16* direct_rows, const Wanted& wanted, int64_t bag_size,
          bool counts, const LaunchPolicies& policies = usual_policies())
      : run_(run), table_(table), rows_(wanted.rows), bag_size_(bag_size) {
    const bool is_hashed = direct_rows == nullptr;
    const auto num_ids = static_cast<int64_t>(rows_.size()), num_bags = num_ids / bag_size;
    BagFeature feature;
    feature.table.type = DType::f16, feature.table.dim = table.dim;
    feature.table.rows = direct_rows, feature.table.num_rows = table.num_rows;
    feature.table.row_stride_bytes = feature.table.row_bytes();
    if (is_hashed) feature.hashed = table.view;
    IdArray array;
    array.ids = run.upload(is_hashed ? wanted.keys : wanted.ids);
    array.num_ids.capacity = num_ids;
    if (bag_size > 1) {
      std::vector<int64_t> offsets;
      for (int64_t b = 0; b <= num_bags; ++b) offsets.push_back(b * bag_size);
      array.offsets = run.upload(offsets);
      feature.pooling = Pooling::sum;
    }
    feature.ids = array;
    feature.num_bags.capacity = num_bags;
    y_ = run.allocate<float16>(num_bags * table.dim);
    feature.y = Matrix<float16>{y_, num_bags, table.dim};
    if (counts) feature.counters = run.allocate<LookupCounters>(1);
    queue_ = queue_launch(run, EmbeddingBag(Span<const BagFeature>(&feature, 1), policies));
  }

  Call call() const {
    return {queue_, [this] { check(); }};
  }

 private:
  /// Sums of so few elements of one binade are exact.
  void check() const {
    const int64_t dim = table_.dim, num_bags = static_cast<int64_t>(rows_.size()) / bag_size_;
    const std::vector<float16> got = run_.read(y_, num_bags * dim);
    for (int64_t b = 0; b < num_bags; b += 17) {
      for (int64_t c = 0; c < dim; ++c) {
        float sum = 0;
        for (int64_t i = b * bag_size_; i < (b + 1) * bag_size_; ++i) {
          const int64_t row = rows_[static_cast<size_t>(i)];
          if (row != absent) sum += to_float(table_.rows[static_cast<size_t>(row * dim + c)]);
        }
        if (got[static_cast<size_t>(b * dim + c)].bits != to_float16(sum).bits)
          throw WrongResult("look-ups: bag " + std::to_string(b));
      }
    }
  }

  Run& run_;
  const DeviceTable& table_;
  const std::vector<int64_t> rows_;
  const int64_t bag_size_;
  float16* y_ = nullptr;
  Queue queue_;
};

/// Bags of keys, spread over blocks in several ways.
void spread(Run& run, int64_t dim, int64_t bag_size, int64_t num_bags, const PolicySweep& sweep) {
  const int64_t num_rows = size_for(2000000, 2000);
  const DeviceTable& table = shared_table(num_rows, dim, 0.8);
  const Wanted wanted = wanted_rows(num_rows, bag_size * num_bags, 95, 1.05);
  std::vector<std::unique_ptr<const LookUps>> looked_up;
  compare_policies(run, sweep, [&](const LaunchPolicies& policies) {
    looked_up.push_back(std::make_unique<const LookUps>(run, table, nullptr, wanted, bag_size, false, policies));
    return looked_up.back()->call();
  });
}

/// Beside the same rows of a direct table; where keys are asked for unevenly, also beside as many that are asked for
/// evenly. `counts` gives all of them counters.
void look_up(Run& run, int64_t dim, int64_t load, int64_t hits, double alpha, int64_t bag_size, bool is_mutable,
             bool counts) {
  const int64_t num_wanted = size_for(1 << 18, 320), num_rows = size_for(2000000, 2000);
  const DeviceTable& table = shared_table(num_rows, dim, static_cast<double>(load) / 100, is_mutable);
  const float16* const direct_rows = run.upload(table.rows);
  const Wanted wanted = wanted_rows(num_rows, num_wanted, hits, alpha);
  const Wanted evenly = wanted_rows(num_rows, num_wanted, hits, 0);
  const LookUps hashed(run, table, nullptr, wanted, bag_size, counts);
  const LookUps direct(run, table, direct_rows, wanted, bag_size, counts);
  const LookUps even_hashed(run, table, nullptr, evenly, bag_size, counts);
  const LookUps even_direct(run, table, direct_rows, evenly, bag_size, counts);
  const std::unordered_set<int64_t> unique(wanted.rows.begin(), wanted.rows.end());
  const auto row_bytes = static_cast<double>(2 * dim);
  const auto bytes = [&](double keys) {
    return keys * (128 + row_bytes) + static_cast<double>(num_wanted) * (8 + row_bytes / static_cast<double>(bag_size));
  };
  Work work{bytes(static_cast<double>(unique.size()))};
  work.requested_bytes = bytes(static_cast<double>(num_wanted));
  std::vector<Baseline> beside{{"direct", direct.call()}};
  if (alpha > 0) {
    beside.push_back({"evenly", even_hashed.call()});
    beside.push_back({"direct_evenly", even_direct.call()});
  }
  run.measure(work, hashed.call(), beside);
}

// ---- Updates

/// Makes a table empty and gives it keys, against the first alone.
void insert(Run& run, int64_t batch) {
  constexpr int64_t dim = 64, row_bytes = 2 * dim;
  const DeviceTable table(run, size_for(1000000, 3000), dim, 0.8, true);
  std::vector<int64_t> keys;
  for (int64_t i = 0; i < batch; ++i) keys.push_back(key_of(i));
  const hash_table::Keys wanted{run.upload(keys), {batch}};
  const auto* const rows = run.upload(table.rows.data(), batch * dim);
  auto* const statuses = run.allocate<hash_table::Status>(batch);
  uint64_t epoch = 0;  // all in one stream: what came before is done
  const auto clear = [&](device::Stream stream) { hash_table::clear(table.view, stream); };
  const auto queue = [&](device::Stream stream) {
    clear(stream);
    ++epoch;
    hash_table::insert_or_assign(table.view, wanted, rows, row_bytes, {epoch, epoch - 1}, statuses, stream);
  };
  const auto check = [&] {
    for (const hash_table::Status status : run.read(statuses, batch))
      if (status != hash_table::Status::inserted) throw WrongResult("insert: a key is not inserted");
    if (run.read(table.view.size, 1)[0] != static_cast<uint64_t>(batch)) throw WrongResult("insert: another size");
  };
  const auto check_clear = [&] {
    if (run.read(table.view.size, 1)[0] != 0) throw WrongResult("insert: keys are left");
  };
  // Keys and rows are read, rows and lines written, those of all buckets before.
  const double bytes = static_cast<double>(batch) * (8 + 1 + 2 * 128 + 2.0 * row_bytes) +
                       128.0 * static_cast<double>(table.view.num_buckets());
  run.measure({bytes}, {queue, check, false}, {{"clear", {clear, check_clear, false}}});
}

/// A batch of keys gets new rows. Keys whose bucket another one of the batch is changing are deferred, and counted.
void update(Run& run, int64_t batch, bool erases_first) {
  constexpr int64_t dim = 64, row_bytes = 2 * dim;
  const DeviceTable table(run, size_for(1000000, 3000), dim, 0.8, true);
  std::vector<int64_t> keys;
  std::vector<float16> rows;
  for (int64_t i = 0; i < batch; ++i) {
    keys.push_back(key_of(i * (table.num_rows / batch)));
    for (int64_t c = 0; c < dim; ++c) rows.push_back(to_float16(static_cast<float>((i + c) % 512)));
  }
  const hash_table::Keys wanted{run.upload(keys), {batch}};
  const auto* const new_rows = run.upload(rows);
  auto* const statuses = run.allocate<hash_table::Status>(batch);
  auto* const erased = run.allocate<hash_table::Status>(batch);
  auto* const found = run.allocate<uint8_t>(batch);
  auto* const found_rows = run.allocate<float16>(batch * dim);

  uint64_t epoch = 0;  // all in one stream: what came before is done
  const auto next_epoch = [&] {
    ++epoch;
    return hash_table::Epoch{epoch, epoch - 1};
  };
  const auto queue = [&](device::Stream stream) {
    if (erases_first) hash_table::erase(table.view, wanted, next_epoch(), erased, stream);
    hash_table::insert_or_assign(table.view, wanted, new_rows, row_bytes, next_epoch(), statuses, stream);
  };
  const auto check = [&] {
    hash_table::find(table.view, wanted, found_rows, row_bytes, found, run.stream());
    const auto told = run.read(statuses, batch);
    const auto got = run.read(found_rows, batch * dim);
    int64_t deferred = 0;
    for (int64_t i = 0; i < batch; ++i) {
      using Status = hash_table::Status;
      const Status status = told[static_cast<size_t>(i)];
      deferred += status == Status::deferred;
      if (status == Status::deferred) continue;
      if (status != Status::updated && !(erases_first && status == Status::inserted))
        throw WrongResult("update: key " + std::to_string(i) + " is neither updated nor deferred");
      for (int64_t c = 0; c < dim; ++c)
        if (got[static_cast<size_t>(i * dim + c)].bits != rows[static_cast<size_t>(i * dim + c)].bits)
          throw WrongResult("update: key " + std::to_string(i) + " has another row");
    }
    if (2 * deferred > batch) throw WrongResult("update: more than half of the keys are deferred");
    run.count("deferred_fraction", static_cast<double>(deferred) / static_cast<double>(batch));
  };
  // Keys and rows are read, lines read and written, rows written.
  const double bytes = static_cast<double>(batch) * (8 + 1 + 2 * 128 + 2.0 * row_bytes);
  run.measure({bytes}, {queue, check, false});
}

}  // namespace

void add_benchmarks() {
  for (const int64_t dim : {16, 64})
    for (const int64_t load : {50, 80, 95}) {
      const std::string table = "hash_table/find/dim:" + std::to_string(dim) + "/load_percent:" + std::to_string(load);
      const auto add_find = [&](int64_t hits, double alpha, const std::string& ids) {
        add(table + "/hit_percent:" + std::to_string(hits) + ids,
            [=](Run& run) { find(run, dim, static_cast<double>(load) / 100, hits, alpha); });
      };
      for (const int64_t hits : {100, 50, 0}) add_find(hits, 0, "");
      if (load == 80) add_find(100, 1.05, "/alpha:1.05"), add_find(100, 1.15, "/alpha:1.15");
    }
  for (const int64_t dim : {16, 64}) {
    for (const int64_t load : {50, 80})
      for (const int64_t hits : {100, 50})
        for (const int64_t bag_size : {1, 16})
          add("hash_table/look_up/dim:" + std::to_string(dim) + "/load_percent:" + std::to_string(load) +
                  "/hit_percent:" + std::to_string(hits) + "/bag:" + std::to_string(bag_size),
              [=](Run& run) { look_up(run, dim, load, hits, 0, bag_size, false, false); });
    for (const bool is_mutable : {false, true})
      for (const char* alpha : {"1.05", "1.15"})
        for (const bool counts : {false, true})
          add("hash_table/look_up/dim:" + std::to_string(dim) + "/load_percent:80/alpha:" + alpha +
                  (is_mutable ? "/mutable" : "") + (counts ? "/counted" : ""),
              [=](Run& run) { look_up(run, dim, 80, 95, std::stod(alpha), 1, is_mutable, counts); });
  }
  const PolicySweep rounds{"look_up_rounds_of_keys", &LaunchPolicies::look_up_rounds_of_keys, {0, 1, 2, 4}};
  for (const int64_t dim : {16, 64})
    for (const int64_t bag_size : {4, 16, 50})
      for (const int64_t num_bags : {50, 500, 4000})
        if (on_gpu || (dim == 16 && bag_size == 4 && num_bags == 50))
          add_policy(rounds,
                     "hash_table/look_up/dim:" + std::to_string(dim) + "/bag:" + std::to_string(bag_size) +
                         "/bags:" + std::to_string(num_bags),
                     [=](Run& run, const PolicySweep* sweep) { spread(run, dim, bag_size, num_bags, *sweep); });
  for (const int64_t batch : {1024, 16384}) {
    const int64_t size = size_for(batch, batch / 32);
    add("hash_table/insert/keys:" + std::to_string(batch), [=](Run& run) { insert(run, size); });
    add("hash_table/update/keys:" + std::to_string(batch), [=](Run& run) { update(run, size, false); });
    add("hash_table/erase_and_insert/keys:" + std::to_string(batch), [=](Run& run) { update(run, size, true); });
  }
}

}  // namespace warprank::bench
