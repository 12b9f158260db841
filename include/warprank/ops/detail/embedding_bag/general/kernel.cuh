// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the paths of embedding_bag/kernel.cuh cannot do: it is decided at run time what is done with each id. A
/// block works on one feature at a time; its warps take *units* of it:
///
/// - up to 32 bags, each lane knowing one. A *tile* of 8, 16 or 32 lanes, as many as a row needs, streams ids of its
///   bags, neighbours in memory, and has several rows on their way whatever bags they belong to. Short bags are summed
///   in the order of their ids.
/// - a bag of more than max_short_bag ids is shared by the tiles of a warp, a consecutive part for each, and their sums
///   are added in the order of a butterfly.
/// - of a bag of more than ids_per_piece ids the unit takes the first piece only. The others are units of their own,
///   found by where they begin; whoever is last to finish a piece adds all of them in order.
///
/// What order a bag is summed in depends on its length, and on how many tiles a warp has.

#include <cstdint>

#include "warprank/device/collectives.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/ops/detail/embedding_bag/general/descriptor.hpp"
#include "warprank/ops/detail/embedding_bag/general/ids.cuh"
#include "warprank/ops/detail/embedding_bag/general/rows.cuh"
#include "warprank/ops/detail/embedding_bag/general/work.cuh"
#include "warprank/ops/detail/hash_find.cuh"

