// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The parts of a plan's request: the axes and the inputs, in the order in which blobs hold them. docs/BATCH_FORMAT.md
/// describes the bytes.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "warprank/core/compiled.hpp"
#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/model/graph.hpp"

namespace warprank { inline namespace v0 {

/// The newest version of the blob format that this library reads and writes; it also reads and writes all earlier
/// versions.
inline constexpr uint32_t batch_format_version = 2;

/// Names resolved once. An index counts ids inputs, dense inputs and axes each from 0, in the order of the graph.
struct IdsSlot {
  int index = -1;
};
struct DenseSlot {
  int index = -1;
};
struct AxisSlot {
  int index = -1;
};

/// The axes and inputs of a graph. Immutable; plain data, no device.
class BatchLayout {
 public:
  /// Throws invalid_argument with every problem when the graph's axes or inputs are not well formed: axis 0 has no
  /// parent, every other axis comes after its parent, names are unique, dense inputs have 1 to 2^20 columns.
  WARPRANK_HOST_INLINE explicit BatchLayout(const Graph& graph);

  const std::vector<AxisInfo>& axes() const { return axes_; }
  const std::vector<IdsInfo>& ids() const { return ids_; }
  const std::vector<DenseInfo>& dense() const { return dense_; }
  const AxisInfo& axis(AxisSlot slot) const { return axes_[static_cast<size_t>(slot.index)]; }
  const IdsInfo& ids(IdsSlot slot) const { return ids_[static_cast<size_t>(slot.index)]; }
  const DenseInfo& dense(DenseSlot slot) const { return dense_[static_cast<size_t>(slot.index)]; }

  /// Names to slots. Throws invalid_argument for an unknown name, with the nearest one, and for an input of the other
  /// kind.
  IdsSlot ids(const std::string& name) const { return {find_input(name, true)}; }
  DenseSlot dense(const std::string& name) const { return {find_input(name, false)}; }
  WARPRANK_HOST_INLINE AxisSlot axis(const std::string& name) const;

  /// Whether blobs hold offsets for an axis: its parent is not the outermost axis, so it may have several segments.
  bool has_offsets(AxisSlot slot) const { return slot.index > 0 && axis(slot).parent > 0; }

  /// Whether other axes are nested in an axis.
  bool has_children(AxisSlot slot) const {
    for (const AxisInfo& other : axes_)
      if (other.parent == slot.index) return true;
    return false;
  }

  /// Identifies the axes and inputs, their order, widths and defaults: equal fingerprints mean that blobs of one plan
  /// may go to the other, whatever the types of their inputs. Guards against mistakes, not against forgery; the hashed
  /// bytes are listed in docs/BATCH_FORMAT.md.
  uint64_t fingerprint() const { return fingerprint_; }
  /// The same, with the types: all blobs of a batch have the types of its layout.
  uint64_t batch_fingerprint() const { return batch_fingerprint_; }

  /// The oldest version of the blob format that can hold the layout's inputs: 1 if none is narrow.
  uint32_t version() const { return has_narrow_inputs() ? 2 : 1; }
  bool has_narrow_inputs() const { return has_narrow_inputs_; }

  /// The same axes and inputs with ids of 64 bits and dense values of FP32: its blobs are of version 1, for peers that
  /// know no other.
  WARPRANK_HOST_INLINE BatchLayout wide() const;

 private:
  using Names = std::map<std::string, int>;

  WARPRANK_HOST_INLINE static invalid_argument unknown(const char* what, const char* expected, const std::string& name,
                                                       const Names& known);

  /// Inputs are numbered ids first, then dense.
  WARPRANK_HOST_INLINE int find_input(const std::string& name, bool as_ids) const;

  WARPRANK_HOST_INLINE void check_axes(Problems& problems);

  WARPRANK_HOST_INLINE void check_input(Problems& problems, const std::string& what, const std::string& name, int axis);

  WARPRANK_HOST_INLINE void check_inputs(Problems& problems);

  WARPRANK_HOST_INLINE void make_fingerprints();

  std::vector<AxisInfo> axes_;
  std::vector<IdsInfo> ids_;
  std::vector<DenseInfo> dense_;
  Names axis_names_;
  Names input_names_;
  bool has_narrow_inputs_ = false;  // of every blob that is read
  uint64_t fingerprint_ = 0, batch_fingerprint_ = 0;
};

}}  // namespace warprank::v0

#if !defined(WARPRANK_HOST_COMPILED)
#include "warprank/batch/layout_definitions.hpp"
#endif
