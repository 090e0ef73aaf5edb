#include "trainyard/data/cache/decoded_dataset.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/fault_injector.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/datasets/record_image.h"
#include "trainyard/data/pipeline/pipeline.h"
#include "trainyard/data/testing/exif.h"
#include "trainyard/data/testing/jpeg_dataset.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::data::decoded_dataset_test {
namespace {

constexpr int64_t kSize = JpegDataset::kSize;

void expect_all_decoded(const Dataset& dataset) {
  const JpegDataset plain;
  for (int64_t i = 0; i < kSize; ++i) {
    const Record record = dataset.read(i).value();
    const Record expected = plain.read(i).value();
    ASSERT_EQ(record.encoding, Encoding::kDecoded);
    EXPECT_EQ(record.image->pixels, decode_jpeg(expected.bytes).value().pixels) << i;
    EXPECT_EQ(record.label, expected.label);
    ASSERT_EQ(record.boxes.size(), 1u);
    EXPECT_EQ(record.boxes[0].xmax, 0.8F);
  }
}

class BoxedImages : public JpegDataset {
 public:
  core::Result<Record> read(int64_t index) const override {
    core::Result<Record> record = JpegDataset::read(index);
    record.value().boxes.push_back({0, 0, 0.5F, 0.5F});
    record.value().box_labels = {index + 1, 80};
    record.value().label_text = "text";
    return record;
  }
};

TEST(DecodedDataset, BoxesKeepTheirLabelsInMemoryAndOnDisk) {
  core::TempDir temp;
  const auto source = std::make_shared<BoxedImages>();
  for (int run = 0; run < 3; ++run) {
    DecodedCacheOptions options{.directory = temp.file("cache"), .identity = "data 1"};
    if (run == 2) options = {.memory_bytes = 1'000'000};
    const DecodedDataset dataset(source, options);
    for (int64_t i = 0; i < 2 * kSize; ++i) {
      const Record record = dataset.read(i % kSize).value();
      ASSERT_EQ(record.boxes.size(), 2U);
      EXPECT_EQ(record.boxes[1].xmax, 0.5F);
      EXPECT_EQ(record.box_labels, (std::vector<int64_t>{i % kSize + 1, 80}));
      EXPECT_EQ(record.label_text, "text");
    }
  }
  EXPECT_EQ(source->reads, 2 * kSize) << "the second run reads what the first has kept";
}

// What the files keep of a sample's boxes is its number of boxes and whether these have labels.
TEST(DecodedDataset, FilesKeepSamplesOfAnyNumberOfBoxes) {
  class SomeBoxes : public JpegDataset {
   public:
    core::Result<Record> read(int64_t index) const override {
      core::Result<Record> record = JpegDataset::read(index);
      record.value().boxes.assign(static_cast<size_t>(index % 3), {0, 0, 0.25F, 0.5F});
      return record;
    }
  };
  const core::TempDir temp;
  const auto source = std::make_shared<SomeBoxes>();
  for (int run = 0; run < 2; ++run) {
    const DecodedDataset dataset(source, {.directory = temp.file("cache"), .identity = "data 1"});
    for (int64_t i = 0; i < kSize; ++i) {
      const Record record = dataset.read(i).value();
      EXPECT_EQ(record.boxes.size(), static_cast<size_t>(i % 3)) << i;
      EXPECT_TRUE(record.box_labels.empty()) << i;
    }
  }
  EXPECT_EQ(source->reads, kSize) << "the second run reads what the first has kept";
}

TEST(DecodedDataset, InMemoryEachImageIsReadOnce) {
  const auto source = std::make_shared<JpegDataset>();
  const DecodedDataset dataset(source, {.memory_bytes = 1'000'000});
  for (int epoch = 0; epoch < 3; ++epoch) expect_all_decoded(dataset);
  EXPECT_EQ(source->reads, kSize);
}

TEST(DecodedDataset, WhatDoesNotFitIsDecodedAgain) {
  const auto source = std::make_shared<JpegDataset>();
  // Images 0, 1 and 2: 3 * 30 * (20 + 21 + 22) bytes.
  const DecodedDataset dataset(source, {.memory_bytes = 3 * 30 * 63});
  for (int epoch = 0; epoch < 3; ++epoch) expect_all_decoded(dataset);
  EXPECT_EQ(source->reads, kSize + 2 * (kSize - 3));
}

TEST(DecodedDataset, FilesServeTheNextRun) {
  core::TempDir temp;
  const DecodedCacheOptions options{.directory = temp.file("cache"), .identity = "data 1"};
  {
    const auto source = std::make_shared<JpegDataset>();
    const DecodedDataset dataset(source, options);
    for (int64_t i = 0; i < 4; ++i) EXPECT_TRUE(dataset.read(i).ok());
  }
  {
    const auto source = std::make_shared<JpegDataset>();
    const DecodedDataset dataset(source, options);
    expect_all_decoded(dataset);
    EXPECT_EQ(source->reads, kSize - 4);
    expect_all_decoded(dataset);  // also what this run has written itself
    EXPECT_EQ(source->reads, kSize - 4);
  }
  const auto source = std::make_shared<JpegDataset>();
  const DecodedDataset dataset(source,
                               {.memory_bytes = 1'000'000, .directory = options.directory, .identity = "data 1"});
  expect_all_decoded(dataset);
  EXPECT_EQ(source->reads, 0);
}

// Whole images are kept, so that one folder serves models that take images of different sizes.
TEST(DecodedDataset, FilesServeImagesOfEverySize) {
  const core::TempDir temp;
  const JpegDataset plain;
  for (const ImageSize size : {ImageSize{16, 16}, ImageSize{10, 24}, ImageSize{24, 10}}) {
    const auto source = std::make_shared<JpegDataset>();
    const DecodedDataset cached(source, {.directory = temp.file("cache"), .identity = "data 1"});
    for (const bool training : {false, true}) {
      const auto transform = transforms().get("imagenet")(
          TransformOptions{.height = size.height, .width = size.width, .training = training});
      for (int64_t i = 0; i < kSize; ++i) {
        std::vector<float> out(size_t{3} * size.height * size.width), expected(out.size());
        transform->apply(cached.read(i).value(), {.sample = i}, out.data()).value();
        transform->apply(plain.read(i).value(), {.sample = i}, expected.data()).value();
        EXPECT_EQ(out, expected) << size.height << "x" << size.width << " of " << i;
      }
    }
    EXPECT_EQ(source->reads, size.height == size.width ? kSize : 0) << "the first size decodes for the others";
  }
}

TEST(DecodedDataset, FilesOfOtherDataAreRefused) {
  core::TempDir temp;
  const auto source = std::make_shared<JpegDataset>();
  EXPECT_TRUE(DecodedDataset(source, {.directory = temp.file("cache"), .identity = "data 1"}).read(0).ok());
  try {
    const DecodedDataset dataset(source, {.directory = temp.file("cache"), .identity = "data 2"});
    FAIL() << "a stale cache was taken";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), core::ErrorCode::kInvalidArgument);
    const std::string message = error.what();
    EXPECT_NE(message.find("cached decoded images are of other data"), std::string::npos) << message;
    EXPECT_NE(message.find("expected data 2, got data 1"), std::string::npos) << message;
  }
}

