#include "trainyard/train/checkpoint/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/base/work_count.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/train/checkpoint/checkpoint_manifest.h"
#include "trainyard/train/checkpoint/checkpoint_reader.h"
#include "trainyard/train/testing/checkpoint_state.h"

namespace trainyard::train::checkpoint_test {
namespace {

using ::testing::HasSubstr;

// Saves and loads what it is given.
class AnyState : public core::Stateful {
 public:
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, int64_t> integers;
  std::map<std::string, double> reals;
  std::map<std::string, std::string> texts;

  void save(core::StateWriter& writer) const override {
    for (const auto& [name, value] : tensors) writer.tensor(name, value);
    for (const auto& [name, value] : integers) writer.integer(name, value);
    for (const auto& [name, value] : reals) writer.real(name, value);
    for (const auto& [name, value] : texts) writer.text(name, value);
  }
  void load(const core::StateReader& reader) override {
    for (auto& [name, value] : tensors) reader.tensor(name, value);
    for (auto& [name, value] : integers) value = reader.integer(name);
    for (auto& [name, value] : reals) value = reader.real(name);
    for (auto& [name, value] : texts) value = reader.text(name);
  }
};

// Bytes of every kind; a bit of each exponent is zero, so that numbers are finite.
at::Tensor patterned(at::IntArrayRef shape, at::ScalarType dtype) {
  at::Tensor tensor = at::empty(shape, dtype);
  auto* bytes = static_cast<unsigned char*>(tensor.mutable_data_ptr());
  for (size_t i = 0; i < tensor.nbytes(); ++i) {
    bytes[i] = static_cast<unsigned char>(dtype == at::kBool ? i % 2 : (i * 2654435761U) >> 11);
    if (at::isFloatingType(dtype) && (i + 1) % c10::elementSize(dtype) == 0) bytes[i] &= 0xbf;
  }
  return tensor;
}

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = a.contiguous(), right = b.contiguous();
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         (left.nbytes() == 0 || std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0);
}

TEST(Checkpoint, BringsBackEveryTypeAndShapeBitForBit) {
  const core::TempDir directory;
  AnyState state;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte, at::kChar,
                                     at::kShort, at::kInt, at::kLong, at::kBool}) {
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{}, {0}, {0, 3}, {1}, {7}, {3, 5, 7}, {1, 1, 1, 1, 1, 1, 2}}) {
      state.tensors[describe_tensor(dtype, shape)] = patterned(shape, dtype);
    }
  }
  state.tensors["transposed"] = patterned({5, 9}, at::kFloat).t();
  state.tensors["every third"] = patterned({30}, at::kLong).slice(0, 1, 30, 3);
  state.tensors["larger than a read buffer"] = patterned({3, 1 << 19}, at::kFloat);
  const CheckpointInfo saved = CheckpointStore(directory.file("run")).save(12, {}, state);
  EXPECT_EQ(saved.path, directory.file("run/model.ckpt-12"));

  const auto reader = open_checkpoint(saved, nullptr);
  EXPECT_EQ(reader->names().size(), state.tensors.size());
  for (const auto& [name, value] : state.tensors) {
    EXPECT_TRUE(same_bytes(reader->tensor(name), value)) << name;
    at::Tensor plain = at::empty(value.sizes(), value.scalar_type());
    reader->tensor(name, plain);
    EXPECT_TRUE(same_bytes(plain, value)) << name;
  }
  // Into a destination that is not contiguous.
  at::Tensor destination = patterned({5, 9}, at::kFloat).t();
  destination.zero_();
  reader->tensor("transposed", destination);
  EXPECT_TRUE(same_bytes(destination, state.tensors["transposed"]));
}

