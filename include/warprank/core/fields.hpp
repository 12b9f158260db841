// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Reflection in the small: a plain struct lists its members once, and equality, JSON and hashing follow from the list.
///
///     struct Point { int x, y; };
///     constexpr auto fields_of(const Point*) { return std::make_tuple(field("x", &Point::x), field("y", &Point::y)); }

#include <tuple>
#include <type_traits>
#include <utility>

namespace warprank { inline namespace v0 {

/// As a name: behind nvcc's front end g++ -Wall finds parentheses in a declaration that has none.
template <class Struct, class Member>
using PointerToMember = Member Struct::*;

template <class Struct, class Member>
struct Field {
  const char* name;
  PointerToMember<Struct, Member> member;
  bool is_optional = false;  ///< JSON need not have it: then it keeps the value of a new struct
};

template <class Struct, class Member>
constexpr Field<Struct, Member> field(const char* name, Member Struct::*member) {
  return {name, member};
}
template <class Struct, class Member>
constexpr Field<Struct, Member> optional_field(const char* name, Member Struct::*member) {
  return {name, member, true};
}

template <class Struct, class = void>
struct HasFields : std::false_type {};
template <class Struct>
struct HasFields<Struct, std::void_t<decltype(fields_of(static_cast<const Struct*>(nullptr)))>> : std::true_type {};

/// Calls `body(field)` for every listed member, in order.
template <class Struct, class Body>
constexpr void for_each_field_of(Body&& body) {
  std::apply([&](const auto&... fields) { (body(fields), ...); }, fields_of(static_cast<const Struct*>(nullptr)));
}
/// Calls `body(name, object.member)` for every listed member, in order.
template <class Struct, class Body>
constexpr void for_each_field(Struct& object, Body&& body) {
  for_each_field_of<Struct>([&](const auto& field) { body(field.name, object.*field.member); });
}

/// Memberwise equality for every struct that lists its fields.
template <class Struct, class = std::enable_if_t<HasFields<Struct>::value>>
constexpr bool operator==(const Struct& a, const Struct& b) {
  return std::apply([&](const auto&... fields) { return ((a.*fields.member == b.*fields.member) && ...); },
                    fields_of(static_cast<const Struct*>(nullptr)));
}
template <class Struct, class = std::enable_if_t<HasFields<Struct>::value>>
constexpr bool operator!=(const Struct& a, const Struct& b) {
  return !(a == b);
}

}}  // namespace warprank::v0
