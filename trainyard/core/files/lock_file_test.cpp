#include "trainyard/core/files/lock_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/system/system_files.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/fault_injector.h"
#include "trainyard/core/testing/helper_task.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::core::lock_file_test {
namespace {

using ::testing::HasSubstr;

// A process that holds the lock until it is told to end, or is killed.
class Holder {
 public:
  explicit Holder(const std::string& path, SystemCalls* system = nullptr) {
    std::array<int, 2> ready{}, end{};
    EXPECT_EQ(::pipe(ready.data()), 0);
    EXPECT_EQ(::pipe(end.data()), 0);
    process_ = ::fork();
    if (process_ == 0) {
      ::close(end[1]);
      char byte = 'x';
      try {
        SystemCalls machine;
        const LockFile lock(path, system == nullptr ? machine : *system);
        if (::write(ready[1], &byte, 1) == 1) [[maybe_unused]]
          const ssize_t got = ::read(end[0], &byte, 1);
      } catch (const Error&) {
        ::_exit(1);
      }
      ::_exit(0);
    }
    ::close(ready[1]);
    ::close(end[0]);
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1) << "the process did not get the lock";
    ::close(ready[0]);
    end_ = end[1];
  }
  ~Holder() { finish(); }

  pid_t process() const { return process_; }
  void kill() {
    ::kill(process_, SIGKILL);
    finish();
  }
  void finish() {
    if (process_ == 0) return;
    ::close(end_);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  pid_t process_ = 0;
  int end_ = -1;
};

// A file system of a network that does not know flock.
class NoLocks : public SystemCalls {
 public:
  int flock(int, int) override {
    errno = EOPNOTSUPP;
    return -1;
  }
};

class LockFileTest : public ::testing::Test {
 protected:
  std::optional<Error> taking() {
    return error_of([&] { LockFile(path_, machine_); });
  }
  std::optional<Error> taking_by_text() {
    return error_of([&] { LockFile(path_, no_locks_); });
  }
  void write(const std::string& text) const { local_file_system().write_file_atomically(path_, text); }
  std::string text() const { return local_file_system().read_file(path_); }

  TempDir directory_;
  std::string path_ = directory_.file("run.lock");
  SystemCalls machine_;
  NoLocks no_locks_;
};

TEST_F(LockFileTest, ASecondProcessIsRefusedWithWhoHoldsIt) {
  Holder first(path_);
  const auto error = taking();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
  std::array<char, 256> host{};
  ASSERT_EQ(::gethostname(host.data(), host.size()), 0);
  EXPECT_THAT(error->what(), HasSubstr("another run writes into this folder: " + path_));
  EXPECT_THAT(error->what(), HasSubstr("process " + std::to_string(first.process()) + " on host " + host.data()));
  EXPECT_THAT(error->what(), ::testing::ContainsRegex("since 20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9:]+Z: .*test"));
  EXPECT_THAT(text(), HasSubstr("process: " + std::to_string(first.process()))) << "being refused changes nothing";
}

// The text of the lock must not replace another file, also where the lock is refused for another reason later.
TEST_F(LockFileTest, IsNoLinkAndNoPipe) {
  const std::string precious = directory_.file("precious");
  local_file_system().write_file_atomically(precious, "text");
  for (const std::string& target : {precious, directory_.file("nowhere")}) {
    ASSERT_EQ(::symlink(target.c_str(), path_.c_str()), 0);
    for (const auto& error : {taking(), taking_by_text()}) {
      ASSERT_TRUE(error);
      EXPECT_THAT(error->what(), HasSubstr("a symbolic link is not written through: " + path_));
    }
    ASSERT_EQ(::unlink(path_.c_str()), 0);
  }
  EXPECT_EQ(local_file_system().read_file(precious), "text");
  EXPECT_FALSE(local_file_system().exists(directory_.file("nowhere")));
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const auto error = taking();
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("a pipe or device is not written like a file: " + path_));
}

