// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "execute/launch.hpp"
#include "model/card.hpp"
#include "model/code_caches.hpp"
#include "model/second_level.hpp"
#include "model/simulation.hpp"

namespace t4 {

/// Runs launches by the model where time is asked for, and reports them; keeps the device's time.
///   T4_TIME=1       from the beginning; else between t4_time(1) and t4_time(0) of the program
///   T4_CARD=FILE    the card, else the T4 that tools/t4/run names
///   T4_PROFILE=20   where the warp that ends last is, so many lines
///   T4_REPORT=FILE  a line of JSON for each launch, too
///   T4_BLOCKS=1     in it, where each block was, and when
class Timer {
 public:
  Timer();

  bool is_on() const { return is_on_; }
  void turn(bool on) { is_on_ = on; }
  void label(const std::string& name) { label_ = name; }
  /// Empties the L2.
  void cool() { second_level().clear(); }
  void run(Launch& launch);

  /// For launches that are not: an instruction of a warp is a nanosecond, so that those who measure find something.
  void count(const Executed& executed) { microseconds_ += 1 + 1e-3 * static_cast<double>(executed.instructions); }

  /// The device's time.
  double microseconds() const { return microseconds_; }
  const Card& card();

 private:
  SecondLevel& second_level();

  bool is_on_;
  std::string label_;
  std::unique_ptr<Card> card_;
  std::unique_ptr<SecondLevel> second_level_;
  std::unique_ptr<CodeMemory> code_;
  std::unique_ptr<Previous> previous_;  ///< of the launch before
  double microseconds_ = 0;
};

}  // namespace t4