TEST(DecodedDataset, IdentityChangesWithTheFiles) {
  core::TempDir temp;
  core::FileSystem& files = core::local_file_system();
  files.make_directories(temp.file("data/inner"));
  files.write_file_atomically(temp.file("data/a"), "12345");
  const std::string first = identity_of_files(files, {temp.file("data")});
  EXPECT_EQ(first, identity_of_files(files, {temp.file("data")}));
  EXPECT_EQ(first.substr(0, 17), "1 files, 5 bytes,");
  files.write_file_atomically(temp.file("data/inner/b"), "1");
  const std::string second = identity_of_files(files, {temp.file("data")});
  EXPECT_NE(second, first);
  files.write_file_atomically(temp.file("data/inner/b"), "2");  // the same size at another time
  const std::string third = identity_of_files(files, {temp.file("data")});
  EXPECT_NE(third, second);
  std::filesystem::create_symlink("nowhere", temp.file("data/inner/dangling"));
  EXPECT_EQ(identity_of_files(files, {temp.file("data")}), third);
}

// Else the images that an earlier release has stored would be refused as those of other data.
TEST(DecodedDataset, IdentityIsThatOfEarlierReleases) {
  core::TempDir temp;
  core::FileSystem& files = core::local_file_system();
  files.make_directories(temp.file("data/inner"));
  EXPECT_EQ(identity_of_files(files, {temp.file("data")}),
            fmt::format("0 files, 0 bytes, {:016x}", core::stable_hash("inner 0 0\n")));
}

// JPEGs that a camera on its side has taken.
class TurnedDataset : public JpegDataset {
 public:
  core::Result<Record> read(int64_t index) const override {
    Record record = JpegDataset::read(index).value();
    record.bytes = with_exif(record.bytes, 6);
    return record;
  }
};

