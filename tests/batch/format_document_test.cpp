// SPDX-License-Identifier: Apache-2.0

/// docs/BATCH_FORMAT.md shows what the code does: its example is packed again and its Python program is run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "batch/blob_testing.hpp"
#include "warprank/batch/batch.hpp"
#include "warprank/model.hpp"

namespace {

using namespace warprank;
using namespace warprank::batch_testing;

/// The code block of a language.
std::string block(const std::string& language) {
  std::ifstream file(std::string(WARPRANK_TEST_DATA) + "/../docs/BATCH_FORMAT.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string fence = "```" + language + "\n";
  const size_t begin = text.find(fence);
  if (begin == std::string::npos) return "";
  return text.substr(begin + fence.size(), text.find("```", begin + fence.size()) - begin - fence.size());
}

/// The hexadecimal digits of a block whose lines have a position, bytes, and what they are.
std::string shown_in(const std::string& language) {
  std::istringstream lines(block(language));
  std::string shown;
  for (std::string line; std::getline(lines, line);) {
    const size_t bytes_end = line.find("  ", 6);
    EXPECT_GT(line.size(), 6u);
    if (line.size() <= 6) break;
    EXPECT_EQ(std::stoul(line.substr(0, 4), nullptr, 10), shown.size() / 2) << line;
    for (const char c : line.substr(6, bytes_end - 6))
      if (c != ' ') shown += c;
  }
  return shown;
}

std::string hex_of(Span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(byte));
    text += digits;
  }
  return text;
}

Outputs example(Builder& b, IdsOptions film_options, DenseOptions context_options) {
  const Axis user = b.axis("user"), item = b.axis("item", user), genres = b.axis("genres", item, keep_last(8));
  const Ids user_id = b.ids("user_id", user), film_id = b.ids("film_id", item, film_options),
            genre = b.ids("genre", genres);
  const Tensor hour = b.dense("hour", user, 1, {12.0f}), context = b.dense("context", item, 2, context_options);
  const Table any = b.hashed_table("any", {4});
  const Tensor user_side = b.expand(b.concat({b.embed(user_id, any), hour}), item);
  return {{"score", b.concat({user_side, b.embed(film_id, any), b.embed_bag(genre, any, mean), context})}};
}

Outputs wide_example(Builder& b) { return example(b, {}, {}); }
Outputs narrow_example(Builder& b) {
  return example(b, {{}, {}, IdsWire::i32}, {{}, DenseWire::f16, OutOfRange::saturate});
}

Batch example_batch(Outputs (*model)(Builder&) = wide_example) {
  Batch batch(BatchLayout(build(model)), {}, 2);
  const BatchLayout& layout = batch.layout();
  batch.add_request()
      .ids(layout.ids("user_id"), {42})
      .ids(layout.ids("film_id"), {7, 1000000007})
      .ids(layout.ids("genre"), {3, 5, 3}, Lengths{2, 1})
      .dense(layout.dense("context"), {0.5f, 1.0f, -2.0f, 0.25f});
  batch.add_blob({});  // is not ok
  batch.close();
  return batch;
}
Bytes example_blob() { return bytes_of(example_batch(), 0); }
Bytes narrow_blob() { return bytes_of(example_batch(narrow_example), 0); }

TEST(BatchFormatDocument, ShowsTheBytesOfItsExamples) {
  EXPECT_EQ(shown_in("hex"), hex_of(example_blob()));
  EXPECT_EQ(shown_in("narrow"), hex_of(narrow_blob()));
}

TEST(BatchFormatDocument, ShowsARequestInTwoFormsThatBecomeOne) {
  const Bytes wide = example_blob(), narrow = narrow_blob();
  Batch batch(BatchLayout(build(narrow_example)));
  for (const Bytes& blob : {wide, narrow}) {
    const Request request = batch.add_blob({blob.data(), static_cast<int64_t>(blob.size())});
    ASSERT_EQ(request.status().message, "");
    EXPECT_EQ(bytes_of(batch, request.index()), narrow);
  }
  Batch of_version_1(batch.layout().wide());
  const Request request = of_version_1.add_blob({narrow.data(), static_cast<int64_t>(narrow.size())});
  EXPECT_EQ(bytes_of(of_version_1, request.index()), wide);
}

TEST(BatchFormatDocument, ShowsTheIndexOfItsExample) {
  const Batch batch = example_batch();
  const Span<const std::byte> bytes = batch.bytes();
  const int64_t index_bytes = batch.index().bytes();
  EXPECT_EQ(shown_in("index"), hex_of(bytes.subspan(bytes.size() - index_bytes, index_bytes)));
}

TEST(BatchFormatDocument, HasAPythonProgramThatPacksTheSameBytes) {
  if (std::system("python3 -c '' 2> /dev/null") != 0) GTEST_SKIP() << "no python3";
  const std::string path = testing::TempDir() + "batch_format_example.py";
  std::ofstream(path) << block("python");
  FILE* pipe = popen(("python3 '" + path + "'").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string written;
  char buffer[256];
  while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) written += buffer;
  EXPECT_EQ(pclose(pipe), 0);
  EXPECT_EQ(written, hex_of(example_blob()) + "\n" + hex_of(narrow_blob()) + "\n");
}

}  // namespace