TEST(Checkpoint, BringsBackEveryKindOfValue) {
  const core::TempDir directory;
  AnyState state;
  state.integers = {{"zero", 0}, {"largest", INT64_MAX}, {"smallest", INT64_MIN}};
  state.reals = {{"whole", 1.0},
                 {"third", 1.0 / 3},
                 {"minus zero", -0.0},
                 {"denormal", std::numeric_limits<double>::denorm_min()},
                 {"large", std::numeric_limits<double>::max()},
                 {"infinity", std::numeric_limits<double>::infinity()},
                 {"minus infinity", -std::numeric_limits<double>::infinity()},
                 {"nan", std::numeric_limits<double>::quiet_NaN()}};
  state.texts = {
      {"empty", ""}, {"quotes", "a \"b\"\n\\"}, {"utf-8", "Größe"}, {"bytes", std::string("\xff\x00\x80", 3)}};
  const CheckpointInfo saved = CheckpointStore(directory.path()).save(0, {}, state);

  const auto reader = open_checkpoint(saved, nullptr);
  for (const auto& [name, value] : state.integers) EXPECT_EQ(reader->integer(name), value) << name;
  for (const auto& [name, value] : state.texts) EXPECT_EQ(reader->text(name), value) << name;
  for (const auto& [name, value] : state.reals) {
    const double loaded = reader->real(name);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(loaded));
    } else {
      EXPECT_EQ(std::memcmp(&loaded, &value, sizeof value), 0) << name;
    }
  }
}

TEST(Checkpoint, ReadersCopyEntriesOfEveryKind) {
  const core::TempDir directory;
  AnyState state;
  state.integers = {{"integer", 5}};
  state.reals = {{"real", 0.25}};
  state.texts = {{"text", "x"}};
  state.tensors["tensor"] = at::arange(3, at::kDouble);
  const auto reader = open_checkpoint(CheckpointStore(directory.path()).save(0, {}, state), nullptr);
  core::MemoryState copy;
  for (const std::string& name : reader->names()) reader->copy(name, copy, "kept/" + name);
  EXPECT_EQ(copy.names(), (std::vector<std::string>{"kept/integer", "kept/real", "kept/tensor", "kept/text"}));
  EXPECT_EQ(copy.integer("kept/integer"), 5);
  EXPECT_EQ(copy.real("kept/real"), 0.25);
  EXPECT_EQ(copy.text("kept/text"), "x");
  EXPECT_TRUE(same_bytes(copy.tensor("kept/tensor"), state.tensors["tensor"]));
  EXPECT_THROW(reader->copy("lost", copy, "lost"), core::Error);
}

// A long save is told from one that makes no progress by what it counts: each 256 KiB of a tensor.
TEST(Checkpoint, SavingCountsAsWork) {
  const core::TempDir directory;
  AnyState state;
  state.tensors["weights"] = patterned({5 << 16}, at::kFloat);
  const uint64_t before = core::work_count();
  CheckpointStore(directory.path()).save(1, {}, state);
  EXPECT_GE(core::work_count() - before, 5U);
}

TEST(Checkpoint, ReadersListNamesByPrefix) {
  const core::TempDir directory;
  AnyState state;
  state.tensors = {{"model/b", patterned({2}, at::kFloat)}, {"model/a", patterned({2}, at::kFloat)}};
  state.integers = {{"model/steps", 1}, {"step", 2}};
  const auto reader = open_checkpoint(CheckpointStore(directory.path()).save(1, {}, state), nullptr);
  EXPECT_EQ(reader->names("model/"), (std::vector<std::string>{"model/a", "model/b", "model/steps"}));
  EXPECT_TRUE(reader->has("step"));
  EXPECT_FALSE(reader->has("model"));
}

TEST(Checkpoint, NamesMissingEntriesAndWrongKinds) {
  const core::TempDir directory;
  AnyState state;
  state.tensors = {{"fc.weight", patterned({2, 3}, at::kFloat)}};
  state.integers = {{"step", 2}};
  const auto reader = open_checkpoint(CheckpointStore(directory.path()).save(1, {}, state), nullptr);
  const auto message = [&](const std::function<void()>& work) {
    const auto error = error_of(work);
    if (!error) return std::string("no error");
    EXPECT_EQ(error->code(), core::ErrorCode::kCorruptData);
    return std::string(error->what());
  };
  EXPECT_THAT(message([&] { reader->tensor("fc.weigth"); }), HasSubstr("nearest: fc.weight"));
  EXPECT_THAT(message([&] { reader->integer("fc.weight"); }), HasSubstr("expected integer, got float32 [2, 3]"));
  EXPECT_THAT(message([&] { reader->real("step"); }), HasSubstr("expected real, got integer"));
  at::Tensor destination = at::empty({3, 2}, at::kFloat);
  EXPECT_THAT(message([&] { reader->tensor("fc.weight", destination); }),
              HasSubstr("tensor fc.weight: expected float32 [3, 2], got float32 [2, 3]"));
  destination = at::empty({2, 3}, at::kDouble);
  EXPECT_THAT(message([&] { reader->tensor("fc.weight", destination); }),
              HasSubstr("expected float64 [2, 3], got float32 [2, 3]"));
}

