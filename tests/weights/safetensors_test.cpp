// SPDX-License-Identifier: Apache-2.0

#include "warprank/weights/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "support/message_of.hpp"

namespace {

using namespace warprank;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::filesystem::path corpus = WARPRANK_TEST_DATA "/weights/safetensors_corpus";

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Span<const std::byte> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), static_cast<int64_t>(text.size())};
}

/// The message of the invalid_argument that `body` throws; empty when it throws nothing.
template <class Body>
std::string complaint(Body&& body) {
  try {
    body();
  } catch (const invalid_argument& error) {
    return error.what();
  }
  return "";
}

template <class Value>
std::vector<Value> values(const TensorView& tensor) {
  EXPECT_EQ(tensor.dtype, dtype_of<Value>);
  std::vector<Value> values;
  for (int64_t i = 0; i < tensor.size(); ++i) values.push_back(load_element<Value>(tensor.data, i));
  return values;
}

template <class Value>
std::vector<float> floats(const TensorView& tensor) {
  std::vector<float> floats;
  for (const Value value : values<Value>(tensor)) floats.push_back(to_float(value));
  return floats;
}

/// A folder of its own for each test, removed with it.
class SafetensorsFiles : public ::testing::Test {
 protected:
  SafetensorsFiles() : folder_(std::filesystem::temp_directory_path() / ("warprank_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~SafetensorsFiles() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  const std::filesystem::path folder_;
};

TEST(Safetensors, RefusesEveryBrokenFileOfTheCorpusWithItsComplaintAndAcceptsTheOthers) {
  std::map<std::string, std::string> refused;
  std::ifstream list(corpus / "refused.tsv");
  for (std::string line; std::getline(list, line);) refused.emplace(line.substr(0, line.find('\t')), line);
  ASSERT_GE(refused.size(), 70u);

  size_t num_refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(corpus)) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string name = entry.path().stem();
    const std::string path = entry.path();
    const std::string message = complaint([&] { SafetensorsFile file(path); });
    if (refused.count(name) == 0) {
      EXPECT_EQ(message, "");
      continue;
    }
    ++num_refused;
    const std::string expected = refused[name].substr(name.size() + 1);
    EXPECT_THAT(message, HasSubstr(expected)) << name;
    EXPECT_THAT(message, HasSubstr(path)) << name;
    EXPECT_THAT(message, HasSubstr("expected ")) << name;
  }
  EXPECT_EQ(num_refused, refused.size());
}

TEST(Safetensors, ReadsWhatThePythonLibraryWrote) {
  const SafetensorsFile file(corpus / "made_by_python.safetensors");
  const auto& tensors = file.tensors();
  EXPECT_EQ(tensors.size(), 10u);
  EXPECT_THAT(floats<float>(tensors.at("f32")), ElementsAre(0.0f, -0.5f, 1.5f, 3.0e38f, 1e-45f, -2.0f));
  EXPECT_THAT(tensors.at("f32").shape, ElementsAre(2, 3));
  EXPECT_THAT(floats<float16>(tensors.at("f16")), ElementsAre(1.0f, -0.333251953125f, 65504.0f, 0x1p-24f));
  EXPECT_THAT(floats<bfloat16>(tensors.at("bf16")), ElementsAre(1.0f, -3.140625f, 0x1.fep127f));
  EXPECT_THAT(values<int8_t>(tensors.at("i8")), ElementsAre(-128, 0, 127));
  EXPECT_THAT(values<int64_t>(tensors.at("i64")),
              ElementsAre(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()));
  EXPECT_THAT(floats<float>(tensors.at("scalar")), ElementsAre(42.0f));
  EXPECT_THAT(tensors.at("scalar").shape, ElementsAre());
  EXPECT_THAT(tensors.at("empty").shape, ElementsAre(0, 7));
  EXPECT_EQ(tensors.at("empty").size(), 0);
  EXPECT_THAT(floats<float>(tensors.at("a \"quoted\" name, caf\u00e9\n\x01")), ElementsAre(7.0f));
  EXPECT_THAT(file.metadata(), ElementsAre(std::pair("format", "pt")));
}

TEST(Safetensors, ListsTensorsOfTypesItDoesNotReadWithoutADtype) {
  const SafetensorsFile file(corpus / "made_by_python.safetensors");
  for (const auto& [name, type] : {std::pair("f64", "F64"), std::pair("bool", "BOOL")}) {
    EXPECT_EQ(file.tensors().at(name).dtype, std::nullopt);
    EXPECT_STREQ(file.tensors().at(name).type_name, type);
  }
}

TEST(Safetensors, WritesTheSameBytesAsThePythonLibrary) {
  const std::string python = read_file(corpus / "made_by_python.safetensors");
  const SafetensorsContent content = parse_safetensors("python", bytes_of(python));
  EXPECT_EQ(serialize_safetensors(content.tensors, content.metadata), python);
  EXPECT_EQ(serialize_safetensors({}), read_file(corpus / "no_tensors.safetensors"));
}

