#include "trainyard/train/checkpoint/best_checkpoint.h"

#include <limits>
#include <random>

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/testing/fault_injector.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/train/checkpoint/checkpoint_manifest.h"
#include "trainyard/train/testing/checkpoint_state.h"
#include "trainyard/train/testing/killed_process.h"
#include "trainyard/train/testing/power_loss.h"

namespace trainyard::train::best_checkpoint_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr;

// A state whose version is the step that is offered.
class BestCheckpointTest : public ::testing::Test {
 protected:
  BestCheckpointTest() { core::log::set_level(core::log::Level::kError); }
  ~BestCheckpointTest() override { core::log::set_level(core::log::Level::kInfo); }

  static BestKeeper keeper_of(int64_t version, const std::string& directory, core::FileSystem& files,
                              BestMetric metric = BestMetric::kTop1) {
    return {CheckpointStore(directory, 2, files),
            {.by = best_by(metric),
             .identity = {.model = "lenet"},
             .state = std::make_shared<VersionedState>(version, 20)}};
  }
  void offer(int64_t step, double top_1, double loss = 1, BestMetric metric = BestMetric::kTop1) {
    BestKeeper keeper = keeper_of(step, directory_.path(), files_, metric);
    keeper.offer({.loss = loss, .top_1 = top_1}, step);
  }
  // The step in `best`, and that of what it holds, which must be the same; 0: there is none.
  static int64_t best_step(const std::string& directory) {
    const CheckpointInfo info = find_checkpoint(core::join_path(directory, "best"));
    VersionedState state(0, 20);
    load_checkpoint(info, nullptr, state);
    EXPECT_EQ(state.version(), info.global_step);
    return state.version();
  }
  int64_t best_step() const { return best_step(directory_.path()); }
  std::vector<std::string> names() const { return files_.list(directory_.path()); }

  core::TempDir directory_;
  core::FileSystem& files_ = core::local_file_system();
};

