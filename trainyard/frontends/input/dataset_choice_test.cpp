#include "trainyard/frontends/input/dataset_choice.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/formats/records/tf_example.h"
#include "trainyard/formats/records/tfrecord.h"
#include "trainyard/models/registry/model_registry.h"

namespace trainyard::frontends::dataset_choice_test {
namespace {

TEST(NamedDataset, ByNameOrSynthetic) {
  EXPECT_EQ(named_dataset("", ""), "imagenet");
  EXPECT_EQ(named_dataset("cifar10", ""), "cifar10");
  EXPECT_EQ(named_dataset("shapes", "/data/imagenet"), "shapes");
  EXPECT_EQ(named_dataset("", "/data/cifar10"), std::nullopt);  // nobody has looked
}

TEST(ChooseDataset, ByThePathAsInTfCnnBenchmarks) {
  EXPECT_EQ(choose_dataset("", "/data/imagenet_sample").name, "imagenet");
  EXPECT_EQ(choose_dataset("", "/data/cifar10").name, "cifar10");
  EXPECT_EQ(choose_dataset("", "/data/shapes").name, "shapes");
  EXPECT_EQ(choose_dataset("", "/data/coco/2017").name, "coco");
  EXPECT_EQ(choose_dataset("", "/cifar10/imagenet").name, "imagenet");  // the first of the list, not of the path
}

TEST(NamedDataset, RefusesWhatIsNotCovered) {
  for (const auto& [name, directory] : {std::pair{"librispeech", ""}, {"", "/data/librispeech/clean"}}) {
    const core::Error error = core::thrown_by([&, n = name, d = directory] { choose_dataset(n, d); });
    EXPECT_EQ(error.code(), core::ErrorCode::kUnsupported) << name << directory;
  }
  EXPECT_EQ(core::thrown_by([] { named_dataset("mnist", ""); }).detail().problem,
            "Unknown dataset. Must be one of cifar10, coco, imagenet, librispeech, shapes");
}

TEST(ChooseDataset, AnnotationsMakeAFolderCoco) {
  const core::TempDir directory;
  core::FileSystem& files = core::local_file_system();
  for (const std::string subset : {"train2017", "val2017"}) {
    const std::string folder = directory.file("pictures_of_" + subset);
    files.make_directories(core::join_path(folder, "annotations"));
    files.write_file_atomically(core::join_path(folder, "annotations/instances_" + subset + ".json"), "{}");
    EXPECT_EQ(choose_dataset("", folder).name, "coco") << subset;
  }
}

// Processes that write shards side by side may leave some of them empty.
TEST(ChooseDataset, EmptyShardsDecideNothing) {
  const core::TempDir directory;
  core::FileSystem& files = core::local_file_system();
  const auto png = data::encode_png(data::flat_image(48, 48, 100));
  formats::ExampleBuilder example;
  example.add_bytes(formats::kImageEncoded, {reinterpret_cast<const char*>(png.data()), png.size()});
  example.add_int64(formats::kImageClassLabel, 2);
  example.add_bytes(formats::kImageClassText, data::shape_names()[2]);
  for (const char* name : {"train-00000-of-00003", "train-00002-of-00003"}) {
    files.write_file_atomically(directory.file(name), "");
  }
  formats::TfRecordWriter writer(files.open_write(directory.file("train-00001-of-00003")));
  writer.write(example.build());
  writer.close();
  EXPECT_EQ(choose_dataset("", directory.path()).name, "shapes");
  files.write_file_atomically(directory.file("train-00001-of-00003"), "");
  EXPECT_EQ(core::thrown_by([&] { choose_dataset("", directory.path()); }).detail().where,
            directory.file("train-00000-of-00003"));
}

// A folder of photographs may be called anything.
TEST(ChooseDataset, ThePathOfClassFoldersDecidesNothing) {
  const core::TempDir directory;
  core::FileSystem& files = core::local_file_system();
  const auto write = [&](const std::string& name, int side) {
    const auto bytes = data::encode_png(data::flat_image(side, side, 100));
    files.make_directories(core::parent_path(directory.file(name)));
    files.write_file_atomically(directory.file(name), {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  };
  for (const std::string folder : {"shapes_of_leaves", "my_cifar10", "coco_photos"}) {
    write(folder + "/train/round/1.png", 40);
    write(folder + "/train/long/1.png", 40);
    EXPECT_EQ(choose_dataset("", directory.file(folder)).name, "imagenet") << folder;
  }
  // What they hold does: the classes of CIFAR-10, in images of its size.
  for (const std::string& name : data::cifar10_class_names()) {
    write("small/train/" + name + "/1.png", 32);
    write("large/train/" + name + "/1.png", 96);
  }
  EXPECT_EQ(choose_dataset("", directory.file("small")).name, "cifar10");
  EXPECT_EQ(choose_dataset("", directory.file("large")).name, "imagenet");
}

// Where no image shows the size, the names of the classes decide.
TEST(ChooseDataset, ClassFoldersWithoutImagesAreKnownByTheirNames) {
  const core::TempDir directory;
  for (const std::string& name : data::cifar10_class_names()) {
    for (const std::string subset : {"train", "val"}) {
      core::local_file_system().make_directories(directory.file("new/" + subset + "/" + name));
    }
  }
  EXPECT_EQ(choose_dataset("", directory.file("new")).name, "cifar10");
}

TEST(ChooseDataset, SaysWhatTheFolderHolds) {
  const core::TempDir directory;
  core::FileSystem& files = core::local_file_system();
  for (const char* folder : {"batches", "binary", "boxes/annotations", "pets/train/cat", "pets/val/cat"}) {
    files.make_directories(directory.file(folder));
  }
  files.write_file_atomically(directory.file("batches/data_batch_1"), "x");
  files.write_file_atomically(directory.file("binary/data_batch_1.bin"), "x");
  files.write_file_atomically(directory.file("boxes/annotations/instances_train2017.json"), "{}");
  for (const auto& [folder, said] : {std::pair{"batches", "data_dir holds CIFAR-10 batches: --data_name=cifar10"},
                                     {"binary", "data_dir holds CIFAR-10 batches: --data_name=cifar10"},
                                     {"boxes", "data_dir holds COCO's annotations or records: --data_name=coco"},
                                     {"pets", "data_dir holds images by class: --data_name=imagenet"}}) {
    ::testing::internal::CaptureStderr();
    static_cast<void>(choose_dataset("", directory.file(folder)));
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find(said), std::string::npos) << folder << ": " << log;
  }
}

// For an evaluation the test batch is enough. A class may be called so, too.
TEST(ChooseDataset, OneBatchOfCifarIsEnough) {
  const core::TempDir directory;
  core::FileSystem& files = core::local_file_system();
  for (const char* name : {"test_batch", "test_batch.bin", "data_batch_5", "data_batch_5.bin"}) {
    const std::string folder = directory.file(std::string("of_") + name);
    files.make_directories(folder);
    files.write_file_atomically(core::join_path(folder, name), "x");
    EXPECT_EQ(choose_dataset("", folder).name, "cifar10") << name;
  }
  files.make_directories(directory.file("photos/test_batch"));
  files.write_file_atomically(directory.file("photos/test_batch/1.png"), "x");
  EXPECT_EQ(choose_dataset("", directory.file("photos")).name, "imagenet");
}

// A data set of which nothing but its labels is asked.
class Labels : public data::Dataset {
 public:
  Labels(int64_t first, size_t named) : first_(first), named_(named) {}
  int64_t size() const override { return 1; }
  core::Result<data::Record> read(int64_t) const override {
    return core::Error(core::ErrorCode::kNotFound, "there are no images");
  }
  int64_t label_count() const override { return first_ + static_cast<int64_t>(named_); }
  int64_t first_label() const override { return first_; }
  std::vector<std::string> label_names() const override { return std::vector<std::string>(named_, "a class"); }

 private:
  int64_t first_;
  size_t named_;
};

TEST(LabelOffset, MovesLabelsOfImagenetAlone) {
  const models::DatasetInfo &imagenet = models::find_dataset("imagenet"), &cifar10 = models::find_dataset("cifar10");
  ASSERT_EQ(imagenet.benchmark_classes, imagenet.num_classes + 1) << "with the background";
  EXPECT_EQ(label_offset(Labels(1, 0), imagenet, imagenet.num_classes), -1);
  EXPECT_EQ(label_offset(Labels(1, 0), imagenet, imagenet.benchmark_classes), 0);
  EXPECT_EQ(label_offset(Labels(0, 0), imagenet, imagenet.num_classes), 0);
  EXPECT_EQ(label_offset(Labels(0, 0), imagenet, imagenet.benchmark_classes), 1);
  EXPECT_EQ(label_offset(Labels(1, 0), imagenet, 7), 0) << "labels without names are the model's";
  EXPECT_EQ(label_offset(Labels(1, 7), imagenet, 7), -1);
  EXPECT_EQ(label_offset(Labels(1, 0), cifar10, cifar10.num_classes), 0);
  EXPECT_EQ(label_offset(Labels(0, 0), cifar10, imagenet.benchmark_classes), 0);
}

TEST(LabelOffset, EachNamedClassNeedsAnOutput) {
  const models::DatasetInfo &imagenet = models::find_dataset("imagenet"), &cifar10 = models::find_dataset("cifar10");
  const auto message = [](const Labels& labels, const models::DatasetInfo& info, int64_t num_classes) {
    return core::message_of([&] { static_cast<void>(label_offset(labels, info, num_classes)); });
  };
  const std::string problem = "data set has more classes than the model: expected at most ";
  EXPECT_EQ(message(Labels(1, 10), cifar10, 11), "no error");
  EXPECT_EQ(message(Labels(1, 10), cifar10, 10), problem + "9, got 10; pass --num_classes=10") << "output 0 has none";
  EXPECT_EQ(message(Labels(0, 10), cifar10, 10), "no error");
  EXPECT_EQ(message(Labels(0, 10), cifar10, 9), problem + "9, got 10; pass --num_classes=10");
  EXPECT_EQ(message(Labels(3, 0), cifar10, 2), "no error") << "how many classes there are is not known";
  EXPECT_EQ(message(Labels(0, 1000), imagenet, 1001), "no error");
  EXPECT_EQ(message(Labels(0, 1001), imagenet, 1001), problem + "1000, got 1001; pass --num_classes=1001");
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

TEST(ChooseDataset, AFolderHasANameHoweverItIsWritten) {
  const DatasetChoice folders{.name = "imagenet", .form = data::Form::kClassFolders};
  for (const char* const path : {"photos/pets", "photos/pets/", "photos/./pets/.", "photos/cats/../pets"}) {
    EXPECT_EQ(folder_label(folders, path), "pets") << path;
  }
  EXPECT_EQ(folder_label(folders, "/"), "imagenet") << "the root has none";
}

TEST(UsualImageSize, IsThatOfTheDataSetsModels) {
  EXPECT_EQ(usual_image_size("imagenet"), 224);
  EXPECT_EQ(usual_image_size("cifar10"), 32);
  EXPECT_EQ(usual_image_size("shapes"), 32);
  EXPECT_EQ(usual_image_size("coco"), 300);
}

TEST(ChooseDataset, CannotNameAnEmptyDirectory) {
  const core::TempDir directory;
  EXPECT_EQ(core::thrown_by([&] { choose_dataset("", directory.path()); }).detail().problem,
            "Could not identify name of dataset. Please specify with --data_name option.");
  EXPECT_EQ(choose_dataset("", directory.path(), "imagenet").name, "imagenet");
}

}  // namespace
}  // namespace trainyard::frontends::dataset_choice_test
