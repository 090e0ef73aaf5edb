#include "trainyard/data/datasets/recognise_tfrecords.h"

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/formats/records/tf_example.h"
#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::data::recognise_tfrecords_test {
namespace {

class RecogniseTfRecords : public ::testing::Test {
 protected:
  // A shard of one record with an image of this size, of class `name` where that is not empty.
  std::string shard(int height, int width, int64_t label, const std::string& name) {
    const std::vector<std::byte> jpeg =
        encode_jpeg({.height = height, .width = width, .pixels = PooledVector<uint8_t>(3 * height * width, 77)}, 90);
    formats::ExampleBuilder example;
    example.add_bytes(formats::kImageEncoded, {reinterpret_cast<const char*>(jpeg.data()), jpeg.size()});
    example.add_int64(formats::kImageClassLabel, label);
    if (!name.empty()) example.add_bytes(formats::kImageClassText, name);
    return written(example.build());
  }
  std::string written(const std::string& record) {
    formats::TfRecordWriter writer(files_.open_write(path_));
    writer.write(record);
    writer.close();
    return path_;
  }
  core::Error refusal() {
    return core::thrown_by([&] { recognise_tfrecords(files_, path_); });
  }

  core::FileSystem& files_ = core::local_file_system();
  const core::TempDir temp_;
  const std::string path_ = temp_.file("train-00000-of-00001");
};

TEST_F(RecogniseTfRecords, BySizeLabelAndClass) {
  EXPECT_EQ(recognise_tfrecords(files_, shard(32, 32, 3, "cat")), "cifar10");
  EXPECT_EQ(recognise_tfrecords(files_, shard(32, 32, 9, "")), "cifar10");
  EXPECT_EQ(recognise_tfrecords(files_, shard(32, 32, 3, "tabby")), "imagenet");
  EXPECT_EQ(recognise_tfrecords(files_, shard(32, 32, 10, "")), "imagenet");
  EXPECT_EQ(recognise_tfrecords(files_, shard(33, 32, 3, "cat")), "imagenet");
  EXPECT_EQ(recognise_tfrecords(files_, shard(375, 500, 1000, "n15075141")), "imagenet");
  EXPECT_EQ(recognise_tfrecords(files_, shard(48, 48, 2, shape_names()[2])), "shapes");
  EXPECT_EQ(recognise_tfrecords(files_, shard(48, 48, 3, shape_names()[2])), "imagenet");
}

TEST_F(RecogniseTfRecords, OfTheProgramItself) {
  write_shapes({.train_count = 4, .validation_count = 1, .train_shards = 1}, temp_.file("written"));
  EXPECT_EQ(recognise_tfrecords(files_, temp_.file("written/train-00000-of-00001")), "shapes");
}

TEST_F(RecogniseTfRecords, SaysWhatAFileIsThatHoldsNoImages) {
  files_.write_file_atomically(path_, "just some text, longer than a record's header");
  EXPECT_TRUE(core::says(refusal(), "no TFRecord")) << refusal().what();
  files_.write_file_atomically(path_, "");
  EXPECT_TRUE(core::says(refusal(), "holds no record")) << refusal().what();
  written("\xff\xff\xff not an example");
  EXPECT_TRUE(core::says(refusal(), "no tf.Example")) << refusal().what();
  formats::ExampleBuilder example;
  example.add_int64("length", 3);
  written(example.build());
  EXPECT_TRUE(core::says(refusal(), "no labelled image")) << refusal().what();
  EXPECT_EQ(refusal().code(), core::ErrorCode::kCorruptData);
  EXPECT_EQ(refusal().detail().where, path_);
}

// Labels of CIFAR-10's form count from 0, those of ImageNet's from 1: a list of names next to the records tells which.
TEST_F(RecogniseTfRecords, ByAListOfClasses) {
  files_.write_file_atomically(temp_.file("classnames.txt"), "ant\nbee\nwasp\n");
  EXPECT_EQ(recognise_tfrecords(files_, shard(32, 32, 0, "ant")), "cifar10");
  EXPECT_EQ(recognise_tfrecords(files_, shard(32, 32, 1, "bee")), "cifar10");
  EXPECT_EQ(recognise_tfrecords(files_, shard(32, 32, 2, "bee")), "imagenet");
  EXPECT_EQ(recognise_tfrecords(files_, shard(32, 32, 3, "wasp")), "imagenet");
  EXPECT_EQ(recognise_tfrecords(files_, shard(32, 33, 1, "bee")), "imagenet");
  files_.write_file_atomically(temp_.file("classnames.txt"), "ant\nant\n");
  EXPECT_EQ(recognise_tfrecords(files_, shard(32, 32, 1, "ant")), "imagenet") << "either may be meant";
  EXPECT_EQ(recognise_tfrecords(files_, shard(32, 32, -1, "")), "imagenet");
}

}  // namespace
}  // namespace trainyard::data::recognise_tfrecords_test
