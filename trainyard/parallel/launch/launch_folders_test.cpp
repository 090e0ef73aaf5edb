#include "trainyard/parallel/launch/launch_folders.h"

#include <array>
#include <atomic>
#include <csignal>
#include <ctime>
#include <deque>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::parallel::launch_folders_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A process that makes a folder, holds it, and lives until it is killed.
class Launcher {
 public:
  explicit Launcher(const std::string& base) {
    std::array<int, 2> ready{};
    EXPECT_EQ(::pipe(ready.data()), 0);
    process_ = ::fork();
    if (process_ == 0) {
      folder_ = make_launch_folder(base);
      const core::Socket held = hold_launch_folder(folder_);
      [[maybe_unused]] const ssize_t written = ::write(ready[1], folder_.data(), folder_.size());
      for (;;) ::pause();
    }
    std::array<char, 1024> text{};
    const ssize_t count = ::read(ready[0], text.data(), text.size());
    EXPECT_GT(count, 0);
    folder_.assign(text.data(), static_cast<size_t>(std::max<ssize_t>(count, 0)));
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Launcher() { kill(); }

  const std::string& folder() const { return folder_; }
  pid_t process() const { return process_; }
  void kill() {
    if (process_ == 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  pid_t process_ = 0;
  std::string folder_;
};

std::vector<std::string> names_in(const core::TempDir& base) {
  return core::local_file_system().list(base.path());
}

TEST(LaunchFolders, AreRemovedOnceNoProcessHoldsThem) {
  const core::TempDir base;
  Launcher launch(base.path());
  core::local_file_system().make_directories(launch.folder() + "/session/a");
  EXPECT_THAT(remove_abandoned_folders(base.path()), IsEmpty()) << "launch lives";
  core::Socket keeper = hold_launch_folder(launch.folder());
  launch.kill();
  EXPECT_THAT(remove_abandoned_folders(base.path()), IsEmpty()) << "its keeper lives";
  keeper = core::Socket();
  EXPECT_THAT(remove_abandoned_folders(base.path()), ElementsAre(launch.folder()));
  EXPECT_THAT(names_in(base), IsEmpty());
}

// A launch that starts at the same time looks at every moment between the folder and its lock.
TEST(LaunchFolders, OfALaunchThatIsStartingStay) {
  const core::TempDir base;
  std::atomic<bool> ended = false;
  std::vector<std::string> removed;
  std::thread other([&] {
    while (!ended) {
      for (std::string& folder : remove_abandoned_folders(base.path())) removed.push_back(std::move(folder));
    }
  });
  std::deque<core::Socket> held;  // longer than the other thread needs from finding a folder to trying its lock
  for (int i = 0; i < 2000; ++i) {
    const std::string folder = make_launch_folder(base.path());
    held.push_back(hold_launch_folder(folder));
    if (held.size() > 200) held.pop_front();
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  ended = true;
  other.join();
  EXPECT_THAT(removed, IsEmpty());
}

// The number in the name is another process' by now: here this test's own, which lives.
TEST(LaunchFolders, ANumberThatAnotherProcessHasMeansNothing) {
  const core::TempDir base;
  const std::string folder = base.file("trainyard-launch-" + std::to_string(::getpid()) + "-abcdef");
  core::local_file_system().make_directories(folder);
  { const core::Socket held = hold_launch_folder(folder); }
  EXPECT_THAT(remove_abandoned_folders(base.path()), ElementsAre(folder));
}

// As older releases made them.
TEST(LaunchFolders, WithoutALockTheProcessOfTheNameCounts) {
  const core::TempDir base;
  const auto make = [&](pid_t process) {
    std::string folder = base.file("trainyard-launch-" + std::to_string(process) + "-abcdef");
    core::local_file_system().make_directories(folder);
    return folder;
  };
  Launcher other(base.path());
  const pid_t gone = other.process();
  const std::string living = make(::getpid());
  EXPECT_THAT(remove_abandoned_folders(base.path()), IsEmpty());
  // Made long before the process of this number began.
  const std::array<timespec, 2> long_ago{timespec{.tv_sec = 1000000000, .tv_nsec = 0},
                                         {.tv_sec = 1000000000, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, living.c_str(), long_ago.data(), 0), 0);
  EXPECT_THAT(remove_abandoned_folders(base.path()), ElementsAre(living));
  other.kill();
  remove_abandoned_folders(base.path());
  const std::string dead = make(gone);
  EXPECT_THAT(remove_abandoned_folders(base.path()), ElementsAre(dead));
}

// The number in the name was another process' when the folder was made.
TEST(LaunchFolders, WithoutALockAProcessThatBeganLaterDoesNotCount) {
  const core::TempDir base;
  const Launcher later(base.path());
  const std::string folder = base.file("trainyard-launch-" + std::to_string(later.process()) + "-abcdef");
  core::local_file_system().make_directories(folder);
  EXPECT_THAT(remove_abandoned_folders(base.path()), IsEmpty());
  const time_t before = ::time(nullptr) - 100;
  const std::array<timespec, 2> times{timespec{.tv_sec = before, .tv_nsec = 0}, {.tv_sec = before, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, folder.c_str(), times.data(), 0), 0);
  EXPECT_THAT(remove_abandoned_folders(base.path()), ElementsAre(folder));
}

TEST(LaunchFolders, WhatIsOfOthersStays) {
  const core::TempDir base;
  core::FileSystem& files = core::local_file_system();
  // Above any number that a process can have.
  const std::string dead = "trainyard-launch-2147483647-";
  files.make_directories(base.file("precious"));
  files.write_file_atomically(base.file("precious/file"), "text");
  ASSERT_EQ(::symlink(base.file("precious").c_str(), base.file(dead + "link00").c_str()), 0);
  files.write_file_atomically(base.file(dead + "file00"), "text");
  for (const std::string name :
       {"trainyard-launch-12x-abcdef", "trainyard-launch--abcdef", "trainyard-launch-2147483647",
        "trainyard-launch-2147483647-abcdefg", "trainyard-launches"}) {
    files.make_directories(base.file(name));
  }
  // A link within an abandoned folder is removed, and not what it leads to.
  files.make_directories(base.file(dead + "abcdef"));
  ASSERT_EQ(::symlink(base.file("precious").c_str(), base.file(dead + "abcdef/link").c_str()), 0);
  const size_t before = names_in(base).size();
  EXPECT_THAT(remove_abandoned_folders(base.path()), ElementsAre(base.file(dead + "abcdef")));
  EXPECT_EQ(names_in(base).size(), before - 1);
  EXPECT_EQ(files.read_file(base.file("precious/file")), "text");
  if (::geteuid() != 0) return;
  files.make_directories(base.file(dead + "others"));
  ASSERT_EQ(::chown(base.file(dead + "others").c_str(), 65534, 65534), 0);
  EXPECT_THAT(remove_abandoned_folders(base.path()), IsEmpty()) << "another user's";
  EXPECT_THAT(remove_abandoned_folders(base.file("nowhere")), IsEmpty());
}

}  // namespace
}  // namespace trainyard::parallel::launch_folders_test
