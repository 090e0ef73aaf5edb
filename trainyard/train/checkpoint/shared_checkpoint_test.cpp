#include "trainyard/train/checkpoint/shared_checkpoint.h"

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/parallel/testing/on_ranks.h"
#include "trainyard/train/evaluation/shared_statistics.h"
#include "trainyard/train/loop/rank_times.h"
#include "trainyard/train/testing/checkpoint_state.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::shared_checkpoint_test {
namespace {

using Group = std::shared_ptr<parallel::ProcessGroup>;

// Rank 0 reads the directory; the others have none.
std::optional<CheckpointInfo> resume(const Group& group, const std::string& directory, core::Stateful& state) {
  return load_shared(*group, state, [&] {
    EXPECT_EQ(group->rank(), 0);
    CheckpointStore store(directory);
    return resume_newest_checkpoint(store, nullptr, state);
  });
}

TEST(SharedCheckpoint, AllRanksGoOnFromWhatRank0HasRead) {
  const core::TempDir directory;
  CheckpointStore(directory.path()).save(5, {.model = "tiny"}, VersionedState(5, 3 << 20));  // of several pieces
  parallel::on_ranks(3, [&](const Group& group) {
    VersionedState state(0, 3 << 20);
    const auto loaded = resume(group, directory.path(), state);
    ASSERT_TRUE(loaded);
    EXPECT_EQ(loaded->global_step, 5);
    EXPECT_EQ(state.version(), 5);
  });
}

TEST(SharedCheckpoint, WhereThereIsNoneNothingIsLoaded) {
  const core::TempDir directory;
  parallel::on_ranks(2, [&](const Group& group) {
    VersionedState state(3);
    EXPECT_FALSE(resume(group, directory.path(), state));
    EXPECT_EQ(state.version(), 3);
  });
}

TEST(SharedCheckpoint, WhatRank0CannotReadIsTheErrorOfAll) {
  const core::TempDir directory;
  const CheckpointInfo saved = CheckpointStore(directory.path()).save(5, {.model = "tiny"}, VersionedState(5));
  core::FileSystem& files = core::local_file_system();
  for (const std::string& name : files.list(saved.path)) {
    const std::string path = core::join_path(saved.path, name);
    std::string bytes = files.read_file(path);
    if (bytes.size() > 4000) bytes[bytes.size() / 2] ^= 1;
    files.write_file_atomically(path, bytes);
  }
  std::atomic<int> refused = 0;
  parallel::on_ranks(3, [&](const Group& group) {
    VersionedState state;
    try {
      resume(group, directory.path(), state);
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), core::ErrorCode::kCorruptData);
      EXPECT_NE(std::string(error.what()).find("rank 0: " + saved.path), std::string::npos) << error.what();
      ++refused;
    }
  });
  EXPECT_EQ(refused, 3);
}

// A state that one rank cannot load.
class Choosy : public VersionedState {
 public:
  explicit Choosy(bool refuses) : VersionedState(0), refuses_(refuses) {}
  void load(const core::StateReader& reader) override {
    if (refuses_) throw core::Error(core::ErrorCode::kNoSpace, "out of memory");
    VersionedState::load(reader);
  }

 private:
  bool refuses_;
};

TEST(SharedCheckpoint, WhatOneRankCannotLoadIsTheErrorOfAll) {
  const core::TempDir directory;
  CheckpointStore(directory.path()).save(5, {.model = "tiny"}, VersionedState(5));
  std::atomic<int> refused = 0;
  parallel::on_ranks(3, [&](const Group& group) {
    Choosy state(group->rank() == 2);
    try {
      resume(group, directory.path(), state);
    } catch (const core::Error& error) {
      EXPECT_STREQ(error.what(), "out of memory: rank 2");
      ++refused;
    }
  });
  EXPECT_EQ(refused, 3);
}

