// SPDX-License-Identifier: Apache-2.0
#include "program/nvdisasm.hpp"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>

namespace t4 {
namespace {

/// A folder that is gone with everything in it.
class Scratch {
 public:
  Scratch() {
    const char* base = getenv("TMPDIR");
    path_ = std::string(base == nullptr ? "/tmp" : base) + "/t4.XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no folder could be made in the place of " + path_);
  }
  ~Scratch() {
    for (const std::string& file : {cubin(), text()}) unlink(file.c_str());
    rmdir(path_.c_str());
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string cubin() const { return path_ + "/code.cubin"; }
  std::string text() const { return path_ + "/code.sass"; }

 private:
  std::string path_;
};

std::string find_nvdisasm() {
  if (const char* named = getenv("WARPRANK_NVDISASM")) {
    if (access(named, X_OK) != 0) throw std::runtime_error(std::string("WARPRANK_NVDISASM is no program: ") + named);
    return named;
  }
  std::string path = getenv("PATH") == nullptr ? "" : getenv("PATH");
  path += ":/usr/local/cuda/bin";
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string file = path.substr(begin, end - begin) + "/nvdisasm";
    if (access(file.c_str(), X_OK) == 0) return file;
    begin = end + 1;
  }
  throw std::runtime_error(
      "nvdisasm is missing: expected in PATH, in /usr/local/cuda/bin or named by WARPRANK_NVDISASM; "
      "scripts/fetch_nvdisasm.sh fetches it");
}

/// Without a shell: names of folders may have any characters.
int run(const std::string& program, const std::string& input, const std::string& output) {
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen(output.c_str(), "w", stdout) == nullptr) _exit(126);
    unsetenv("LD_LIBRARY_PATH");
    unsetenv("LD_PRELOAD");
    execl(program.c_str(), program.c_str(), "-c", "-hex", "-g", input.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) < 0) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

Disassembly disassemble(const std::vector<uint8_t>& cubin) {
  const std::string program = find_nvdisasm();
  const Scratch scratch;
  {
    std::ofstream file(scratch.cubin(), std::ios::binary);
    file.write(reinterpret_cast<const char*>(cubin.data()), static_cast<std::streamsize>(cubin.size()));
    if (!file.flush())
      throw std::runtime_error("a cubin of " + std::to_string(cubin.size()) + " bytes was not written");
  }
  const int code = run(program, scratch.cubin(), scratch.text());
  if (code != 0) throw std::runtime_error(program + " failed with " + std::to_string(code));
  std::ifstream text(scratch.text());
  return parse_disassembly(text);
}

}  // namespace t4
