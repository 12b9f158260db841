// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A linear layer by cuBLASLt itself, which is looked for when it is first wanted: types are the toolkit's, functions
/// those of the library that the machine has. cublaslt.cuh documents and includes it.

#include "warprank/ops/detail/gemm/cublaslt_check.cuh"

#if defined(WARPRANK_HAS_CUBLASLT_HEADER)

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "warprank/core/cuda_error.hpp"
#include "warprank/core/shared_library.hpp"
#include "warprank/device/launch_recorder.hpp"

namespace warprank { inline namespace v0 {

namespace detail::gemm {

/// The functions that are used, all of which 12 and 13 have alike. That of the toolkit's version is tried first.
struct WARPRANK_HIDDEN CublasLt {
  SharedLibrary library{CUBLAS_VER_MAJOR == 12 ? std::vector<std::string>{"libcublasLt.so.12", "libcublasLt.so.13"}
                                               : std::vector<std::string>{"libcublasLt.so.13", "libcublasLt.so.12"}};
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtGetStatusName) status_name;
  decltype(&cublasLtMatmul) multiply;
  decltype(&cublasLtMatmulDescCreate) create_product;
  decltype(&cublasLtMatmulDescDestroy) destroy_product;
  decltype(&cublasLtMatmulDescSetAttribute) set_product;
  decltype(&cublasLtMatrixLayoutCreate) create_layout;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatmulAlgoGetHeuristic) propose;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) get_of_algorithm;

  CublasLt() {
    library.find("cublasLtCreate", create);
    library.find("cublasLtGetVersion", version);
    library.find("cublasLtGetStatusName", status_name);
    library.find("cublasLtMatmul", multiply);
    library.find("cublasLtMatmulDescCreate", create_product);
    library.find("cublasLtMatmulDescDestroy", destroy_product);
    library.find("cublasLtMatmulDescSetAttribute", set_product);
    library.find("cublasLtMatrixLayoutCreate", create_layout);
    library.find("cublasLtMatrixLayoutDestroy", destroy_layout);
    library.find("cublasLtMatmulPreferenceCreate", create_preference);
    library.find("cublasLtMatmulPreferenceDestroy", destroy_preference);
    library.find("cublasLtMatmulPreferenceSetAttribute", set_preference);
    library.find("cublasLtMatmulAlgoGetHeuristic", propose);
    library.find("cublasLtMatmulAlgoConfigGetAttribute", get_of_algorithm);
  }
  static const CublasLt& get() {
    static const CublasLt functions;
    return functions;
  }
};

WARPRANK_HIDDEN inline void check_cublas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw cuda_error(what, static_cast<int>(status), CublasLt::get().status_name(status));
}

/// Of the current device; all threads share it, until the process ends.
WARPRANK_HIDDEN inline cublasLtHandle_t cublas_handle() {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;
  int index = 0;
  check_cuda(cudaGetDevice(&index), "find the current device");
  const std::lock_guard<std::mutex> lock(mutex);
  cublasLtHandle_t& handle = handles[index];
  if (handle == nullptr) check_cublas(CublasLt::get().create(&handle), "starting cuBLASLt");
  return handle;
}

/// What cuBLASLt has created, until it is destroyed.
template <class Handle, cublasStatus_t (*CublasLt::*Destroy)(Handle)>
struct WARPRANK_HIDDEN DestroyCublas {
  using pointer = Handle;
  void operator()(Handle handle) const { (CublasLt::get().*Destroy)(handle); }
};
template <class Handle, cublasStatus_t (*CublasLt::*Destroy)(Handle)>
using CublasObject = std::unique_ptr<std::remove_pointer_t<Handle>, DestroyCublas<Handle, Destroy>>;

/// What a launch is to whoever records launches (device/launch_recorder.hpp); nobody calls it.
WARPRANK_HIDDEN inline void cublaslt_product(const void* /*weights*/, const void* /*bias*/, const void* /*x*/,
                                             void* /*y*/, void* /*workspace*/, std::array<uint64_t, 8> /*algorithm*/) {}

inline std::string text_of_launch(const device::RecordedLaunch& launch) {
  if (launch.shape[0] != reinterpret_cast<intptr_t>(&cublaslt_product)) return launch.to_string();
  return "a product by cuBLASLt, " + std::to_string(launch.shape[7]) + " bytes of workspace";
}

}  // namespace detail::gemm