// Decoded pixels are turned, and say nothing of how they were stored.
TEST(DecodedDataset, BoxesAreThoseOfTheTurnedImage) {
  for (const bool turned : {false, true}) {
    const DecodedDataset dataset(std::make_shared<TurnedDataset>(),
                                 {.memory_bytes = 1 << 20, .exif_orientation = turned});
    const Record record = dataset.read(0).value();
    EXPECT_EQ(record.image->height, turned ? 30 : 20);
    ASSERT_EQ(record.boxes.size(), 1U);
    // Of rows 0.1 to 0.9 and columns 0.2 to 0.8; the stored left column is the upper row.
    EXPECT_FLOAT_EQ(record.boxes[0].ymin, turned ? 0.2F : 0.1F);
    EXPECT_FLOAT_EQ(record.boxes[0].ymax, turned ? 0.8F : 0.9F);
    EXPECT_FLOAT_EQ(record.boxes[0].xmin, turned ? 0.1F : 0.2F);
    EXPECT_FLOAT_EQ(record.boxes[0].xmax, turned ? 0.9F : 0.8F);
    EXPECT_EQ(record_boxes(record, true)[0].ymin, record.boxes[0].ymin) << "it is not turned twice";
  }
}

// Earlier releases turned images and not their boxes, and said nothing of it in the files.
TEST(DecodedDataset, BoxesThatWereNotTurnedAreNotFound) {
  const core::TempDir temp;
  core::FileSystem& files = core::local_file_system();
  const auto store = [&](bool turns) {
    return std::make_unique<DecodedStore>(files, temp.file("cache"), "data 1", turns);
  };
  Record with_boxes{.encoding = Encoding::kDecoded, .boxes = {{0, 0, 0.5F, 0.5F}}};
  with_boxes.image = std::make_shared<const Image>(flat_image(4, 4, 100));
  Record without = with_boxes;
  without.boxes.clear();
  {
    const auto old = store(false);
    old->add(0, with_boxes);
    old->add(1, without);
  }
  EXPECT_TRUE(store(false)->find(0)) << "as stored, where nothing is turned";
  auto turned = store(true);
  EXPECT_FALSE(turned->find(0));
  EXPECT_TRUE(turned->find(1));
  turned->add(0, with_boxes);
  EXPECT_EQ(turned->find(0).value().boxes.size(), 1U);
  turned.reset();  // closes its files
  const std::optional<Record> kept = store(true)->find(0);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->boxes.size(), 1U);
}

// Two links that lead back to their own folder would be followed for ever: 2^40 ways, until the system refuses.
TEST(DecodedDataset, IdentityOfAFolderWithLinksToItself) {
  core::TempDir temp;
  core::FileSystem& files = core::local_file_system();
  files.make_directories(temp.file("data/inner"));
  files.write_file_atomically(temp.file("data/inner/a"), "12345");
  for (const char* link : {"data/inner/up", "data/inner/up again"}) {
    std::filesystem::create_directory_symlink(temp.file("data"), temp.file(link));
  }
  std::filesystem::create_directory_symlink(temp.file("data/inner"), temp.file("data/inner/same"));
  const std::string identity = identity_of_files(files, {temp.file("data")});
  EXPECT_EQ(identity.substr(0, 17), "1 files, 5 bytes,");
  EXPECT_EQ(identity_of_files(files, {temp.file("data")}), identity);
}

// Shards may be named one by one, and a folder may be called otherwise by another machine.
TEST(DecodedDataset, IdentityOfNamedFiles) {
  core::TempDir temp;
  core::FileSystem& files = core::local_file_system();
  files.make_directories(temp.file("data"));
  for (const char* name : {"data/train-0.tar", "data/train-1.tar", "data/val-0.tar"}) {
    files.write_file_atomically(temp.file(name), "12345");
  }
  const std::string all = identity_of_files(files, paths_named(files, temp.file("data")));
  EXPECT_EQ(identity_of_files(files, paths_named(files, temp.file("data") + "/")), all);
  EXPECT_EQ(identity_of_files(files, paths_named(files, temp.file("data/*.tar"))), all);
  const std::string training = identity_of_files(files, paths_named(files, temp.file("data/train-{0..1}.tar")));
  EXPECT_EQ(training.substr(0, 18), "2 files, 10 bytes,");
  files.write_file_atomically(temp.file("data/train-1.tar"), "123456");
  EXPECT_NE(identity_of_files(files, paths_named(files, temp.file("data/train-{0..1}.tar"))), training);
}

