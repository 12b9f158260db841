// SPDX-License-Identifier: Apache-2.0

#include "warprank/ops/scaled_rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "reference/embedding_bag.hpp"
#include "support/message_of.hpp"

namespace warprank { namespace {

constexpr double u = 0x1p-24;
using Bytes = std::vector<unsigned char>;

TEST(ScaledRows, KeepsTheBitsOfI8RowsAtAnyAddress) {
  std::mt19937_64 random(1);
  for (const int64_t dim : {1, 4, 7, 8, 9, 16, 100}) {
    constexpr int64_t num_rows = 5, at = 1;  // byte 1 of what is aligned
    const int64_t stride = dim + 3;
    Bytes rows(static_cast<size_t>(at + num_rows * stride)), numbers(static_cast<size_t>(at + num_rows * 8));
    for (unsigned char& byte : rows) byte = static_cast<unsigned char>(random());
    for (int64_t i = 0; i < 2 * num_rows; ++i) {
      const auto number = static_cast<float>(i) + 0.1f;
      std::memcpy(numbers.data() + at + 4 * i, &number, 4);
    }
    TableView table{DType::i8, rows.data() + at, num_rows, dim, stride};
    table.scale = reinterpret_cast<const float*>(numbers.data() + at);
    table.offset = reinterpret_cast<const float*>(numbers.data() + at + 4);
    table.scale_stride_bytes = 8;

    const int64_t bytes = scaled_row_bytes(dim);
    EXPECT_EQ(bytes % 8, 0);
    Bytes to(static_cast<size_t>(3 * bytes), 0xff);
    to_scaled_rows(table, 2, 3, to.data());
    const TableView view = view_scaled_rows(to.data(), 3, dim);
    for (int64_t r = 0; r < 3; ++r) {
      const unsigned char* const row = to.data() + r * bytes;
      EXPECT_EQ(view.row(r), row);
      EXPECT_EQ(std::memcmp(row, table.row(r + 2), static_cast<size_t>(dim)), 0);
      EXPECT_EQ(Bytes(row + dim, row + bytes - 8), Bytes(static_cast<size_t>(bytes - 8 - dim), 0));
      EXPECT_EQ(*view.scale_of(r), static_cast<float>(2 * (r + 2)) + 0.1f);
      EXPECT_EQ(*view.offset_of(r), static_cast<float>(2 * (r + 2) + 1) + 0.1f);
    }
  }
}

/// A row of `type` at an odd address.
struct FloatRow {
  FloatRow(DType type, const std::vector<float>& x)
      : bytes(1 + x.size() * static_cast<size_t>(size_of(type))),
        view{type, bytes.data() + 1, 1, static_cast<int64_t>(x.size()), static_cast<int64_t>(bytes.size()) - 1} {
    for (size_t c = 0; c < x.size(); ++c) {
      unsigned char* const to = bytes.data() + 1 + c * static_cast<size_t>(size_of(type));
      const uint16_t as_half = to_float16(x[c]).bits, as_bfloat16 = to_bfloat16(x[c]).bits;
      if (type == DType::f32) std::memcpy(to, &x[c], 4);
      if (type == DType::f16) std::memcpy(to, &as_half, 2);
      if (type == DType::bf16) std::memcpy(to, &as_bfloat16, 2);
    }
  }
  FloatRow(const FloatRow&) = delete;
  FloatRow& operator=(const FloatRow&) = delete;

