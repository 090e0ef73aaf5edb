#include "trainyard/data/sources/folder_source.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::data::folder_source_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr;

class Folder : public ::testing::Test {
 protected:
  const core::TempDir temp_;
  const std::string root_ = temp_.file("flowers");

  void add(const std::string& kind, int count, uint8_t value) const {
    const std::string folder = core::join_path(root_, kind);
    core::local_file_system().make_directories(folder);
    for (int i = 0; i < count; ++i) {
      const auto bytes = encode_png(noisy_image(20 + i, 24, value + static_cast<uint64_t>(i)));
      std::ofstream(core::join_path(folder, "image" + std::to_string(i) + ".png"), std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    }
  }
  void SetUp() override {
    add("rose", 5, 10);
    add("daisy", 4, 100);
    add("tulip", 2, 200);
  }
};

TEST_F(Folder, ClassesAreNumberedByName) {
  const auto source = open_folder(root_, {.size = 16, .batch_size = 4, .training = false});
  EXPECT_THAT(source->classes(), ElementsAre("daisy", "rose", "tulip"));
  EXPECT_EQ(source->samples(), 11);
  EXPECT_EQ(source->batches_per_epoch(), 2);
  EXPECT_EQ(source->transform().height, 16);
  EXPECT_EQ(source->transform().eval_resize_size, 18);  // 256 for 224
  EXPECT_FALSE(source->transform().training);
}

TEST_F(Folder, AnEvaluationSeesEachImageOnceAndAgain) {
  const auto source = open_folder(root_, {.size = 16, .batch_size = 4, .training = false});
  for (int round = 0; round < 2; ++round) {
    std::vector<int64_t> labels;
    for (auto batches = source->next(); !batches.empty(); batches = source->next()) {
      ASSERT_EQ(batches.size(), 1U);
      EXPECT_EQ(batches[0].images().sizes().slice(1), at::IntArrayRef({3, 16, 16}));
      for (int64_t i = 0; i < batches[0].samples(); ++i) labels.push_back(batches[0].labels()[i].item<int64_t>());
    }
    EXPECT_THAT(labels, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2));
    source->seek({});
  }
}

TEST_F(Folder, TrainingShufflesEachEpochOverAllClasses) {
  const auto source = open_folder(root_, {.size = 16, .batch_size = 11, .seed = 1});
  std::vector<std::vector<int64_t>> epochs;
  for (int epoch = 0; epoch < 2; ++epoch) {
    const Batch batch = source->next()[0];
    std::vector<int64_t>& labels = epochs.emplace_back();
    for (int64_t i = 0; i < 11; ++i) labels.push_back(batch.labels()[i].item<int64_t>());
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_FALSE(std::is_sorted(epochs[0].begin(), epochs[0].end()));
  for (auto& labels : epochs) {
    std::sort(labels.begin(), labels.end());
    EXPECT_THAT(labels, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2));
  }
}

// Another number of threads, and a new source that begins in the middle of the second epoch.
TEST_F(Folder, GoesOnInMidEpochWithTheSameBytes) {
  for (const Augment augment : {Augment::kColors, Augment::kTrivialAugment}) {
    const FolderOptions options{.size = 16, .batch_size = 3, .augment = augment, .seed = 4, .worker_threads = 1};
    const auto whole = open_folder(root_, options);
    for (int i = 0; i < 5; ++i) whole->next();
    core::MemoryState saved;
    whole->save(saved);
    FolderOptions others = options;
    others.worker_threads = 3;
    const auto resumed = open_folder(root_, others);
    resumed->load(saved);
    EXPECT_EQ(resumed->position(), whole->position());
    for (int i = 0; i < 4; ++i) {
      const Batch a = whole->next()[0], b = resumed->next()[0];
      EXPECT_TRUE(at::equal(a.images(), b.images()));
      EXPECT_TRUE(at::equal(a.labels(), b.labels()));
    }
  }
}

TEST_F(Folder, ReplicasTakePartsOfTheSameBatch) {
  const auto one = open_folder(root_, {.size = 16, .batch_size = 4, .seed = 4});
  const auto two = open_folder(root_, {.size = 16, .batch_size = 2, .seed = 4, .replicas = 2});
  const auto second =
      open_folder(root_, {.size = 16, .batch_size = 2, .seed = 4, .first_replica = 1, .total_replicas = 2});
  const Batch all = one->next()[0];
  const std::vector<Batch> halves = two->next();
  EXPECT_TRUE(at::equal(halves[0].labels(), all.labels().slice(0, 0, 2)));
  EXPECT_TRUE(at::equal(halves[1].labels(), all.labels().slice(0, 2, 4)));
  EXPECT_TRUE(at::equal(second->next()[0].images(), halves[1].images()));
}

