// Train directories in which a checkpoint was damaged, renamed or half deleted: nothing starts from the beginning
// unasked, nothing that was there is lost, and readers beside a training that saves meet no damage.
#include <atomic>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint_listing.h"
#include "trainyard/train/checkpoint/checkpoint_manifest.h"
#include "trainyard/train/testing/checkpoint_state.h"
#include "trainyard/train/testing/power_loss.h"

namespace trainyard::train::checkpoint_recovery_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::MatchesRegex;

class CheckpointRecovery : public ::testing::Test {
 protected:
  void save(int64_t version) { store_.save(version, {}, VersionedState(version, 20)); }
  std::string path(int64_t step, std::string_view file = "") const {
    const std::string directory = directory_.file("model.ckpt-" + std::to_string(step));
    return file.empty() ? directory : core::join_path(directory, file);
  }
  // Changes a bit in the middle of a file.
  void flip(int64_t step, std::string_view file) const {
    std::string bytes = files_.read_file(path(step, file));
    bytes[bytes.size() / 2] ^= 4;
    const auto out = files_.open_write(path(step, file));
    out->write(bytes);
    out->close();
  }
  std::vector<int64_t> intact_steps() const {
    std::vector<int64_t> steps;
    for (const CheckpointInfo& info : store_.list()) steps.push_back(info.global_step);
    return steps;
  }
  std::vector<std::string> names() const { return files_.list(directory_.path()); }
  // The version that a run goes on from; 0: from the beginning.
  int64_t resume(DamagedCheckpoints damaged = DamagedCheckpoints::kStop) {
    VersionedState state(0, 20);
    resume_newest_checkpoint(store_, nullptr, state, damaged);
    return state.version();
  }
  void expect_damaged(const std::function<void()>& work, const std::string& where) {
    const auto error = error_of(work);
    ASSERT_TRUE(error) << where;
    EXPECT_EQ(error->code(), core::ErrorCode::kCorruptData) << error->what();
    EXPECT_THAT(error->what(), HasSubstr("damaged checkpoint: "));
    EXPECT_THAT(error->what(), HasSubstr(where));
    EXPECT_THAT(error->what(), HasSubstr("--ignore_damaged_checkpoints"));
  }
  void expect_all_readers_refuse(const std::string& where) {
    const std::vector<std::string> before = names();
    expect_damaged([&] { resume(); }, where);
    expect_damaged([&] { open_newest_checkpoint(directory_.path(), nullptr); }, where);
    expect_damaged([&] { open_newest_checkpoint(path(5), nullptr); }, where);
    EXPECT_EQ(names(), before);
  }

  core::TempDir directory_;
  core::FileSystem& files_ = core::local_file_system();
  CheckpointStore store_{directory_.path(), 3};
};

TEST_F(CheckpointRecovery, ADamagedManifestOfTheOnlyCheckpointStopsTheRun) {
  save(5);
  flip(5, kManifestFile);
  expect_all_readers_refuse(path(5, kManifestFile));
}

TEST_F(CheckpointRecovery, DeletingAnyFileOfTheOnlyCheckpointStopsTheRun) {
  for (const std::string_view file : {kManifestFile, kTensorFile}) {
    save(5);
    files_.remove_file(path(5, file));
    expect_all_readers_refuse(path(5, file));
    store_.set_aside(path(5));
  }
  files_.make_directories(path(5));
  expect_all_readers_refuse(path(5, kManifestFile));
  files_.remove_tree(path(5));
  files_.write_file_atomically(path(5), "a file of another program");
  expect_damaged([&] { resume(); }, path(5));
}

TEST_F(CheckpointRecovery, ATruncatedTensorFileStopsTheRun) {
  save(5);
  files_.write_file_atomically(path(5, kTensorFile), files_.read_file(path(5, kTensorFile)).substr(0, 50));
  expect_all_readers_refuse(path(5, kTensorFile));
}

TEST_F(CheckpointRecovery, AFlippedBitOfATensorStopsTheRun) {
  save(5);
  flip(5, kTensorFile);
  expect_all_readers_refuse(path(5, kTensorFile));
}

TEST_F(CheckpointRecovery, ACheckpointRenamedToAnotherStepIsSeen) {
  save(4);
  files_.rename(path(4), path(5));
  expect_all_readers_refuse("expected step 5, got 4");
  files_.rename(path(5), path(4));
  EXPECT_EQ(resume(), 4);
  files_.rename(path(4), directory_.file("kept"));  // any other name says nothing about steps
  EXPECT_EQ(find_checkpoint(directory_.file("kept")).global_step, 4);
}

TEST_F(CheckpointRecovery, DamageOfTheNewestStopsTheRunAlthoughOlderOnesAreIntact) {
  for (const std::string_view file : {kManifestFile, kTensorFile}) {
    save(4);
    save(5);
    flip(5, file);
    expect_all_readers_refuse(path(5, file));
    store_.set_aside(path(5));
  }
}

