// Saving that fails, is killed or loses power: the checkpoint before, or the new one, is always there and loads.
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/files/system_calls.h"
#include "trainyard/core/testing/fault_injector.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/testing/checkpoint_state.h"
#include "trainyard/train/testing/power_loss.h"

namespace trainyard::train::checkpoint_crash_test {
namespace {

using core::Fault;

// The failures of these tests would fill the screen with warnings.
class CheckpointCrash : public ::testing::Test {
 protected:
  CheckpointCrash() { core::log::set_level(core::log::Level::kError); }
  ~CheckpointCrash() override { core::log::set_level(core::log::Level::kInfo); }
};

class CheckpointFault : public CheckpointCrash, public ::testing::WithParamInterface<Fault> {
 protected:
  static bool harmless() { return GetParam() == Fault::kInterrupted || GetParam() == Fault::kShort; }
};

std::string fault_name(const ::testing::TestParamInfo<Fault>& info) {
  constexpr std::array<const char*, 4> kNames{"IoError", "NoSpace", "Interrupted", "Short"};
  return kNames[static_cast<size_t>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(All, CheckpointFault,
                         ::testing::Values(Fault::kIoError, Fault::kNoSpace, Fault::kInterrupted, Fault::kShort),
                         fault_name);

// What prepares a test and looks at it afterwards need not wait for the medium.
core::FileSystem& quick_files() {
  class NoSync : public core::SystemCalls {
    int fsync(int) override { return 0; }
  };
  static NoSync calls;
  static const auto files = make_file_system(calls);
  return *files;
}

// Saves version 2 with one failing call, beside version 1; returns whether the call was reached.
bool save_with_fault(int64_t step_of_second, const std::function<void(core::FaultInjector&)>& choose, bool harmless) {
  const core::TempDir directory;
  CheckpointStore(directory.path(), 1, quick_files()).save(1, {}, VersionedState(1));
  core::FaultInjector faults;
  choose(faults);
  const auto files = make_file_system(faults);
  const auto error =
      error_of([&] { CheckpointStore(directory.path(), 1, *files).save(step_of_second, {}, VersionedState(2)); });
  const std::string call = faults.calls() > 0 ? "call " + std::to_string(faults.calls()) : "";
  if (harmless) {
    EXPECT_FALSE(error) << error->what();
  }
  if (error) {
    EXPECT_TRUE(error->code() == core::ErrorCode::kIo || error->code() == core::ErrorCode::kNoSpace) << error->what();
    EXPECT_NE(std::string(error->what()).find(directory.path()), std::string::npos) << error->what();
  }
  const int64_t version = latest_version(directory.path());
  EXPECT_TRUE(version == 2 || (error && version == 1)) << call << ", version " << version;
  // Afterwards all is as if nothing had been.
  CheckpointStore(directory.path(), 1, quick_files()).save(3, {}, VersionedState(3));
  EXPECT_EQ(latest_version(directory.path()), 3);
  EXPECT_EQ(core::local_file_system().list(directory.path()), std::vector<std::string>{"model.ckpt-3"}) << call;
  return faults.reached();
}

TEST_P(CheckpointFault, SavingSucceedsOrReportsAtEveryCall) {
  for (const int64_t step : {2, 1}) {  // beside the one before, and in its place
    int n = 1;
    while (save_with_fault(
        step, [&](core::FaultInjector& faults) { faults.fail_nth(n, GetParam()); }, harmless()))
      ++n;
    EXPECT_GT(n, 30);
  }
}

// The first checkpoint in a folder makes the names of all folders around it durable: an earlier process may have made
// them and died. Later ones do not wait for that.
TEST_F(CheckpointCrash, TheFirstSyncsTheFoldersAroundIt) {
  const core::TempDir root;
  const std::string folder = root.path() + "/runs/first";
  core::local_file_system().make_directories(folder);
  const auto syncs_of_save = [&](int64_t version) {
    core::FaultInjector calls;
    CheckpointStore(folder, 5, *make_file_system(calls)).save(version, {}, VersionedState(version));
    std::vector<std::string> synced;
    const std::vector<std::string> log = calls.log();
    for (size_t i = 0; i + 1 < log.size(); ++i) {
      if (log[i + 1] == "fsync" && log[i].starts_with("open ")) synced.push_back(log[i].substr(5));
    }
    return synced;
  };
  const std::vector<std::string> first = syncs_of_save(1), second = syncs_of_save(2);
  for (const std::string& around : {root.path() + "/runs", root.path()}) {
    EXPECT_THAT(first, ::testing::Contains(around));
    EXPECT_THAT(second, ::testing::Not(::testing::Contains(around)));
  }
  EXPECT_THAT(second, ::testing::Contains(folder));
}

// One that could not be put in the place of another leaves that one with its name, for whoever reads the folder.
TEST_F(CheckpointCrash, OneThatIsNotReplacedKeepsItsName) {
  class FailsOnce : public core::SystemCalls {
   public:
    int rename(const char* from, const char* to) override {
      if (failed || !std::string_view(to).ends_with("/model.ckpt-1")) return core::SystemCalls::rename(from, to);
      failed = true;
      errno = EIO;
      return -1;
    }
    bool failed = false;
  } calls;
  const core::TempDir directory;
  CheckpointStore(directory.path(), 1, quick_files()).save(1, {}, VersionedState(1));
  const auto files = make_file_system(calls);
  EXPECT_TRUE(error_of([&] { CheckpointStore(directory.path(), 1, *files).save(1, {}, VersionedState(2)); }));
  EXPECT_TRUE(calls.failed);
  EXPECT_EQ(core::local_file_system().list(directory.path()), std::vector<std::string>{"model.ckpt-1"});
  EXPECT_EQ(latest_version(directory.path()), 1);

  // The first one of a folder has taken no other's name, which it could give back.
  core::log::set_level(core::log::Level::kInfo);
  const core::TempDir empty;
  calls.failed = false;
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(error_of([&] { CheckpointStore(empty.path(), 1, *files).save(1, {}, VersionedState(1)); }));
  EXPECT_EQ(::testing::internal::GetCapturedStderr().find("lost its name"), std::string::npos);
  EXPECT_TRUE(calls.failed);
  EXPECT_TRUE(core::local_file_system().list(empty.path()).empty());
}

TEST_F(CheckpointCrash, ADiskThatStaysFullLosesNothing) {
  int n = 1;
  while (save_with_fault(
      2, [&](core::FaultInjector& faults) { faults.fail_writes_from_nth(n, Fault::kNoSpace); }, false)) {
    ++n;
  }
  EXPECT_GT(n, 15);
}

TEST_P(CheckpointFault, LoadingSucceedsOrReportsAtEveryCall) {
  const core::TempDir directory;
  CheckpointStore(directory.path()).save(1, {}, VersionedState(1, 400'000));
  for (int n = 1;; ++n) {
    core::FaultInjector faults;
    faults.fail_nth(n, GetParam());
    const auto files = make_file_system(faults);
    const auto error = error_of([&] { EXPECT_EQ(latest_version(directory.path(), *files), 1) << "call " << n; });
    if (harmless()) {
      EXPECT_FALSE(error) << error->what();
    }
    if (error) {
      EXPECT_TRUE(error->code() == core::ErrorCode::kIo || error->code() == core::ErrorCode::kNoSpace) << error->what();
    }
    EXPECT_EQ(latest_version(directory.path()), 1);
    if (!faults.reached()) {
      EXPECT_GT(n, 15);
      break;
    }
  }
}

struct PowerLossOutcome {
  int tried = 0;
  int lost_all = 0;  // neither the checkpoint before nor the new one loads
};

// Power fails at every operation of saving version 2, and after it.
PowerLossOutcome lose_power(PowerLossOptions options, LostThings lost, int64_t step_of_second) {
  PowerLossOutcome outcome;
  for (bool finished = false; !finished; ++outcome.tried) {
    const core::TempDir directory;
    CheckpointStore(directory.path(), 1, quick_files()).save(1, {}, VersionedState(1));
    options.at_operation = outcome.tried + 1;
    PowerLossFileSystem files(options);
    try {
      CheckpointStore(directory.path(), 1, files).save(step_of_second, {}, VersionedState(2));
      finished = true;
    } catch (const PowerLoss&) {
    }
    files.settle(lost);
    try {
      const int64_t version = latest_version(directory.path());
      if (finished ? version != 2 : version != 1 && version != 2) ++outcome.lost_all;
      CheckpointStore(directory.path(), 1, quick_files()).save(3, {}, VersionedState(3));
      if (options.file_sync_works && options.directory_sync_works) {
        EXPECT_EQ(core::local_file_system().list(directory.path()), std::vector<std::string>{"model.ckpt-3"});
      }
    } catch (const core::Error&) {
      ++outcome.lost_all;
    }
  }
  return outcome;
}

TEST_F(CheckpointCrash, PowerLossAtAnyOperationLosesNoCheckpoint) {
  for (const LostThings lost : {LostThings::kData, LostThings::kDataAndNames}) {
    for (const int64_t step : {2, 1}) {
      const PowerLossOutcome outcome = lose_power({}, lost, step);
      EXPECT_GT(outcome.tried, 10);
      EXPECT_EQ(outcome.lost_all, 0);
    }
  }
}

// The sync of the directory that ends the second of three savings at one step fails, so that it is not saved. What the
// third one removes is then all that the disk has, until the new names are there, too.
TEST_F(CheckpointCrash, PowerLossBehindAFailedSyncLosesNoCheckpoint) {
  class FailingOnce : public PowerLossFileSystem {
   public:
    using PowerLossFileSystem::PowerLossFileSystem;
    void sync_directory(const std::string& directory) override {
      if (std::exchange(fails, fails == directory ? "" : fails) == directory) {
        throw core::Error(core::ErrorCode::kIo, "the disk fails");
      }
      PowerLossFileSystem::sync_directory(directory);
    }
    std::string fails{};
  };
  int operation = 0;
  for (bool finished = false; !finished;) {
    const core::TempDir directory;
    FailingOnce files({.at_operation = ++operation});
    CheckpointStore store(directory.path(), 1, files);
    int64_t saved = 0;
    try {
      store.save(1, {}, VersionedState(saved + 1));
      saved = 1;
      files.fails = directory.path();
      EXPECT_TRUE(error_of([&] { store.save(1, {}, VersionedState(2)); }));
      store.save(1, {}, VersionedState(3));
      finished = true;
    } catch (const PowerLoss&) {
    }
    files.settle(LostThings::kDataAndNames);
    if (saved == 0) continue;
    EXPECT_GE(latest_version(directory.path()), finished ? 3 : 1) << "operation " << operation;
  }
  EXPECT_GT(operation, 20);
}

// The folder's own name must be on the medium before its first checkpoint is said to be saved.
TEST_F(CheckpointCrash, AFirstCheckpointInANewDirectorySurvivesPowerLoss) {
  for (const char* name : {"run", "run/"}) {
    const core::TempDir parent;
    const std::string directory = parent.file(name);
    PowerLossFileSystem files({});
    CheckpointStore(directory, 1, files).save(1, {}, VersionedState(1));
    files.settle(LostThings::kDataAndNames);
    ASSERT_TRUE(core::local_file_system().exists(directory)) << "power was lost after save() had returned";
    EXPECT_EQ(latest_version(directory), 1);
  }
}

// What the syncs are for. Files that are not synced before the rename: a checkpoint with a name and no content.
TEST_F(CheckpointCrash, WithoutSyncingFilesPowerLossLosesCheckpoints) {
  EXPECT_GT(lose_power({.file_sync_works = false}, LostThings::kData, 2).lost_all, 0);
}

// A parent that is not synced before the old checkpoint is removed: the old one is gone, the new one has no name yet.
TEST_F(CheckpointCrash, WithoutSyncingTheParentPowerLossLosesCheckpoints) {
  EXPECT_GT(lose_power({.directory_sync_works = false}, LostThings::kDataAndNames, 2).lost_all, 0);
}

// Saves versions `first`, first + 1, ... until it is killed; tells `ready` when it begins.
[[noreturn]] void save_forever(const std::string& directory, int64_t first, int ready) {
  try {
    CheckpointStore store(directory, 2);
    if (::write(ready, "x", 1) != 1) ::_exit(1);
    for (int64_t version = first;; ++version) store.save(version, {}, VersionedState(version));
  } catch (const core::Error& error) {
    core::log::error("{}", error.what());
  }
  ::_exit(1);
}

TEST_F(CheckpointCrash, KilledAHundredTimesWhileSavingThereIsAlwaysOneThatLoads) {
  const core::TempDir directory;
  CheckpointStore(directory.path(), 2).save(1, {}, VersionedState(1));
  std::mt19937 random(20240607);
  std::uniform_int_distribution<int> microseconds(0, 100'000);
  int64_t version = 1;
  int in_the_middle = 0;
  for (int kill = 0; kill < 100; ++kill) {
    std::array<int, 2> ready{};
    ASSERT_EQ(::pipe(ready.data()), 0);
    const pid_t child = ::fork();
    ASSERT_NE(child, -1);
    if (child == 0) save_forever(directory.path(), version + 1, ready[1]);
    ::close(ready[1]);
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1) << "the child did not start";
    ::close(ready[0]);
    std::this_thread::sleep_for(std::chrono::microseconds(microseconds(random)));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

    const CheckpointInfo latest = find_checkpoint(directory.path());
    const int64_t now = latest_version(directory.path());
    EXPECT_EQ(now, latest.global_step);
    EXPECT_GE(now, version) << "a checkpoint that was there is gone";
    version = now;
    for (const std::string& name : core::local_file_system().list(directory.path())) {
      if (name.find(".tmp-") != std::string::npos) {
        ++in_the_middle;
        break;
      }
    }
  }
  EXPECT_GT(in_the_middle, 20) << "kills did not hit saving";
  EXPECT_GT(version, 10);
  RecordProperty("kills_while_saving", in_the_middle);
}

TEST_F(CheckpointCrash, AnUnwritableDirectoryIsReportedAndKeepsItsCheckpoints) {
  const core::TempDir directory;
  CheckpointStore store(directory.file("run"));
  store.save(1, {}, VersionedState(1));
  ASSERT_EQ(::chmod(directory.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(directory.file("run").c_str(), 0555), 0);
  // Root may write everywhere, so root becomes somebody else meanwhile.
  const uid_t user = ::geteuid();
  if (user == 0) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  const auto error = error_of([&] { store.save(2, {}, VersionedState(2)); });
  if (user == 0) {
    ASSERT_EQ(::seteuid(user), 0);
  }
  ASSERT_EQ(::chmod(directory.file("run").c_str(), 0755), 0);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), core::ErrorCode::kIo);
  EXPECT_EQ(latest_version(directory.file("run")), 1);
}

}  // namespace
}  // namespace trainyard::train::checkpoint_crash_test