TEST_F(LockFileTest, AProcessThatEndsGivesItBackAndRemovesTheFile) {
  Holder first(path_);
  first.finish();
  EXPECT_FALSE(local_file_system().exists(path_));
  EXPECT_FALSE(taking());
  EXPECT_FALSE(taking());
  EXPECT_TRUE(local_file_system().list(directory_.path()).empty());
}

// Its file was removed while it was held, and the name is another process's when it ends.
TEST_F(LockFileTest, WhatAnotherProcessHasTakenMeanwhileStays) {
  for (SystemCalls* const system : {static_cast<SystemCalls*>(&machine_), static_cast<SystemCalls*>(&no_locks_)}) {
    std::optional<LockFile> first(std::in_place, path_, *system);
    local_file_system().remove_file(path_);
    Holder second(path_, system);
    first.reset();
    EXPECT_EQ(proc_value(text(), "process"), std::to_string(second.process()));
  }
}

TEST_F(LockFileTest, TheLockOfAKilledProcessIsTakenOver) {
  Holder first(path_);
  const std::string killed = std::to_string(first.process());
  first.kill();
  EXPECT_THAT(text(), HasSubstr("process: " + killed));
  const LockFile second(path_);
  EXPECT_EQ(proc_value(text(), "process"), std::to_string(::getpid()));
  EXPECT_TRUE(taking());
}

// Several take it in turns: the one that opened the file before it was removed must not think that it has the lock.
TEST_F(LockFileTest, NeverTwoAtATime) {
  const std::string inside = directory_.file("inside");
  std::array<pid_t, 4> children{};
  for (pid_t& child : children) {
    child = ::fork();
    if (child != 0) continue;
    for (int held = 0; held < 50;) {
      try {
        const LockFile lock(path_);
        if (::mkdir(inside.c_str(), 0700) != 0 || ::rmdir(inside.c_str()) != 0) ::_exit(1);
        ++held;
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kInvalidArgument) ::_exit(2);
      }
    }
    ::_exit(0);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

TEST_F(LockFileTest, AChildThatWasForkedDoesNotGiveItBack) {
  std::optional<LockFile> lock(std::in_place, path_);
  const pid_t child = ::fork();
  if (child == 0) {
    lock.reset();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(local_file_system().exists(path_));
  EXPECT_TRUE(taking());
}

TEST_F(LockFileTest, TellsWhetherItIsHeldWithoutTakingIt) {
  EXPECT_FALSE(is_lock_held(path_)) << "there is no file";
  Holder first(path_);
  EXPECT_TRUE(is_lock_held(path_));
  EXPECT_TRUE(is_lock_held(path_, no_locks_));
  first.kill();
  ASSERT_TRUE(local_file_system().exists(path_));
  EXPECT_FALSE(is_lock_held(path_)) << "its holder is gone";
  EXPECT_FALSE(is_lock_held(path_, no_locks_));
  EXPECT_FALSE(taking());
  {
    const LockFile own(path_);
    EXPECT_TRUE(is_lock_held(path_));
  }
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_FALSE(is_lock_held(path_)) << "and blocks on no pipe";
}

// The text of a holder on another machine does not tell; the lock does, where there are locks.
TEST_F(LockFileTest, TellsWhetherAnotherMachineHoldsIt) {
  for (const char* const text : {"host: elsewhere\nprocess: 1\n", ""}) {
    Holder first(path_);
    std::ofstream(path_) << text;  // into the same file
    EXPECT_TRUE(is_lock_held(path_)) << text;
    first.kill();
    EXPECT_FALSE(is_lock_held(path_)) << text;
    EXPECT_EQ(is_lock_held(path_, no_locks_), *text != '\0') << text;
    EXPECT_FALSE(taking());
  }
}

TEST_F(LockFileTest, AProcessThatHasEndedAndIsNotAskedForHoldsNothing) {
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 'x';
    const LockFile lock(path_);
    if (::write(ready[1], &byte, 1) == 1) ::pause();
    ::_exit(1);
  }
  ::close(ready[1]);
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  EXPECT_TRUE(is_lock_held(path_));
  ::kill(child, SIGKILL);
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);  // it stays in the table
  EXPECT_FALSE(is_lock_held(path_));
  ::waitpid(child, nullptr, 0);
}

