#include "trainyard/data/datasets/dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/fault_injector.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/testing/test_data.h"
#include "trainyard/data/codecs/decode.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/pipeline/pipeline.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/formats/records/tf_example.h"
#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::data::dataset_test {
namespace {

using core::Error;
using core::ErrorCode;

std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string example(const std::vector<std::byte>& image, int64_t label) {
  formats::ExampleBuilder builder;
  builder.add_bytes(formats::kImageEncoded, text_of(image));
  builder.add_int64(formats::kImageClassLabel, label);
  return builder.build();
}

std::vector<std::byte> flat_jpeg(uint8_t value) {
  return encode_jpeg(flat_image(40, 40, value));
}

class DatasetTest : public ::testing::Test {
 protected:
  void write_shard(const std::string& name, const std::vector<std::string>& examples) {
    formats::TfRecordWriter writer(core::local_file_system().open_write(temp_.file(name)));
    for (const std::string& record : examples) writer.write(record);
    writer.close();
  }
  void write_file(const std::string& name, const std::string& content) {
    core::local_file_system().write_file_atomically(temp_.file(name), content);
  }
  std::string content(const std::string& name) { return core::local_file_system().read_file(temp_.file(name)); }

  std::unique_ptr<Dataset> open(const std::string& name, Subset subset = Subset::kTrain) {
    return datasets().get(name)({.directory = temp_.path(), .subset = subset});
  }
  Error open_error(const std::string& name, const std::string& directory) {
    try {
      datasets().get(name)({.directory = directory});
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "no error";
    return {ErrorCode::kInternal, "no error"};
  }

  core::TempDir temp_;
};

TEST_F(DatasetTest, ReadsShardsInOrder) {
  write_shard("train-00001-of-00002", {example(flat_jpeg(30), 3)});
  write_shard("train-00000-of-00002", {example(flat_jpeg(10), 1000), example(flat_jpeg(20), 2)});
  write_shard("validation-00000-of-00001", {example(flat_jpeg(40), 4)});
  write_file("README", "not a shard");
  const auto train = open("imagenet");
  ASSERT_EQ(train->size(), 3);
  EXPECT_EQ(train->label_count(), 1001);
  const int64_t labels[] = {1000, 2, 3};
  for (int i = 0; i < 3; ++i) {
    const Record record = train->read(i).value();
    EXPECT_EQ(record.label, labels[i]);
    EXPECT_NEAR(decode_image(record.bytes).value().pixels[0], 10 * (i + 1), 1);
  }
  EXPECT_EQ(train->read(0).value().where, temp_.file("train-00000-of-00002") + " at offset 0");
  EXPECT_EQ(open("imagenet", Subset::kValidation)->size(), 1);
}

TEST_F(DatasetTest, ReadsBoxes) {
  formats::ExampleBuilder builder;
  builder.add_bytes(formats::kImageEncoded, "x");
  builder.add_int64(formats::kImageClassLabel, 1);
  const float y0[] = {0.1F, 0.2F}, x0[] = {0.3F, 0.4F}, y1[] = {0.5F, 0.6F}, x1[] = {0.7F, 0.8F};
  builder.add_floats(formats::kImageBoxYMin, y0);
  builder.add_floats(formats::kImageBoxXMin, x0);
  builder.add_floats(formats::kImageBoxYMax, y1);
  builder.add_floats(formats::kImageBoxXMax, x1);
  const float short_list[] = {0.5F}, too_large[] = {0.5F, 1.5F};
  formats::ExampleBuilder unequal = builder, outside = builder;
  unequal.add_floats(formats::kImageBoxXMax, short_list);
  outside.add_floats(formats::kImageBoxXMax, too_large);
  formats::ExampleBuilder whole_image;
  whole_image.add_bytes(formats::kImageEncoded, "x");
  whole_image.add_int64(formats::kImageClassLabel, 1);
  const float begin[] = {0}, end[] = {1};
  whole_image.add_floats(formats::kImageBoxYMin, begin);
  whole_image.add_floats(formats::kImageBoxXMin, begin);
  whole_image.add_floats(formats::kImageBoxYMax, end);
  whole_image.add_floats(formats::kImageBoxXMax, end);
  write_shard("train-00000-of-00001", {builder.build(), unequal.build(), outside.build(), whole_image.build()});
  const auto dataset = open("imagenet");
  const Record record = dataset->read(0).value();
  ASSERT_EQ(record.boxes.size(), 2u);
  EXPECT_EQ(record.boxes[1].ymin, 0.2F);
  EXPECT_EQ(record.boxes[1].xmin, 0.4F);
  EXPECT_EQ(record.boxes[1].ymax, 0.6F);
  EXPECT_EQ(record.boxes[1].xmax, 0.8F);
  const Error shorter = dataset->read(1).error();
  EXPECT_EQ(shorter.code(), ErrorCode::kCorruptData);
  EXPECT_EQ(shorter.detail().expected, "2 numbers");
  EXPECT_EQ(shorter.detail().actual, "1");
  EXPECT_EQ(dataset->read(2).error().code(), ErrorCode::kCorruptData);
  EXPECT_EQ(dataset->read(2).error().detail().actual, "1.5");
  const Record whole = dataset->read(3).value();
  ASSERT_EQ(whole.boxes.size(), 1u);
  EXPECT_EQ(whole.boxes[0].ymin, 0);
  EXPECT_EQ(whole.boxes[0].xmax, 1);
}

// A side without numbers would be that of the image.
TEST_F(DatasetTest, BoxesThatLackASideAreDamaged) {
  const float numbers[] = {0.25F, 0.5F};
  const std::vector<std::string_view> sides = {formats::kImageBoxYMin, formats::kImageBoxXMin, formats::kImageBoxYMax,
                                               formats::kImageBoxXMax};
  std::vector<std::string> records;
  for (const std::string_view lacking : sides) {
    for (const bool empty : {false, true}) {
      formats::ExampleBuilder builder;
      builder.add_bytes(formats::kImageEncoded, "x");
      builder.add_int64(formats::kImageClassLabel, 1);
      for (const std::string_view side : sides) {
        if (side != lacking) builder.add_floats(side, numbers);
      }
      if (empty) builder.add_floats(lacking, {});
      records.push_back(builder.build());
    }
  }
  write_shard("train-00000-of-00001", records);
  const auto dataset = open("imagenet");
  ASSERT_EQ(dataset->size(), 8);
  for (int64_t i = 0; i < dataset->size(); ++i) {
    const auto record = dataset->read(i);
    ASSERT_FALSE(record.ok()) << i;
    EXPECT_EQ(record.error().code(), ErrorCode::kCorruptData);
    EXPECT_NE(record.error().detail().problem.find("has another length than its fellows"), std::string::npos);
  }
}

// Two classes of ImageNet have the text "crane".
TEST_F(DatasetTest, TheSynsetNamesAClassBeforeItsText) {
  const auto named = [](std::string_view synset, std::string_view text) {
    formats::ExampleBuilder builder;
    builder.add_bytes(formats::kImageEncoded, "x");
    builder.add_int64(formats::kImageClassLabel, 135);
    builder.add_bytes(formats::kImageClassSynset, synset);
    builder.add_bytes(formats::kImageClassText, text);
    return builder.build();
  };
  write_shard("train-00000-of-00001", {named("n02012849", "crane"), named("", "crane"), named("", "")});
  const auto dataset = open("imagenet");
  EXPECT_EQ(dataset->read(0).value().label_text, "n02012849");
  EXPECT_EQ(dataset->read(1).value().label_text, "crane");
  EXPECT_EQ(dataset->read(2).value().label_text, "");
}

// A list may call the classes by their texts, which is no contradiction of the synsets.
TEST_F(DatasetTest, AListNamesAClassBySynsetOrText) {
  const auto named = [](int64_t label, std::string_view synset, std::string_view text) {
    formats::ExampleBuilder builder;
    builder.add_bytes(formats::kImageEncoded, "x");
    builder.add_int64(formats::kImageClassLabel, label);
    builder.add_bytes(formats::kImageClassSynset, synset);
    builder.add_bytes(formats::kImageClassText, text);
    return builder.build();
  };
  write_file("classnames.txt", "tench\nn01443537\nshark\n");
  write_shard("train-00000-of-00001", {named(1, "n01440764", "tench"), named(2, "n01443537", "goldfish"),
                                       named(3, "n01484850", "great white"), named(0, "", "")});
  const auto dataset = open("imagenet");
  EXPECT_EQ(dataset->read(0).value().label_text, "tench");
  EXPECT_EQ(dataset->read(1).value().label_text, "n01443537");
  EXPECT_EQ(dataset->read(2).value().label_text, "n01484850") << "neither: whoever compares it with the list says so";
  EXPECT_EQ(dataset->read(3).value().label_text, "");
}

TEST_F(DatasetTest, MissingAndEmptyDirectories) {
  for (const char* name : {"imagenet", "cifar10", "shapes"}) {
    const Error missing = open_error(name, temp_.file("nowhere"));
    EXPECT_EQ(missing.code(), ErrorCode::kNotFound);
    EXPECT_EQ(missing.what(), "data directory does not exist: " + temp_.file("nowhere") +
                                  "; pass the directory that holds the data set as --data_dir");
    const Error empty = open_error(name, temp_.path());
    EXPECT_EQ(empty.code(), ErrorCode::kNotFound);
    EXPECT_TRUE(std::string(empty.what())
                    .starts_with("Found no files in --data_dir matching: " + temp_.file("train-*-of-*: got ")))
        << empty.what();
  }
  write_shard("train-00000-of-00001", {});
  EXPECT_EQ(open_error("imagenet", temp_.path()).detail().problem, "data set holds no records");
}

TEST_F(DatasetTest, UnknownNamesSuggestTheNearest) {
  try {
    datasets().get("imagnet");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'imagenet'"), std::string::npos) << error.what();
  }
}

TEST_F(DatasetTest, TruncatedShardSaysWhere) {
  write_shard("train-00000-of-00001", {example(flat_jpeg(10), 1), example(flat_jpeg(20), 2)});
  const std::string whole = content("train-00000-of-00001");
  write_file("train-00000-of-00001", whole.substr(0, whole.size() - 30));
  const Error error = open_error("imagenet", temp_.path());
  EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
  const std::string where = temp_.file("train-00000-of-00001") + " at offset " + std::to_string(whole.size() / 2);
  EXPECT_NE(std::string(error.what()).find(where), std::string::npos) << error.what();
}

TEST_F(DatasetTest, AbsurdLengthSaysWhere) {
  std::string file(12, '\0');
  const uint64_t length = uint64_t{1} << 60;
  std::memcpy(file.data(), &length, 8);
  const uint32_t checksum = formats::masked_crc32c(std::string_view(file.data(), 8));
  std::memcpy(file.data() + 8, &checksum, 4);
  write_file("train-00000-of-00001", file + "some data");
  const Error error = open_error("imagenet", temp_.path());
  EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
  EXPECT_NE(std::string(error.what()).find(temp_.file("train-00000-of-00001") + " at offset 0"), std::string::npos)
      << error.what();
}

TEST_F(DatasetTest, FlippedByteSaysWhere) {
  write_shard("train-00000-of-00001", {example(flat_jpeg(10), 1), example(encode_jpeg(smooth_image(40, 40)), 2)});
  std::string file = content("train-00000-of-00001");
  const auto spans = formats::index_tfrecord(*core::local_file_system().open_read(temp_.file("train-00000-of-00001")));
  ASSERT_EQ(spans.size(), 2u);
  const size_t place = spans[1].offset + 12 + spans[1].length - 60;  // in the JPEG's coded pixels
  file[place] = static_cast<char>(file[place] ^ 0x10);
  write_file("train-00000-of-00001", file);
  const auto dataset = open("imagenet");
  EXPECT_TRUE(dataset->read(0).ok());
  const auto result = dataset->read(1);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kCorruptData);
  const std::string where = temp_.file("train-00000-of-00001") + " at offset " + std::to_string(spans[1].offset);
  EXPECT_NE(std::string(result.error().what()).find(where), std::string::npos) << result.error().what();