namespace warprank::detail::embedding_bag::general {

/// Sets what the lanes have, and gives the length of the tile's stream. A bag without ids is an element, too.
WARPRANK_DEVICE int begin_stream(const Warp& warp, WarpWork& work, const unsigned char* ids,
                                 const unsigned char* weights, int length, bool is_empty) {
  const int elements = is_empty ? 1 : length;
  int end = elements;
  for (int distance = 1; distance < warp.tile(); distance *= 2) {
    const int before = device::shuffle_up(device::full_warp, end, distance, warp.tile());
    if (warp.rank() >= distance) end += before;
  }
  device::sync_warp();
  work.lanes[device::lane_index()] = {ids, weights, end - elements, length};
  device::sync_warp();
  return warp.shuffle(end, warp.tile() - 1);
}

/// The element that is `at` for the tile's first lane, at + 1 for the next.
WARPRANK_DEVICE Id read_id(const Warp& warp, const WarpWork& work, int at, int total) {
  const Descriptor& f = warp.f;
  const int e = at + warp.rank();
  Id id{0, 1, Element::info_of(Kind::nothing, 0, false)};
  if (e >= total) return id;
  // The last lane that starts at or before e: of those that start together, all but the last have nothing.
  const int first = device::lane_index() - warp.rank();
  int owner = 0;
  for (int step = warp.tile() / 2; step > 0; step /= 2) {
    if (work.lanes[first + owner + step].start <= e) owner += step;
  }
  const WarpWork::Ids& bag = work.lanes[first + owner];
  const int within = e - bag.start;
  const bool is_empty = bag.length == 0;
  id.info = Element::info_of(is_empty ? Kind::padding : Kind::row, owner, within >= bag.length - 1);
  if (is_empty) return id;
  id.value = bag.ids == nullptr ? f.default_id : load_id(bag.ids, within, f.ids_are_narrow);
  if (f.is_weighted) {
    id.weight = bag.weights == nullptr ? f.default_value : load_weight(f, bag.weights + within * f.weights_stride);
  }
  return id;
}

/// Finds the row of each lane's id. All lanes of the warp call.
WARPRANK_DEVICE Element find_row(const Warp& warp, const Id& id, Counts& counts) {
  const Descriptor& f = warp.f;
  const bool is_id = Element::kind(id.info) == Kind::row, is_padding = is_id && f.has_padding && id.value == f.padding;
  const bool is_sought = is_id && !is_padding;
  Element element{nullptr, id.weight, 0, 0, id.info};
  if (f.is_hashed) {
    element.row = find_rows(f.table, static_cast<uint64_t>(id.value), is_sought);
    if (f.type == DType::i8 && element.row != nullptr) {
      const auto* scale = reinterpret_cast<const float*>(element.row + (f.dim + 3) / 4 * 4);
      const bool may_change = f.table.is_mutable;
      using namespace device;  // NOLINT: a device function
      element.scale = may_change ? load<Order::relaxed, Scope::device>(scale) : load_constant(scale);
      element.offset = may_change ? load<Order::relaxed, Scope::device>(scale + 1) : load_constant(scale + 1);
    }
  } else if (is_sought && 0 <= id.value && id.value < f.num_rows) {
    element.row = f.rows + id.value * f.row_stride_bytes;
    if (f.type == DType::i8) {
      element.scale = device::load_constant(&f.scale[id.value]);
      element.offset = device::load_constant(&f.offset[id.value]);
    }
  }
  const bool is_missing = is_sought && element.row == nullptr;
  if (is_padding) element.info |= static_cast<uint32_t>(Kind::padding) << 6;  // from Kind::row, which is 0
  if (is_missing) element.info |= static_cast<uint32_t>(Kind::default_row) << 6;
  if (f.counters != nullptr && warp.pass == 0) {
    counts.add(Counts::ids, is_id);
    counts.add(Counts::missing, is_missing);
    counts.add(Counts::padding, is_padding);
  }
  return element;
}

/// Divides, and stores the lane's columns of bag b.
WARPRANK_DEVICE void store_bag(const Warp& warp, int64_t b, Pool& pool) {
  const int num_columns = warp.num_columns();
  divide(pool, num_columns, divisor_of(warp.f, pool));
  store_columns(warp.f, b, warp.column(), num_columns, pool);
}

/// Loads the lane's parts of the rows of elements [begin, begin + fit): with 16 words, 4 rows of 4 words, or 8 rows.
WARPRANK_DEVICE void load_rows(const Warp& warp, const Element& mine, int begin, int count, RawRows& raw) {
  const RowShape& shape = warp.f.shape;
  const bool may_change = warp.f.is_hashed && warp.f.table.is_mutable;
  const int part_at = warp.part() * shape.lane_bytes, words = row_words(warp.f);
  const auto part_of = [&](int k) -> const unsigned char* {
    const unsigned char* row = warp.shuffle(mine.row, begin + k);
    return begin + k < count && row != nullptr && warp.has_part() ? row + part_at : nullptr;
  };
  if (words == 4) {
    WARPRANK_UNROLL
    for (int k = 0; k < 4; ++k) {
      const unsigned char* part = part_of(k);
      if (part != nullptr) load_raw<4>(may_change, part, &raw.words[4 * k]);
    }
  } else if (words == 2) {
    WARPRANK_UNROLL
    for (int k = 0; k < 8; ++k) {
      const unsigned char* part = part_of(k);
      if (part != nullptr) load_raw<2>(may_change, part, &raw.words[2 * k]);
    }
  } else if (shape.load_bytes == 4) {
    WARPRANK_UNROLL
    for (int k = 0; k < 8; ++k) {
      const unsigned char* part = part_of(k);
      if (part != nullptr) load_raw<1>(may_change, part, &raw.words[k]);
    }
  } else {
    WARPRANK_UNROLL
    for (int k = 0; k < 8; ++k) {
      const unsigned char* part = part_of(k);
      if (part != nullptr) raw.words[k] = load_narrow(shape, part);
    }
  }
}

/// Adds row `raw`, or the default row, to the pool.
WARPRANK_DEVICE void add_element(const Warp& warp, Kind kind, const RawRows& raw, float weight, float scale,
                                 float offset, Pool& pool) {
  const Descriptor& f = warp.f;
  const bool is_max = f.pooling == Pooling::max;
  const int words = row_words(f);
  count_element(f, pool, weight);
  if (kind == Kind::default_row) {
    add_default_row(f, pool, warp.column(), warp.num_columns(), weight);
  } else if (f.type == DType::f32) {
    add_row<float>(pool, raw, words, is_max, weight, scale, offset);
  } else if (f.type == DType::f16) {
    add_row<half>(pool, raw, words, is_max, weight, scale, offset);
  } else if (f.type == DType::bf16) {
    add_row<bfloat16>(pool, raw, words, is_max, weight, scale, offset);
  } else {
    add_row<int8_t>(pool, raw, words, is_max, weight, scale, offset);
  }
}

/// Adds the rows of the tile's next `count` elements: at most one for each lane; other tiles may have others. Unless
/// the tiles pool one bag `together`, bags are stored where they end.
WARPRANK_DEVICE void add_rows(const Warp& warp, const WarpWork& work, const Element& mine, int count, bool together,
                              Pool& pool, Counts& counts) {
  using namespace device;  // NOLINT: a device function
  const Descriptor& f = warp.f;
  const int words = row_words(f), in_flight = words == 4 ? 4 : 8;
  RawRows raw{};
  for (int begin = 0; any(full_warp, begin < count); begin += in_flight) {
    load_rows(warp, mine, begin, count, raw);
    // Not unrolled, or there would be as many copies of all that can be done with a row.
    for (int e = begin; e < begin + in_flight && any(full_warp, e < count); ++e) {
      const uint32_t info = warp.shuffle(mine.info, e);
      const float weight = warp.shuffle(mine.weight, e);
      float scale = 0, offset = 0;
      if (f.type == DType::i8) {
        scale = warp.shuffle(mine.scale, e);
        offset = warp.shuffle(mine.offset, e);
      }
      const Kind kind = Element::kind(info);
      const bool ends = !together && e < count && Element::is_last(info);
      if (e < count && kind != Kind::padding) add_element(warp, kind, raw, weight, scale, offset, pool);
      if (f.counters != nullptr && warp.pass == 0) {
        counts.add(Counts::empty_bags, ends && pool.elements == 0 && warp.rank() == 0);
      }
      if (ends) {
        const int64_t b = work.first + warp.tile_index() * work.per_tile + Element::owner(info);
        store_bag(warp, b, pool);
        clear(pool, f.pooling == Pooling::max);
      }
      if (words == 4) {
        move_up<4>(raw);
      } else if (words == 2) {
        move_up<2>(raw);
      } else {
        move_up<1>(raw);
      }
    }
  }
}

/// Pools the streams of the warp's tiles, as add_rows; the caller's has `total` elements. Ids are read while the rows
/// of the ids before are on their way.
WARPRANK_DEVICE void pool_stream(const Warp& warp, const WarpWork& work, int total, bool together, Pool& pool,
                                 Counts& counts) {
  clear(pool, warp.f.pooling == Pooling::max);
  Id next{};
  for (int at = -warp.tile(); device::any(device::full_warp, at < total); at += warp.tile()) {
    Element element{};
    if (at >= 0) element = find_row(warp, next, counts);
    next = read_id(warp, work, at + warp.tile(), total);
    const int rest = total - at;
    if (at >= 0) add_rows(warp, work, element, rest < warp.tile() ? rest : warp.tile(), together, pool, counts);
  }
}

/// Adds what the tiles have of one bag; all get the result.
WARPRANK_DEVICE void add_tiles(const Warp& warp, Pool& pool) {
  using namespace device;  // NOLINT: a device function
  for (int distance = warp.tile(); distance < warp_size; distance *= 2) {
    WARPRANK_UNROLL
    for (int i = 0; i < max_lane_elements; ++i) {
      if (i >= warp.elements_per_part()) break;
      const float other = shuffle_xor(full_warp, pool.values[i], distance);
      pool.values[i] = warp.f.pooling == Pooling::max ? larger(pool.values[i], other) : pool.values[i] + other;
    }
    pool.elements += shuffle_xor(full_warp, pool.elements, distance);
    pool.divisor += shuffle_xor(full_warp, pool.divisor, distance);
  }
}

/// The pieces of the bag that the warp works on, and their results in the workspace.
struct Pieces {
  const Descriptor& f;
  const WarpWork& work;
  unsigned char* workspace;
  int64_t ids_per_piece;

