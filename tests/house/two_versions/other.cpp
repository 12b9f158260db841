// SPDX-License-Identifier: Apache-2.0

// The library as another version, which it would be with v0 replaced in its sources.
#define v0 v9000

#include "version.hpp"

static_assert(__is_same(warprank::Plan, warprank::v9000::Plan));

std::string steps_of_the_other() { return plan_of_tower().describe(); }
std::string refusal_of_the_other() { return refusal(); }
const char* plan_type_of_the_other() { return typeid(warprank::Plan).name(); }
void throw_as_the_other() { throw warprank::usage_error("of the other"); }