  // The checksum matters: without it the damaged record is read, and gives another picture without a word.
  const std::string_view unchecked = std::string_view(file).substr(spans[1].offset + 12, spans[1].length);
  const auto view = formats::ExampleView::parse(unchecked).value();
  const std::string_view jpeg = view.bytes(formats::kImageEncoded).value();
  auto image = decode_image(std::as_bytes(std::span(jpeg)));
  ASSERT_TRUE(image.ok());
  EXPECT_NE(image.value().pixels, decode_image(encode_jpeg(smooth_image(40, 40))).value().pixels);
}

TEST_F(DatasetTest, BadRecordsSayWhatIsWrong) {
  formats::ExampleBuilder no_label, no_image;
  no_label.add_bytes(formats::kImageEncoded, "x");
  no_image.add_int64(formats::kImageClassLabel, 1);
  write_shard("train-00000-of-00001", {no_label.build(), no_image.build(), example(flat_jpeg(1), 1001),
                                       example(flat_jpeg(1), -1), "not an example at all"});
  const auto dataset = open("imagenet");
  for (int i = 0; i < 5; ++i) {
    const auto result = dataset->read(i);
    ASSERT_FALSE(result.ok()) << i;
    EXPECT_EQ(result.error().code(), ErrorCode::kCorruptData);
    EXPECT_NE(std::string(result.error().what()).find("train-00000-of-00001 at offset "), std::string::npos)
        << result.error().what();
    EXPECT_EQ(std::string(result.error().what()).find('\n'), std::string::npos);
  }
  EXPECT_EQ(dataset->read(2).error().detail().actual, "1001");
  write_shard("test-00000-of-00001", {example(flat_jpeg(1), 9), example(flat_jpeg(1), 10)});
  const auto cifar = open("cifar10", Subset::kValidation);
  EXPECT_TRUE(cifar->read(0).ok());
  EXPECT_FALSE(cifar->read(1).ok());
}

// A disk that fails while a data set is read: each fault is told, or does no harm, and nothing but core::Error comes
// out.
TEST_F(DatasetTest, DiskFaultsAreReported) {
  // Without a folder for indexes: faults there do no harm (dataset_form_test.cpp).
  const core::EnvironmentVariable cache("XDG_CACHE_HOME", std::nullopt), home("HOME", std::nullopt);
  write_shard("train-00000-of-00001", {example(flat_jpeg(10), 1), example(flat_jpeg(20), 2)});
  for (core::Fault fault : {core::Fault::kIoError, core::Fault::kInterrupted, core::Fault::kShort}) {
    for (int n = 1;; ++n) {
      core::FaultInjector faults;
      faults.fail_nth(n, fault);
      const auto files = core::make_file_system(faults);
      bool reported = false;
      try {
        const auto dataset = datasets().get("imagenet")({.directory = temp_.path(), .files = files.get()});
        for (int64_t i = 0; i < 2; ++i) EXPECT_EQ(dataset->read(i).value().label, i + 1);
      } catch (const Error& error) {
        reported = true;
        EXPECT_NE(std::string(error.what()).find(temp_.path()), std::string::npos) << error.what();
      }
      if (!faults.reached()) break;
      // A failing close() of a file that was only read loses nothing.
      const bool harmless = fault != core::Fault::kIoError || faults.log()[n - 1] == "close";
      EXPECT_EQ(reported, !harmless) << faults.log()[n - 1];
      ASSERT_LT(n, 1000);
    }
  }
}

TEST_F(DatasetTest, CifarBinaryBatches) {
  for (int batch = 1; batch <= 6; ++batch) {
    std::string file;
    for (int i = 0; i < 4; ++i) {
      file += static_cast<char>((batch + i) % 10);
      for (int c = 0; c < 3; ++c) file += std::string(1024, static_cast<char>(40 * c + batch));
    }
    write_file(batch == 6 ? "test_batch.bin" : "data_batch_" + std::to_string(batch) + ".bin", file);
  }
  const auto train = open("cifar10");
  ASSERT_EQ(train->size(), 20);
  EXPECT_EQ(train->label_names()[9], "truck");
  for (int64_t i = 0; i < 20; ++i) {
    const Record record = train->read(i).value();
    EXPECT_EQ(record.label, (i / 4 + 1 + i % 4) % 10);
    EXPECT_EQ(train->known_label(i), record.label);
    EXPECT_EQ(record.encoding, Encoding::kRawChw);
    EXPECT_EQ(record.bytes[2048], std::byte(80 + i / 4 + 1));
  }
  EXPECT_EQ(open("cifar10", Subset::kValidation)->size(), 4);
  EXPECT_NE(train->read(7).value().where.find("data_batch_2.bin, image 3"), std::string::npos);
}

TEST(RealData, Cifar10) {
  const auto path = core::shared_data("cifar10");
  if (!path) GTEST_SKIP() << core::missing_shared_data("cifar10");
  const auto train = datasets().get("cifar10")({.directory = *path});
  const auto test = datasets().get("cifar10")({.directory = *path, .subset = Subset::kValidation});
  EXPECT_EQ(train->size(), 50'000);
  EXPECT_EQ(test->size(), 10'000);
  std::vector<int> labels(10);
  for (int64_t i = 0; i < test->size(); ++i) ++labels[test->read(i).value().label];
  EXPECT_EQ(labels, std::vector<int>(10, 1000));
}

TEST(RealData, ImagenetSampleThroughThePipeline) {
  const auto path = core::shared_data("imagenet_sample");
  if (!path) GTEST_SKIP() << core::missing_shared_data("imagenet_sample");
  for (Subset subset : {Subset::kTrain, Subset::kValidation}) {
    const bool training = subset == Subset::kTrain;
    std::shared_ptr<Dataset> dataset = datasets().get("imagenet")({.directory = *path, .subset = subset});
    ASSERT_EQ(dataset->size(), training ? 240 : 60);
    std::shared_ptr<Transform> transform =
        transforms().get("imagenet")({.height = 64, .width = 64, .training = training});
    Pipeline pipeline(dataset, transform,
                      {.batch_size = 50, .height = 64, .width = 64, .worker_threads = 2, .repeat = false});
    int64_t seen = 0;
    for (auto batches = pipeline.next(); !batches.empty(); batches = pipeline.next()) {
      const at::Tensor& images = batches[0].images();
      const float* pixels = images.const_data_ptr<float>();
      double sum = 0;
      for (int64_t i = 0; i < images.numel(); ++i) {
        ASSERT_LE(std::abs(pixels[i]), 1.0001F);
        sum += pixels[i];
      }
      EXPECT_LT(std::abs(sum / static_cast<double>(images.numel())), 0.4);  // photographs, not noise or black
      seen += images.size(0);
    }
    EXPECT_EQ(seen, dataset->size());
  }
}

}  // namespace
}  // namespace trainyard::data::dataset_test
