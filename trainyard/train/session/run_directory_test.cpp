#include "trainyard/train/session/run_directory.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <termios.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/lock_file.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/train/session/run_lock.h"

namespace trainyard::train::run_directory_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kNow = 1767225599;  // 2025-12-31 23:59:59 UTC

class RunDirectory : public ::testing::Test {
 protected:
  RunDirectory() {
    for (const char* name : {"model.ckpt-10/manifest.json", "model.ckpt-10/tensors.bin", "best/manifest.json",
                             "model.ckpt-20.tmp-7-0/tensors.bin", "metrics.jsonl", "metrics.csv.tmp-7-1", "stats.json",
                             "events.out.tfevents.1.host", "run_summary.json", "run.lock"}) {
      put(name);
    }
  }
  void put(const std::string& name) {
    const std::string path = core::join_path(run_, name);
    files_.make_directories(core::parent_path(path));
    files_.write_file_atomically(path, "x");
  }
  std::string settle(ExistingRun existing) {
    testing::internal::CaptureStderr();
    try {
      std::string settled = settle_existing_run(run_, existing, kNow);
      log_ = testing::internal::GetCapturedStderr();
      return settled;
    } catch (const core::Error&) {
      testing::internal::GetCapturedStderr();
      throw;
    }
  }
  std::vector<std::string> names(const std::string& of) { return files_.list(directory_.file(of)); }

  core::TempDir directory_;
  std::string run_ = directory_.file("run");
  core::FileSystem& files_ = core::local_file_system();
  std::string log_;
};

TEST_F(RunDirectory, IsKeptAsItIs) {
  const auto before = names("run");
  EXPECT_EQ(settle(ExistingRun::kKeep), run_);
  EXPECT_EQ(names("run"), before);
}

TEST_F(RunDirectory, IsBackedUpUnderItsTime) {
  put("notes.txt");  // of somebody: it is moved, not lost
  const auto before = names("run");
  EXPECT_EQ(settle(ExistingRun::kBackUp), run_);
  EXPECT_FALSE(files_.exists(run_));
  auto moved = before;
  std::erase(moved, "run.lock");  // given back
  EXPECT_EQ(names("run.backup-20251231-235959"), moved);
  EXPECT_THAT(log_, HasSubstr("is now"));
  put("metrics.jsonl");
  settle(ExistingRun::kBackUp);
  EXPECT_THAT(names("run.backup-20251231-235959-2"), ElementsAre("metrics.jsonl"));
}

TEST_F(RunDirectory, IsDeletedWhereItHoldsNothingElse) {
  put("mlflow_run.txt");
  EXPECT_EQ(settle(ExistingRun::kDelete), run_);
  EXPECT_THAT(names("run"), IsEmpty());
  EXPECT_FALSE(holds_run(run_));
}

// `trainyard report` writes its page there.
TEST_F(RunDirectory, IsDeletedWithItsReport) {
  put("report.html");
  EXPECT_EQ(settle(ExistingRun::kDelete), run_);
  EXPECT_THAT(names("run"), IsEmpty());
  put("report.html");
  EXPECT_FALSE(holds_run(run_)) << "a page is no run";
  files_.remove_file(core::join_path(run_, "report.html"));
  put("metrics.jsonl");
  put("report.html/picture.png");
  EXPECT_THAT(core::message_of([&] { settle(ExistingRun::kDelete); }), HasSubstr("got report.html"));
}

TEST_F(RunDirectory, OtherThingsAreNeverDeleted) {
  // A folder of somebody that has the name of a checkpoint is no checkpoint.
  for (const char* other :
       {"notes.txt", "best/holiday.jpg", "model.ckpt-x/manifest.json", "model.ckpt-30/a/b", "src/a.py"}) {
    put(other);
    const std::string name = std::string(other).substr(0, std::string(other).find('/'));
    std::vector<std::string> before = names("run");
    std::erase(before, "run.lock");  // which is given back
    EXPECT_THAT(core::message_of([&] { settle(ExistingRun::kDelete); }), HasSubstr("got " + name));
    EXPECT_EQ(names("run"), before) << "nothing was deleted";
    files_.remove_tree(core::join_path(run_, name));
    put("best/manifest.json");
  }
}