TEST_F(BestCheckpointTest, TheBestStaysOverSeveralRuns) {
  // A keeper a line: each is a run that is resumed.
  offer(1, 0.5);
  EXPECT_EQ(best_step(), 1);
  offer(2, 0.4);
  EXPECT_EQ(best_step(), 1);
  offer(3, 0.5);
  EXPECT_EQ(best_step(), 1) << "the first of equal ones";
  offer(4, 0.6);
  EXPECT_EQ(best_step(), 4);
  offer(5, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(best_step(), 4);
  const BestKeeper keeper = keeper_of(0, directory_.path(), files_);
  ASSERT_TRUE(keeper.best());
  EXPECT_EQ(keeper.best()->info.path, directory_.file("best"));
  EXPECT_EQ(keeper.best()->info.global_step, 4);
  EXPECT_EQ(keeper.best()->metric, "top_1_accuracy");
  EXPECT_EQ(keeper.best()->value, 0.6);
  EXPECT_THAT(names(), ElementsAre("best"));
}

TEST_F(BestCheckpointTest, ALossIsBetterWhenItIsLower) {
  const double infinity = std::numeric_limits<double>::infinity();
  offer(1, 0, infinity, BestMetric::kLoss);
  offer(2, 0, std::numeric_limits<double>::quiet_NaN(), BestMetric::kLoss);
  EXPECT_FALSE(files_.exists(directory_.file("best")));
  offer(3, 0.1, 2.5, BestMetric::kLoss);
  offer(4, 0.9, 2.6, BestMetric::kLoss);
  EXPECT_EQ(best_step(), 3);
  offer(5, 0, 2.4, BestMetric::kLoss);
  EXPECT_EQ(best_step(), 5);
  offer(6, 0.01, 9, BestMetric::kTop1);  // by another metric: begins anew
  EXPECT_EQ(best_step(), 6);
}

TEST_F(BestCheckpointTest, ItIsNoResumePointAndNotPruned) {
  CheckpointStore store(directory_.path(), 2);
  offer(9, 0.9);
  EXPECT_TRUE(store.list().empty());
  EXPECT_FALSE(store.latest());
  for (const int64_t step : {1, 2, 3, 4}) store.save(step, {}, VersionedState(step));
  EXPECT_EQ(latest_version(directory_.path()), 4);
  EXPECT_THAT(names(), ElementsAre("best", "model.ckpt-3", "model.ckpt-4"));
  EXPECT_EQ(best_step(), 9);
}

TEST_F(BestCheckpointTest, ADamagedOneIsSetAsideAndADifferentModelRefused) {
  for (const std::string_view file : {kManifestFile, kTensorFile}) {
    offer(1, 0.9);
    const std::string path = core::join_path(directory_.file("best"), file);
    std::string bytes = files_.read_file(path);
    bytes[bytes.size() / 2] ^= 1;
    files_.write_file_atomically(path, bytes);
    EXPECT_EQ(error_of([&] { best_step(); })->code(), core::ErrorCode::kCorruptData);
    offer(2, 0.1);
    EXPECT_EQ(best_step(), 2);
    EXPECT_THAT(names(), ElementsAre("best", ::testing::StartsWith("best.damaged-")));
    EXPECT_EQ(files_.read_file(core::join_path(directory_.file(names()[1]), file)), bytes);
    files_.remove_tree(directory_.file(names()[1]));
    files_.remove_tree(directory_.file("best"));
  }
  offer(1, 0.9);
  EXPECT_THROW(BestKeeper(CheckpointStore(directory_.path()), {.identity = {.model = "alexnet"}}), core::Error);
}

TEST_F(BestCheckpointTest, FollowsAnyNumberOfAnEvaluation) {
  const auto keep = [&](const BestBy& by, int64_t step, const Evaluation& evaluation) {
    BestKeeper keeper(CheckpointStore(directory_.path(), 2, files_),
                      {.by = by, .identity = {.model = "lenet"}, .state = std::make_shared<VersionedState>(step, 20)});
    keeper.offer(evaluation, step);
    return keeper.best()->value;
  };
  Evaluation unbalanced{.top_1 = 0.9, .classes = {{90, 90}, {0, 10}, {0, 0}}};
  EXPECT_EQ(keep({"mean_class_accuracy"}, 1, unbalanced), 0.5) << "a class without samples counts as none";
  unbalanced.classes = {{60, 90}, {8, 10}, {0, 0}};
  unbalanced.top_1 = 0.68;
  EXPECT_NEAR(keep({"mean_class_accuracy"}, 2, unbalanced), (2.0 / 3 + 0.8) / 2, 1e-12);
  EXPECT_EQ(best_step(), 2);
  const Evaluation measured{.top_5 = 0.75, .more = {{"hard/center_loss", 3}, {"confidence", 0.25}}};
  EXPECT_EQ(keep({"top_5_accuracy"}, 3, measured), 0.75);
  EXPECT_EQ(keep({"hard/center_loss"}, 4, measured), 3);
  EXPECT_EQ(keep({"hard/center_loss"}, 5, {.more = {{"hard/center_loss", 4}}}), 3) << "the lowest, by its name";
  EXPECT_EQ(keep({"confidence", true}, 6, measured), 0.25);
  EXPECT_EQ(keep({"confidence", true}, 7, {.more = {{"confidence", 0.125}}}), 0.125) << "the lowest, as it was said";
  const auto error = error_of([&] { keep({"confidence", true}, 8, {.has_accuracies = false}); });
  EXPECT_THAT(std::string(error->what()),
              ::testing::AllOf(HasSubstr("an evaluation has no confidence"), HasSubstr("one of loss")));
}

// A state of any version, which takes `seconds` to save by the clock `now`.
struct SlowState : core::Stateful {
  void save(core::StateWriter& writer) const override {
    VersionedState(version, 20).save(writer);
    *now += seconds;
  }
  void load(const core::StateReader&) override {}
  int64_t version = 0;
  double seconds = 0;
  double* now = nullptr;
};

class SlowlySavedBest : public BestCheckpointTest {
 protected:
  SlowlySavedBest() {
    state_->seconds = 0.5;
    state_->now = &now_;
  }
  std::unique_ptr<BestKeeper> keeper(core::FileSystem& files) {
    return std::make_unique<BestKeeper>(
        CheckpointStore(directory_.path(), 2, files),
        BestKeeperOptions{.identity = {.model = "lenet"}, .state = state_, .clock = [this] { return now_; }});
  }
  // Offers the version `step` after two more seconds.
  void offer(BestKeeper& keeper, int64_t step, double top_1) {
    now_ += 2;
    state_->version = step;
    keeper.offer(top_1, step);
  }

  double now_ = 100;
  std::shared_ptr<SlowState> state_ = std::make_shared<SlowState>();
};

TEST_F(SlowlySavedBest, IsCopiedWhileWritingWouldTakeMoreThanItsPartOfTheTime) {
  auto keeper = this->keeper(files_);
  offer(*keeper, 1, 0.1);
  EXPECT_EQ(best_step(), 1) << "the first is written at once";
  offer(*keeper, 2, 0.3);
  offer(*keeper, 3, 0.2);
  EXPECT_EQ(best_step(), 1) << "half a second is a twentieth of ten";
  EXPECT_EQ(keeper->best()->value, 0.3);
  EXPECT_EQ(keeper->best()->info.global_step, 2);
  keeper->flush();
  EXPECT_EQ(best_step(), 2) << "the copy, not the state of now";
  offer(*keeper, 4, 0.4);
  EXPECT_EQ(best_step(), 4) << "by this clock writing the copy took no time";
  now_ += 10;
  offer(*keeper, 5, 0.5);
  EXPECT_EQ(best_step(), 5) << "more than ten seconds have passed";
  keeper->flush();
  EXPECT_EQ(best_step(), 5);
  offer(*keeper, 6, 0.6);
  keeper.reset();
  EXPECT_EQ(best_step(), 6) << "the end of the keeper writes";
  EXPECT_THAT(names(), ElementsAre("best"));
}

TEST_F(SlowlySavedBest, ACopyThatCannotBeWrittenLeavesTheEarlierOne) {
  core::FaultInjector faults;
  const auto faulty = make_file_system(faults);
  auto keeper = this->keeper(*faulty);
  offer(*keeper, 1, 0.1);
  offer(*keeper, 2, 0.3);
  faults.fail_writes_from_nth(faults.calls() + 1, core::Fault::kNoSpace);
  EXPECT_THROW(keeper->flush(), core::Error);
  faults.fail_nth(1 << 30, core::Fault::kNoSpace);
  EXPECT_EQ(best_step(), 1);
  EXPECT_EQ(keeper->best()->value, 0.1);
  offer(*keeper, 3, 0.2);
  keeper.reset();
  EXPECT_EQ(best_step(), 3) << "better than what is there";
}

TEST_F(BestCheckpointTest, SomeNamesSayWhetherLowValuesAreGood) {
  for (const char* name : {"loss", "val/loss", "center_loss", "hard/mean_error"}) EXPECT_TRUE(lowest_is_best({name}));
  for (const char* name : {"top_1_accuracy", "hard/class_accuracy/cat", "average_precision", "macro_f1"}) {
    EXPECT_FALSE(lowest_is_best({name})) << name;
  }
  EXPECT_TRUE(lowest_is_best({"top_1_accuracy", true})) << "what is said counts";
  for (const char* name : {"confidence", "glossiness", "loss_accuracy"}) {
    const auto error = error_of([&] { static_cast<void>(lowest_is_best({name})); });
    EXPECT_THAT(std::string(error->what()), HasSubstr("nothing says whether high or low values")) << name;
  }
}

TEST_F(BestCheckpointTest, WeightsThatAreNanAreNotKept) {
  class Nan : public core::Stateful {
    void save(core::StateWriter& writer) const override {
      writer.tensor("model/w", at::full({2}, std::numeric_limits<double>::quiet_NaN()));
    }
    void load(const core::StateReader&) override {}
  };
  offer(1, 0.5);
  BestKeeper keeper(CheckpointStore(directory_.path()),
                    {.identity = {.model = "lenet"}, .state = std::make_shared<Nan>()});
  keeper.offer({.loss = 1, .top_1 = 0.9}, 2);
  EXPECT_EQ(keeper.best()->info.global_step, 1);
  EXPECT_EQ(best_step(), 1);
}

TEST_F(BestCheckpointTest, EveryFaultLeavesTheOldBestOrTheNewOne) {
  for (const core::Fault fault : {core::Fault::kIoError, core::Fault::kNoSpace, core::Fault::kInterrupted}) {
    int n = 1;
    for (;; ++n) {
      const core::TempDir directory;
      keeper_of(1, directory.path(), files_).offer({.top_1 = 0.5}, 1);
      core::FaultInjector faults;
      faults.fail_nth(n, fault);
      const auto faulty = make_file_system(faults);
      const auto error = error_of([&] { keeper_of(2, directory.path(), *faulty).offer({.top_1 = 0.6}, 2); });
      const int64_t best = best_step(directory.path());
      EXPECT_TRUE(best == 2 || (error && best == 1)) << "call " << n << ", step " << best;
      keeper_of(3, directory.path(), files_).offer({.top_1 = 0.7}, 3);
      EXPECT_EQ(best_step(directory.path()), 3);
      EXPECT_THAT(files_.list(directory.path()), ElementsAre("best")) << "call " << n;
      if (!faults.reached()) break;
    }
    EXPECT_GT(n, 30);
  }
}

TEST_F(BestCheckpointTest, PowerLossAtAnyOperationLeavesTheOldBestOrTheNewOne) {
  for (const LostThings lost : {LostThings::kData, LostThings::kDataAndNames}) {
    int tried = 0;
    for (bool finished = false; !finished; ++tried) {
      const core::TempDir directory;
      keeper_of(1, directory.path(), files_).offer({.top_1 = 0.5}, 1);
      PowerLossFileSystem files({.at_operation = tried + 1});
      try {
        keeper_of(2, directory.path(), files).offer({.top_1 = 0.6}, 2);
        finished = true;
      } catch (const PowerLoss&) {
      }
      files.settle(lost);
      const int64_t best = best_step(directory.path());
      EXPECT_TRUE(best == 2 || (!finished && best == 1)) << best;
    }
    EXPECT_GT(tried, 10);
  }
}

TEST_F(BestCheckpointTest, KilledAtAnyMomentThereIsAlwaysABest) {
  std::mt19937 random(20261122);
  std::uniform_int_distribution<int> microseconds(0, 40'000);
  offer(1, 0);
  int64_t best = 1;
  // On a busy machine few of the children come to save.
  for (int kill = 0; kill < 30 || best <= 5; ++kill) {
    ASSERT_LT(kill, 3000) << "nothing is saved";
    ASSERT_NO_FATAL_FAILURE(run_and_kill(static_cast<useconds_t>(microseconds(random)), [&] {
      for (int64_t step = best + 1;; ++step) offer(step, static_cast<double>(step));
    }));
    const int64_t now = best_step();
    EXPECT_GE(now, best);
    best = now;
  }
}

}  // namespace
}  // namespace trainyard::train::best_checkpoint_test