TEST_F(LockFileTest, EveryFaultIsReportedAndTheNextOneGetsTheLock) {
  for (const Fault fault : {Fault::kIoError, Fault::kNoSpace, Fault::kInterrupted, Fault::kShort}) {
    const bool harmless = fault == Fault::kInterrupted || fault == Fault::kShort;
    int n = 1;
    for (;; ++n) {
      FaultInjector faults;
      faults.fail_nth(n, fault);
      // The last calls are those that give it back: what fails there is nobody's business.
      const auto error = error_of([&] { LockFile(path_, faults); });
      if (harmless) {
        EXPECT_FALSE(error) << error->what();
      }
      if (error) {
        EXPECT_TRUE(error->code() == ErrorCode::kIo || error->code() == ErrorCode::kNoSpace) << error->what();
        EXPECT_THAT(error->what(), HasSubstr(path_));
      }
      ASSERT_FALSE(taking()) << "call " << n;
      if (!faults.reached()) break;
    }
    EXPECT_GT(n, 6);
  }
  FaultInjector full;
  full.fail_writes_from_nth(1, Fault::kNoSpace);
  const auto error = error_of([&] { LockFile(path_, full); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kNoSpace);
}

TEST_F(LockFileTest, AFolderThatCannotBeWrittenIsReported) {
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0555), 0);
  const uid_t user = ::geteuid();  // root may write everywhere, so root becomes somebody else meanwhile
  if (user == 0) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  const auto error = taking();
  if (user == 0) {
    ASSERT_EQ(::seteuid(user), 0);
  }
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kIo);
  EXPECT_THAT(error->what(), HasSubstr(path_));
}

// Another user's lock file can only be read.
TEST_F(LockFileTest, AnotherUsersLockIsRefusedWithWhoHoldsIt) {
  class ReadOnly : public SystemCalls {
    int open(const char* path, int flags, mode_t mode) override {
      if ((flags & O_ACCMODE) == O_RDONLY) return SystemCalls::open(path, flags, mode);
      errno = EACCES;
      return -1;
    }
  };
  ReadOnly other_user;
  Holder first(path_);
  const auto error = error_of([&] { LockFile(path_, other_user); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("process " + std::to_string(first.process()) + " on host"));
  first.kill();
  EXPECT_EQ(error_of([&] { LockFile(path_, other_user); })->code(), ErrorCode::kIo) << "and cannot be taken over";
}

TEST_F(LockFileTest, WithoutLocksTheTextDecides) {
  {
    Holder first(path_, &no_locks_);
    const auto error = taking_by_text();
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("process " + std::to_string(first.process())));
    EXPECT_THAT(error->what(), HasSubstr("if it has ended, remove " + path_));
    first.kill();
  }
  EXPECT_FALSE(taking_by_text()) << "the process is gone";
  EXPECT_FALSE(local_file_system().exists(path_));

  const LockFile own(path_, no_locks_);
  const std::string text = this->text();
  EXPECT_TRUE(taking_by_text());
  const auto with = [&](const std::string& key, const std::string& value) {
    std::string changed = text;
    const size_t at = changed.find("\n" + key + ": ") + key.size() + 3;
    return changed.replace(at, changed.find('\n', at) - at, value);
  };
  write("host: elsewhere" + text.substr(text.find('\n')));
  EXPECT_TRUE(taking_by_text()) << "nothing is known of another machine";
  write(with("numbering", "pid:[1]"));
  EXPECT_TRUE(taking_by_text()) << "nothing is known of another container";
  std::string same_number = with("numbering", "pid:[1]");
  write(same_number.insert(same_number.find("\nstarted: ") + 10, "1"));
  EXPECT_TRUE(taking_by_text()) << "nor when its process of this number began";
  write(with("boot", "another"));
  EXPECT_FALSE(taking_by_text()) << "the machine was started again";
  write(with("started", "1"));
  EXPECT_FALSE(taking_by_text()) << "the process of this number is another one";
  write("");
  EXPECT_FALSE(taking_by_text());
}