TEST_F(RunDirectory, ANewNameIsOneThatNobodyHas) {
  files_.make_directories(run_ + "-2");
  EXPECT_EQ(settle(ExistingRun::kNewName), run_ + "-3");
  EXPECT_EQ(settle_existing_run(run_ + "///", ExistingRun::kNewName, kNow), run_ + "-3");
  EXPECT_TRUE(holds_run(run_));
}

// As `--train_dir=.` in the folder of the run.
TEST_F(RunDirectory, WithoutANameInItsPathHasThatOfItsFolder) {
  const std::string whole = core::real_path(run_);
  const std::string inside = core::join_path(run_, ".");
  EXPECT_EQ(settle_existing_run(inside, ExistingRun::kKeep, kNow), inside);
  EXPECT_EQ(settle_existing_run(inside, ExistingRun::kNewName, kNow), whole + "-2");
  EXPECT_EQ(settle_existing_run(inside + "/", ExistingRun::kBackUp, kNow), whole);
  EXPECT_FALSE(files_.exists(run_));
  EXPECT_TRUE(holds_run(run_ + ".backup-20251231-235959"));
}

TEST_F(RunDirectory, OneThatIsInUseIsLeftAlone) {
  const core::LockFile lock(core::join_path(run_, "run.lock"));
  for (const ExistingRun existing : {ExistingRun::kBackUp, ExistingRun::kDelete}) {
    EXPECT_THAT(core::message_of([&] { settle(existing); }), HasSubstr("run.lock"));
    EXPECT_TRUE(holds_run(run_));
  }
}

TEST(RunDirectories, WithoutARunAreLeftAsTheyAre) {
  const core::TempDir directory;
  core::FileSystem& files = core::local_file_system();
  files.write_file_atomically(directory.file("notes.txt"), "x");
  files.write_file_atomically(directory.file("run.lock"), "");
  for (const ExistingRun existing :
       {ExistingRun::kKeep, ExistingRun::kBackUp, ExistingRun::kDelete, ExistingRun::kNewName}) {
    EXPECT_EQ(settle_existing_run(directory.path(), existing, kNow), directory.path());
    EXPECT_EQ(settle_existing_run(directory.file("none"), existing, kNow), directory.file("none"));
  }
  EXPECT_THAT(files.list(directory.path()), ElementsAre("notes.txt", "run.lock"));
  EXPECT_EQ(parse_existing_run("delete"), ExistingRun::kDelete);
  EXPECT_EQ(parse_existing_run("back_up"), ExistingRun::kBackUp);
  EXPECT_EQ(parse_existing_run("new_name"), ExistingRun::kNewName);
  EXPECT_EQ(parse_existing_run("keep"), ExistingRun::kKeep);
  EXPECT_EQ(parse_existing_run("ask"), std::nullopt);
}

// A terminal in the place of the standard input, on which `keys` are typed.
class TypedKeys {
 public:
  explicit TypedKeys(const std::string& keys) {
    int inner = -1;
    if (::openpty(&outer_, &inner, nullptr, nullptr, nullptr) != 0)
      throw core::system_error(errno, "open", "a terminal");
    // Ctrl+D is a key, and no end of a line: the keys come before the question, which makes that so.
    termios keys_as_they_come{};
    ::tcgetattr(inner, &keys_as_they_come);
    keys_as_they_come.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(inner, TCSANOW, &keys_as_they_come);
    ::dup2(inner, STDIN_FILENO);
    ::close(inner);
    if (::write(outer_, keys.data(), keys.size()) < 0) throw core::system_error(errno, "type on", "a terminal");
  }
  ~TypedKeys() {
    ::dup2(before_, STDIN_FILENO);
    ::close(before_);
    ::close(outer_);
  }
  TypedKeys(const TypedKeys&) = delete;
  TypedKeys& operator=(const TypedKeys&) = delete;

 private:
  int before_ = ::dup(STDIN_FILENO), outer_ = -1;
};