std::string only_file(const std::string& directory, std::string_view suffix) {
  for (const std::string& name : core::local_file_system().list(directory)) {
    if (name.ends_with(suffix)) return core::join_path(directory, name);
  }
  throw std::runtime_error("no file");
}

// A killed run leaves half an entry, a bad disk another byte: both are decoded anew.
TEST(DecodedDataset, DamageIsAMiss) {
  for (const std::string_view suffix : {".index", ".pixels"}) {
    for (const bool cut : {true, false}) {
      core::TempDir temp;
      const DecodedCacheOptions options{.directory = temp.file("cache"), .identity = "data 1"};
      {
        const DecodedDataset dataset(std::make_shared<JpegDataset>(), options);
        expect_all_decoded(dataset);
      }
      const std::string path = only_file(options.directory, suffix);
      std::string content = core::local_file_system().read_file(path);
      if (cut) {
        content.resize(content.size() * 2 / 3);
      } else {
        content[content.size() / 2] ^= 1;
      }
      core::local_file_system().write_file_atomically(path, content);
      const auto source = std::make_shared<JpegDataset>();
      const DecodedDataset dataset(source, options);
      expect_all_decoded(dataset);
      EXPECT_GT(source->reads, 0);
      EXPECT_LT(source->reads, kSize);
    }
  }
}

// As two containers with one process number: neither writes over what the other has.
TEST(DecodedDataset, TwoRunsAtOnceShareAFolder) {
  core::TempDir temp;
  const DecodedCacheOptions options{.directory = temp.file("cache"), .identity = "data 1"};
  const auto source = std::make_shared<JpegDataset>();
  {
    const DecodedDataset first(source, options), second(source, options);
    for (int64_t i = 0; i < kSize; ++i) {
      EXPECT_TRUE(first.read(i).ok());
      EXPECT_TRUE(second.read(kSize - 1 - i).ok());
    }
    expect_all_decoded(first);
    expect_all_decoded(second);
  }
  EXPECT_EQ(source->reads, 2 * kSize);
  expect_all_decoded(DecodedDataset(source, options));
  EXPECT_EQ(source->reads, 2 * kSize);
}

TEST(DecodedDataset, AFullDiskIsOneWarning) {
  // The first call that writes makes the folder; without one there is no cache, which is an error.
  for (int n = 2;; ++n) {
    core::TempDir temp;
    core::FaultInjector faults;
    const auto files = core::make_file_system(faults);
    DecodedCacheOptions options{.directory = temp.file("cache"), .identity = "data 1", .files = files.get()};
    faults.fail_writes_from_nth(n, core::Fault::kNoSpace);
    ::testing::internal::CaptureStderr();
    {
      const DecodedDataset dataset(std::make_shared<JpegDataset>(), options);
      for (int epoch = 0; epoch < 3; ++epoch) expect_all_decoded(dataset);
    }
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_LE(std::count(log.begin(), log.end(), '\n'), 1) << n << ": " << log;
    options.files = &core::local_file_system();
    expect_all_decoded(DecodedDataset(std::make_shared<JpegDataset>(), options));
    if (!faults.reached()) break;
    EXPECT_LT(n, 100);
  }
}

TEST(DecodedDataset, AFolderThatVanishesIsOneWarning) {
  core::TempDir temp;
  const DecodedCacheOptions options{.directory = temp.file("cache"), .identity = "data 1"};
  expect_all_decoded(DecodedDataset(std::make_shared<JpegDataset>(), options));
  const DecodedDataset dataset(std::make_shared<JpegDataset>(), options);
  core::local_file_system().remove_tree(options.directory);
  ::testing::internal::CaptureStderr();
  for (int epoch = 0; epoch < 2; ++epoch) expect_all_decoded(dataset);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
}

TEST(DecodedDataset, BrokenImagesAreErrorsEachTime) {
  const DecodedDataset dataset(std::make_shared<JpegDataset>(true), {.memory_bytes = 1'000'000});
  for (int i = 0; i < 2; ++i) {
    const auto result = dataset.read(5);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code(), core::ErrorCode::kCorruptData);
    EXPECT_NE(std::string(result.error().what()).find("shard-0"), std::string::npos);
  }
}

