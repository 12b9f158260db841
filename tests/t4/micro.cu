// SPDX-License-Identifier: Apache-2.0
//
// Kernels that have one limit each, for tests/t4/run_test.py, which holds the model's times of them against what others
// have measured. Each is launched for some steps and for twice as many, called "NAME STEPS": the difference is theirs.

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

extern "C" {
__attribute__((weak)) void t4_time(int on);
__attribute__((weak)) void t4_label(const char* name);
__attribute__((weak)) void t4_cold();
}

__global__ void follow(const uint64_t* at, uint64_t* last, int steps) {
  for (int i = 0; i < steps; ++i) at = reinterpret_cast<const uint64_t*>(__ldca(at));
  *last = reinterpret_cast<uint64_t>(at);
}
__global__ void follow_behind_l1(const uint64_t* at, uint64_t* last, int steps) {
  for (int i = 0; i < steps; ++i) at = reinterpret_cast<const uint64_t*>(__ldcg(at));
  *last = reinterpret_cast<uint64_t>(at);
}
__global__ void follow_shared(int* last, int steps) {
  __shared__ int next[32];
  next[threadIdx.x] = static_cast<int>((threadIdx.x + 1) % 32);
  __syncthreads();
  int at = static_cast<int>(threadIdx.x);
  for (int i = 0; i < steps; ++i) at = next[at];
  last[threadIdx.x] = at;
}
__global__ void shuffle(int* last, int steps) {
  int value = static_cast<int>(threadIdx.x);
  for (int i = 0; i < steps; ++i) value = __shfl_sync(~0u, value, value);
  last[threadIdx.x] = value;
}
__global__ void exponentials(float* last, int steps) {
  float value = 0.5f;
  for (int i = 0; i < steps; ++i) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(value));
  last[threadIdx.x] = value;
}
__global__ void meet(int* last, int steps) {
  for (int i = 0; i < steps; ++i) __syncthreads();
  last[threadIdx.x] = steps;
}
__global__ void copy(const uint4* from, uint4* to, int count) {
  const int stride = static_cast<int>(gridDim.x * blockDim.x);
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < count; i += stride) to[i] = from[i];
}
/// `turns` times.
__global__ void read(const uint4* from, uint32_t* never_written, int count, int turns) {
  constexpr int at_once = 4;
  const int stride = static_cast<int>(gridDim.x * blockDim.x);
  const int first = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  uint32_t bits = 0;
  for (int turn = 0; turn < turns; ++turn)
    for (int i = first; i < count; i += at_once * stride) {
      uint4 values[at_once];
      for (int k = 0; k < at_once; ++k) values[k] = i + k * stride < count ? __ldcg(&from[i + k * stride]) : uint4{};
      for (const uint4& value : values) bits |= value.x | value.y | value.z | value.w;
    }
  if (bits != 0) *never_written = bits;
}
__global__ void products(float* sums, int steps) {
  float d[4][4] = {};
  for (int i = 0; i < steps; ++i)
    for (auto& sum : d)
      asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4}, {%4}, {%0,%1,%2,%3};"
                   : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                   : "r"(0));
  for (const auto& sum : d) sums[threadIdx.x] += sum[0];
}

template <class Launch>
void time_twice(const std::string& name, int steps, bool is_cold, const Launch& launch) {
  for (const int n : {steps, 2 * steps}) {
    t4_cold();
    t4_time(1);
    if (!is_cold) t4_label("-"), launch(n);
    t4_label((name + " " + std::to_string(n)).c_str());
    launch(n);
    t4_time(0);
  }
}

int main() {
  if (t4_time == nullptr) {
    std::printf("this needs tools/t4/run\n");
    return 1;
  }
  constexpr size_t bytes = size_t{32} << 20;
  constexpr int of_vector = sizeof(uint4);
  uint4 *from = nullptr, *to = nullptr;
  cudaMalloc(&from, bytes);
  cudaMalloc(&to, bytes);
  cudaMemset(from, 0, bytes);
  const auto count = static_cast<int>(bytes / of_vector);
  auto* const word = reinterpret_cast<uint32_t*>(to);
  time_twice("copy", count / 2, true, [&](int n) { copy<<<320, 256>>>(from, to, n); });
  time_twice("read", count / 2, true, [&](int n) { read<<<160, 256>>>(from, word, n, 1); });
  time_twice("read_l2", 4, false, [&](int n) { read<<<160, 256>>>(from, word, 163840, n); });
  const auto ring = [&](size_t span, size_t stride) {
    std::vector<uint64_t> next(span / 8);
    for (size_t i = 0; i < span; i += stride) next[i / 8] = reinterpret_cast<uint64_t>(from) + (i + stride) % span;
    cudaMemcpy(from, next.data(), span, cudaMemcpyHostToDevice);
  };
  auto* const first = reinterpret_cast<uint64_t*>(from);
  auto* const last = reinterpret_cast<uint64_t*>(to);
  ring(8 << 10, 128);
  time_twice("l1", 1024, false, [&](int n) { follow<<<1, 1>>>(first, last, n); });
  ring(1 << 20, 1024);
  time_twice("l2", 1024, false, [&](int n) { follow_behind_l1<<<1, 1>>>(first, last, n); });
  ring(bytes, 8192);
  time_twice("dram", 1024, true, [&](int n) { follow_behind_l1<<<1, 1>>>(first, last, n); });
  auto* const integers = reinterpret_cast<int*>(to);
  auto* const floats = reinterpret_cast<float*>(to);
  time_twice("shared", 1024, false, [&](int n) { follow_shared<<<1, 32>>>(integers, n); });
  time_twice("shuffle", 1024, false, [&](int n) { shuffle<<<1, 32>>>(integers, n); });
  time_twice("exponential", 1024, false, [&](int n) { exponentials<<<1, 32>>>(floats, n); });
  time_twice("barrier_of_1", 1024, false, [&](int n) { meet<<<1, 32>>>(integers, n); });
  time_twice("barrier_of_8", 1024, false, [&](int n) { meet<<<1, 256>>>(integers, n); });
  time_twice("barrier_of_32", 1024, false, [&](int n) { meet<<<1, 1024>>>(integers, n); });
  time_twice("products", 64, false, [&](int n) { products<<<40, 512>>>(floats, n); });
  const cudaError_t code = cudaDeviceSynchronize();
  if (code != cudaSuccess) std::printf("%s\n", cudaGetErrorName(code));
  return code == cudaSuccess ? 0 : 1;
}