TEST(RunDirectories, AKeyDecidesWhatBecomesOfTheRun) {
  for (const auto& [keys, expected] :
       {std::pair("k", ExistingRun::kKeep), std::pair("b", ExistingRun::kBackUp), std::pair("d", ExistingRun::kDelete),
        std::pair("n", ExistingRun::kNewName), std::pair("x \nk", ExistingRun::kKeep)}) {
    const TypedKeys typed(keys);
    std::ostringstream out;
    EXPECT_EQ(ask_existing_run("runs/a", out, core::StopSource().token()), expected) << keys;
    EXPECT_THAT(out.str(), HasSubstr("runs/a holds a run. (k)eep it"));
  }
  {
    const TypedKeys typed("nk");
    std::ostringstream out;
    EXPECT_EQ(ask_existing_run("runs/a", out, core::StopSource().token(), /*offers_new_name=*/false),
              ExistingRun::kKeep);
    EXPECT_THAT(out.str(), HasSubstr("(d)elete it, (q)uit? "));
  }
  for (const char* keys : {"q", "\x04", "xqk"}) {
    const TypedKeys typed(keys);
    std::ostringstream out;
    EXPECT_EQ(core::thrown_by([&] { ask_existing_run("runs/a", out, core::StopSource().token()); }).code(),
              core::ErrorCode::kCancelled);
  }
}

TEST_F(RunDirectory, FiveOfTheOtherThingsAreNamed) {
  const auto refusal = [&] { return core::message_of([&] { settle(ExistingRun::kDelete); }); };
  for (const char* other : {"a", "b", "c", "d", "e"}) put(other);
  EXPECT_THAT(refusal(), HasSubstr("got a, b, c, d, e; move them away"));
  put("f");
  EXPECT_THAT(refusal(), HasSubstr("got a, b, c, d, e, ...; move them away"));
}

// Numbers count as such, and only where nothing follows them.
TEST(RunDirectories, ANewOneHasTheNumberBehindTheHighest) {
  const core::TempDir directory;
  const std::string runs = directory.file("runs");
  for (const char* name : {"tiny-2", "tiny-10", "tiny-11x", "tiny", "other-40"}) {
    core::local_file_system().make_directories(core::join_path(runs, name));
  }
  EXPECT_EQ(make_new_run_directory(runs, "tiny"), core::join_path(runs, "tiny-11"));
  EXPECT_EQ(make_new_run_directory(runs, "tiny"), core::join_path(runs, "tiny-12"));
  EXPECT_EQ(make_new_run_directory(runs, "a/b"), core::join_path(runs, "a-b-1"));
}

// With its own name, and with that under which it is written.
TEST(RunDirectories, EachFileThatATrainingWritesIsPartOfARun) {
  core::FileSystem& files = core::local_file_system();
  for (const std::string name :
       {"metrics.jsonl", "metrics.csv", "stats.json", "mlflow_run.txt", "run_summary.json", "curve.svg",
        "class_accuracy.json", "evaluation.json", "confusion.csv", "confusion.svg", "per_class.csv", "calibration.svg",
        "most_wrong.png", "events.out.tfevents.1.host"}) {
    const core::TempDir directory;
    for (const char* folder : {"own", "torn", "other", "old", "linked"}) files.make_directories(directory.file(folder));
    files.write_file_atomically(directory.file("own/" + name), "x");
    EXPECT_TRUE(holds_run(directory.file("own"))) << name;
    files.write_file_atomically(directory.file("torn/" + name + ".tmp-7-1"), "x");
    EXPECT_TRUE(holds_run(directory.file("torn"))) << name;
    files.write_file_atomically(directory.file("other/my_" + name), "x");
    EXPECT_FALSE(holds_run(directory.file("other"))) << name;
    if (name.starts_with("events")) continue;
    files.write_file_atomically(directory.file("old/" + name + ".old"), "x");
    EXPECT_FALSE(holds_run(directory.file("old"))) << name;
    ASSERT_EQ(::symlink("../own", directory.file("linked/" + name).c_str()), 0);
    EXPECT_THAT(core::message_of([&] { require_plain_run_files(directory.file("linked")); }), HasSubstr(name));
  }
}

