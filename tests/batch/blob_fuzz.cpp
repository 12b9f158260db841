// SPDX-License-Identifier: Apache-2.0

/// No bytes may crash validation; what it accepts is read inside its bytes, and a Request that sets what was read packs
/// the bytes that it becomes in a batch, which are the same in the layout's types: there is one way to write a request.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "batch/blob_testing.hpp"
#include "batch/random_requests.hpp"
#include "warprank/batch/batch.hpp"

namespace {

using namespace warprank;
using namespace warprank::batch_testing;

void require(bool holds) {
  if (!holds) std::abort();
}

/// Reads all that the view offers by setting a request from it.
void set_from(Request& request, const BlobView& view, const BatchLayout& layout) {
  for (int a = 1; a < static_cast<int>(layout.axes().size()); ++a) {
    const Span<const uint32_t> offsets = view.offsets({a});
    if (!offsets.empty()) request.offsets({a}, std::vector<int64_t>(offsets.begin(), offsets.end()));
  }
  for (int i = 0; i < static_cast<int>(layout.ids().size()); ++i)
    if (view.has(IdsSlot{i})) request.ids({i}, ids_of(view, layout, {i}));
  for (int i = 0; i < static_cast<int>(layout.dense().size()); ++i)
    if (view.has(DenseSlot{i})) request.dense({i}, dense_of(view, layout, {i}));
}

bool has_types_of(const BatchLayout& layout, const BlobView& view) {
  bool same = true;
  for (int i = 0; i < static_cast<int>(layout.ids().size()); ++i)
    same = same && view.type(IdsSlot{i}) == layout.ids(IdsSlot{i}).wire;
  for (int i = 0; i < static_cast<int>(layout.dense().size()); ++i)
    same = same && view.type(DenseSlot{i}) == layout.dense(DenseSlot{i}).wire;
  return same;
}

void check(const uint8_t* data, size_t size, const BatchLayout& layout) {
  const std::unique_ptr<std::byte[]> exact(new std::byte[size]);  // ends where the blob ends
  if (size > 0) std::memcpy(exact.get(), data, size);
  const Span<const std::byte> blob(exact.get(), static_cast<int64_t>(size));
  const Status status = validate_blob(blob, layout);
  require(status.ok() == status.message.empty() && status.message.size() < 1000);
  if (!status.ok()) return;
  Batch batch(layout);
  Request request = batch.add_request();
  set_from(request, BlobView(blob.data(), layout), layout);
  request.finish();
  const Request added = batch.add_blob(blob);  // in the layout's types, which the blob need not have
  require(added.status().code == request.status().code);
  require(request.status().ok() || request.status().code == StatusCode::out_of_range);
  if (!request.status().ok()) return;
  require(bytes_of(batch, 0) == bytes_of(batch, 1));
  if (has_types_of(layout, BlobView(blob.data(), layout)))
    require(bytes_of(batch, 0) == Bytes(blob.begin(), blob.end()));
}

}  // namespace

/// The first byte chooses a layout, 0 the small one, 1 the same of narrow inputs; the rest is a blob, tried as it is
/// and again with a header put right, which few mutations keep.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  Random random(data[0]);
  const BatchLayout layout(data[0] == 0 ? small_graph() : data[0] == 1 ? narrow_graph() : random_graph(random));
  check(data + 1, size - 1, layout);

  std::vector<uint8_t> repaired(data + 1, data + size);
  repaired.resize(repaired.size() / 8 * 8);
  if (repaired.size() < sizeof(BlobHeader)) return 0;
  BlobHeader header{};
  std::memcpy(header.magic, blob_magic, sizeof blob_magic);
  header.version = layout.version();
  header.bytes = static_cast<uint32_t>(repaired.size());
  header.fingerprint = layout.fingerprint();
  header.num_axes = static_cast<uint32_t>(layout.axes().size());
  header.num_ids = static_cast<uint32_t>(layout.ids().size());
  header.num_dense = static_cast<uint32_t>(layout.dense().size());
  std::memcpy(repaired.data(), &header, sizeof header);
  check(repaired.data(), repaired.size(), layout);
  return 0;
}
