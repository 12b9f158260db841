// SPDX-License-Identifier: Apache-2.0

#include "warprank/core/file_writer.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "support/folder.hpp"
#include "support/message_of.hpp"

namespace warprank { inline namespace v0 { namespace detail { namespace {

using test_support::Folder;
using test_support::message_of;

void write(FileWriter& file, const std::string& text) { file.write(text.data(), static_cast<int64_t>(text.size())); }
void save(const std::string& path, const std::string& text) {
  FileWriter file(path);
  write(file, text);
  file.commit();
}
std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
int64_t num_files(const Folder& folder) {
  return std::distance(std::filesystem::directory_iterator(folder.path()), {});
}

/// Files that grow beyond it are errors, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(FileWriter, ReplacesAFileOnlyWhenItIsWhole) {
  const Folder folder("file_writer");
  const std::string path = folder.path() + "file";
  save(path, "old");
  {
    FileWriter file(path);
    write(file, "new");
    write(file, "");
    write(file, "er");
    EXPECT_EQ(read(path), "old");
    file.commit();
    EXPECT_EQ(read(path), "newer");
  }
  { write(*std::make_unique<FileWriter>(path), "given up"); }
  EXPECT_EQ(read(path), "newer");
  EXPECT_EQ(num_files(folder), 1);
}

TEST(FileWriter, KeepsTheOldFileWhenTheDiskIsFull) {
  const Folder folder("file_writer");
  const std::string path = folder.path() + "file";
  save(path, "old");
  for (const size_t size : {size_t{5000}, size_t{100000}}) {  // seen at the end, and while writing
    const FileSizeLimit limit(4096);
    EXPECT_EQ(message_of([&] { save(path, std::string(size, 'x')); }),
              path + ": expected a file that can be written, got File too large");
  }
  EXPECT_EQ(read(path), "old");
  EXPECT_EQ(num_files(folder), 1);
}

TEST(FileWriter, LetsTheLastOfSeveralWin) {
  const Folder folder("file_writer");
  const std::string path = folder.path() + "file";
  FileWriter first(path), second(path);
  write(first, "1");
  write(second, "two");
  write(first, "1");
  second.commit();
  EXPECT_EQ(read(path), "two");
  first.commit();
  EXPECT_EQ(read(path), "11");
  EXPECT_EQ(num_files(folder), 1);
}

TEST(FileWriter, PassesOverWhatOthersLeftBehind) {
  const Folder folder("file_writer");
  const std::string path = folder.path() + "file";
  for (int i = 0; i < 100; ++i)
    save(path + ".partial." + std::to_string(::getpid()) + "." + std::to_string(i), "of another");
  save(path, "mine");
  EXPECT_EQ(read(path), "mine");
  EXPECT_EQ(num_files(folder), 101);
}

TEST(FileWriter, RefusesWhatIsNoFileOrCannotBeOne) {
  const Folder folder("file_writer");
  const std::string expected = ": expected a file that can be written, got ", pipe = folder.path() + "pipe";
  const auto message = [](const std::string& path) { return message_of([&] { save(path, "text"); }); };
  EXPECT_EQ(message(folder.path()), folder.path() + expected + "Is a directory");
  EXPECT_EQ(message("/nowhere/file"), "/nowhere/file" + expected + "No such file or directory");
  EXPECT_EQ(message("/dev/null"), "/dev/null" + expected + "a pipe or device");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(message(pipe), pipe + expected + "a pipe or device");
  EXPECT_EQ(num_files(folder), 1);
}

}}}}  // namespace warprank::v0::detail
