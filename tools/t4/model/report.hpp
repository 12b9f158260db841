// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "model/card.hpp"
#include "model/timing.hpp"

namespace t4 {

/// One line for people.
std::string describe(const std::string& name, const Timing& timing, const Card& card);
/// The same as JSON, on a line; where it is asked for with each block's multiprocessor, begin and end.
std::string to_json(const std::string& name, const Timing& timing, bool has_blocks = false);
/// Where the warp that ends last spends its time: the lines with the most, each on one.
std::string describe_last_warp(const Timing& timing, int most_lines);
/// A kernel's name without its parameters, readable.
std::string short_name(const std::string& mangled);

}  // namespace t4
