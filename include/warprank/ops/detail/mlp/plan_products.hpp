// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host's part of product.cuh: checks products of heads, and says what each head is of them. Stack is Mlp and
/// Product is HeadProduct of ops/mlp.cuh.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/ops/detail/common/check_matrix.hpp"
#include "warprank/ops/detail/mlp/product.cuh"
#include "warprank/ops/detail/mlp/workspace_cursor.hpp"

namespace warprank { inline namespace v0 { namespace detail::mlp {

/// Of a launch: a head is a factor of each at most once.
inline constexpr int64_t max_head_products = 255;
/// Stacks of a launch that has products, whose factors are numbered.
inline constexpr int64_t max_stacks_of_products = 65536 / max_head_products;

inline std::string name_of_stack(int64_t i) { return "mlp " + std::to_string(i); }

/// Products of heads of `stacks`, whose fused layers begin at `first`.
template <class Stack, class Product>
void check_products(Span<const Stack> stacks, Span<const Product> products, int64_t first, Problems& problems) {
  // So many are told apart in a descriptor.
  if (products.size() > max_head_products)
    problems.add("products of heads", "at most " + std::to_string(max_head_products), std::to_string(products.size()));
  if (products.size() > 0 && stacks.size() > max_stacks_of_products)
    problems.add("stacks with products of heads", "at most " + std::to_string(max_stacks_of_products),
                 std::to_string(stacks.size()));
  const auto num_rows_of = [&](int64_t i) { return stacks[i].num_rows; };
  for (int64_t p = 0; p < products.size(); ++p) {
    const std::string what = "product " + std::to_string(p) + " of heads";
    const auto& factors = products[p].stacks;
    if (factors.size() < 2) problems.add(what, "two stacks or more", std::to_string(factors.size()));
    for (int64_t f = 0; f < factors.size(); ++f) {
      const int64_t i = factors[f];
      if (i < 0 || i >= stacks.size()) {
        problems.add(what, "stacks 0 to " + std::to_string(stacks.size() - 1), std::to_string(i));
        continue;
      }
      const Stack& stack = stacks[i];
      const int64_t depth = stack.layers.size();
      if (std::count(factors.begin(), factors.end(), i) > 1)
        problems.add(what, "stacks that differ", name_of_stack(i) + " twice");
      if (depth < 2 || stack.layers[depth - 1].out != 1 || first == depth)
        problems.add(what, "stacks that end in a layer of one output, which is fused", name_of_stack(i));
      const bool is_like_first =
          factors[0] < 0 || factors[0] >= stacks.size() || num_rows_of(factors[0]) == num_rows_of(i);
      if (stack.x.rows != products[p].y.rows || !is_like_first)
        problems.add(what, "stacks of the same rows", name_of_stack(i) + " of others");
    }
    check_matrix(what, products[p].y, products[p].y.rows, 1, problems);
  }
}

/// What heads are of products, by stack. Of each product the first two factors meet in the same words, each further one
/// meets the product of those before it.
template <class Stack, class Product>
std::vector<std::vector<HeadFactor>> factors_of(Span<const Stack> stacks, Span<const Product> products,
                                                WorkspaceCursor& memory) {
  std::vector<std::vector<HeadFactor>> of_stack(static_cast<size_t>(stacks.size()));
  struct Place {
    size_t stack, factor;
  };
  std::vector<std::vector<Place>> places;  // of the factors of each product
  for (const Product& product : products) {
    const int64_t num = product.stacks.size();
    std::vector<Place>& of_product = places.emplace_back();
    uint32_t* words = nullptr;
    for (int64_t f = 0; f < num; ++f) {
      if (f != 1) words = reinterpret_cast<uint32_t*>(memory.take(4 * product.y.rows));
      HeadFactor factor{words, nullptr, product.y.stride, product.y.type == DType::f16, -1};
      if (f + 1 == num || num == 2) factor.y = product.y.data;
      const auto stack = static_cast<size_t>(product.stacks[f]);
      of_product.push_back({stack, of_stack[stack].size()});
      of_stack[stack].push_back(factor);
    }
  }
  std::vector<int> first(of_stack.size() + 1, 0);  // of those of each stack, among all
  for (size_t s = 0; s < of_stack.size(); ++s) first[s + 1] = first[s] + static_cast<int>(of_stack[s].size());
  for (const std::vector<Place>& of_product : places)
    for (size_t f = 0; f + 1 < of_product.size(); ++f) {
      const size_t next = std::max<size_t>(f + 1, 2);
      if (next >= of_product.size()) continue;
      const Place to = of_product[next];
      of_stack[of_product[f].stack][of_product[f].factor].next = first[to.stack] + static_cast<int>(to.factor);
    }
  return of_stack;
}

}}}  // namespace warprank::v0::detail::mlp
