// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Reader and writer of safetensors files.
///
///     bytes          content
///     [0, 8)         n, the length of the header, unsigned, little-endian, <= 100,000,000
///     [8, 8 + n)     JSON: {"<name>": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..}, then spaces
///     [8 + n, end)   the tensors, row-major, little-endian; data_offsets count from here
///
/// The optional key "__metadata__" maps strings to strings. The tensors cover the data without holes or overlaps.
/// Source: https://huggingface.co/docs/safetensors (format description).

#include <cstddef>
#include <map>
#include <string>

#include "warprank/core/compiled.hpp"
#include "warprank/core/mapped_file.hpp"
#include "warprank/core/view.hpp"
#include "warprank/weights/tensor.hpp"

namespace warprank { inline namespace v0 {

/// The content of a file; the tensors point into its bytes.
struct SafetensorsContent {
  std::map<std::string, TensorView> tensors;
  std::map<std::string, std::string> metadata;
};

/// Throws invalid_argument, about `where`, unless the tensor has as many bytes as its type and shape need.
WARPRANK_HOST_INLINE void check_bytes(const std::string& where, const TensorView& tensor);

/// Reads a file that is already in memory; `file` names it in messages. Returns views into `bytes`: nothing is copied,
/// and no alignment is assumed. Checks everything in the table above, and also: no name, key or field twice; no other
/// field; at most 64 dimensions; bytes = elements x element size, computed without overflow. Tensors of types that
/// warprank does not read (F64, I32, BOOL, ..) are checked and listed, with an empty dtype; types that the format does
/// not know are refused, since their sizes cannot be checked. Throws invalid_argument for the first error.
WARPRANK_HOST_INLINE SafetensorsContent parse_safetensors(const std::string& file, Span<const std::byte> bytes);

/// A safetensors file mapped read-only; its tensors are valid as long as it lives (see MappedFile on replacing files).
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path) : file_(path), content_(parse_safetensors(path, file_.bytes())) {}

  const std::map<std::string, TensorView>& tensors() const { return content_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return content_.metadata; }

 private:
  MappedFile file_;
  SafetensorsContent content_;
};

/// Lays tensors out as a file: by element type, wider ones first, then by name, so that every tensor is aligned to its
/// elements and equal content gives equal bytes, the same as from the format's own Rust library; the header is padded
/// with spaces to a multiple of 8. Throws invalid_argument for a name that is not UTF-8 or is "__metadata__", and for a
/// tensor whose type, shape and bytes disagree.
WARPRANK_HOST_INLINE std::string serialize_safetensors(const std::map<std::string, TensorView>& tensors,
                                                       const std::map<std::string, std::string>& metadata = {});

/// Writes the same beside `path` and renames it over `path`, so that no reader sees half a file, and a mapping of the
/// old file stays valid. Throws invalid_argument also when writing fails.
WARPRANK_HOST_INLINE void write_safetensors(const std::string& path, const std::map<std::string, TensorView>& tensors,
                                            const std::map<std::string, std::string>& metadata = {});

}}  // namespace warprank::v0

#if !defined(WARPRANK_HOST_COMPILED)
#include "warprank/weights/safetensors_definitions.hpp"
#endif