TEST(Checkpoint, RefusesStateThatCannotBeSavedAndLeavesNothing) {
  const core::TempDir directory;
  CheckpointStore store(directory.path());
  AnyState undefined, twice, nameless, complex;
  undefined.tensors = {{"a", at::Tensor()}};
  twice.tensors = {{"a", patterned({1}, at::kFloat)}};
  twice.integers = {{"a", 1}};
  nameless.integers = {{"", 1}};
  complex.tensors = {{"a", at::empty({1}, at::kComplexFloat)}};
  for (const AnyState* state : {&undefined, &twice, &nameless}) {
    const auto error = error_of([&] { store.save(1, {}, *state); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), core::ErrorCode::kInvalidArgument) << error->what();
  }
  const auto error = error_of([&] { store.save(1, {}, complex); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), core::ErrorCode::kUnsupported) << error->what();
  EXPECT_TRUE(error_of([&] { store.save(1, {.model = "\xff"}, VersionedState(1)); }));
  EXPECT_TRUE(error_of([&] { store.save(-1, {}, VersionedState(1)); }));
  EXPECT_TRUE(core::local_file_system().list(directory.path()).empty());
}

TEST(CheckpointIdentity, AnotherModelIsAnErrorWithBothNames) {
  const core::TempDir directory;
  const CheckpointIdentity identity{.model = "resnet20", .dataset = "cifar10", .num_classes = 10};
  const CheckpointInfo saved = CheckpointStore(directory.path()).save(1, identity, VersionedState(1));
  EXPECT_EQ(read_checkpoint_identity(saved).dataset, "cifar10");
  EXPECT_EQ(read_checkpoint_identity(saved).num_classes, 10);
  const CheckpointIdentity same_or_any{.model = "resnet20", .dataset = "", .num_classes = 0};
  EXPECT_NO_THROW(open_checkpoint(saved, &identity));
  EXPECT_NO_THROW(open_checkpoint(saved, &same_or_any));
  for (const auto& [expected, words] : std::vector<std::pair<CheckpointIdentity, std::string>>{
           {{.model = "resnet56"}, "expected resnet56, got resnet20"},
           {{.model = "resnet20", .dataset = "shapes"}, "expected shapes, got cifar10"},
           {{.model = "resnet20", .num_classes = 12}, "expected 12, got 10"}}) {
    const auto error = error_of([&saved, wanted = &expected] { open_checkpoint(saved, wanted); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), core::ErrorCode::kInvalidArgument);
    EXPECT_THAT(error->what(), HasSubstr(words));
    EXPECT_THAT(error->what(), HasSubstr("model.ckpt-1"));
  }
}

TEST(CheckpointLoad, ListsEverythingThatDoesNotFit) {
  const core::TempDir directory;
  AnyState saved, other;
  saved.tensors = {{"fc.weight", patterned({10, 64}, at::kFloat)}, {"old", patterned({1}, at::kFloat)}};
  other.tensors = {{"fc.weight", patterned({12, 64}, at::kFloat)}, {"new", patterned({1}, at::kFloat)}};
  const CheckpointInfo info = CheckpointStore(directory.path()).save(1, {}, saved);
  const auto error = error_of([&] { load_checkpoint(info, nullptr, other); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), core::ErrorCode::kCorruptData);
  EXPECT_THAT(error->what(),
              HasSubstr("missing in the checkpoint: new; only in the checkpoint: old; of another shape or "
                        "type: fc.weight is float32 [12, 64], saved as float32 [10, 64]"));
}

TEST(CheckpointLoad, SavedEntriesThatNobodyWantsAreNoError) {
  const core::TempDir directory;
  AnyState saved, part;
  saved.integers = {{"wanted", 1}, {"unwanted", 2}};
  part.integers = {{"wanted", 0}};
  load_checkpoint(CheckpointStore(directory.path()).save(1, {}, saved), nullptr, part);
  EXPECT_EQ(part.integers["wanted"], 1);
}

