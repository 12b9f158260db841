// SPDX-License-Identifier: Apache-2.0

#include "warprank/weights/weights.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace warprank;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

StoredTensor zeros(Shape shape) {
  const auto size = static_cast<size_t>(*num_elements(shape));
  return make_tensor(std::move(shape), std::vector<float>(size));
}

Parameter matrix(const std::string& name, Shape shape) { return {name, std::move(shape), true}; }
Parameter vector(const std::string& name, Shape shape) { return {name, std::move(shape)}; }

/// What `check` complains of, one text for each problem.
std::vector<std::string> problems(const Weights& weights, const std::vector<Parameter>& wanted,
                                  ExtraTensors extra = ExtraTensors::refuse) {
  std::vector<std::string> texts;
  try {
    weights.check(wanted, extra);
  } catch (const invalid_argument& error) {
    for (const Problem& problem : error.problems()) texts.push_back(problem.to_string());
  }
  return texts;
}

std::vector<float> copy(const Weights& weights, const Parameter& parameter) {
  std::vector<float> out(static_cast<size_t>(*num_elements(parameter.shape)));
  weights.copy_to(parameter, out);
  return out;
}

TEST(Weights, AreCopiedAsTheyAreInPyTorchsLayout) {
  const Weights weights = Weights::from_tensors({{"m", make_tensor<float>({2, 3}, {1, 2, 3, 4, 5, 6})}});
  EXPECT_THAT(copy(weights, matrix("m", {2, 3})), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Weights, AreTransposedFromKerasLayout) {
  const Weights weights =
      Weights::from_tensors({{"m", make_tensor<float>({3, 2}, {1, 4, 2, 5, 3, 6})}}, {Layout::keras, {}});
  EXPECT_THAT(problems(weights, {matrix("m", {2, 3})}), ElementsAre());
  EXPECT_THAT(copy(weights, matrix("m", {2, 3})), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Weights, AreTransposedGroupByGroupWhenStacked) {
  const std::vector<float> stored{1, 4, 2, 5, 3, 6, 11, 14, 12, 15, 13, 16};  // [groups, in, out]
  const Weights weights = Weights::from_tensors({{"m", make_tensor<float>({2, 3, 2}, stored)}}, {Layout::keras, {}});
  EXPECT_THAT(copy(weights, matrix("m", {2, 2, 3})), ElementsAre(1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16));
}

TEST(Weights, KeepStackedVectorsInKerasLayout) {
  const Weights weights =
      Weights::from_tensors({{"b", make_tensor<float>({2, 3}, {1, 2, 3, 4, 5, 6})}}, {Layout::keras, {}});
  EXPECT_THAT(copy(weights, vector("b", {2, 3})), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Weights, AreConvertedToFp32Exactly) {
  const Weights weights = Weights::from_tensors(
      {{"f16", make_tensor<float16>({3}, {to_float16(0x1p-24f), to_float16(-1.5f), to_float16(65504)})},
       {"bf16", make_tensor<bfloat16>({2}, {to_bfloat16(0x1.02p100f), to_bfloat16(-0.5f)})}});
  EXPECT_THAT(problems(weights, {vector("f16", {3}), vector("bf16", {2})}), ElementsAre());
  EXPECT_THAT(copy(weights, vector("f16", {3})), ElementsAre(0x1p-24f, -1.5f, 65504));
  EXPECT_THAT(copy(weights, vector("bf16", {2})), ElementsAre(0x1.02p100f, -0.5f));
}

TEST(Weights, MayBeEmptyOrScalars) {
  const Weights weights =
      Weights::from_tensors({{"empty", zeros({0, 4})}, {"scalar", make_tensor<float>({}, {3})}}, {Layout::keras, {}});
  EXPECT_THAT(copy(weights, matrix("empty", {4, 0})), ElementsAre());
  EXPECT_THAT(copy(weights, vector("scalar", {})), ElementsAre(3));
}

TEST(Weights, ReportMissingExtraAndMisshapenTensorsTogether) {
  const Weights weights = Weights::from_tensors({{"good", zeros({2})}, {"bad", zeros({3})}, {"spare", zeros({1})}});
  EXPECT_THAT(problems(weights, {vector("good", {2}), vector("bad", {2}), vector("away", {7})}),
              ElementsAre("tensors in memory: weight 'bad': expected F32, F16 or BF16 [2], got F32 [3]",
                          "tensors in memory: weight 'away': expected F32, F16 or BF16 [7], got no such tensor",
                          "tensors in memory: tensor 'spare': expected a tensor that the model reads, got one that no "
                          "parameter reads"));
}

TEST(Weights, MayHaveExtraTensorsWhenTheCallerSaysSo) {
  const Weights weights = Weights::from_tensors({{"good", zeros({2})}, {"spare", zeros({1})}});
  EXPECT_THAT(problems(weights, {vector("good", {2})}, ExtraTensors::ignore), ElementsAre());
}

TEST(Weights, MayHaveTheCountersOfPyTorchsBatchNorm) {
  const Weights weights = Weights::from_tensors({{"bn.num_batches_tracked", make_tensor<int64_t>({}, {5})}});
  EXPECT_THAT(problems(weights, {}), ElementsAre());
}

TEST(Weights, MayLackOptionalParametersButNotMisshapeThem) {
  Parameter optional = vector("bias", {2});
  optional.optional = true;
  EXPECT_THAT(problems(Weights::from_tensors({}), {optional}), ElementsAre());
  EXPECT_THAT(problems(Weights::from_tensors({{"bias", zeros({3})}}), {optional}),
              ElementsAre(HasSubstr("got F32 [3]")));
}

TEST(Weights, HintAtTheOtherLayoutWhenAMatrixWouldFitTransposed) {
  const std::map<std::string, StoredTensor> tensors{
      {"m", zeros({3, 2})}, {"s", zeros({5, 3, 2})}, {"b", zeros({3, 2})}};
  const std::vector<Parameter> wanted{matrix("m", {2, 3}), matrix("s", {5, 2, 3}), vector("b", {2, 3})};
  EXPECT_THAT(problems(Weights::from_tensors(tensors), wanted),
              ElementsAre(HasSubstr("F32 [3, 2] (transposed: is the layout Keras', [in, out]?)"),
                          HasSubstr("F32 [5, 3, 2] (transposed: is the layout Keras'"), Not(HasSubstr("transposed"))));
  const std::vector<Parameter> reversed{matrix("m", {3, 2})};
  EXPECT_THAT(problems(Weights::from_tensors(tensors, {Layout::keras, {}}), reversed, ExtraTensors::ignore),
              ElementsAre(HasSubstr("BF16 [2, 3], got F32 [3, 2] (transposed: is the layout PyTorch's, [out, in]?)")));
}

TEST(Weights, RefuseElementTypesThatAreNoFloats) {
  const Weights weights =
      Weights::from_tensors({{"i8", make_tensor<int8_t>({1}, {1})}, {"i64", make_tensor<int64_t>({1}, {1})}});
  EXPECT_THAT(problems(weights, {vector("i8", {1}), vector("i64", {1})}),
              ElementsAre(HasSubstr("got I8 [1]"), HasSubstr("got I64 [1]")));
  EXPECT_THROW(copy(weights, vector("i8", {1})), invalid_argument);
  EXPECT_THROW(copy(weights, vector("i64", {1})), invalid_argument);
}

TEST(Weights, SuggestTheNearestUnusedNameForAMissingOne) {
  const Weights weights = Weights::from_tensors(
      {{"tower.0.weight", zeros({2})}, {"tower.1.weihgt", zeros({2})}, {"tower.1.wight", zeros({3})}});
  const auto texts = problems(weights, {vector("tower.0.weight", {2}), vector("tower.1.weight", {2})});
  ASSERT_EQ(texts.size(), 3u);
  EXPECT_THAT(texts[0],
              HasSubstr("no such tensor (did you mean 'tower.1.weihgt'?)"));  // fits, though 'wight' is nearer
  const auto other_shape = problems(weights, {vector("tower.0.weight", {2}), vector("tower.1.weight", {9})});
  EXPECT_THAT(other_shape[0], HasSubstr("(did you mean 'tower.1.wight'?)"));
}

TEST(Weights, AreFoundUnderTheNamesOfTheMap) {
  const Weights weights = Weights::from_tensors({{"dense/kernel", make_tensor<float>({2, 1}, {1, 2})}},
                                                {Layout::keras, {{"top.weight", "dense/kernel"}}});
  EXPECT_THAT(problems(weights, {matrix("top.weight", {1, 2})}), ElementsAre());
  EXPECT_THAT(copy(weights, matrix("top.weight", {1, 2})), ElementsAre(1, 2));
  EXPECT_NE(weights.find("top.weight"), nullptr);
  EXPECT_EQ(weights.find("absent"), nullptr);
  EXPECT_EQ(weights.stored_name("top.weight"), "dense/kernel");
  EXPECT_EQ(weights.stored_name("absent"), "absent");
  EXPECT_THAT(weights.names(), ElementsAre("dense/kernel"));
}

TEST(Weights, NameBothSidesOfTheMapAndItsUnusedEntries) {
  const Weights weights = Weights::from_tensors({}, {Layout::pytorch, {{"a.weight", "x"}, {"b.wieght", "y"}}});
  EXPECT_THAT(
      problems(weights, {vector("a.weight", {1}), vector("b.weight", {1})}, ExtraTensors::ignore),
      ElementsAre(HasSubstr("weight 'a.weight', there named 'x': expected"), HasSubstr("weight 'b.weight': expected"),
                  HasSubstr("name map: 'b.wieght': expected the name of a parameter of the model, got a name that "
                            "no parameter has (did you mean 'b.weight'?)")));
}

TEST(Weights, MayShareOneTensorBetweenParameters) {
  const Weights weights =
      Weights::from_tensors({{"x", make_tensor<float>({1}, {4})}}, {Layout::pytorch, {{"a", "x"}, {"b", "x"}}});
  EXPECT_THAT(problems(weights, {vector("a", {1}), vector("b", {1})}), ElementsAre());
  EXPECT_THAT(copy(weights, vector("a", {1})), copy(weights, vector("b", {1})));
}

TEST(Weights, RefuseToCopyWhatIsMissingMisshapenOrOfAnotherSizeThanTheDestination) {
  const Weights weights = Weights::from_tensors({{"m", zeros({2, 3})}});
  EXPECT_THROW(copy(weights, matrix("n", {2, 3})), invalid_argument);
  EXPECT_THROW(copy(weights, matrix("m", {3, 2})), invalid_argument);
  std::vector<float> five(5);
  EXPECT_THROW(weights.copy_to(matrix("m", {2, 3}), five), invalid_argument);
}

TEST(Weights, RefuseTensorsWhoseBytesDoNotFitTheirShape) {
  EXPECT_THROW(Weights::from_tensors({{"m", StoredTensor{DType::f32, {2}, std::vector<std::byte>(4)}}}),
               invalid_argument);
}

TEST(Weights, KeepTheOwnerOfTensorsThatAreNotCopied) {
  auto owner = std::make_shared<const StoredTensor>(make_tensor<float>({2}, {1, 2}));
  const std::weak_ptr<const StoredTensor> watched = owner;
  const TensorView view = owner->view();
  {
    const Weights weights = Weights::from_views({{"b", view}}, std::move(owner));
    EXPECT_EQ(weights.find("b")->data, view.data);
    EXPECT_FALSE(watched.expired());
  }
  EXPECT_TRUE(watched.expired());
  const TensorView cut{"F32", DType::f32, {2}, nullptr, 4};
  EXPECT_THROW(Weights::from_views({{"b", cut}}, nullptr), invalid_argument);
}

TEST(Weights, ComeFromSeveralFilesWithDistinctNames) {
  const auto folder = std::filesystem::temp_directory_path() / ("warprank_weights_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string first = folder / "first", second = folder / "second";
  const StoredTensor a = make_tensor<float>({1}, {1}), b = make_tensor<float>({1}, {2});
  write_safetensors(first, {{"a", a.view()}});
  write_safetensors(second, {{"b", b.view()}});

  const Weights weights = Weights::open_all({first, second});
  EXPECT_THAT(problems(weights, {vector("a", {1}), vector("b", {1})}), ElementsAre());
  EXPECT_THAT(problems(weights, {vector("a", {1}), vector("b", {2}), vector("q", {1})}),
              ElementsAre(HasSubstr(second + ": weight 'b'"), HasSubstr(first + ", " + second + ": weight 'q'")));

  write_safetensors(second, {{"a", b.view()}});
  EXPECT_THROW(Weights::open_all({first, second}), invalid_argument);
  const Weights copy_of_weights = weights;  // the files are gone, the mapping is not
  std::filesystem::remove_all(folder);
  EXPECT_THAT(copy(copy_of_weights, vector("b", {1})), ElementsAre(2));
  EXPECT_THROW(Weights::open(first), invalid_argument);
}

}  // namespace
