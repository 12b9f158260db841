// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The result of one request. Wrong data that arrives while serving is answered with a Status; exceptions are for
/// mistakes in the calling program.

#include <string>

namespace warprank { inline namespace v0 {

enum class StatusCode {
  ok,
  malformed,      ///< bytes that are no blob: truncated, misaligned, sections at forbidden places
  wrong_version,  ///< a blob of another version of the format
  wrong_plan,     ///< a blob for other axes or inputs
  inconsistent,   ///< row counts, lengths or offsets that disagree
  missing_input,  ///< not set, and has no default
  set_twice,      ///< one input or axis set more than once
  not_finite,     ///< NaN or infinity in a dense input
  too_large,      ///< more than a blob can hold
  out_of_range    ///< an id or a dense value that does not fit the type of its input in requests
};

struct Status {
  StatusCode code = StatusCode::ok;
  std::string message;  ///< empty when ok

  bool ok() const { return code == StatusCode::ok; }
};

}}  // namespace warprank::v0