TEST(CheckpointStore, KeepsTheNewestAndListsByStep) {
  const core::TempDir directory;
  CheckpointStore store(directory.path(), 3);
  EXPECT_FALSE(CheckpointStore(directory.file("none")).latest());
  for (const int64_t step : {2, 10, 100, 9}) store.save(step, {}, VersionedState(step));
  std::vector<int64_t> steps;
  for (const CheckpointInfo& info : store.list()) steps.push_back(info.global_step);
  EXPECT_EQ(steps, (std::vector<int64_t>{9, 10, 100}));
  // A run that starts over below existing steps keeps the checkpoint it has just made.
  store.save(1, {}, VersionedState(1));
  steps.clear();
  for (const CheckpointInfo& info : store.list()) steps.push_back(info.global_step);
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 10, 100}));
  EXPECT_EQ(latest_version(directory.path()), 100);

  CheckpointStore all(directory.path(), 0);
  for (int64_t step = 200; step < 210; ++step) all.save(step, {}, VersionedState(step));
  EXPECT_EQ(all.list().size(), 13U);
}

TEST(CheckpointStore, ReplacesACheckpointOfTheSameStep) {
  const core::TempDir directory;
  CheckpointStore store(directory.path());
  store.save(7, {}, VersionedState(1));
  store.save(7, {}, VersionedState(2));
  EXPECT_EQ(latest_version(directory.path()), 2);
  EXPECT_EQ(core::local_file_system().list(directory.path()), std::vector<std::string>{"model.ckpt-7"});
}

TEST(CheckpointStore, CleansUpItsOwnLeftoversOnly) {
  const core::TempDir directory;
  core::FileSystem& files = core::local_file_system();
  CheckpointStore store(directory.path());
  store.save(1, {}, VersionedState(1));
  const std::vector<std::string> foreign{"model.ckpt-1.tmp-backup", "model.ckpt-x", "my.ckpt-1.tmp-1-1",
                                         "model.ckpt-1.tmp-1-1.txt", "model.ckpt-99999999999999999999"};
  for (const std::string& name : foreign) files.make_directories(directory.file(name));
  files.make_directories(directory.file("model.ckpt-5.tmp-123-0"));
  files.write_file_atomically(directory.file("model.ckpt-5.tmp-123-0/tensors.bin"), "half");
  files.rename(directory.file("model.ckpt-1"), directory.file("model.ckpt-1.replaced-123-4"));
  // Killed between two renames: the replaced one is still found, and gets its name back.
  EXPECT_EQ(latest_version(directory.path()), 1);
  store.save(2, {}, VersionedState(2));
  std::vector<std::string> expected{foreign};
  expected.insert(expected.end(), {"model.ckpt-1", "model.ckpt-2"});
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(files.list(directory.path()), expected);
}

TEST(FindCheckpoint, TakesACheckpointOrADirectoryOfThem) {
  const core::TempDir directory;
  CheckpointStore store(directory.path());
  store.save(3, {}, VersionedState(3));
  store.save(12, {}, VersionedState(12));
  EXPECT_EQ(find_checkpoint(directory.path() + "/").global_step, 12);
  EXPECT_EQ(find_checkpoint(directory.file("model.ckpt-3")).global_step, 3);
  EXPECT_EQ(find_checkpoint(directory.file("model.ckpt-3/")).global_step, 3);

  core::local_file_system().rename(directory.file("model.ckpt-12"), directory.file("best"));
  EXPECT_EQ(find_checkpoint(directory.file("best")).global_step, 12);
  core::local_file_system().make_directories(directory.file("empty"));
  for (const char* name : {"empty", "none"}) {
    const auto error = error_of([&] { find_checkpoint(directory.file(name)); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), core::ErrorCode::kNotFound);
    EXPECT_THAT(error->what(), HasSubstr("No checkpoint file found in dir:" + directory.file(name)));
  }
}

TEST(CheckpointStore, AFileWhereTheDirectoryShouldBeIsAnError) {
  const core::TempDir directory;
  core::local_file_system().write_file_atomically(directory.file("run"), "");
  const auto error = error_of([&] { CheckpointStore(directory.file("run")).save(1, {}, VersionedState(1)); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), core::ErrorCode::kIo);
  EXPECT_THAT(error->what(), HasSubstr(directory.file("run")));
}

