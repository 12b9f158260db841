// SPDX-License-Identifier: Apache-2.0

#include <cstdio>
#include <cstring>
#include <typeinfo>

#include "version.hpp"

std::string steps_of_the_other();
std::string refusal_of_the_other();
const char* plan_type_of_the_other();
void throw_as_the_other();

int main() {
  if (std::strcmp(typeid(warprank::Plan).name(), plan_type_of_the_other()) == 0)
    return std::puts("expected two types of plans, got one"), 1;
  if (plan_of_tower().describe() != steps_of_the_other()) return std::puts("expected equal plans, got others"), 1;
  if (refusal() != refusal_of_the_other() || refusal() == "uncaught" || refusal() == "accepted")
    return std::printf("expected equal refusals, got '%s' and '%s'\n", refusal().c_str(),
                       refusal_of_the_other().c_str()),
           1;
  try {
    throw_as_the_other();
  } catch (const warprank::error&) {
    return std::puts("caught the other version's error as this version's"), 1;
  } catch (const std::logic_error&) {
    return 0;
  }
  return std::puts("expected an error, got none"), 1;
}