inline bool has_cublaslt() { return detail::gemm::CublasLt::get().library.is_whole(); }
inline int64_t cublaslt_version() {
  return has_cublaslt() ? static_cast<int64_t>(detail::gemm::CublasLt::get().version()) : 0;
}
inline std::string describe_cublaslt() {
  const detail::SharedLibrary& library = detail::gemm::CublasLt::get().library;
  return has_cublaslt() ? std::to_string(cublaslt_version()) + " (" + library.name() + ")"
                        : "none: " + library.problem();
}

class WARPRANK_HIDDEN CublasLinear {
 public:
  /// `bias`, of y's type, may be null. Throws invalid_argument for what cuBLASLt does not fuse, no_cublaslt_algorithm
  /// where it has not as many as `algorithm` says, and cuda_error for what else it refuses.
  CublasLinear(const LinearLayer& layer, const RowMajorWeights& weights, const void* bias, int algorithm = 0);

  int64_t workspace_bytes() const { return static_cast<int64_t>(algorithm_.workspaceSize); }
  /// Whether the one that was chosen cuts sums into parts.
  bool cuts_sums() const { return cuts_sums_; }

  void launch(const LaunchMemory& memory, cudaStream_t stream) const {
    if (layer_.x.rows == 0) return;
    if (device::LaunchRecorder* const recorder = device::LaunchRecorder::current(); recorder != nullptr) {
      std::array<uint64_t, 8> algorithm{};
      std::copy_n(algorithm_.algo.data, algorithm.size(), algorithm.begin());
      const void *weights = weights_.data, *x = layer_.x.data;
      return recorder->add({1, 1, 1}, {1, 1, 1}, workspace_bytes(), &detail::gemm::cublaslt_product, weights, bias_, x,
                           layer_.y.data, memory.workspace, algorithm);
    }
    const float one = 1, zero = 0;
    detail::gemm::check_cublas(
        detail::gemm::CublasLt::get().multiply(detail::gemm::cublas_handle(), product_.get(), &one, weights_.data,
                                               weights_layout_.get(), layer_.x.data, x_layout_.get(), &zero,
                                               layer_.y.data, y_layout_.get(), layer_.y.data, y_layout_.get(),
                                               &algorithm_.algo, memory.workspace, algorithm_.workspaceSize, stream),
        "launching a linear layer of cuBLASLt");
  }

 private:
  using Layout = detail::gemm::CublasObject<cublasLtMatrixLayout_t, &detail::gemm::CublasLt::destroy_layout>;
  using Algorithms = std::vector<cublasLtMatmulHeuristicResult_t>;

  /// A row-major matrix is its transpose by columns.
  static Layout layout_of(cudaDataType_t type, int64_t rows, int64_t cols, int64_t stride) {
    cublasLtMatrixLayout_t layout;
    detail::gemm::check_cublas(
        detail::gemm::CublasLt::get().create_layout(&layout, type, static_cast<uint64_t>(cols),
                                                    static_cast<uint64_t>(rows), std::max<int64_t>(stride, 1)),
        "describing a matrix to cuBLASLt");
    return Layout(layout);
  }
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    detail::gemm::check_cublas(
        detail::gemm::CublasLt::get().set_product(product_.get(), attribute, &value, sizeof value),
        "describing a product to cuBLASLt");
  }
  static uint32_t alignment_of(const void* data) {
    const auto address = reinterpret_cast<uintptr_t>(data);
    return static_cast<uint32_t>(std::min<uintptr_t>(address & (~address + 1), 256));
  }
  Algorithms propose(cublasLtReductionScheme_t scheme) const;
  Algorithms all_algorithms(cublasLtEpilogue_t epilogue) const;
  static bool cuts_sums(const cublasLtMatmulAlgo_t& algorithm);

  LinearLayer layer_;
  RowMajorWeights weights_;
  const void* bias_;
  detail::gemm::CublasObject<cublasLtMatmulDesc_t, &detail::gemm::CublasLt::destroy_product> product_;
  Layout weights_layout_, x_layout_, y_layout_;
  cublasLtMatmulHeuristicResult_t algorithm_{};
  bool cuts_sums_ = false;
};

// ---- Implementation

