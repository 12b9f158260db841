// SPDX-License-Identifier: Apache-2.0

#include <warprank/engine/served_model.hpp>
#include <warprank/ids/fingerprint.hpp>
#include <warprank/serving.hpp>
#include <warprank/store/table_in_store.hpp>

#include <memory>

#include "../tiny_model.hpp"

static bool ids_are_right() {
  return warprank::ids::Fingerprint(17).value() == warprank::ids::Fingerprint("17").value();
}

static bool stores_are_right() {
  warprank::TableInStore nowhere;
  warprank::LoadOptions options;
  options.stores = {{"film", nowhere}};
  const TinyModel tiny = tiny_model();
  try {
    warprank::Tables::load(tiny.model.plan(), warprank::Weights::from_tensors({}), warprank::host(), options);
  } catch (const warprank::invalid_argument& error) {
    return std::string(error.what()) == "LoadOptions::stores of 'film': expected a store, got none";
  }
  return false;
}

static bool service_is_right() {
  TinyModel tiny = tiny_model();
  const warprank::Plan plan = tiny.model.plan();
  warprank::ServedModel served(std::move(tiny.model), std::move(tiny.tables));
  warprank::RankingService service(served);
  const warprank::Reply reply =
      service.score([&](warprank::Request request) { fill_tiny_request(plan, request); }).get();
  return reply.outcome == warprank::Outcome::scored && are_right(reply.scores[0]);
}

int main() { return ids_are_right() && stores_are_right() && service_is_right() ? 0 : 1; }
