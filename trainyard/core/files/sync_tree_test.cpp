#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/fault_injector.h"
#include "trainyard/core/testing/power_cut.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::core::sync_tree_test {
namespace {

// By one call, and as file systems of other kinds inherit it.
TEST(FileSystem, SyncTreeMakesAllFilesDurable) {
  for (const bool one_call : {true, false}) {
    const TempDir directory;
    PowerCut disk;
    const auto files = make_file_system(disk);
    files->make_directories(directory.file("a/b"));
    for (const char* name : {"1", "a/2", "a/b/3", "b"}) {
      const auto file = files->open_write(directory.file(name));
      file->write("content");
      file->close();
    }
    one_call ? files->sync_tree(directory.path()) : files->FileSystem::sync_tree(directory.path());
    const auto late = files->open_write(directory.file("late"));
    late->write("content");
    late->close();
    EXPECT_EQ(disk.cut(directory.path()), 1) << "what came later";
    EXPECT_EQ(local_file_system().read_file(directory.file("a/b/3")), "content");
    EXPECT_EQ(local_file_system().read_file(directory.file("late")), "");
  }
}

TEST(FileSystem, SyncTreeReportsErrors) {
  const TempDir directory;
  for (const int n : {1, 2}) {
    FaultInjector faults;
    faults.fail_nth(n, Fault::kIoError);
    EXPECT_EQ(code_of([&] { make_file_system(faults)->sync_tree(directory.path()); }), ErrorCode::kIo) << n;
  }
  EXPECT_EQ(code_of([&] { local_file_system().sync_tree(directory.file("missing")); }), ErrorCode::kNotFound);
}

TEST(FileSystem, InheritedSyncTreeSyncsWhatIsThereAndThenTheDirectory) {
  const TempDir directory;
  local_file_system().make_directories(directory.file("a"));
  for (const char* name : {"a/1", "b", "c"}) local_file_system().write_file_atomically(directory.file(name), "content");
  FaultInjector calls;
  make_file_system(calls)->FileSystem::sync_tree(directory.path());
  std::vector<std::string> opened;
  for (const std::string& call : calls.log()) {
    if (call.starts_with("open ")) opened.push_back(call.substr(5));
  }
  EXPECT_EQ(opened, (std::vector<std::string>{directory.file("a"), directory.file("b"), directory.file("c"),
                                              directory.path()}));
  const std::vector<std::string> log = calls.log();
  EXPECT_EQ(std::count(log.begin(), log.end(), "syncfs"), 1) << "of the folder below";
  EXPECT_EQ(std::count(log.begin(), log.end(), "fsync"), 3) << "of each file and the directory";
}

}  // namespace
}  // namespace trainyard::core::sync_tree_test
