// SPDX-License-Identifier: Apache-2.0
#pragma once

// What each of two versions of the library does in one program.

#include <warprank/model.hpp>

#include <string>
#include <typeinfo>

/// The steps of a small model's plan.
inline warprank::Plan plan_of_tower() {
  const auto tower = [](warprank::Builder& b) -> warprank::Outputs {
    const auto item = b.axis("item");
    return {{"score", b.sigmoid(b.linear("top", b.relu(b.linear("bottom", b.dense("x", item, 4), 8)), 1))}};
  };
  return warprank::compile(tower);
}

/// What it says of a model that is wrong; "uncaught" where this version does not know the error as its own.
inline std::string refusal() {
  try {
    warprank::compile([](warprank::Builder& b) -> warprank::Outputs {
      return {{"score", b.dense("x", b.axis("item"), -1)}};
    });
  } catch (const warprank::error& error) {
    return error.what();
  } catch (...) {
    return "uncaught";
  }
  return "accepted";
}