// As if each time another holder had ended and removed its file since this process opened it.
TEST_F(LockFileTest, AFileThatIsAlwaysRemovedIsGivenUp) {
  class Vanishing : public SystemCalls {
   public:
    int open(const char* path, int flags, mode_t mode) override {
      opened.push_back(SystemCalls::open(path, flags, mode));
      return opened.back();
    }
    int close(int descriptor) override {
      closed.push_back(descriptor);
      return descriptor > STDERR_FILENO ? SystemCalls::close(descriptor) : 0;
    }
    int lstat(const char* /*path*/, struct stat* /*status*/) override {
      errno = ENOENT;
      return -1;
    }
    std::vector<int> opened{}, closed{};
  };
  Vanishing calls;
  EXPECT_EQ(message_of([&] { LockFile(path_, calls); }),
            "another run writes into this folder: " + path_ +
                ": got one that has not said who it is; wait for it, stop it, or use another folder");
  EXPECT_EQ(calls.opened.size(), 100U);
  EXPECT_EQ(calls.closed, calls.opened) << "each once, and no other";
}

// By proc(5), whose fields count from 1; the name, which may hold blanks, is the second.
TEST_F(LockFileTest, ItsTextTellsTheProcess) {
  const LockFile lock(path_);
  const std::string all = text();
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 7);
  const std::string stat = read_system_file("/proc/self/stat").value();
  std::istringstream fields(stat.substr(stat.rfind(')') + 2));
  std::string started;
  for (int field = 3; field <= 22; ++field) fields >> started;
  EXPECT_EQ(proc_value(all, "started"), started);
  EXPECT_EQ(proc_value(all, "process"), std::to_string(::getpid()));
  const std::string boot = read_system_file("/proc/sys/kernel/random/boot_id").value_or("");
  EXPECT_EQ(proc_value(all, "boot"), boot.substr(0, boot.find('\n')));
  EXPECT_EQ(proc_value(all, "numbering"), std::filesystem::read_symlink("/proc/self/ns/pid").string());
  std::string command = read_system_file("/proc/self/cmdline").value();
  ASSERT_TRUE(command.ends_with('\0'));
  command.pop_back();
  std::replace(command.begin(), command.end(), '\0', ' ');
  EXPECT_EQ(proc_value(all, "command"), command.size() <= 2000 ? command : command.substr(0, 2000) + " ...");
}

// In a process of its own, whose command the test chooses.
void keep_text(const std::string& path) {
  const LockFile lock(path);
  FileSystem& files = local_file_system();
  files.write_file_atomically(path + ".text", files.read_file(path));
}

const bool kKeepsText = add_helper_task("TRAINYARD_LOCK_TASK", "LockFileTask.InAProcess", keep_text);

TEST_F(LockFileTest, ItsTextHas2000BytesOfTheCommand) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string begin = program + " --gtest_filter=LockFileTask.InAProcess ";
  ASSERT_LT(begin.size(), 2000U);
  const std::string command = "env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX -u GTEST_OUTPUT TRAINYARD_LOCK_TASK='" +
                              path_ + "' '" + program + "'" + begin.substr(program.size()) +
                              std::string(2001 - begin.size(), 'x') + " > /dev/null 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  EXPECT_EQ(proc_value(local_file_system().read_file(path_ + ".text"), "command"),
            begin + std::string(2000 - begin.size(), 'x') + " ...");
}