// What each kind of augmentation does to the images, by whether they are those of the evaluation.
TEST_F(Folder, AugmentsAsAsked) {
  const auto images = [&](FolderOptions options) {
    options.size = 16;
    options.batch_size = 11;
    options.seed = 7;
    return open_folder(root_, options)->next()[0].images();
  };
  const at::Tensor plain = images({.augment = Augment::kNone});
  const at::Tensor evaluation = images({.training = false});
  EXPECT_TRUE(at::equal(std::get<0>(plain.flatten(1).sum(1).sort()), std::get<0>(evaluation.flatten(1).sum(1).sort())));
  std::vector<at::Tensor> seen{plain};
  for (const Augment augment :
       {Augment::kCropAndFlip, Augment::kColors, Augment::kTrivialAugment, Augment::kRandAugment}) {
    const at::Tensor now = images({.augment = augment});
    for (const at::Tensor& other : seen) EXPECT_FALSE(at::equal(now, other)) << static_cast<int>(augment);
    seen.push_back(now);
  }
}

TEST_F(Folder, KnownClassesNumberTheLabels) {
  const auto source = open_folder(
      root_, {.size = 16, .batch_size = 11, .training = false, .classes = {"tulip", "violet", "rose", "daisy"}});
  EXPECT_THAT(source->classes(), ElementsAre("tulip", "violet", "rose", "daisy"));
  std::map<int64_t, int> counts;
  const Batch batch = source->next()[0];
  for (int64_t i = 0; i < 11; ++i) ++counts[batch.labels()[i].item<int64_t>()];
  EXPECT_EQ(counts, (std::map<int64_t, int>{{0, 2}, {2, 5}, {3, 4}}));
  EXPECT_THAT(core::message_of([&] { open_folder(root_, {.classes = {"tulip", "daisy"}}); }), HasSubstr("rose"));
}

TEST_F(Folder, WhatCannotBeIsSaid) {
  const auto code = core::ErrorCode::kNotFound;
  EXPECT_THAT(core::message_of([&] { open_folder(temp_.file("none")); }, code), HasSubstr("none"));
  EXPECT_THAT(core::message_of([&] { open_folder(root_ + "/rose/image0.png"); }, code), HasSubstr("a file"));
  EXPECT_THAT(core::message_of([&] { open_folder(root_ + "/rose"); }, code), HasSubstr("no images"));
  EXPECT_THAT(core::message_of([&] { open_folder(root_, {.size = 0}); }), HasSubstr("the size of the images"));
  EXPECT_THAT(core::message_of([&] { open_folder(root_, {.batch_size = 0}); }), HasSubstr("the batch size"));
  EXPECT_THAT(core::message_of([&] { open_folder(root_, {.replicas = 2, .total_replicas = 1}); }),
              HasSubstr("the number of all replicas"));
  const auto problem = [](const FolderOptions& options) { return core::message_of([&] { options.validate(); }); };
  EXPECT_THAT(problem({.division = {.validation = 1.5}}),
              HasSubstr("part of the images for validation is out of range"));
  EXPECT_THAT(problem({.replicas = 0}), core::Says("the number of replicas", "expected at least 1, got 0"));
  EXPECT_THAT(problem({.first_replica = -1}), core::Says("the first replica", "expected at least 0, got -1"));
  EXPECT_THAT(problem({.worker_threads = -1}), core::Says("worker threads", "expected at least 0, got -1"));
  EXPECT_THAT(problem({.replicas = 2, .first_replica = 1, .total_replicas = 2}),
              core::Says("the number of all replicas", "expected at least 3, got 2"));
  EXPECT_EQ(problem({.replicas = 2, .first_replica = 1, .total_replicas = 3}), "no error");
}

TEST_F(Folder, PartsShareNoImage) {
  const auto open = [&](FolderPart part) {
    return open_folder(root_, {.size = 16, .batch_size = 4, .training = false, .part = part});
  };
  const auto whole = open(FolderPart::kAll), train = open(FolderPart::kTraining), rest = open(FolderPart::kValidation);
  EXPECT_GT(rest->samples(), 0);
  EXPECT_EQ(train->samples() + rest->samples(), whole->samples());
  EXPECT_EQ(rest->classes(), train->classes());
  EXPECT_FALSE(train->shares_images_with(*rest));
  EXPECT_TRUE(train->shares_images_with(*whole));
  EXPECT_TRUE(train->shares_images_with(*train));
  EXPECT_TRUE(whole->shares_images_with(*open_folder(root_ + "/", {.size = 16})));
  // Parts of another division.
  const auto half = open_folder(
      root_, {.size = 16, .training = false, .part = FolderPart::kValidation, .division = {.validation = 0.5}});
  EXPECT_GT(half->samples(), rest->samples());
  EXPECT_TRUE(train->shares_images_with(*half));
}

TEST_F(Folder, AnEpochHasAsManyBatchesAsGlobalBatchesFit) {
  const auto batches = [&](const FolderOptions& options) { return open_folder(root_, options)->batches_per_epoch(); };
  EXPECT_EQ(batches({.size = 16, .batch_size = 2, .replicas = 2}), 2);
  EXPECT_EQ(batches({.size = 16, .batch_size = 1, .replicas = 1, .first_replica = 2, .total_replicas = 3}), 3);
  EXPECT_EQ(batches({.size = 16, .batch_size = 11}), 1);
  EXPECT_EQ(batches({.size = 16, .batch_size = 12}), 1) << "one at least";
}

}  // namespace
}  // namespace trainyard::data::folder_source_test