TEST_F(CheckpointRecovery, DamageOfAnOlderOneIsOneWarning) {
  save(4);
  save(5);
  flip(4, kManifestFile);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(resume(), 5);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("passing over an older checkpoint, " + path(4, kManifestFile)));
  EXPECT_EQ(log.find("damaged checkpoint:"), log.rfind("damaged checkpoint:")) << log;
  // Those that only look say nothing: an evaluation looks several times before it loads.
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(find_checkpoint(directory_.path()).global_step, 5);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(open_newest_checkpoint(directory_.path(), nullptr).info.global_step, 5);
}

TEST_F(CheckpointRecovery, IgnoringDamageGoesOnFromTheNewestSoundOneAndKeepsTheOthers) {
  for (const int64_t step : {3, 4, 5}) save(step);
  flip(4, kManifestFile);
  flip(5, kTensorFile);
  const std::string manifest = files_.read_file(path(4, kManifestFile)),
                    tensors = files_.read_file(path(5, kTensorFile));

  // A reader renames nothing.
  const std::vector<std::string> before = names();
  const OpenedCheckpoint opened = open_newest_checkpoint(directory_.path(), nullptr, DamagedCheckpoints::kPassOver);
  EXPECT_EQ(opened.info.global_step, 3);
  EXPECT_EQ(opened.reader->integer("step"), 3);
  EXPECT_EQ(names(), before);

  EXPECT_EQ(resume(DamagedCheckpoints::kSetAside), 3);
  EXPECT_THAT(names(), ElementsAre("model.ckpt-3", MatchesRegex("model.ckpt-4.damaged-[0-9]+-[0-9]+"),
                                   MatchesRegex("model.ckpt-5.damaged-[0-9]+-[0-9]+")));
  // The run goes on and saves the same steps again; what was set aside stays as it was.
  for (const int64_t step : {4, 5, 6, 7, 8}) save(step);
  EXPECT_EQ(intact_steps(), (std::vector<int64_t>{6, 7, 8}));
  ASSERT_EQ(names().size(), 5U);
  EXPECT_EQ(files_.read_file(directory_.file(names()[0]) + "/manifest.json"), manifest);
  EXPECT_EQ(files_.read_file(directory_.file(names()[1]) + "/tensors.bin"), tensors);
  EXPECT_EQ(resume(), 8) << "what was set aside is no damage any more";
}

TEST_F(CheckpointRecovery, IgnoringDamageOfAllStartsFromTheBeginningAndSaysSo) {
  save(5);
  flip(5, kTensorFile);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(resume(DamagedCheckpoints::kSetAside), 0);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("starting from the beginning"));
  EXPECT_THAT(log, HasSubstr("model.ckpt-5.damaged-"));
  EXPECT_EQ(names().size(), 1U);
  const auto error =
      error_of([&] { open_newest_checkpoint(directory_.path(), nullptr, DamagedCheckpoints::kPassOver); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), core::ErrorCode::kNotFound);
}

TEST_F(CheckpointRecovery, PruningCountsIntactOnesOnlyAndLeavesDamagedOnes) {
  for (const int64_t step : {1, 2, 3}) save(step);
  flip(2, kManifestFile);
  save(4);
  EXPECT_EQ(intact_steps(), (std::vector<int64_t>{1, 3, 4}));
  save(5);
  EXPECT_EQ(intact_steps(), (std::vector<int64_t>{3, 4, 5}));
  EXPECT_TRUE(files_.exists(path(2, kManifestFile)));
}

TEST_F(CheckpointRecovery, SavingOverADamagedCheckpointKeepsIt) {
  save(5);
  flip(5, kManifestFile);
  const std::string manifest = files_.read_file(path(5, kManifestFile));
  save(5);
  EXPECT_EQ(resume(), 5);
  ASSERT_EQ(names().size(), 2U);
  EXPECT_EQ(files_.read_file(directory_.file(names()[1]) + "/manifest.json"), manifest);
}

// A crash between the two renames of a replacement, and damage after it.
TEST_F(CheckpointRecovery, ADamagedCheckpointThatWasBeingReplacedIsNotRemoved) {
  save(5);
  flip(5, kManifestFile);
  files_.rename(path(5), path(5) + ".replaced-7-0");
  expect_damaged([&] { resume(); }, "model.ckpt-5.replaced-7-0");
  save(6);
  EXPECT_THAT(names(), ElementsAre("model.ckpt-5", "model.ckpt-6"));
  // The new one of a step is damaged where the old one is still there: it stays, and is found when asked for.
  files_.rename(path(6), path(6) + ".replaced-7-0");
  save(7);
  files_.rename(path(6), path(6) + ".replaced-7-0");
  files_.make_directories(path(6));
  save(8);
  EXPECT_TRUE(files_.exists(path(6) + ".replaced-7-0/manifest.json"));
}