TEST(Safetensors, AlignsTheDataOfEveryTensorToItsElements) {
  const StoredTensor a = make_tensor<int8_t>({3}, {1, 2, 3}), b = make_tensor<float>({1}, {4}),
                     c = make_tensor<float16>({1}, {to_float16(5)}), d = make_tensor<int64_t>({1}, {6});
  const std::string file =
      serialize_safetensors({{"a", a.view()}, {"b", b.view()}, {"c", c.view()}, {"d", d.view()}}, {{"key", "value"}});
  const SafetensorsContent content = parse_safetensors("memory", bytes_of(file));
  for (const auto& [name, tensor] : content.tensors)
    EXPECT_EQ((tensor.data - bytes_of(file).data()) % size_of(*tensor.dtype), 0) << name;
  EXPECT_THAT(values<int8_t>(content.tensors.at("a")), ElementsAre(1, 2, 3));
  EXPECT_THAT(floats<float>(content.tensors.at("b")), ElementsAre(4.0f));
  EXPECT_THAT(floats<float16>(content.tensors.at("c")), ElementsAre(5.0f));
  EXPECT_THAT(values<int64_t>(content.tensors.at("d")), ElementsAre(6));
}

TEST(Safetensors, ReadsAFileAtAnyAddress) {
  const std::string file = read_file(corpus / "unpadded_header_and_misaligned_data.safetensors");
  for (size_t shift = 0; shift < 8; ++shift) {
    const std::string shifted = std::string(shift, 'x') + file;
    const auto bytes = bytes_of(shifted).subspan(static_cast<int64_t>(shift), static_cast<int64_t>(file.size()));
    const SafetensorsContent content = parse_safetensors("memory", bytes);
    EXPECT_THAT(values<int8_t>(content.tensors.at("a")), ElementsAre(0));
    EXPECT_THAT(floats<float>(content.tensors.at("b")), ElementsAre(bits_float(0x04030201), bits_float(0x08070605)));
  }
}

TEST(Safetensors, SaysWhatAFileOfAnotherFormatIs) {
  using namespace std::string_literals;
  const auto message = [](std::string bytes) {
    bytes.resize(std::max<size_t>(bytes.size(), 200), 'x');
    return test_support::message_of([&] {
      parse_safetensors("f", {reinterpret_cast<const std::byte*>(bytes.data()), std::ssize(bytes)});
    });
  };
  const std::string refused = "f: expected a safetensors file, got ";
  EXPECT_EQ(message("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 132\n"),
            refused + "a pointer of Git LFS: git lfs pull fetches the file itself");
  EXPECT_EQ(message("PK\3\4\x14\0\0\0\x08\x08"s), refused + "a zip archive, such as torch.save and numpy.savez write");
  for (const char* begin : {"<!DOCTYPE html><html>", "<HTML lang=en>", "\r\n  <!doctype HTML>"})
    EXPECT_EQ(message(begin), refused + "an HTML page, such as a server sends for a file that it has not");
  EXPECT_EQ(message("<?xml version='1.0'?><Error><Code>NoSuchKey</Code>"),
            refused + "XML, such as a store of files sends for one that it has not");
  EXPECT_EQ(message("\x80\2\x8a\nl\xfc"), refused + "a pickle, such as torch.save wrote before 1.6");
  EXPECT_EQ(message("\x89HDF\r\n\x1a\n"), refused + "an HDF5 file, such as Keras writes");
  EXPECT_EQ(message("\x1f\x8b\x08\0\0\0\0\0"s), refused + "a file compressed by gzip");
  EXPECT_EQ(message("{\"weights\": [1, 2]}"), refused + "JSON");
  EXPECT_THAT(message("some text, which nobody knows"), HasSubstr("f: length of the header: expected at most"));
}

TEST(Safetensors, RefusesAFileThatIsCutAnywhereAndBytesAppended) {
  const std::string file = read_file(corpus / "made_by_python.safetensors");
  for (size_t size = 0; size < file.size(); ++size) {
    const std::vector<char> cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));  // exact allocation
    const Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(cut.data()), static_cast<int64_t>(size));
    EXPECT_NE(complaint([&] { parse_safetensors("cut", bytes); }), "") << size;
  }
  EXPECT_NE(complaint([&] { parse_safetensors("longer", bytes_of(file + "x")); }), "");
}

TEST(Safetensors, KeepsMessagesShortAndPrintableWhateverTheFileHolds) {
  const std::string name(100'000, 'n');
  const std::string header = "{\"\\u0007\\n" + name + "\":{}}";
  const uint64_t length = header.size();
  const std::string file = std::string(reinterpret_cast<const char*>(&length), 8) + header;
  const std::string message = complaint([&] { parse_safetensors("f", bytes_of(file)); });
  EXPECT_LT(message.size(), 400u);
  EXPECT_THAT(message, HasSubstr("'??nnn"));
  EXPECT_THAT(message, HasSubstr("got no dtype"));
}

TEST_F(SafetensorsFiles, AreRefusedWithAHeaderOfMoreThan100MillionBytes) {
  const std::string path = this->path("long_header");
  const uint64_t length = 100'000'001;
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(&length), 8);
  std::filesystem::resize_file(path, 8 + length);  // sparse
  EXPECT_THAT(complaint([&] { SafetensorsFile file(path); }),
              HasSubstr("expected at most 100000000 bytes, got 100000001"));
}