  /// Of the piece that begins at the bag's id `from`.
  WARPRANK_DEVICE Partial* partial(int64_t from) const {
    const int64_t slot = 2 * ((work.begin + from) / ids_per_piece) + (from == 0 ? 1 : 0);
    return reinterpret_cast<Partial*>(workspace + f.partials_at + slot * partial_bytes(f.dim));
  }
  WARPRANK_DEVICE void store(const Warp& warp, const Pool& pool) const {
    Partial* const to = partial(work.from);
    if (warp.tile_index() == 0) {
      store_vectors<1>(reinterpret_cast<float*>(to + 1) + warp.column(), pool.values, warp.num_columns());
    }
    if (device::lane_index() != 0) return;
    device::store(&to->elements, uint64_t{pool.elements});
    device::store(&to->divisor, pool.divisor);
  }
  /// Whether all pieces are stored now and the caller was the last.
  WARPRANK_DEVICE bool arrive() const {
    using namespace device;  // NOLINT: a device function
    sync_warp();
    const auto last = static_cast<uint32_t>((work.length - 1) / ids_per_piece);
    uint32_t ticket = 0;
    if (lane_index() == 0) {
      auto* tickets = reinterpret_cast<uint32_t*>(workspace + f.tickets_at);
      ticket = take_ticket<Order::acq_rel, Scope::device>(&tickets[work.begin / ids_per_piece], last);
    }
    ticket = shuffle(full_warp, ticket, 0);
    sync_warp();
    return ticket == last;
  }
  /// The sum of all pieces, in order.
  WARPRANK_DEVICE void combine(const Warp& warp, Pool& pool) const {
    const bool is_max = f.pooling == Pooling::max;
    clear(pool, is_max);
    for (int64_t from = 0; from < work.length; from += ids_per_piece) {
      const Partial* other = partial(from);
      const float* values = reinterpret_cast<const float*>(other + 1) + warp.column();
      WARPRANK_UNROLL
      for (int i = 0; i < max_lane_elements; ++i) {
        if (i >= warp.num_columns()) break;
        const float value = device::load(values + i);
        pool.values[i] = is_max ? larger(pool.values[i], value) : pool.values[i] + value;
      }
      pool.elements += static_cast<uint32_t>(device::load(&other->elements));
      pool.divisor += device::load(&other->divisor);
    }
  }
};

/// Stores the bag that all tiles have pooled together.
WARPRANK_DEVICE void store_together(const Warp& warp, const WarpWork& work, Pool& pool, Counts& counts) {
  counts.add(Counts::empty_bags, device::lane_index() == 0 && warp.pass == 0 && pool.elements == 0);
  if (warp.tile_index() == 0) store_bag(warp, work.b, pool);
}

/// Begins the next streams: each tile's short bags, or `together` the first of the unit's `long_bags`, which are told
/// by the lane that has them. Gives the length of the tile's; false when there is nothing to do.
template <int Target>
WARPRANK_DEVICE bool next_streams(const Warp& warp, WarpWork& work, bool together, int& total) {
  using namespace device;  // NOLINT: a device function
  constexpr int64_t piece = policy<Target>.ids_per_piece;
  const Descriptor& f = warp.f;
  const uint32_t long_bags = together ? work.long_bags : 0;
  const int lane = together ? first_bit(long_bags) : lane_index();
  const int place = warp.tile_index(lane) * work.per_tile + warp.rank(lane);
  const bool is_mine = warp.rank(lane) < work.per_tile && place < work.num_bags;
  Bag bag{0, 0, nullptr, nullptr};
  if (is_mine) bag = find_bag(f, work.first + place);
  if (!together) {
    const bool is_short = is_mine && bag.length <= policy<Target>.max_short_bag;
    const uint32_t longer = ballot(full_warp, is_mine && !is_short);
    if (lane_index() == 0) work.long_bags = longer;
    total = begin_stream(warp, work, bag.ids, bag.weights, is_short ? static_cast<int>(bag.length) : 0,
                         is_short && bag.length == 0);
    return any(full_warp, is_short);
  }
  int64_t from = 0;
  if (work.window >= 0) {
    from = (work.window - bag.begin + piece - 1) / piece * piece;
  }
  const bool is_cut = f.cuts_bags && bag.length > piece;
  sync_warp();
  if (lane_index() == 0) {
    work.long_bags = long_bags & (long_bags - 1);
    work.b = work.first + place;
    work.begin = bag.begin;
    work.length = bag.length;
    work.from = from;
    work.is_cut = is_cut;
  }
  sync_warp();
  const int64_t rest = bag.length - from;
  const int length = static_cast<int>(is_cut && rest > piece ? piece : rest);
  const int share = (length + warp.num_tiles() - 1) / warp.num_tiles();
  const int begin = warp.tile_index() * share, rest_of_share = length - begin;
  const int elements = rest_of_share < 0 ? 0 : rest_of_share < share ? rest_of_share : share;
  const int64_t first = from + begin;
  total = begin_stream(warp, work, bag.ids == nullptr ? nullptr : address_of_id(bag.ids, first, f.ids_are_narrow),
                       bag.weights == nullptr ? nullptr : bag.weights + first * f.weights_stride,
                       warp.rank() == 0 ? elements : 0, false);
  return work.window < 0 || (from > 0 && rest > 0);
}

/// Pools the bags, or the piece, that `work` names.
template <int Target>
WARPRANK_DEVICE void pool_unit(Warp& warp, WarpWork& work, unsigned char* workspace, Counts& counts) {
  const Pieces pieces{warp.f, work, workspace, policy<Target>.ids_per_piece};
  for (bool together = work.window >= 0; !together || work.long_bags != 0; together = true) {
    int total;
    if (!next_streams<Target>(warp, work, together, total)) continue;
    Pool pool;
    for (warp.pass = 0; warp.has_pass(); ++warp.pass) {
      pool_stream(warp, work, total, together, pool, counts);
      if (!together) continue;
      add_tiles(warp, pool);
      if (work.is_cut) {
        pieces.store(warp, pool);
      } else {
        store_together(warp, work, pool, counts);
      }
    }
    if (!together || !work.is_cut || !pieces.arrive()) continue;
    for (warp.pass = 0; warp.has_pass(); ++warp.pass) {
      pieces.combine(warp, pool);
      store_together(warp, work, pool, counts);
    }
  }
}

/// Adds what the warp has counted in a unit.
WARPRANK_DEVICE void add_counts(const Descriptor& f, const Counts& counts) {
  using namespace device;  // NOLINT: a device function
  if (counts.mine == 0 || lane_index() >= Counts::num_lanes) return;
  int64_t* const counters[] = {&f.counters->ids, f.is_hashed ? &f.counters->unknown : &f.counters->out_of_range,
                               &f.counters->padding, &f.counters->empty_bags};
  int64_t* counter = counters[0];
  WARPRANK_UNROLL
  for (int i = 1; i < Counts::num_lanes; ++i) counter = lane_index() == i ? counters[i] : counter;
  atomic_add<Order::relaxed, Scope::device>(reinterpret_cast<uint64_t*>(counter), uint64_t{counts.mine});
}

/// Says how a feature's bags are divided among `num_workers` warps.
template <int Target>
WARPRANK_DEVICE void divide_feature(FeatureWork& feature, int64_t num_workers) {
  constexpr int64_t piece = policy<Target>.ids_per_piece;
  Descriptor& f = feature.f;
  if (is_in_requests(f.form)) {  // read once for all that is looked for in them
    f.max_requests = device::true_count(f.num_requests, f.max_requests);
    f.num_requests = nullptr;
  }
  const int64_t bags = num_bags(f), per_worker = (bags + num_workers - 1) / num_workers;
  feature.bags = bags;
  feature.num_workers = num_workers;
  feature.bags_per_unit = per_worker < 1 ? 1 : per_worker > device::warp_size ? device::warp_size : per_worker;
  feature.bag_units = (bags + feature.bags_per_unit - 1) / feature.bags_per_unit;
  const int64_t ids = f.cuts_bags && bags > 0 ? num_ids(f, bags) : 0;
  feature.units = feature.bag_units + (ids > 0 ? (ids - 1) / piece : 0);
}

/// Sets work to unit `unit` of the feature. Lane 0 calls.
template <int Target>
WARPRANK_DEVICE void begin_unit(const FeatureWork& feature, const Warp& warp, WarpWork& work, int64_t unit) {
  constexpr int64_t piece = policy<Target>.ids_per_piece;
  work.unit = unit;
  work.long_bags = 1;
  if (unit >= feature.units) return;
  if (unit < feature.bag_units) {
    work.first = unit * feature.bags_per_unit;
    const int64_t rest = feature.bags - work.first;
    work.num_bags = static_cast<int>(rest < feature.bags_per_unit ? rest : feature.bags_per_unit);
    work.window = -1;
  } else {
    work.window = (unit - feature.bag_units + 1) * piece;
    work.first = bag_at(feature.f, feature.bags, work.window);
    work.num_bags = 0 <= work.first && work.first < feature.bags ? 1 : 0;
  }
  work.per_tile = (work.num_bags + warp.num_tiles() - 1) / warp.num_tiles();
}

/// Shared memory of a block.
template <int Target>
struct Shared {
  FeatureWork feature;
  WarpWork warps[policy<Target>.threads / device::warp_size];
};

/// Does what the first_block-th of `num_blocks` blocks does.
template <int Target>
WARPRANK_DEVICE void run_block(Shared<Target>& shared, const Partition& partition, const Descriptor* features,
                               unsigned char* workspace, uint32_t first_block, uint32_t num_blocks) {
  using namespace device;  // NOLINT: a device function
  constexpr int num_warps = policy<Target>.threads / warp_size;
  FeatureWork& feature = shared.feature;
  WarpWork& work = shared.warps[warp_index()];
  wait_for_previous_launch();
  for (uint32_t block = first_block; block < partition.num_blocks; block += num_blocks) {
    uint32_t g = 0;
    while (g + 1 < partition.num_groups && block >= partition.groups[g + 1].first_block) ++g;
    const Group group = partition.groups[g];
    const uint32_t within = block - group.first_block;
    if (block != first_block) sync_block();  // the feature before is done with
    if (warp_index() == 0) {
      using Word = Vector<uint64_t, 2>;
      const auto* words =
          reinterpret_cast<const Word*>(&features[group.first_feature + within / group.blocks_per_feature]);
      if (lane_index() * sizeof(Word) < group.descriptor_bytes) {
        reinterpret_cast<Word*>(&feature.f)[lane_index()] = load_constant(&words[lane_index()]);
      }
      sync_warp();
      if (lane_index() == 0) divide_feature<Target>(feature, int64_t{group.blocks_per_feature} * num_warps);
    }
    sync_block();
    Warp warp{feature.f, 0};
    if (lane_index() == 0) {
      begin_unit<Target>(feature, warp, work, int64_t{within % group.blocks_per_feature} * num_warps + warp_index());
    }
    sync_warp();
    while (work.unit < feature.units) {
      Counts counts;
      if (work.num_bags > 0) pool_unit<Target>(warp, work, workspace, counts);
      if (feature.f.counters != nullptr) add_counts(feature.f, counts);
      sync_warp();
      if (lane_index() == 0) begin_unit<Target>(feature, warp, work, work.unit + feature.num_workers);
      sync_warp();
    }
  }
}

}  // namespace warprank::detail::embedding_bag::general