  Bytes bytes;
  TableView view;
};

/// That elements err by half a level at most.
void expect_near(DType type, const std::vector<float>& x) {
  const FloatRow given(type, x);
  const int64_t dim = given.view.dim;
  Bytes to(static_cast<size_t>(scaled_row_bytes(dim)));
  to_scaled_rows(given.view, 0, 1, to.data());
  const TableView kept = view_scaled_rows(to.data(), 1, dim);
  std::vector<double> exact(x.size());
  double magnitude = 0;
  for (int64_t c = 0; c < dim; ++c)
    reference::table_element(given.view, 0, c, exact[static_cast<size_t>(c)], magnitude);
  const auto [least, most] = std::minmax_element(exact.begin(), exact.end());
  const double level = (*most - *least) / 255, largest = std::max(std::fabs(*least), std::fabs(*most));
  for (int64_t c = 0; c < dim; ++c) {
    double got = 0;
    reference::table_element(kept, 0, c, got, magnitude);
    ASSERT_LE(std::fabs(got - exact[static_cast<size_t>(c)]), level / 2 + 2 * u * largest)
        << name_of(type) << ", element " << c << " of " << dim << ": " << exact[static_cast<size_t>(c)] << ", got "
        << got;
  }
  if (*least == *most) {
    EXPECT_EQ(*kept.scale, 0);
    EXPECT_EQ(*kept.offset, static_cast<float>(*least));
  }
}

TEST(ScaledRows, ErrByHalfALevelAtMost) {
  std::mt19937_64 random(2);
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    for (const int64_t dim : {1, 2, 3, 8, 17, 128}) {
      for (const double scale : {1e-3, 1.0, 300.0}) {
        for (const double shift : {0.0, 1.0, -40.0}) {
          std::normal_distribution<double> normal(shift * scale, scale);
          std::vector<float> x(static_cast<size_t>(dim));
          for (float& value : x) value = static_cast<float>(normal(random));
          expect_near(type, x);
        }
      }
    }
    expect_near(type, {3, 3, 3});
    expect_near(type, {0, 0});
    expect_near(type, {-65504, 65504, 1});
  }
  constexpr float most = std::numeric_limits<float>::max();
  expect_near(DType::f32, {-most, most, 0, 1e38f});
  expect_near(DType::f32, {most, most});
  expect_near(DType::f32, {1, 1 + 0x1p-23f, 1 + 0x1p-22f});
}

TEST(ScaledRows, RefusesWhatItCannotTake) {
  const FloatRow good(DType::f32, {1, 2, 3});
  Bytes to(64);
  const auto message = [&](const TableView& table, int64_t first = 0, int64_t count = 1) {
    return test_support::message_of([&] { to_scaled_rows(table, first, count, to.data()); });
  };
  EXPECT_EQ(message(good.view), "");
  EXPECT_EQ(message(good.view, 1, 0), "");
  EXPECT_EQ(message(good.view, 1), "scaled rows: rows: expected some of 1, got 1 from 1 on");
  EXPECT_EQ(message(good.view, -1), "scaled rows: rows: expected some of 1, got 1 from -1 on");
  EXPECT_EQ(message(good.view, 0, -1), "scaled rows: rows: expected some of 1, got -1 from 0 on");
  TableView wrong = good.view;
  wrong.num_rows = 2, wrong.row_stride_bytes = 8;
  EXPECT_EQ(message(wrong, 0, 2), "scaled rows: row stride: expected at least 12 bytes, got 8");
  wrong = good.view;
  wrong.rows = nullptr;
  EXPECT_EQ(message(wrong), "scaled rows: rows: expected memory, got null");
  wrong = good.view;
  wrong.type = DType::i8;
  EXPECT_EQ(message(wrong), "scaled rows: scale and offset: expected those of I8 rows, got null");
  wrong.type = DType::i64, wrong.dim = 0;
  EXPECT_NE(message(wrong).find("scaled rows: type: expected F32, F16, BF16 or I8, got I64"), std::string::npos);
  EXPECT_NE(message(wrong).find("scaled rows: dim: expected 1 to 2^40, got 0"), std::string::npos);
  for (const float value : {INFINITY, -INFINITY, NAN}) {
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
      EXPECT_EQ(message(FloatRow(type, {1, value, 3}).view),
                "scaled rows: row 0: expected finite elements, got one that is not");
    }
  }
}

}}  // namespace warprank