TEST_F(LockFileTest, AskingWhetherItIsHeldLeavesNothingOpen) {
  Holder first(path_);
  std::ofstream(path_) << "host: elsewhere\nprocess: 1\n";  // into the same file: the lock itself has to be asked for
  FaultInjector calls;
  EXPECT_TRUE(is_lock_held(path_, calls));
  int opened = 0, closed = 0;
  for (const std::string& call : calls.log()) {
    opened += call.starts_with("open ") ? 1 : 0;
    closed += call.starts_with("close") ? 1 : 0;
  }
  EXPECT_EQ(opened, 2) << "for its text and for its lock";
  EXPECT_EQ(closed, opened);
}

TEST_F(LockFileTest, OneThatCannotBeAskedForIsAnErrorUnlessItIsGone) {
  class Unopened : public SystemCalls {
   public:
    explicit Unopened(int error) : error_(error) {}
    int open(const char* path, int flags, mode_t mode) override {
      if ((flags & O_NOFOLLOW) == 0) return SystemCalls::open(path, flags, mode);  // to read it
      errno = error_;
      return -1;
    }

   private:
    int error_;
  };
  write("host: elsewhere\nprocess: 1\n");
  Unopened gone(ENOENT), broken(EIO);
  EXPECT_FALSE(is_lock_held(path_, gone));
  EXPECT_EQ(message_of([&] { static_cast<void>(is_lock_held(path_, broken)); }, ErrorCode::kIo),
            "look at lock file failed: " + path_ + ": got " + std::strerror(EIO));
  write(std::string((64 << 10) + 1, 'x'));
  EXPECT_THAT(message_of([&] { static_cast<void>(is_lock_held(path_)); }, ErrorCode::kCorruptData),
              HasSubstr("expected at most 65536 bytes, got 65537 bytes"));
}

TEST_F(LockFileTest, TheTextDecidesForEachAnswerOfASystemWithoutLocks) {
  class LocksFail : public SystemCalls {
   public:
    explicit LocksFail(int error) : error_(error) {}
    int flock(int /*descriptor*/, int /*operation*/) override {
      errno = error_;
      return -1;
    }

   private:
    int error_;
  };
  for (const int error : {ENOLCK, EOPNOTSUPP, ENOSYS, EINVAL, EBADF}) {
    LocksFail calls(error);
    {
      const LockFile own(path_, calls);
      EXPECT_EQ(proc_value(text(), "process"), std::to_string(::getpid())) << error;
    }
    EXPECT_FALSE(local_file_system().exists(path_)) << error;
  }
  LocksFail broken(EIO);
  EXPECT_EQ(message_of([&] { LockFile(path_, broken); }, ErrorCode::kIo),
            "lock file failed: " + path_ + ": got " + std::strerror(EIO));
}

// As if the holder had ended after it was asked for the lock and before its text was read.
TEST_F(LockFileTest, AFileThatIsRemovedBeforeItIsReadIsAskedForAgain) {
  class Removed : public SystemCalls {
   public:
    int open(const char* path, int flags, mode_t mode) override {
      if ((flags & O_ACCMODE) != O_RDONLY) return SystemCalls::open(path, flags, mode);
      errno = ENOENT;
      return -1;
    }
    int flock(int descriptor, int operation) override {
      if (++asked > 1) return SystemCalls::flock(descriptor, operation);
      errno = EWOULDBLOCK;
      return -1;
    }
    int asked = 0;
  };
  Removed calls;
  const auto error = error_of([&] { LockFile(path_, calls); });
  EXPECT_FALSE(error) << error->what();
  EXPECT_EQ(calls.asked, 2);
}

TEST_F(LockFileTest, ATextThatCannotBeWrittenIsAnError) {
  class Full : public SystemCalls {
   public:
    ssize_t write(int /*descriptor*/, const void* /*bytes*/, size_t /*count*/) override {
      errno = ENOSPC;
      return -1;
    }
  };
  Full full;
  EXPECT_THAT(message_of([&] { LockFile(path_, full); }, ErrorCode::kNoSpace),
              HasSubstr("write file failed: " + path_));
  EXPECT_FALSE(taking());
}

}  // namespace
}  // namespace trainyard::core::lock_file_test
