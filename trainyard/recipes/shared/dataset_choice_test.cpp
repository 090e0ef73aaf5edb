#include "trainyard/recipes/shared/dataset_choice.h"

#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::recipes {
namespace {

TEST(NamedDataset, ByNameByPathOrSynthetic) {
  EXPECT_EQ(named_dataset("", ""), "imagenet");
  EXPECT_EQ(named_dataset("cifar10", ""), "cifar10");
  EXPECT_EQ(named_dataset("", "/data/imagenet_sample"), "imagenet");
  EXPECT_EQ(named_dataset("", "/data/cifar10"), "cifar10");
  EXPECT_EQ(named_dataset("", "/data/shapes"), "shapes");
  EXPECT_EQ(named_dataset("", "/cifar10/imagenet"), "imagenet");  // the first of the list, not of the path
  EXPECT_EQ(named_dataset("shapes", "/data/imagenet"), "shapes");
  EXPECT_EQ(named_dataset("", "/no/where"), std::nullopt);  // nobody has looked
}

TEST(NamedDataset, RefusesWhatIsNotCovered) {
  for (const auto& [name, directory] : {std::pair{"coco", ""}, {"librispeech", ""}, {"", "/data/coco/2017"}}) {
    const core::Error error = core::thrown_by([&, n = name, d = directory] { named_dataset(n, d); });
    EXPECT_EQ(error.code(), core::ErrorCode::kUnsupported) << name << directory;
  }
  EXPECT_EQ(core::thrown_by([] { named_dataset("mnist", ""); }).detail().problem,
            "Unknown dataset. Must be one of cifar10, coco, imagenet, librispeech, shapes");
}

TEST(ChooseDataset, SaysThatAFolderIsNotThere) {
  const core::Error error = core::thrown_by([] { choose_dataset("", "/no/where"); });
  EXPECT_EQ(error.code(), core::ErrorCode::kNotFound);
  EXPECT_EQ(error.detail().problem, "data directory does not exist");
  EXPECT_EQ(error.detail().where, "/no/where");
}

TEST(ChooseDataset, LooksIntoTheDirectoryOnce) {
  const core::TempDir directory;
  core::FileSystem& files = core::local_file_system();
  files.make_directories(directory.file("pets/train/cat"));
  files.make_directories(directory.file("pets/val/cat"));
  const DatasetChoice choice = choose_dataset("", directory.file("pets"));
  EXPECT_EQ(choice.name, "imagenet");
  EXPECT_EQ(choice.form, data::Form::kClassFolders);
  // What the choice has seen is not looked at again: the label is the same when the folder has gone.
  EXPECT_EQ(folder_label(choice, directory.file("pets")), "pets");
  files.remove_tree(directory.file("pets"));
  EXPECT_EQ(folder_label(choice, directory.file("pets")), "pets");
  EXPECT_EQ(folder_label({.name = "imagenet", .form = data::Form::kTfRecords}, "/no/where"), "imagenet");
}

TEST(ChooseDataset, CannotNameAnEmptyDirectory) {
  const core::TempDir directory;
  EXPECT_EQ(core::thrown_by([&] { choose_dataset("", directory.path()); }).detail().problem,
            "Could not identify name of dataset. Please specify with --data_name option.");
  EXPECT_EQ(choose_dataset("", directory.path(), "imagenet").name, "imagenet");
}

}  // namespace
}  // namespace trainyard::recipes
