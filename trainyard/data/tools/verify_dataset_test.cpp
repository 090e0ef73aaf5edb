#include "trainyard/data/tools/verify_dataset.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/data/testing/coco_folder.h"
#include "trainyard/data/testing/dataset_folder.h"

namespace trainyard::data::verify_dataset_test {
namespace {

using core::ErrorCode;

class VerifyDataset : public DatasetFolderTest {
 protected:
  void write_few_shapes() {
    write_shapes({.train_count = 6, .validation_count = 2, .image_size = 16, .train_shards = 2}, temp_.file("shapes"));
  }
};

TEST_F(VerifyDataset, WithoutAnySubsetIsAnError) {
  files_.make_directories(temp_.file("empty"));
  EXPECT_EQ(core::code_of([&] { verify_dataset({.name = "imagenet", .directory = temp_.file("empty")}); }),
            ErrorCode::kNotFound);
}

// The damage is told once, with the training's archive.
TEST_F(VerifyDataset, ADamagedTrainingArchiveLeavesTheValidationImagesToBeRead) {
  write("train.tar", std::string(1024, 'x'));
  write_tar("val.tar", {{"0.jpg", jpeg_text(noisy_image(8, 8))}, {"0.cls", "cat"}});
  const VerifiedSamples found = verify_dataset({.name = "imagenet", .directory = temp_.path()});
  EXPECT_EQ(found.train, 0);
  EXPECT_EQ(found.validation, 1);
  EXPECT_EQ(found.bad, 1);
}

TEST_F(VerifyDataset, ADamagedIndexLeavesTheRecordsToBeRead) {
  write_few_shapes();
  write("shapes/idx/train-00000-of-00002.idx", "not an index\n");
  const VerifiedSamples found = verify_dataset({.name = "shapes", .directory = temp_.file("shapes")});
  EXPECT_EQ(found.train, 6);
  EXPECT_EQ(found.validation, 2);
  EXPECT_EQ(found.bad, 1);
}

TEST_F(VerifyDataset, EndsWhereItIsStopped) {
  write_few_shapes();
  core::StopSource stop;
  stop.request_stop(core::StopReason::kRequested, "enough");
  EXPECT_EQ(core::code_of(
                [&] { verify_dataset({.name = "shapes", .directory = temp_.file("shapes"), .stop = stop.token()}); }),
            ErrorCode::kCancelled);
}

TEST_F(VerifyDataset, AnImageThatCannotBeOpenedIsABadSample) {
  write("train/cat/1.jpg", jpeg_text(noisy_image(8, 8)));
  std::filesystem::create_symlink("nowhere", temp_.file("train/cat/2.jpg"));
  const VerifiedSamples found = verify_dataset({.name = "imagenet", .directory = temp_.path()});
  EXPECT_EQ(found.train, 2);
  EXPECT_EQ(found.bad, 1);
}

}  // namespace
}  // namespace trainyard::data::verify_dataset_test