// Decoding, resizing and all included.
TEST(ImagePipeline, SameBytesForAnyThreadsAndPrefetch) {
  std::vector<float> expected;
  for (int threads : {1, 2, 4}) {
    for (int prefetch : {1, 3}) {
      Pipeline pipeline(std::make_shared<JpegDataset>(), transforms().get("imagenet")({.height = 16, .width = 16}),
                        {.batch_size = 5,
                         .height = 16,
                         .width = 16,
                         .worker_threads = threads,
                         .prefetch_batches = prefetch,
                         .seed = 3});
      std::vector<float> values;
      for (int b = 0; b < 6; ++b) {
        const Batch batch = pipeline.next()[0];
        const float* images = batch.images().const_data_ptr<float>();
        values.insert(values.end(), images, images + batch.images().numel());
      }
      if (expected.empty()) expected = values;
      EXPECT_EQ(values, expected) << threads << " threads, " << prefetch << " ahead";
    }
  }
}

// The bytes of a run do not depend on what is kept.
TEST(DecodedDataset, SameBatchesWithAndWithout) {
  core::TempDir temp;
  const auto source = std::make_shared<JpegDataset>();
  const auto batches = [&](std::shared_ptr<const Dataset> dataset) {
    const std::shared_ptr<Transform> transform = transforms().get("imagenet")({.height = 16, .width = 16});
    Pipeline pipeline(std::move(dataset), transform,
                      {.batch_size = 6, .height = 16, .width = 16, .worker_threads = 2, .seed = 3});
    std::vector<float> values;
    for (int b = 0; b < 6; ++b) {
      const Batch batch = pipeline.next()[0];
      values.insert(values.end(), batch.images().const_data_ptr<float>(),
                    batch.images().const_data_ptr<float>() + batch.images().numel());
    }
    return values;
  };
  const std::vector<float> expected = batches(source);
  EXPECT_EQ(batches(std::make_shared<DecodedDataset>(source, DecodedCacheOptions{.memory_bytes = 1'000'000})),
            expected);
  const DecodedCacheOptions on_disk{.directory = temp.file("cache"), .identity = "data 1"};
  EXPECT_EQ(batches(std::make_shared<DecodedDataset>(source, on_disk)), expected);
  EXPECT_EQ(batches(std::make_shared<DecodedDataset>(source, on_disk)), expected);
}

TEST(DecodedDataset, FilesKeepAllOfARecord) {
  const core::TempDir temp;
  const DecodedCacheOptions options{.directory = temp.file("cache"), .identity = "data 1"};
  for (const bool from_files : {false, true}) {
    const DecodedDataset dataset(std::make_shared<JpegDataset>(), options);
    for (int64_t i = 0; i < kSize; ++i) {
      const Record record = dataset.read(i).value();
      EXPECT_EQ(record.image->height, 20 + static_cast<int>(i));
      EXPECT_EQ(record.image->width, 30);
      EXPECT_EQ(record.label, i + 1);
      EXPECT_EQ(record.label_text, "");
      ASSERT_EQ(record.boxes.size(), 1U);
      EXPECT_EQ(record.boxes[0].ymin, 0.1F);
      EXPECT_EQ(record.boxes[0].xmin, 0.2F);
      EXPECT_EQ(record.boxes[0].ymax, 0.9F);
      EXPECT_EQ(record.boxes[0].xmax, 0.8F);
      EXPECT_TRUE(record.box_labels.empty());
      EXPECT_EQ(record.where, from_files ? fmt::format("sample {} in {}", i, options.directory) : "shard-0");
    }
  }
}

// A file that cannot be looked at is not taken for one that is missing.
TEST(DecodedDataset, IdentityOfFilesThatCannotBeReadIsAnError) {
  const core::TempDir temp;
  core::local_file_system().make_directories(temp.file("data/inner"));
  for (const char* name : {"data/a", "data/inner/b"}) {
    core::local_file_system().write_file_atomically(temp.file(name), "12345");
  }
  const std::string whole = identity_of_files(core::local_file_system(), {temp.file("data")});
  for (int n = 1;; ++n) {
    core::FaultInjector faults;
    faults.fail_nth(n, core::Fault::kIoError);
    const auto files = core::make_file_system(faults);
    std::string found;
    const auto error = core::error_of([&] { found = identity_of_files(*files, {temp.file("data")}); });
    if (!faults.reached()) break;
    EXPECT_TRUE(error.has_value() || found == whole) << faults.log()[static_cast<size_t>(n - 1)];
    ASSERT_LT(n, 100);
  }
}

}  // namespace
}  // namespace trainyard::data::decoded_dataset_test
