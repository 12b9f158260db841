// SPDX-License-Identifier: Apache-2.0
#include "runtime/timer.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "model/report.hpp"
#include "model/simulation.hpp"
#include "runtime/runtime.hpp"

namespace t4 {
namespace {

const char* setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

}  // namespace

Timer::Timer() : is_on_(setting("T4_TIME") != nullptr) {}

const Card& Timer::card() {
  if (!card_) {
    const char* path = setting("T4_CARD");
    if (path == nullptr)
      throw std::runtime_error("the card is not named: expected a file of tools/t4/cards in T4_CARD");
    card_ = std::make_unique<Card>(read_card(path));
  }
  return *card_;
}

SecondLevel& Timer::second_level() {
  if (!second_level_) second_level_ = std::make_unique<SecondLevel>(card());
  return *second_level_;
}

void Timer::run(Launch& launch) {
  const int profiled_lines = setting("T4_PROFILE") == nullptr ? 0 : std::atoi(setting("T4_PROFILE"));
  if (!code_) code_ = std::make_unique<CodeMemory>(card());
  const bool overlaps = launch.overlaps && previous_;
  Simulation simulation(card(), second_level(), *code_, launch, profiled_lines > 0,
                        overlaps ? previous_.get() : nullptr);
  const Timing timing = simulation.run();
  previous_ = std::make_unique<Previous>(simulation.as_previous());
  microseconds_ += timing.microseconds + (overlaps ? card().dependent_launch_microseconds : card().launch_microseconds);
  if (label_ == "-") return;
  const std::string name = label_.empty() ? short_name(launch.function->name) : label_;
  std::fprintf(stderr, "t4: %s\n%s", describe(name, timing, card()).c_str(),
               describe_last_warp(timing, profiled_lines).c_str());
  if (const char* path = setting("T4_REPORT"))
    std::ofstream(path, std::ios::app) << to_json(name, timing, setting("T4_BLOCKS") != nullptr) << "\n";
}

}  // namespace t4

// What programs may call that know of it: they declare it as weak, and ask whether it is there.
extern "C" {
/// Whether the next launches are timed.
void t4_time(int on) {
  t4::Runtime::get().call([&] {
    t4::Runtime::get().timer.turn(on != 0);
    return cudaSuccess;
  });
}
/// What they are called in reports; "" is the kernel's name, "-" no report.
void t4_label(const char* name) {
  t4::Runtime::get().call([&] {
    t4::Runtime::get().timer.label(name);
    return cudaSuccess;
  });
}
/// The L2 has nothing.
void t4_cold() {
  t4::Runtime::get().call([] {
    t4::Runtime::get().timer.cool();
    return cudaSuccess;
  });
}
}