// Before hours of training whose results could not be written.
TEST(RunLock, IsNotTakenWhereATrainingCannotWrite) {
  const core::TempDir directory;
  core::FileSystem& files = core::local_file_system();
  files.make_directories(directory.file("linked"));
  ASSERT_EQ(::symlink("../precious", directory.file("linked/metrics.jsonl").c_str()), 0);
  EXPECT_THAT(core::message_of([&] { const RunLock lock(directory.file("linked")); }),
              HasSubstr("a symbolic link is not written through"));
  files.make_directories(directory.file("other"));
  files.write_file_atomically(directory.file("other/model.ckpt-7.index"), "x");
  EXPECT_EQ(core::code_of([&] { const RunLock lock(directory.file("other")); }), core::ErrorCode::kUnsupported);
  for (const char* refused : {"linked/run.lock", "other/run.lock"}) EXPECT_FALSE(files.exists(directory.file(refused)));
  const RunLock lock(directory.file("new/run"));
  EXPECT_TRUE(files.exists(directory.file("new/run/run.lock")));
}

TEST(RunDirectories, AKeyMayComeLater) {
  int outer = -1, inner = -1;
  ASSERT_EQ(::openpty(&outer, &inner, nullptr, nullptr, nullptr), 0);
  const int before = ::dup(STDIN_FILENO);
  ::dup2(inner, STDIN_FILENO);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(250));  // longer than one look at the terminal
    EXPECT_EQ(::write(outer, "d", 1), 1);
  });
  std::ostringstream out;
  std::optional<ExistingRun> chosen;
  const auto error = core::error_of([&] { chosen = ask_existing_run("runs/a", out, core::StopSource().token()); });
  later.join();
  ::dup2(before, STDIN_FILENO);
  for (const int descriptor : {outer, inner, before}) ::close(descriptor);
  EXPECT_FALSE(error) << "no key is no answer";
  EXPECT_EQ(chosen, ExistingRun::kDelete);
}

TEST(RunDirectories, AQuestionNeedsATerminalOnBothSides) {
  int outer = -1, terminal = -1;
  ASSERT_EQ(::openpty(&outer, &terminal, nullptr, nullptr, nullptr), 0);
  const int nothing = ::open("/dev/null", O_RDWR);
  ASSERT_NE(nothing, -1);
  static_cast<void>(std::fflush(stdout));
  const int input = ::dup(STDIN_FILENO), output = ::dup(STDOUT_FILENO);
  std::vector<bool> asked;
  for (const auto& [in, out] : {std::pair(terminal, terminal), std::pair(terminal, nothing),
                                std::pair(nothing, terminal), std::pair(nothing, nothing)}) {
    ::dup2(in, STDIN_FILENO);
    ::dup2(out, STDOUT_FILENO);
    asked.push_back(can_ask());
  }
  ::dup2(input, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  for (const int descriptor : {outer, terminal, nothing, input, output}) ::close(descriptor);
  EXPECT_EQ(asked, (std::vector<bool>{true, false, false, false}));
}

TEST(RunDirectories, ANewOneThatCannotBeMadeIsNamed) {
  const core::TempDir directory;
  core::local_file_system().write_file_atomically(directory.file("runs"), "x");
  const std::string remedy = "pass --train_dir, or an empty --train_dir= to save nothing";
  const core::Error file = core::thrown_by([&] { (void)make_new_run_directory(directory.file("runs/today"), "tiny"); });
  EXPECT_EQ(file.detail().remedy, remedy);
  EXPECT_THAT(file.detail().where, HasSubstr(directory.file("runs")));
  const std::string longer(300, 'a');
  const core::Error name = core::thrown_by([&] { (void)make_new_run_directory(directory.path(), longer); });
  EXPECT_EQ(name.code(), core::ErrorCode::kIo);
  EXPECT_EQ(name.detail().problem, "a folder for the run cannot be made");
  EXPECT_EQ(name.detail().where, directory.file(longer + "-1"));
  EXPECT_EQ(name.detail().actual, std::error_code(ENAMETOOLONG, std::generic_category()).message());
  EXPECT_EQ(name.detail().remedy, remedy);
}

}  // namespace
}  // namespace trainyard::train::run_directory_test
