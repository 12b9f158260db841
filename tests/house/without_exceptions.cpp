// SPDX-License-Identifier: Apache-2.0

// Compiled with -fno-exceptions: the headers of all primitives are here, one computes, and what is refused ends in the
// program's handler, or aborts it.

#if defined(__cpp_exceptions)
#error "expected -fno-exceptions"
#endif

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "all_primitives.hpp"

namespace {

using namespace warprank;

constexpr char expected[] = "bytes of device memory, got -1";

void exit_with_what_is_expected(const char* what) {
  std::printf("%s\n", what);
  std::exit(std::strstr(what, expected) != nullptr ? 0 : 1);
}

bool computes() {
  const int64_t rows = 3, dim = 4;
  const device::DeviceMemory memory(rows * 2 * dim * 4 + rows * 4, "fields and sums");
  auto* const fields = reinterpret_cast<float*>(memory.data());
  float* const sums = fields + rows * 2 * dim;
  const std::vector<float> values(rows * 2 * dim, 0.5f);
  device::copy_to_device(fields, values.data(), rows * 2 * dim * 4, {});
  const AxisInput<float> input{Matrix<const float>(fields, rows, 2 * dim)};
  const Resident fm(Fm<float, float>({&input, 1}, dim, Matrix<float>(sums, rows, 1), nullptr, {true}));
  fm.launch();
  float got[rows];
  device::copy_to_host(got, sums, sizeof got, {});
  device::synchronize({});
  for (const float sum : got)
    if (sum != 1.0f) return std::printf("expected 1, got %g\n", static_cast<double>(sum)), false;
  return true;
}

bool aborts_by_default() {
  const pid_t child = fork();
  if (child == 0) {
    std::freopen("/dev/null", "w", stderr);
    raise(invalid_argument("a", "b", "c"));
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

}  // namespace

int main() {
  if (!computes()) return 1;
  if (!aborts_by_default()) return std::puts("expected the process to be aborted"), 1;
  set_failure_handler(exit_with_what_is_expected);
  const device::DeviceMemory memory(-1, "a table");
  std::puts("expected the handler to end the process");
  return 1;
}
