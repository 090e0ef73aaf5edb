#include "trainyard/train/checkpoint/checkpoint_queue.h"

#include <atomic>
#include <cmath>
#include <condition_variable>
#include <random>
#include <thread>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/base/work_count.h"
#include "trainyard/core/testing/fault_injector.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/train/checkpoint/best_checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint_manifest.h"
#include "trainyard/train/checkpoint/checkpoint_names.h"
#include "trainyard/train/testing/checkpoint_state.h"
#include "trainyard/train/testing/killed_process.h"
#include "trainyard/train/testing/power_loss.h"

namespace trainyard::train::checkpoint_queue_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr;
using State = QueuedWrite::State;

constexpr int64_t kMuch = int64_t{1} << 40;

// Tensors that are saved in other orders, layouts and types, and values between them.
struct MixedState : core::Stateful {
  void save(core::StateWriter& writer) const override {
    writer.text("z", "first");
    writer.tensor("weights", weights);
    writer.tensor("transposed", weights.t());
    writer.tensor("a", at::full({}, 3, at::kBFloat16));
    writer.real("nan", std::nan(""));
    writer.tensor("expanded", at::full({1}, 7, at::kLong).expand({5}));
    writer.tensor("empty", at::empty({0, 4}));
    writer.integer("b", -5);
  }
  void load(const core::StateReader& reader) override { reader.tensor("weights", weights); }
  // More than one chunk of those in which it is copied.
  at::Tensor weights = at::arange(300'000, at::kFloat).view({300, 1000});
};

std::string bytes_of(const std::string& checkpoint, std::string_view file) {
  return core::local_file_system().read_file(core::join_path(checkpoint, file));
}

uint64_t file_id(const std::string& checkpoint) {
  return core::local_file_system().info(core::join_path(checkpoint, kTensorFile)).file_id;
}

TEST(CheckpointCopy, IsWrittenWithTheBytesOfTheStateItself) {
  const core::TempDir directory;
  const MixedState state;
  CheckpointStore store(directory.file("state")), of_copy(directory.file("copy"));
  const CheckpointInfo expected = store.save(3, {.model = "mixed"}, state);
  const auto copy = CheckpointCopy::of(state, 3, nullptr, kMuch);
  const CheckpointInfo actual = of_copy.save_copy(3, {.model = "mixed"}, *copy);
  for (const std::string_view file : {kManifestFile, kTensorFile}) {
    EXPECT_EQ(bytes_of(actual.path, file), bytes_of(expected.path, file)) << file;
  }
  EXPECT_EQ(copy->bytes(), 2 * 300'000 * 4 + 2 + 5 * 8);
}

TEST(CheckpointCopy, IsOfItsMomentWhateverBecomesOfTheState) {
  const core::TempDir directory;
  MixedState state;
  const at::Tensor before = state.weights.clone();
  const auto copy = CheckpointCopy::of(state, 3, nullptr, kMuch);
  state.weights.fill_(-1);
  CheckpointStore(directory.path()).save_copy(3, {}, *copy);
  load_checkpoint(find_checkpoint(directory.path()), nullptr, state);
  EXPECT_TRUE(state.weights.equal(before));
}

struct OneTensor : core::Stateful {
  explicit OneTensor(at::Tensor tensor) : value(std::move(tensor)) {}
  void save(core::StateWriter& writer) const override { writer.tensor("model/w", value); }
  void load(const core::StateReader&) override {}
  at::Tensor value;
};

TEST(CheckpointCopy, SharesTensorsOfTheSameBitsOnly) {
  const auto shares = [](const at::Tensor& first, const at::Tensor& second) {
    const auto before = CheckpointCopy::of(OneTensor(first), 1, nullptr, kMuch);
    // What is shared takes no memory.
    const auto copy = CheckpointCopy::of(OneTensor(second), 1, before.get(), 0);
    if (copy == nullptr) return false;
    return &copy->written() == &before->written();
  };
  EXPECT_TRUE(shares(at::full({6}, 2.0), at::full({6}, 2.0)));
  EXPECT_FALSE(shares(at::full({6}, 2.0), at::full({6}, 2.5)));
  EXPECT_FALSE(shares(at::full({6}, 0.0), at::full({6}, -0.0))) << "equal as numbers";
  EXPECT_FALSE(shares(at::full({6}, 2.0), at::full({2, 3}, 2.0)));
  EXPECT_FALSE(shares(at::zeros({6}, at::kFloat), at::zeros({6}, at::kInt)));
}

TEST(CheckpointCopy, RefusesWhatCannotBeSavedInTheSameWords) {
  const core::TempDir directory;
  at::Tensor nan = at::full({100'000}, 1.0);
  nan[99'999] = std::nan("");
  for (const at::Tensor& bad : {nan, at::Tensor()}) {
    const auto expected = error_of([&] { CheckpointStore(directory.path()).save(7, {}, OneTensor(bad)); });
    const auto actual = error_of([&] { CheckpointCopy::of(OneTensor(bad), 7, nullptr, kMuch); });
    ASSERT_TRUE(expected && actual);
    EXPECT_STREQ(actual->what(), expected->what());
  }
  EXPECT_THROW(CheckpointCopy::of(OneTensor(nan), 7, nullptr, kMuch), NonFiniteState);
}

TEST(CheckpointCopy, EachOfItsTensorsCountsAsWork) {
  const MixedState state;
  const uint64_t before = core::work_count();
  const auto copy = CheckpointCopy::of(state, 3, nullptr, kMuch);
  EXPECT_NE(copy, nullptr);
  EXPECT_GE(core::work_count() - before, 5U);
}

TEST(CheckpointCopy, IsNotMadeWithoutRoom) {
  const OneTensor state(at::full({25}, 1, at::kFloat));
  EXPECT_EQ(CheckpointCopy::of(state, 1, nullptr, 99), nullptr);
  EXPECT_NE(CheckpointCopy::of(state, 1, nullptr, 100), nullptr);
  EXPECT_EQ(CheckpointCopy::of(MixedState(), 1, nullptr, 300'000 * 4 + 100), nullptr) << "one that is not contiguous";
  EXPECT_GT(checkpoint_copy_budget(), 0);
}

// Writes that end when they are told to.
class Gate {
 public:
  void open() {
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
    }
    opened_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

// A training's own thread, which is or is not held up by a call.
class Caller {
 public:
  explicit Caller(std::function<void()> call)
      : thread_({.name = "caller"}, [this, call = std::move(call)] {
          call();
          returned_ = true;
        }) {}
  bool is_held_up() const {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return !returned_;
  }
  void join() { thread_.join(); }

 private:
  std::atomic<bool> returned_ = false;
  core::Thread thread_;
};

TEST(CheckpointQueue, OneWriteRunsAndOneWaits) {
  Gate gate;
  std::atomic<int> running = 0, most = 0;
  std::vector<int> order;
  const auto write = [&](int number) {
    return [&, number] {
      most = std::max<int>(most, ++running);
      gate.wait();
      order.push_back(number);
      --running;
    };
  };
  CheckpointQueue queue;
  const auto first = queue.submit(write(1));
  const auto second = queue.submit(write(2));
  EXPECT_EQ(first->state(), State::kPending);
  Caller third([&] { queue.submit(write(3)); });
  EXPECT_TRUE(third.is_held_up());
  gate.open();
  third.join();
  queue.drain();
  EXPECT_THAT(order, ElementsAre(1, 2, 3));
  EXPECT_EQ(most, 1);
  EXPECT_EQ(first->state(), State::kDone);
  EXPECT_GE(first->seconds(), 0.05);
  EXPECT_EQ(second->state(), State::kDone);
}

// Two copies at most are in memory: of the write that runs and of the one that waits.
TEST(CheckpointQueue, NoCopyIsMadeWhileAWriteWaits) {
  Gate gate;
  CheckpointQueue queue;
  std::vector<std::weak_ptr<const CheckpointCopy>> copies;
  const auto save = [&](int64_t step) {
    auto copy = queue.copy(VersionedState(step), step);
    copies.push_back(copy);
    queue.submit([copy = std::move(copy), &gate] { gate.wait(); });
  };
  save(1);
  save(2);
  Caller third([&] { save(3); });
  EXPECT_TRUE(third.is_held_up());
  EXPECT_EQ(copies.size(), 2U) << "the state is copied when there is room for it, not before";
  gate.open();
  third.join();
  queue.drain();
  for (const auto& copy : copies) EXPECT_TRUE(copy.expired());
}

TEST(CheckpointQueue, AnErrorIsThrownOnceAndWhatWaitsBehindItIsDropped) {
  Gate gate;
  CheckpointQueue queue;
  const auto failing = queue.submit([&] {
    gate.wait();
    throw core::Error(core::ErrorCode::kNoSpace, "no space left");
  });
  bool wrote = false;
  const auto dropped = queue.submit([&] { wrote = true; });
  queue.check();  // not yet
  gate.open();
  const auto error = error_of([&] { queue.drain(); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), core::ErrorCode::kNoSpace);
  EXPECT_STREQ(error->what(), "no space left");
  EXPECT_EQ(failing->state(), State::kFailed);
  EXPECT_EQ(dropped->state(), State::kFailed);
  EXPECT_FALSE(wrote);
  queue.drain();
  queue.check();
  queue.submit([&] { wrote = true; });
  queue.drain();
  EXPECT_TRUE(wrote) << "an error does not end the queue";
}

TEST(CheckpointQueue, ThrowsAnErrorAtTheNextCopyAndSubmit) {
  const auto fail = [](CheckpointQueue& queue) {
    const auto write = queue.submit([] { throw core::Error(core::ErrorCode::kIo, "broken"); });
    while (write->state() == State::kPending) std::this_thread::yield();
  };
  CheckpointQueue queue;
  fail(queue);
  EXPECT_TRUE(error_of([&] { static_cast<void>(queue.copy(VersionedState(1), 1)); }));
  fail(queue);
  EXPECT_TRUE(error_of([&] { queue.submit([] {}); }));
  fail(queue);
  EXPECT_TRUE(error_of([&] { queue.check(); }));
}

TEST(CheckpointQueue, ItsEndWritesAndSaysWhatFailed) {
  const core::TempDir directory;
  {
    CheckpointQueue queue;
    const auto copy = queue.copy(VersionedState(4), 4);
    queue.submit([&, copy] { CheckpointStore(directory.path()).save_copy(4, {}, *copy); });
  }
  EXPECT_EQ(latest_version(directory.path()), 4);
  ::testing::internal::CaptureStderr();
  {
    CheckpointQueue queue;
    queue.submit([] { throw core::Error(core::ErrorCode::kIo, "broken"); });
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("a checkpoint is lost: broken"));
}

TEST(CheckpointQueue, SaysOnceThatThereIsNoMemory) {
  int64_t budget = 0;
  CheckpointQueue queue([&] { return budget; });
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(queue.copy(VersionedState(1), 1), nullptr);
  EXPECT_EQ(queue.copy(VersionedState(2), 2), nullptr);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_THAT(log, HasSubstr("does not fit into memory"));
  budget = kMuch;
  EXPECT_NE(queue.copy(VersionedState(3), 3), nullptr);
}

TEST(CheckpointQueue, AFullDiskIsReportedInTheWordsOfTheForeground) {
  std::vector<std::string> words;
  for (const bool background : {false, true}) {
    const core::TempDir directory;
    CheckpointStore(directory.path()).save(1, {}, VersionedState(1));
    core::FaultInjector faults;
    const auto files = make_file_system(faults);
    faults.fail_writes_from_nth(12, core::Fault::kNoSpace);
    CheckpointStore store(directory.path(), 2, *files);
    CheckpointQueue queue;
    const auto error = error_of([&] {
      if (!background) {
        store.save(2, {}, VersionedState(2));
        return;
      }
      const auto copy = queue.copy(VersionedState(2), 2);
      queue.submit([&, copy] { store.save_copy(2, {}, *copy); });
      queue.drain();
    });
    ASSERT_TRUE(error) << background;
    EXPECT_EQ(error->code(), core::ErrorCode::kNoSpace);
    std::string text = error->what();
    const size_t place = text.find(directory.path());
    ASSERT_NE(place, std::string::npos) << text;
    text.replace(place, directory.path().size(), "DIR");
    words.push_back(text.substr(0, text.find(".tmp-")));
    EXPECT_EQ(latest_version(directory.path()), 1);
  }
  EXPECT_EQ(words[0], words[1]);
}

// What is saved behind the copy.
struct Note : core::Stateful {
  void save(core::StateWriter& writer) const override {
    writer.text("best/metric", "of this one only");
    writer.real("best/value", 0.5);
  }
  void load(const core::StateReader&) override {}
};

// A best checkpoint and a checkpoint of the same step.
class SavedOnceTest : public ::testing::Test {
 protected:
  SavedOnceTest() { core::log::set_level(core::log::Level::kError); }
  ~SavedOnceTest() override { core::log::set_level(core::log::Level::kInfo); }
  struct Saved {
    CheckpointInfo best, last;
  };
  Saved save(core::FileSystem& files, int64_t version, int64_t version_of_last) {
    CheckpointStore store(directory_.path(), 2, files);
    const auto copy = CheckpointCopy::of(VersionedState(version), 5, nullptr, kMuch);
    const auto again = CheckpointCopy::of(VersionedState(version_of_last), 5, copy.get(), kMuch);
    const CheckpointInfo best = store.save_best_copy(5, {.model = "lenet"}, *copy, Note());
    return {best, store.save_copy(5, {.model = "lenet"}, *again)};
  }
  int64_t version(const std::string& name) const {
    VersionedState state;
    load_checkpoint(find_checkpoint(directory_.file(name)), nullptr, state);
    return state.version();
  }

  const core::TempDir directory_;
  core::FileSystem& files_ = core::local_file_system();
};

TEST_F(SavedOnceTest, TensorsOfOneStepAreOneFile) {
  const auto [best, last] = save(files_, 5, 5);
  EXPECT_EQ(file_id(best.path), file_id(last.path));
  EXPECT_EQ(version("best"), 5);
  EXPECT_EQ(version("model.ckpt-5"), 5);
  EXPECT_EQ(open_checkpoint(best, nullptr)->text("best/metric"), "of this one only");
  EXPECT_FALSE(open_checkpoint(last, nullptr)->has("best/metric"));
  // The same bytes as those of a checkpoint that was written alone.
  const core::TempDir other;
  const CheckpointInfo alone = CheckpointStore(other.path()).save(5, {.model = "lenet"}, VersionedState(5));
  for (const std::string_view file : {kManifestFile, kTensorFile}) {
    EXPECT_EQ(bytes_of(last.path, file), bytes_of(alone.path, file)) << file;
  }
  // Each stays when the other one is replaced or removed.
  CheckpointStore store(directory_.path(), 1);
  store.save_best(6, {.model = "lenet"}, VersionedState(6));
  EXPECT_EQ(version("model.ckpt-5"), 5);
  EXPECT_EQ(version("best"), 6);
  save(files_, 5, 5);
  store.save(7, {.model = "lenet"}, VersionedState(7));
  EXPECT_FALSE(files_.exists(directory_.file("model.ckpt-5")));
  EXPECT_EQ(version("best"), 5);
}

TEST_F(SavedOnceTest, OtherTensorsAreWritten) {
  const auto [best, last] = save(files_, 5, 6);
  EXPECT_NE(file_id(best.path), file_id(last.path));
  EXPECT_EQ(version("best"), 5);
  EXPECT_EQ(version("model.ckpt-5"), 6);
}

TEST_F(SavedOnceTest, AFileThatIsAnotherOneByNowIsNotLinked) {
  CheckpointStore store(directory_.path(), 2);
  const auto copy = CheckpointCopy::of(VersionedState(5), 5, nullptr, kMuch);
  store.save_best_copy(5, {.model = "lenet"}, *copy, Note());
  store.save_best(6, {.model = "lenet"}, VersionedState(6));  // of the same length
  store.save_copy(5, {.model = "lenet"}, *copy);
  EXPECT_EQ(version("best"), 6);
  EXPECT_EQ(version("model.ckpt-5"), 5);
  files_.remove_tree(directory_.file("best"));
  store.save_copy(5, {.model = "lenet"}, *CheckpointCopy::of(VersionedState(5), 5, copy.get(), kMuch));
  EXPECT_EQ(version("model.ckpt-5"), 5);
}

TEST_F(SavedOnceTest, WithoutHardLinksBothAreWritten) {
  class NoLinks : public PowerLossFileSystem {
   public:
    NoLinks() : PowerLossFileSystem({}) {}
    bool link_file(const std::string&, const std::string&) override { return false; }
  } files;
  const auto [best, last] = save(files, 5, 5);
  EXPECT_NE(file_id(best.path), file_id(last.path));
  EXPECT_EQ(version("best"), 5);
  EXPECT_EQ(version("model.ckpt-5"), 5);
}

// The keeper and the queue share the copy by themselves.
TEST_F(SavedOnceTest, AKeeperAndACheckpointOfTheSameStepShareTheTensors) {
  const auto queue = std::make_shared<CheckpointQueue>();
  Gate gate;
  queue->submit([&] { gate.wait(); });  // so that the copy is still in use
  const auto state = std::make_shared<VersionedState>(5);
  CheckpointStore store(directory_.path(), 2);
  BestKeeper keeper(store, {.identity = {.model = "lenet"}, .state = state, .queue = queue});
  Caller offering([&] { keeper.offer(0.5, 5); });
  EXPECT_FALSE(offering.is_held_up());
  offering.join();
  EXPECT_EQ(keeper.best()->value, 0.5);
  EXPECT_FALSE(files_.exists(directory_.file("best"))) << "not written yet";
  std::shared_ptr<const CheckpointCopy> copy;
  Caller copying([&] { copy = queue->copy(*state, 5); });
  EXPECT_TRUE(copying.is_held_up()) << "the best one waits";
  gate.open();
  copying.join();
  queue->submit([&] { store.save_copy(5, {.model = "lenet"}, *copy); });
  keeper.finish();
  EXPECT_EQ(version("best"), 5);
  EXPECT_EQ(version("model.ckpt-5"), 5);
}

TEST_F(SavedOnceTest, ABestOneWhoseWriteFailedIsNone) {
  core::FaultInjector faults;
  const auto faulty = make_file_system(faults);
  const auto queue = std::make_shared<CheckpointQueue>();
  const auto state = std::make_shared<VersionedState>(1);
  BestKeeper keeper(CheckpointStore(directory_.path(), 2, *faulty),
                    {.identity = {.model = "lenet"}, .state = state, .queue = queue});
  keeper.offer(0.1, 1);
  keeper.finish();
  EXPECT_EQ(keeper.best()->value, 0.1);
  faults.fail_writes_from_nth(faults.calls() + 1, core::Fault::kNoSpace);
  *state = VersionedState(2);
  keeper.offer(0.3, 2);
  EXPECT_THROW(keeper.finish(), core::Error);
  EXPECT_EQ(keeper.best()->value, 0.1);
  EXPECT_EQ(version("best"), 1);
  faults.fail_nth(1 << 30, core::Fault::kNoSpace);
  *state = VersionedState(3);
  keeper.offer(0.2, 3);
  keeper.finish();
  EXPECT_EQ(version("best"), 3) << "better than what is there";
}

// Each is written without finish(): the keeper takes note of a write that has ended when it is offered the next one.
TEST_F(SavedOnceTest, ABetterOneIsWrittenWhenTheEarlierOneIs) {
  const auto queue = std::make_shared<CheckpointQueue>();
  const auto state = std::make_shared<VersionedState>();
  BestKeeper keeper(CheckpointStore(directory_.path()),
                    {.identity = {.model = "lenet"}, .state = state, .queue = queue});
  for (const int64_t step : {1, 2, 3}) {
    *state = VersionedState(step);
    keeper.offer(0.125 * static_cast<double>(step), step);
    queue->drain();
    EXPECT_EQ(version("best"), step);
  }
  keeper.offer(0.25, 4);
  queue->drain();
  EXPECT_EQ(version("best"), 3) << "it is no better";
}

// A copy of the better one finds no room while the one before it is written: it is written behind that one.
TEST_F(SavedOnceTest, ABetterOneThatCannotBeCopiedIsWrittenBehindTheEarlierOne) {
  // So slow that the earlier one is still being written when the better one is.
  class Slow : public PowerLossFileSystem {
   public:
    Slow() : PowerLossFileSystem({}) {}
    void sync_directory(const std::string& folder) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      PowerLossFileSystem::sync_directory(folder);
    }
  } files;
  std::atomic<int64_t> room = kMuch;
  Gate gate;
  const auto queue = std::make_shared<CheckpointQueue>([&] { return room.load(); });
  const auto state = std::make_shared<VersionedState>(1);
  BestKeeper keeper(CheckpointStore(directory_.path(), 2, files),
                    {.identity = {.model = "lenet"}, .state = state, .queue = queue});
  queue->submit([&] { gate.wait(); });
  keeper.offer(0.25, 1);
  room = 0;
  *state = VersionedState(2);
  Caller offering([&] { keeper.offer(0.5, 2); });
  EXPECT_TRUE(offering.is_held_up()) << "the earlier one waits";
  gate.open();
  offering.join();
  EXPECT_EQ(keeper.best()->value, 0.5);
  EXPECT_EQ(keeper.best()->info.global_step, 2);
  EXPECT_EQ(version("best"), 2);
}

// The best one and a checkpoint of step 2, over those of step 1, by a queue.
void save_step(const std::string& directory, int64_t step, core::FileSystem& files) {
  const auto queue = std::make_shared<CheckpointQueue>();
  CheckpointStore store(directory, 2, files);
  const auto state = std::make_shared<VersionedState>(step, 20);
  BestKeeper keeper(store, {.identity = {.model = "lenet"}, .state = state, .queue = queue});
  keeper.offer(static_cast<double>(step), step);
  keeper.flush();
  const auto copy = queue->copy(*state, step);
  const auto write = queue->submit([&, copy] { store.save_copy(step, {.model = "lenet"}, *copy); });
  keeper.finish();
  EXPECT_EQ(write->state(), State::kDone);
}

TEST_F(SavedOnceTest, PowerLossAtAnyOperationLeavesWhatWasThereOrMore) {
  for (const LostThings lost : {LostThings::kData, LostThings::kDataAndNames}) {
    int tried = 0;
    for (bool finished = false; !finished; ++tried) {
      const core::TempDir directory;
      save_step(directory.path(), 1, files_);
      PowerLossFileSystem files({.at_operation = tried + 1});
      try {
        save_step(directory.path(), 2, files);
        finished = true;
      } catch (const PowerLoss&) {
      } catch (const core::Error&) {
        ASSERT_TRUE(files.lost());
      }
      files.settle(lost);
      VersionedState best(0, 20), last(0, 20);
      load_checkpoint(find_checkpoint(directory.file("best")), nullptr, best);
      load_checkpoint(find_checkpoint(directory.path()), nullptr, last);
      EXPECT_GE(best.version(), last.version()) << "a resumed run would not find it again; operation " << tried + 1;
      EXPECT_TRUE(last.version() == 2 || (last.version() == 1 && !finished)) << "operation " << tried + 1;
    }
    EXPECT_GT(tried, 15);
  }
}

TEST_F(SavedOnceTest, KilledAtAnyMomentThereIsABestAndACheckpoint) {
  std::mt19937 random(20261126);
  std::uniform_int_distribution<int> microseconds(0, 60'000);
  save_step(directory_.path(), 1, files_);
  int64_t reached = 1;
  for (int kill = 0; kill < 20 || (reached <= 3 && kill < 200); ++kill) {
    ASSERT_NO_FATAL_FAILURE(run_and_kill(static_cast<useconds_t>(microseconds(random)), [&] {
      const auto queue = std::make_shared<CheckpointQueue>();
      const auto state = std::make_shared<VersionedState>(reached, 5000);
      CheckpointStore store(directory_.path(), 2);
      BestKeeper keeper(store, {.identity = {.model = "lenet"}, .state = state, .queue = queue});
      for (int64_t step = reached + 1;; ++step) {
        *state = VersionedState(step, 5000);
        keeper.offer(static_cast<double>(step), step);
        keeper.flush();
        const auto copy = queue->copy(*state, step);
        queue->submit([=]() mutable { store.save_copy(step, {.model = "lenet"}, *copy); });
      }
    }));
    VersionedState best(0, 20), last(0, 20);
    load_checkpoint(find_checkpoint(directory_.file("best")), nullptr, best);
    load_checkpoint(find_checkpoint(directory_.path()), nullptr, last);
    EXPECT_GE(last.version(), reached);
    EXPECT_GE(best.version(), last.version());
    reached = last.version();
  }
  EXPECT_GT(reached, 3);
}

// Each store would remove the other's temporary directory as a leftover.
TEST(CheckpointStore, StoresOfTwoThreadsWriteIntoOneDirectoryInTurns) {
  const core::TempDir directory;
  const auto save_all = [&](int64_t first) {
    return [&, first] {
      CheckpointStore store(directory.path(), 0);
      for (int64_t step = first; step < 40; step += 2) store.save(step, {}, VersionedState(step));
    };
  };
  core::Thread odd({.name = "odd"}, save_all(1)), even({.name = "even"}, save_all(0));
  odd.join();
  even.join();
  EXPECT_EQ(CheckpointStore(directory.path()).list().size(), 40U);
}

}  // namespace
}  // namespace trainyard::train::checkpoint_queue_test