TEST_F(SafetensorsFiles, AreRefusedWhenTheyAreNotThereOrNotFiles) {
  EXPECT_THAT(complaint([&] { SafetensorsFile file(path("absent")); }), HasSubstr("No such file or directory"));
  EXPECT_THAT(complaint([&] { SafetensorsFile file(folder_.string()); }), HasSubstr("expected a regular file"));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(complaint([&] { SafetensorsFile file(path("pipe")); }), HasSubstr("expected a regular file"));
}

TEST_F(SafetensorsFiles, AreReadAsTheyWereWritten) {
  const StoredTensor weight = make_tensor<float>({2, 2}, {1, 2, std::nanf(""), -0.0f});
  write_safetensors(path("model"), {{"weight", weight.view()}}, {{"epoch", "3"}});
  SafetensorsFile written(path("model"));
  const SafetensorsFile file = std::move(written);
  EXPECT_THAT(file.tensors().at("weight").shape, ElementsAre(2, 2));
  EXPECT_EQ(std::memcmp(file.tensors().at("weight").data, weight.bytes.data(), 16), 0);
  EXPECT_EQ(file.metadata().at("epoch"), "3");
}

TEST_F(SafetensorsFiles, AreReplacedUnderThoseWhoHaveThemMapped) {
  const StoredTensor old_weight = make_tensor<float>({1}, {1}), new_weight = make_tensor<float>({1}, {2});
  write_safetensors(path("model"), {{"weight", old_weight.view()}});
  const SafetensorsFile mapped(path("model"));
  write_safetensors(path("model"), {{"weight", new_weight.view()}});
  EXPECT_THAT(floats<float>(mapped.tensors().at("weight")), ElementsAre(1.0f));
  EXPECT_THAT(floats<float>(SafetensorsFile(path("model")).tensors().at("weight")), ElementsAre(2.0f));
}

TEST_F(SafetensorsFiles, AreWholeWhenSeveralWriteOneAtOnce) {
  std::vector<std::string> complaints(3);
  std::vector<std::thread> writers;
  for (size_t w = 0; w < complaints.size(); ++w)
    writers.emplace_back([&, w] {
      const StoredTensor weight = make_tensor<float>({1000}, std::vector<float>(1000, static_cast<float>(w)));
      for (int i = 0; i < 20; ++i)
        complaints[w] += complaint([&] { write_safetensors(path("model"), {{"weight", weight.view()}}); });
    });
  for (std::thread& writer : writers) writer.join();
  EXPECT_THAT(complaints, Each(""));
  const std::vector<float> weight = floats<float>(SafetensorsFile(path("model")).tensors().at("weight"));
  EXPECT_THAT(weight, Each(weight[0]));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(SafetensorsFiles, AreNotLeftBehindWhenWritingFails) {
  const StoredTensor weight = make_tensor<float>({1}, {1});
  const std::map<std::string, TensorView> tensors{{"weight", weight.view()}};
  EXPECT_THAT(complaint([&] { write_safetensors(path("absent/model"), tensors); }),
              HasSubstr("expected a file that can be written, got No such file or directory"));
  std::filesystem::create_directory(path("folder"));
  EXPECT_THAT(complaint([&] { write_safetensors(path("folder"), tensors); }), HasSubstr("Is a directory"));
  EXPECT_THAT(complaint([&] { write_safetensors(path("model"), {{"\xff", weight.view()}}); }), HasSubstr("UTF-8"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST(Safetensors, RefusesToWriteWhatItWouldRefuseToRead) {
  const StoredTensor weight = make_tensor<float>({1}, {1});
  EXPECT_THAT(complaint([&] {
                serialize_safetensors({{"__metadata__", weight.view()}});
              }),
              HasSubstr("got '__metadata__'"));
  TensorView wrong = weight.view();
  wrong.shape = {2};
  EXPECT_THAT(complaint([&] {
                serialize_safetensors({{"weight", wrong}});
              }),
              HasSubstr("expected 8 bytes of data for F32 [2], got 4 bytes"));
  wrong.shape = {int64_t{1} << 62, 4};
  EXPECT_THAT(complaint([&] { serialize_safetensors({{"weight", wrong}}); }), HasSubstr("less than 2^63 bits"));
  wrong.type_name = "F31";
  EXPECT_THAT(complaint([&] { serialize_safetensors({{"weight", wrong}}); }), HasSubstr("got 'F31'"));
}

TEST(StoredTensor, HoldsAsManyValuesAsItsShape) {
  EXPECT_THAT(complaint([] { make_tensor<float>({2, 2}, {1, 2, 3}); }), HasSubstr("shape [2, 2]"));
  EXPECT_EQ(make_tensor<float>({}, {1}).view().size(), 1);
  EXPECT_EQ(make_tensor<float>({0, 5}, {}).view().size(), 0);
}

}  // namespace
