// SPDX-License-Identifier: Apache-2.0

#include "device.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "columns.hpp"
#include "scoring.hpp"

#if defined(WARPRANK_PYTHON_CUDA)
#include <cuda_runtime_api.h>

#include "warprank/core/cuda_error.hpp"

namespace warprank::python {

namespace {

/// CUDA's default stream, in which PyTorch and others work unless they are told otherwise.
constexpr StreamHandle default_stream = nullptr;

void check(cudaError_t code, const char* what) {
  if (code != cudaSuccess) throw cuda_error(what, code, cudaGetErrorName(code));
}

/// The card is the current one while this exists.
class OnCard {
 public:
  explicit OnCard(int index) {
    check(cudaGetDevice(&before_), "find the current device");
    check(cudaSetDevice(index), "use a device");
  }
  ~OnCard() { cudaSetDevice(before_); }
  OnCard(const OnCard&) = delete;
  OnCard& operator=(const OnCard&) = delete;

 private:
  int before_ = 0;
};

std::shared_ptr<void> allocate(int64_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1))), "allocate memory of a device");
  return {memory, [](void* last) { cudaFree(last); }};
}

}  // namespace

void* DeviceBlobs::reserve(int64_t bytes) {
  if (bytes > bytes_) {
    memory_ = allocate(bytes);
    bytes_ = bytes;
  }
  return memory_.get();
}

Pending submit_with_device_values(const Columns& columns, int64_t begin, Worker& worker) {
  for (const int device : columns.devices())
    if (device != worker.card)
      throw invalid_argument("columns on a device",
                             worker.card < 0 ? "a model on a GPU" : "columns on cuda:" + std::to_string(worker.card),
                             worker.card < 0 ? "one on the host" : "some on cuda:" + std::to_string(device));
  const OnCard current(worker.card);
  worker.batch.close();
  const Span<const std::byte> blobs = worker.batch.blobs();
  const DeviceBatch on_device(worker.batch, blobs.empty() ? nullptr : worker.blobs.reserve(blobs.size()));
  check(cudaMemcpyAsync(worker.blobs.reserve(0), blobs.data(), static_cast<size_t>(blobs.size()),
                        cudaMemcpyHostToDevice, default_stream),
        "copy to a device");
  columns.copy_device_values(begin, on_device, [](void* to, const void* from, int64_t bytes) {
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, default_stream),
          "copy on a device");
  });
  return worker.context.submit(on_device, default_stream);
}

std::map<std::string, DeviceFloats> scores_on_device(Pending pending, const Worker& worker) {
  const OnCard current(std::max(worker.card, 0));
  std::map<std::string, DeviceFloats> outputs;
  for (const OutputInfo& output : worker.context.plan().source().outputs) {
    const Matrix<const float> values = pending.device_scores(output.name).values;
    const auto rows = static_cast<size_t>(values.rows), row_bytes = static_cast<size_t>(values.cols) * sizeof(float);
    const std::shared_ptr<void> copy = allocate(values.rows * values.cols * int64_t{sizeof(float)});
    if (rows > 0)
      check(cudaMemcpy2DAsync(copy.get(), row_bytes, values.data, static_cast<size_t>(values.stride) * sizeof(float),
                              row_bytes, rows, cudaMemcpyDeviceToDevice, default_stream),
            "copy on a device");
    nb::capsule owner(new std::shared_ptr<void>(copy),
                      [](void* last) noexcept { delete static_cast<std::shared_ptr<void>*>(last); });
    outputs.emplace(output.name, DeviceFloats(static_cast<float*>(copy.get()), {rows, static_cast<size_t>(values.cols)},
                                              owner, {}, nb::dtype<float>(), nb::device::cuda::value, worker.card));
  }
  const nb::gil_scoped_release released;
  pending.wait();
  check(cudaStreamSynchronize(default_stream), "wait for a stream");
  return outputs;
}

}  // namespace warprank::python

#else

namespace warprank::python {

namespace {

invalid_argument no_cuda(const std::string& what) {
  return {what, "ones in the host's memory, as this was built without CUDA", "ones on a device"};
}

}  // namespace

void* DeviceBlobs::reserve(int64_t) { throw no_cuda("blobs"); }
Pending submit_with_device_values(const Columns&, int64_t, Worker&) { throw no_cuda("columns"); }
std::map<std::string, DeviceFloats> scores_on_device(Pending, const Worker&) { throw no_cuda("scores"); }

}  // namespace warprank::python

#endif