TEST_F(CheckpointRecovery, ReadersBesideATrainingMeetNoDamage) {
  core::log::set_level(core::log::Level::kError);
  CheckpointStore store(directory_.path(), 1);
  store.save(1, {}, VersionedState(1, 20));
  std::atomic<bool> ended = false;
  std::thread training([&] {
    for (int64_t version = 2; !ended; ++version) {
      store.save(version, {}, VersionedState(version, 20));
      store.save(version, {}, VersionedState(version, 20));  // in the place of the one before
    }
  });
  int64_t last = 1;
  int changes = 0;
  for (int i = 0; i < 2000 || (changes < 20 && i < 200'000); ++i) {
    const auto error = error_of([&] {
      VersionedState state;
      state.load(*open_newest_checkpoint(directory_.path(), nullptr).reader);
      changes += state.version() != last ? 1 : 0;
      last = state.version();
    });
    if (error) {
      ADD_FAILURE() << error->what();
      break;
    }
  }
  ended = true;
  training.join();
  core::log::set_level(core::log::Level::kInfo);
  EXPECT_GE(changes, 20);
}

TEST_F(CheckpointRecovery, EachDamagedOneThatAReaderPassesOverIsNamed) {
  for (const int64_t step : {3, 4, 5}) save(step);
  flip(4, kManifestFile);
  flip(5, kTensorFile);
  ::testing::internal::CaptureStderr();
  const OpenedCheckpoint opened = open_newest_checkpoint(directory_.path(), nullptr, DamagedCheckpoints::kPassOver);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(opened.info.global_step, 3);
  for (const int64_t step : {4, 5}) {
    EXPECT_THAT(log, HasSubstr("--ignore_damaged_checkpoints passes over " + path(step) + ": "));
  }
}

TEST_F(CheckpointRecovery, ADirectoryWithoutACheckpointIsABeginningWithoutAWord) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(resume(DamagedCheckpoints::kSetAside), 0);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

// The crash came when the new checkpoint of a step had its name, and the old one was damaged by then.
TEST_F(CheckpointRecovery, ADamagedOneThatWasReplacedIsSetAside) {
  const core::TempDir other;
  save(6);
  files_.rename(path(6), path(6) + ".replaced-7-0");
  const std::string manifest = path(6) + ".replaced-7-0/" + std::string(kManifestFile);
  std::string bytes = files_.read_file(manifest);
  bytes[bytes.size() / 2] ^= 4;
  files_.write_file_atomically(manifest, bytes);
  files_.rename(CheckpointStore(other.path()).save(6, {}, VersionedState(6, 20)).path, path(6));
  save(7);
  EXPECT_THAT(names(), ElementsAre("model.ckpt-6", MatchesRegex("model.ckpt-6.damaged-[0-9]+-[0-9]+"), "model.ckpt-7"));
  EXPECT_EQ(files_.read_file(directory_.file(names()[1]) + "/manifest.json"), bytes);
}

// A name that is listed and gone before it is looked at: the folder is looked at once more.
TEST_F(CheckpointRecovery, ACheckpointThatIsRemovedMeanwhileIsNotListed) {
  class RemovedMeanwhile : public PowerLossFileSystem {
   public:
    RemovedMeanwhile() : PowerLossFileSystem(PowerLossOptions()) {}
    std::vector<std::string> list(const std::string& directory) override {
      std::vector<std::string> listed = PowerLossFileSystem::list(directory);
      if (directory == folder && ++looks == 1) listed.emplace_back("model.ckpt-9");
      return listed;
    }
    std::string folder;
    int looks = 0;
  } files;
  files.folder = directory_.path();
  for (const int64_t step : {3, 4}) save(step);
  const CheckpointListing listing = list_checkpoints(directory_.path(), files);
  EXPECT_EQ(files.looks, 2);
  ASSERT_EQ(listing.intact.size(), 2U);
  EXPECT_EQ(listing.intact[0].global_step, 3);
  EXPECT_EQ(listing.intact[1].path, path(4));
  EXPECT_TRUE(listing.damaged.empty());
}

TEST_F(CheckpointRecovery, AFolderThatCannotBeReadIsLeftToItsOwner) {
  class Unreadable : public PowerLossFileSystem {
   public:
    explicit Unreadable(std::string folder) : PowerLossFileSystem(PowerLossOptions()), unreadable(std::move(folder)) {}
    std::vector<std::string> list(const std::string& directory) override {
      if (directory == unreadable) throw core::Error(core::ErrorCode::kIo, "permission denied");
      return PowerLossFileSystem::list(directory);
    }
    void sync_directory(const std::string& directory) override {
      synced.push_back(directory);
      PowerLossFileSystem::sync_directory(directory);
    }
    std::string unreadable;
    std::vector<std::string> synced;
  } files(directory_.file("runs"));
  const std::string run = directory_.file("runs/first");
  files_.make_directories(run);
  CheckpointStore(run, 5, files).save(1, {}, VersionedState(1, 20));
  EXPECT_THAT(files.synced, ::testing::Contains(directory_.path()));
  EXPECT_THAT(files.synced, ::testing::Not(::testing::Contains(directory_.file("runs"))));
}

}  // namespace
}  // namespace trainyard::train::checkpoint_recovery_test
