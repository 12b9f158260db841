// SPDX-License-Identifier: Apache-2.0
//
// A program as anybody writes one, for tests/t4/run_test.py: sums through shared memory and an atomic addition, in a
// stream, and again as a graph. With an argument it does one thing that is wrong.

#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <vector>

__constant__ float scales[2] = {1, 2};
__device__ int launches;

__global__ void sum(const float* values, int count, float* total) {
  __shared__ float of_block[128];
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  of_block[threadIdx.x] = i < count ? values[i] * scales[i % 2] : 0;
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) of_block[threadIdx.x] += of_block[threadIdx.x + half];
  }
  if (threadIdx.x == 0) atomicAdd(total, of_block[0]);
  if (i == 0) ++launches;
}
__global__ void store_behind(float* values, int count) { values[count] = 1; }
__global__ void wait_for(volatile int* flag) {
  while (*flag == 0) {
  }
}
/// Each block waits for the other, and would then let it go.
__global__ void wait_for_the_other(volatile int* flags) {
  while (flags[1 - blockIdx.x] == 0) {
  }
  flags[blockIdx.x] = 1;
}

#define CHECK(call)                                                         \
  if (const cudaError_t code = call; code != cudaSuccess) {                 \
    std::printf("%s: %d (%s)\n", #call, int(code), cudaGetErrorName(code)); \
    return 1;                                                               \
  }

int main(int argc, char** argv) {
  constexpr int count = 1000;
  std::vector<float> values(count);
  for (int i = 0; i < count; ++i) values[i] = static_cast<float>(i % 7);
  float *on_device = nullptr, *total = nullptr;
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaMalloc(&on_device, count * sizeof(float)));
  CHECK(cudaMalloc(&total, sizeof(float)));
  CHECK(cudaMemcpyAsync(on_device, values.data(), count * sizeof(float), cudaMemcpyHostToDevice, stream));
  CHECK(cudaMemsetAsync(total, 0, sizeof(float), stream));
  if (argc > 1 && std::strcmp(argv[1], "store") == 0) store_behind<<<1, 1, 0, stream>>>(on_device, count);
  if (argc > 1 && std::strcmp(argv[1], "wait") == 0) wait_for<<<1, 1, 0, stream>>>(reinterpret_cast<int*>(total));
  if (argc > 1 && std::strcmp(argv[1], "blocks") == 0) {
    int* flags = nullptr;
    CHECK(cudaMalloc(&flags, 2 * sizeof(int)));
    CHECK(cudaMemsetAsync(flags, 0, 2 * sizeof(int), stream));
    wait_for_the_other<<<2, 1, 0, stream>>>(flags);
  }
  sum<<<8, 128, 0, stream>>>(on_device, count, total);
  CHECK(cudaGetLastError());
#if defined(WITH_A_CALL_THAT_IS_MISSING)
  if (argc > 1 && std::strcmp(argv[1], "call") == 0) CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 1024));
#endif

  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  sum<<<8, 128, 0, stream>>>(on_device, count, total);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiateWithFlags(&executable, graph, 0));
  for (int i = 0; i < 2; ++i) CHECK(cudaGraphLaunch(executable, stream));

  float result = 0, expected = 0;
  int launched = 0;
  CHECK(cudaMemcpyAsync(&result, total, sizeof result, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaMemcpyFromSymbol(&launched, launches, sizeof launched));
  for (int i = 0; i < count; ++i) expected += 3 * values[i] * static_cast<float>(1 + i % 2);
  std::printf("sum %g of %g in %d launches\n", result, expected, launched);
  return result == expected ? 0 : 1;
}
