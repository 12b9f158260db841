// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The models that PyTorch has computed, and the files with what it made of them: requests, weights, and outputs in
/// float64 (tools/golden/make.py).

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "../../examples/models/dcn_v2.hpp"
#include "../../examples/models/dlrm.hpp"
#include "../../examples/models/meituan_like.hpp"
#include "../../examples/models/wide_deep.hpp"
#include "../../examples/movielens/model.hpp"
#include "golden/op_models.hpp"
#include "support/plain_request.hpp"
#include "warprank/weights/safetensors.hpp"
#include "warprank/weights/weights.hpp"

namespace warprank::golden {

struct Case {
  const char* name;
  Outputs (*model)(Builder&);
  Layout layout = Layout::pytorch;
  bool hashed_weights = false;  ///< the file has requests alone
};
inline const Case cases[] = {{"linear", linear},
                             {"mlp", mlp},
                             {"norms", norms},
                             {"elementwise", elementwise},
                             {"reductions", reductions},
                             {"embed", embed},
                             {"embed_bag", embed_bag},
                             {"structure", structure},
                             {"din_attention", din_attention},
                             {"target_attention", target_attention},
                             {"recurrent", recurrent},
                             {"self_attention", self_attention},
                             {"hstu", hstu},
                             {"rank_mixer", rank_mixer},
                             {"cin", cin},
                             {"auto_int", auto_int},
                             {"wukong", wukong},
                             {"interactions", interactions},
                             {"experts", experts},
                             {"keras", keras, Layout::keras},
                             {"wide_deep", models::wide_deep, Layout::pytorch, true},
                             {"dlrm", models::dlrm, Layout::pytorch, true},
                             {"dcn_v2", models::dcn_v2, Layout::pytorch, true},
                             {"din_mmoe", movielens::din_mmoe, Layout::pytorch, true},
                             {"meituan_like", models::meituan_like, Layout::pytorch, true}};
inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

template <class Value>
std::vector<Value> values_of(const TensorView& tensor) {
  std::vector<Value> values;
  for (int64_t i = 0; i < tensor.size(); ++i) values.push_back(load_element<Value>(tensor.data, i));
  return values;
}

/// A golden file, taken apart by the beginnings of its tensors' names.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& name)
      : file_(std::string(WARPRANK_TEST_DATA) + "/golden/" + name + ".safetensors"),
        num_requests_(std::stoi(file_.metadata().at("requests"))) {}

  int num_requests() const { return num_requests_; }

  /// The tensors whose names begin with `prefix`, without it.
  std::map<std::string, TensorView> under(const std::string& prefix) const {
    std::map<std::string, TensorView> found;
    for (const auto& [name, tensor] : file_.tensors())
      if (name.rfind(prefix, 0) == 0) found.emplace(name.substr(prefix.size()), tensor);
    return found;
  }
  Weights weights(const std::string& prefix, Layout layout) const {
    std::map<std::string, StoredTensor> tensors;
    for (const auto& [name, view] : under(prefix))
      tensors.emplace(name, StoredTensor{view.dtype.value(), view.shape, {view.data, view.data + view.bytes}});
    return Weights::from_tensors(std::move(tensors), {.layout = layout});
  }
  test_support::PlainRequest request(int r) const {
    const std::string prefix = "request/" + std::to_string(r) + "/";
    test_support::PlainRequest request;
    for (const auto& [name, tensor] : under(prefix + "lengths/")) request.lengths[name] = values_of<int64_t>(tensor);
    for (const auto& [name, tensor] : under(prefix + "ids/")) request.ids[name] = values_of<int64_t>(tensor);
    for (const auto& [name, tensor] : under(prefix + "dense/")) request.dense[name] = values_of<float>(tensor);
    return request;
  }
  std::vector<double> output(int r, const std::string& name) const {
    return values_of<double>(file_.tensors().at("request/" + std::to_string(r) + "/output/" + name));
  }

 private:
  SafetensorsFile file_;
  int num_requests_;
};

}  // namespace warprank::golden