TEST(SharedStatistics, AreThoseOfRank0) {
  parallel::on_ranks(2, [](const Group& group) {
    nn::ParameterSet set;
    const auto executor =
        nn::make_executor("reference", tiny_graph(), {.mode = nn::Mode::kInference, .parameters = &set});
    set.allocate();
    set.initialize(static_cast<uint64_t>(group->rank()));
    ASSERT_EQ(set.buffer_count(), 2U);
    for (int b = 0; b < 2; ++b) set.buffer(b).fill_(10 * group->rank() + b + 1);
    const double first_value = set.values()[0].item<double>();
    take_statistics_of_first(*group, set);
    for (int b = 0; b < 2; ++b) EXPECT_EQ(set.buffer(b)[3].item<double>(), b + 1);
    EXPECT_EQ(set.values()[0].item<double>(), first_value) << "values are as they were";
  });
}

TEST(RankTimes, ComeInRankOrder) {
  parallel::on_ranks(3, [](const Group& group) {
    const double own = group->rank() + 0.5;
    const std::vector<StepTimes> all = gather_times(*group, {own, 2 * own, 3 * own, 4 * own, 5 * own, false, 6 * own});
    ASSERT_EQ(all.size(), 3U);
    for (size_t r = 0; r < 3; ++r) {
      const double seconds = static_cast<double>(r) + 0.5;
      EXPECT_EQ(all[r].total, seconds);
      EXPECT_EQ(all[r].input, 2 * seconds);
      EXPECT_EQ(all[r].compute, 3 * seconds);
      EXPECT_EQ(all[r].communication, 4 * seconds);
      EXPECT_EQ(all[r].update, 5 * seconds);
      EXPECT_EQ(all[r].waiting, 6 * seconds);
    }
  });
}

// Has met these bad samples, and saves them as a pipeline does.
class DamagedSource : public data::BatchSource {
 public:
  DamagedSource(int64_t bad, std::string samples) : bad_(bad), samples_(std::move(samples)) {}
  int64_t batch_size() const override { return 1; }
  int replicas() const override { return 1; }
  std::vector<data::Batch> next() override { return {}; }
  double waited_seconds() const override { return 0; }
  void stop() override {}
  data::Position position() const override { return {}; }
  void seek(data::Position /*position*/) override {}
  int64_t bad_samples() const override { return bad_; }
  void save(core::StateWriter& writer) const override {
    data::BatchSource::save(writer);
    if (!samples_.empty()) writer.text("bad_samples", samples_);
  }

 private:
  int64_t bad_;
  std::string samples_;
};

TEST(BadSamples, OfAllRanksAreCountedOnce) {
  const std::vector<std::string> met = {"3 17", "", "17 40"};
  parallel::on_ranks(3, [&met](const Group& group) {
    const std::string& own = met[static_cast<size_t>(group->rank())];
    EXPECT_EQ(gather_bad_samples(*group, DamagedSource(own.empty() ? 0 : 2, own)), 3);
    EXPECT_EQ(gather_bad_samples(*group, DamagedSource(group->rank(), "")), 2) << "sources that name none";
    EXPECT_EQ(gather_bad_samples(*group, DamagedSource(0, "")), 0);
  });
}

TEST(SharedCheckpoint, AllRanksHearWhichCheckpointItIs) {
  const core::TempDir directory;
  CheckpointStore(directory.path())
      .save(5, {.model = "tiny", .dataset = "shapes", .num_classes = 12}, VersionedState(5));
  parallel::on_ranks(2, [&](const Group& group) {
    const OpenedCheckpoint opened =
        open_shared(*group, [&] { return open_newest_checkpoint(directory.path(), nullptr); });
    ASSERT_NE(opened.reader, nullptr);
    EXPECT_EQ(opened.info.path, directory.file("model.ckpt-5"));
    EXPECT_EQ(opened.info.global_step, 5);
    EXPECT_EQ(opened.identity.model, "tiny");
    EXPECT_EQ(opened.identity.dataset, "shapes");
    EXPECT_EQ(opened.identity.num_classes, 12);
    EXPECT_EQ(opened.reader->integer("step"), 5);
  });
}

TEST(RankTimes, TellWhichAreAnAccelerators) {
  parallel::on_ranks(2, [](const Group& group) {
    const std::vector<StepTimes> all = gather_times(*group, {.total = 1, .on_accelerator = group->rank() == 1});
    ASSERT_EQ(all.size(), 2U);
    EXPECT_FALSE(all[0].on_accelerator);
    EXPECT_TRUE(all[1].on_accelerator);
  });
}

}  // namespace
}  // namespace trainyard::train::shared_checkpoint_test