inline CublasLinear::CublasLinear(const LinearLayer& layer, const RowMajorWeights& weights, const void* bias,
                                  int algorithm)
    : layer_(layer), weights_(weights), bias_(bias) {
  detail::gemm::check_cublas_linear(layer, weights, bias);
  if (!has_cublaslt()) throw invalid_argument("linear layer of cuBLASLt", "cuBLASLt", describe_cublaslt());
  if (layer.x.rows == 0) return;
  cublasLtMatmulDesc_t product;
  detail::gemm::check_cublas(detail::gemm::CublasLt::get().create_product(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                             "describing a product to cuBLASLt");
  product_.reset(product);
  // y^T [out, M] = W [out, in] x^T [in, M], all of them by columns.
  set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  const bool has_bias = bias != nullptr;
  cublasLtEpilogue_t epilogue = has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  if (layer.activation.kind == ActivationKind::relu)
    epilogue = has_bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  if (layer.activation.kind == ActivationKind::gelu_tanh)
    epilogue = has_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (has_bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  const int64_t in = layer.x.cols, out = layer.y.cols;
  weights_layout_ = layout_of(CUDA_R_16F, out, in, weights.stride);
  x_layout_ = layout_of(CUDA_R_16F, layer.x.rows, in, layer.x.stride);
  y_layout_ = layout_of(layer.y.type == DType::f16 ? CUDA_R_16F : CUDA_R_32F, layer.y.rows, out, layer.y.stride);
  const Algorithms all = all_algorithms(epilogue);
  if (algorithm < 0 || algorithm >= static_cast<int>(all.size())) throw no_cublaslt_algorithm();
  algorithm_ = all[static_cast<size_t>(algorithm)];
  cuts_sums_ = cuts_sums(algorithm_.algo);
}

/// Those that sum a row in one piece, and then those that cut sums; cuBLASLt's favourites first. It is asked once for
/// each layer of a process, which takes a context's rebind no more than a look.
inline CublasLinear::Algorithms CublasLinear::all_algorithms(cublasLtEpilogue_t epilogue) const {
  using Key = std::array<int64_t, 13>;
  static std::mutex mutex;
  static std::map<Key, Algorithms> known;
  int index = 0;
  check_cuda(cudaGetDevice(&index), "find the current device");
  const Key key{index,
                layer_.x.rows,
                layer_.x.cols,
                layer_.y.cols,
                weights_.stride,
                layer_.x.stride,
                layer_.y.stride,
                static_cast<int64_t>(layer_.y.type),
                static_cast<int64_t>(epilogue),
                alignment_of(weights_.data),
                alignment_of(layer_.x.data),
                alignment_of(layer_.y.data),
                alignment_of(bias_)};
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  Algorithms all = propose(CUBLASLT_REDUCTION_SCHEME_NONE);
  for (const cublasLtMatmulHeuristicResult_t& cut : propose(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE))
    if (cuts_sums(cut.algo)) all.push_back(cut);
  return known[key] = all;
}

/// Parts of sums are cut as suits K alone, FP32, and added in their order by a kernel of their own. With any other
/// scheme they might be cut as suits the place of a tile, and a row's bits would depend on its neighbours.
inline CublasLinear::Algorithms CublasLinear::propose(cublasLtReductionScheme_t scheme) const {
  const detail::gemm::CublasLt& library = detail::gemm::CublasLt::get();
  cublasLtMatmulPreference_t created;
  detail::gemm::check_cublas(library.create_preference(&created), "asking cuBLASLt for an algorithm");
  const detail::gemm::CublasObject<cublasLtMatmulPreference_t, &detail::gemm::CublasLt::destroy_preference> preference(
      created);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    detail::gemm::check_cublas(library.set_preference(created, attribute, &value, sizeof value),
                               "asking cuBLASLt for an algorithm");
  };
  constexpr size_t most_workspace_bytes = size_t{32} << 20;
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, most_workspace_bytes);
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(scheme));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(weights_.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(layer_.x.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(layer_.y.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(layer_.y.data));
  constexpr int most = 8;
  Algorithms proposed(most);
  int num_proposed = 0;
  const cublasStatus_t status =
      library.propose(detail::gemm::cublas_handle(), product_.get(), weights_layout_.get(), x_layout_.get(),
                      y_layout_.get(), y_layout_.get(), created, most, proposed.data(), &num_proposed);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  detail::gemm::check_cublas(status, "asking cuBLASLt for an algorithm");
  proposed.resize(static_cast<size_t>(num_proposed));
  const auto is_not = [](const cublasLtMatmulHeuristicResult_t& one) { return one.state != CUBLAS_STATUS_SUCCESS; };
  proposed.erase(std::remove_if(proposed.begin(), proposed.end(), is_not), proposed.end());
  return proposed;
}

inline bool CublasLinear::cuts_sums(const cublasLtMatmulAlgo_t& algorithm) {
  int32_t parts = 0;
  size_t written = 0;
  const cublasStatus_t status = detail::gemm::CublasLt::get().get_of_algorithm(
      &algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof parts, &written);
  return status == CUBLAS_STATUS_SUCCESS && parts > 1;
}

}}  // namespace warprank::v0

#endif  // WARPRANK_HAS_CUBLASLT_HEADER