TEST(FindCheckpoint, RefusesACheckpointOfTensorFlow) {
  const core::TempDir directory;
  core::FileSystem& files = core::local_file_system();
  const auto write = [&files](const std::string& path) { files.write_file_atomically(path, "x"); };
  write(directory.file("model.ckpt-7.index"));
  write(directory.file("model.ckpt-7.data-00000-of-00001"));
  CheckpointStore store(directory.path());
  VersionedState state(1);
  const std::vector<std::string> before = files.list(directory.path());
  const std::vector<std::function<void()>> readers = {
      [&] { find_checkpoint(directory.path()); },
      [&] { find_checkpoint(directory.file("model.ckpt-7")); },
      [&] { open_newest_checkpoint(directory.path(), nullptr); },
      [&] { open_newest_checkpoint(directory.path(), nullptr, DamagedCheckpoints::kPassOver); },
      [&] { resume_newest_checkpoint(store, nullptr, state); },
      [&] { resume_newest_checkpoint(store, nullptr, state, DamagedCheckpoints::kSetAside); },
      [&] { store.latest(); },
      [&] { store.save(1, {}, state); },
      [&] { store.save_best(1, {}, state); }};
  for (size_t i = 0; i < readers.size(); ++i) {
    const auto error = error_of(readers[i]);
    ASSERT_TRUE(error) << i;
    EXPECT_EQ(error->code(), core::ErrorCode::kUnsupported) << i;
    EXPECT_THAT(error->what(), HasSubstr("checkpoint of TensorFlow")) << i;
  }
  EXPECT_EQ(files.list(directory.path()), before);

  // A training that has saved already is not ended by what somebody copies beside it.
  const core::TempDir own;
  CheckpointStore training(own.path());
  training.save(1, {}, state);
  write(own.file("model.ckpt-7.index"));
  training.save(2, {}, state);
  EXPECT_EQ(training.list().size(), 2U);
}

TEST(FindCheckpoint, TellsWhatAFolderWithoutOneHolds) {
  const core::TempDir directory;
  core::FileSystem& files = core::local_file_system();
  const std::string folder = directory.file("folder");
  const auto inside = [&folder](const std::string& name) { return core::join_path(folder, name); };
  const auto message = [](const std::string& path) {
    const auto error = error_of([&] { find_checkpoint(path); });
    return error ? std::string(error->what()) : "no error";
  };
  files.make_directories(inside("h"));
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g"}) files.write_file_atomically(inside(name), "x");
  EXPECT_THAT(message(folder), HasSubstr("got a, b, c, d, e, f, g, h/; check --train_dir"));
  files.write_file_atomically(inside("i.pth"), "x");
  EXPECT_THAT(message(folder),
              HasSubstr("got a, b, c, d, e, f, g, h/, ... (9 names); pass --weights=" + inside("i.pth")));
  CheckpointStore(inside("h")).save(3, {}, VersionedState(3));
  EXPECT_THAT(message(folder), HasSubstr("; pass --train_dir=" + inside("h")));
  EXPECT_THAT(message(directory.file("none")), HasSubstr("got no such directory; "));
  EXPECT_THAT(message(inside("a")), HasSubstr("got a file; check --train_dir"));
  const auto passing = error_of([&] { open_newest_checkpoint(inside("a"), nullptr, DamagedCheckpoints::kPassOver); });
  ASSERT_TRUE(passing.has_value());
  EXPECT_THAT(passing->what(), HasSubstr("got a file; check --train_dir"));
}

// What a best checkpoint is the best by, and what other ranks keep of compressed gradients, are read by others.
TEST(CheckpointLoad, WarnsOfWhatTheRunHasNoUseFor) {
  const core::TempDir directory;
  AnyState saved, part;
  saved.integers = {{"wanted", 1}, {"compression/steps", 3}};
  saved.reals = {{"best/value", 0.5}};
  saved.texts = {{"best/metric", "loss"}};
  part.integers = {{"wanted", 0}};
  const auto log_of_loading = [&] {
    const CheckpointInfo info = CheckpointStore(directory.path()).save(1, {}, saved);
    ::testing::internal::CaptureStderr();
    load_checkpoint(info, nullptr, part);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(log_of_loading(), "");
  saved.integers["unwanted"] = 2;
  EXPECT_THAT(log_of_loading(),
              HasSubstr("model.ckpt-1: only in the checkpoint: unwanted; this run has no use for them"));
}

}  // namespace
}  // namespace trainyard::train::checkpoint_test
