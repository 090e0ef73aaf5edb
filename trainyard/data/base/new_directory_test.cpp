#include "trainyard/data/base/new_directory.h"

#include <cerrno>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/system_calls.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/fault_injector.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::data::new_directory_test {
namespace {

using core::ErrorCode, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty;

class NewDirectory : public ::testing::Test {
 protected:
  std::vector<std::string> list(const std::string& name) { return files_.list(temp_.file(name)); }
  void write(const std::string& name) {
    files_.make_directories(core::parent_path(temp_.file(name)));
    files_.write_file_atomically(temp_.file(name), "x");
  }
  // Makes a directory of a file and a folder.
  static void make(const std::string& directory, core::FileSystem& files = core::local_file_system()) {
    make_new_directory(directory, files, [&](const std::string& unfinished) {
      files.write_file_atomically(core::join_path(unfinished, "file"), "x");
      files.make_directories(core::join_path(unfinished, "folder/below"));
    });
  }

  core::TempDir temp_;
  core::FileSystem& files_ = core::local_file_system();
};

TEST_F(NewDirectory, HoldsWhatWasWrittenAndNothingElse) {
  files_.make_directories(temp_.file("empty"));
  for (const char* name : {"empty", "missing", "some/where/below"}) {
    make(temp_.file(name));
    EXPECT_THAT(list(name), ElementsAre("file", "folder")) << name;
    EXPECT_THAT(list(std::string(name) + "/folder"), ElementsAre("below")) << name;
    EXPECT_NO_THROW(require_finished(files_, temp_.file(name))) << name;
  }
  EXPECT_THAT(list(""), ElementsAre("empty", "missing", "some"));
  EXPECT_THAT(list("some/where"), ElementsAre("below"));
}

TEST_F(NewDirectory, MayBeNamedWithASlashBehind) {
  files_.make_directories(temp_.file("empty"));
  for (const char* name : {"a/", "b//", "c/.", "d/./", "empty/"}) {
    make(temp_.file(name));
    EXPECT_THAT(list(name), ElementsAre("file", "folder")) << name;
  }
  EXPECT_THAT(list(""), ElementsAre("a", "b", "c", "d", "empty"));
}

TEST_F(NewDirectory, IsWhereALinkLeads) {
  files_.make_directories(temp_.file("disk/empty"));
  for (const auto& [link, target] : {std::pair("link", "disk/empty"), {"dangling", "disk/new"}}) {
    std::filesystem::create_directory_symlink(target, temp_.file(link));
    make(temp_.file(link));
    EXPECT_TRUE(std::filesystem::is_symlink(temp_.file(link))) << link;
    EXPECT_THAT(list(target), ElementsAre("file", "folder")) << link;
  }
  EXPECT_THAT(list("disk"), ElementsAre("empty", "new"));
}

// A mount point, or a directory whose parent cannot be written: neither can be removed, and nothing made next to it.
TEST_F(NewDirectory, IsFilledWhereItCannotBeReplaced) {
  class FixedDirectory : public core::SystemCalls {
   public:
    explicit FixedDirectory(std::string path) : path_(std::move(path)) {}
    int rmdir(const char* path) override { return path == path_ ? refused() : SystemCalls::rmdir(path); }
    int mkdir(const char* path, mode_t mode) override {
      return std::string(path).starts_with(path_ + "/") ? SystemCalls::mkdir(path, mode) : refused();
    }

   private:
    static int refused() {
      errno = EBUSY;
      return -1;
    }
    std::string path_;
  };
  files_.make_directories(temp_.file("mounted"));
  FixedDirectory fixed(temp_.file("mounted"));
  const auto files = core::make_file_system(fixed);
  make(temp_.file("mounted"), *files);
  EXPECT_THAT(list("mounted"), ElementsAre("file", "folder"));
}

TEST_F(NewDirectory, RefusesWhatHoldsSomething) {
  write("full/thesis.txt");
  write("a_file");
  for (const char* name : {"full", "full/", "a_file"}) {
    EXPECT_EQ(core::problem_of([&] { make(temp_.file(name)); }), "output directory exists and is not empty") << name;
  }
  EXPECT_THAT(list("full"), ElementsAre("thesis.txt"));
  EXPECT_THAT(list(""), ElementsAre("a_file", "full"));
  // It came while another program wrote.
  files_.make_directories(temp_.file("late"));
  for (const char* name : {"late", "late_and_missing"}) {
    const auto error = core::error_of([&] {
      make_new_directory(temp_.file(name), files_, [&](const std::string& unfinished) {
        files_.write_file_atomically(core::join_path(unfinished, "file"), "ours");
        write(std::string(name) + "/file");
      });
    });
    EXPECT_TRUE(error.has_value()) << name;
    EXPECT_THAT(list(name), ElementsAre("file")) << name;
    EXPECT_EQ(files_.read_file(temp_.file(std::string(name) + "/file")), "x") << name;
  }
}

// Another program writes there between the first look and the lock, and the long work does not begin.
TEST_F(NewDirectory, IsNotMadeWhereAFileCameBeforeTheLock) {
  class FilledAfterTheFirstLook : public core::SystemCalls {
   public:
    int list(const char* path, std::vector<std::string>& names) override {
      const int result = SystemCalls::list(path, names);
      if (std::exchange(first_, false)) {
        core::local_file_system().write_file_atomically(core::join_path(path, "theirs"), "x");
      }
      return result;
    }

   private:
    bool first_ = true;
  };
  files_.make_directories(temp_.file("empty"));
  FilledAfterTheFirstLook filled;
  const auto files = core::make_file_system(filled);
  bool asked = false;
  const std::string problem = core::problem_of(
      [&] { make_new_directory(temp_.file("empty"), *files, [&](const std::string&) { asked = true; }); });
  EXPECT_EQ(problem, "output directory exists and is not empty");
  EXPECT_FALSE(asked);
  EXPECT_THAT(list("empty"), ElementsAre("theirs"));
}

TEST_F(NewDirectory, OneProcessAtATimeMakesIt) {
  files_.make_directories(temp_.file("empty"));
  for (const char* name : {"empty", "missing"}) {
    const std::string path = temp_.file(name);
    make_new_directory(path, files_, [&](const std::string& unfinished) {
      files_.write_file_atomically(core::join_path(unfinished, "first"), "x");
      EXPECT_THAT(core::message_of([&] { make(path); }), HasSubstr("another run writes into this folder")) << name;
      EXPECT_THAT(files_.list(unfinished), ElementsAre("first")) << name;
    });
    EXPECT_THAT(list(name), ElementsAre("first")) << name;
  }
  EXPECT_THAT(list(""), ElementsAre("empty", "missing"));
}

TEST_F(NewDirectory, NothingIsLeftAfterAnError) {
  files_.make_directories(temp_.file("empty"));
  for (const char* name : {"empty", "missing"}) {
    EXPECT_EQ(core::code_of([&] {
                make_new_directory(temp_.file(name), files_, [&](const std::string& unfinished) {
                  files_.write_file_atomically(core::join_path(unfinished, "file"), "x");
                  throw core::Error(core::ErrorCode::kNoSpace, "disk is full");
                });
              }),
              ErrorCode::kNoSpace)
        << name;
  }
  EXPECT_THAT(list(""), ElementsAre("empty"));
  EXPECT_THAT(list("empty"), IsEmpty());
}

TEST_F(NewDirectory, WhatAKilledRunHasLeftIsRemoved) {
  for (const char* name :
       {"empty/.unfinished/old", "empty/.unfinished.lock", "missing.unfinished/old", "missing.unfinished.lock"}) {
    write(name);
  }
  for (const char* name : {"empty", "missing"}) {
    make(temp_.file(name));
    EXPECT_THAT(list(name), ElementsAre("file", "folder")) << name;
  }
  EXPECT_THAT(list(""), ElementsAre("empty", "missing"));
}

TEST_F(NewDirectory, IsRefusedWhileAPartOfItIsMissing) {
  write("half/file");
  write("half/.unfinished/other");
  EXPECT_THAT(core::message_of([&] { require_finished(files_, temp_.file("half")); }, ErrorCode::kCorruptData),
              HasSubstr("directory is not written to its end: " + temp_.file("half")));
  EXPECT_EQ(core::problem_of([&] { make(temp_.file("half")); }), "output directory exists and is not empty");
  EXPECT_THAT(list("half"), ElementsAre(".unfinished", "file"));
}

// Every system call fails once: an existing directory is filled, or empty as before.
TEST_F(NewDirectory, IsWholeOrEmptyWhateverFails) {
  for (const core::Fault fault : {core::Fault::kIoError, core::Fault::kNoSpace, core::Fault::kInterrupted}) {
    for (int n = 1;; ++n) {
      const core::TempDir temp;
      core::FaultInjector faults;
      faults.fail_nth(n, fault);
      const auto files = core::make_file_system(faults);
      const auto error = core::error_of([&] { make(temp.path(), *files); });
      const std::vector<std::string> whole = {"file", "folder"}, left = files_.list(temp.path());
      EXPECT_TRUE(left == whole || left.empty()) << n;
      EXPECT_TRUE(error || left == whole) << n;
      EXPECT_FALSE(error && (fault == core::Fault::kInterrupted || !faults.reached())) << n;
      if (!faults.reached()) break;
      ASSERT_LT(n, 1000);
    }
  }
}

}  // namespace
}  // namespace trainyard::data::new_directory_test
