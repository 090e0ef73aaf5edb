// trainyard data: every form of a data set becomes every other one, with the same images and classes; damage is found.
#include <filesystem>
#include <functional>
#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/testing/test_data.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/data/codecs/image_formats.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/datasets/record_image.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/data/detection/boxed_shapes.h"
#include "trainyard/data/testing/coco_folder.h"

namespace trainyard::cli::data_commands_test {
namespace {

using ::testing::HasSubstr;

class DataCommands : public ::testing::Test {
 protected:
  DataCommands() { data::write_shapes({.train_count = 60, .validation_count = 24, .train_shards = 2}, shapes_); }
  CommandResult convert(const std::string& from, const std::string& to, const std::string& output,
                        const std::string& name = "shapes") {
    Arguments arguments = {"data",           "convert",    "--data_name=" + name,
                           "--from=" + from, "--to=" + to, "--output=" + output,
                           "--num_threads=2"};
    if (to == "tfrecord" || to == "webdataset") arguments.emplace_back("--samples_per_shard=25");
    return run_command(arguments);
  }
  // Pixels and label of each image, sorted, since class folders have another order.
  static std::vector<std::string> content(const std::string& directory, data::Subset subset,
                                          const std::string& name = "shapes") {
    const auto dataset = data::datasets().get(name)({.directory = directory, .subset = subset});
    std::vector<std::string> images;
    for (int64_t i = 0; i < dataset->size(); ++i) {
      const data::Record record = dataset->read(i).value();
      const data::RecordImage decoded = data::record_image(record).value();
      const data::Image& image = *decoded.owner;
      images.push_back(std::to_string(record.label - dataset->first_label()) + ":" +
                       std::string(image.pixels.begin(), image.pixels.end()));
    }
    std::sort(images.begin(), images.end());
    return images;
  }
  void expect_same(const std::string& directory) {
    for (const data::Subset subset : {data::Subset::kTrain, data::Subset::kValidation}) {
      EXPECT_TRUE(content(directory, subset) == content(shapes_, subset)) << directory;
    }
  }
  void damage(const std::string& path, const std::function<void(std::string&)>& change) {
    std::string bytes = files_.read_file(path);
    change(bytes);
    files_.write_file_atomically(path, bytes);
  }

  core::TempDir temp_;
  core::FileSystem& files_ = core::local_file_system();
  std::string shapes_ = temp_.file("shapes");
};

TEST_F(DataCommands, ConvertsFromEachFormToEachOther) {
  for (const std::string to : {"tfrecord", "webdataset", "folder"}) {
    const CommandResult result = convert(shapes_, to, temp_.file(to));
    EXPECT_EQ(result.code, kSuccess) << result.err;
    EXPECT_EQ(result.out, "wrote 60 training and 24 validation images of shapes to " + temp_.file(to) + "\n");
    expect_same(temp_.file(to));
    for (const std::string next : {"tfrecord", "webdataset", "folder"}) {
      const std::string path = temp_.file(to + "_" + next);
      ASSERT_EQ(convert(temp_.file(to), next, path).code, kSuccess);
      expect_same(path);
    }
  }
  EXPECT_EQ(files_.list(temp_.file("tfrecord")).size(), 5U);  // 3 and 1 shards, the names of the classes
  const CommandResult again = convert(shapes_, "folder", temp_.file("folder"));
  EXPECT_EQ(again.code, kUsage);
  EXPECT_THAT(again.err, HasSubstr("exists and is not empty"));
  EXPECT_EQ(convert(shapes_, "zip", temp_.file("zip")).code, kUsage);
  EXPECT_EQ(convert(temp_.file("nowhere"), "folder", temp_.file("new")).code, kFailure);
  EXPECT_FALSE(files_.exists(temp_.file("new")));
}

// As a shell completes the name of a folder.
TEST_F(DataCommands, TheOutputMayEndInASlash) {
  files_.make_directories(temp_.file("there"));
  for (const char* output : {"there/", "new/"}) {
    EXPECT_EQ(convert(shapes_, "webdataset", temp_.file(output)).code, kSuccess) << output;
    expect_same(temp_.file(output));
  }
}

// As Ctrl-C asks for it.
TEST_F(DataCommands, AConversionThatIsStoppedLeavesNothing) {
  core::StopSource stop;
  stop.request_stop(core::StopReason::kSignal, "SIGINT");
  const std::string boxed = temp_.file("boxed");
  data::write_boxed_shapes({.train_count = 2, .validation_count = 2}, boxed);
  for (const std::string form : {"tfrecord", "webdataset", "folder", "cifar_binary", "coco"}) {
    const std::string output = temp_.file(form), name = form == "coco" ? "coco" : "shapes";
    const std::string from = form == "coco" ? boxed : shapes_;
    const Arguments arguments = {"data",           "convert",      "--data_name=" + name,
                                 "--from=" + from, "--to=" + form, "--output=" + output};
    const CommandResult result = run_command(arguments, stop.token());
    EXPECT_EQ(result.code, kStoppedBySignal) << form << result.err;
    EXPECT_THAT(result.err, HasSubstr("the conversion was stopped"));
    EXPECT_FALSE(files_.exists(output)) << form;
  }
}

TEST_F(DataCommands, BoxedShapesHaveCountsOfTheirOwn) {
  const std::string boxed = temp_.file("boxed");
  const CommandResult made =
      run_command({"data", "make-shapes", "--boxes", "--output=" + boxed, "--train_count=2", "--image_size=16"});
  EXPECT_EQ(made.out, "wrote 2 training and 200 validation images with boxes of 12 kinds of shapes to " + boxed + "\n")
      << made.err;
  EXPECT_EQ(files_.list(core::join_path(boxed, "val2017")).size(), 200U);
  const std::string help = run_command({"data", "make-shapes", "--help"}).out;
  for (const char* said : {"; 2000 with --boxes", "; 200 with --boxes", "; 300 with --boxes"}) {
    EXPECT_THAT(help, HasSubstr(said));
  }
}

TEST_F(DataCommands, ConvertsCifarBatchesWithoutLoss) {
  const std::string small = temp_.file("small"), batches = temp_.file("batches"), folder = temp_.file("png");
  ASSERT_EQ(run_command({"data", "make-shapes", "--output=" + small, "--train_count=60", "--validation_count=10",
                         "--image_size=32"})
                .code,
            kSuccess);
  // Shapes have 12 classes, CIFAR-10 has 10.
  const CommandResult refused = convert(small, "cifar_binary", batches);
  EXPECT_EQ(refused.code, kUsage);
  EXPECT_THAT(refused.err, HasSubstr("does not fit into a CIFAR-10 batch"));
  std::string bytes;
  for (int i = 0; i < 20; ++i) {
    bytes += static_cast<char>(i % 10);
    for (int p = 0; p < 3072; ++p) bytes += static_cast<char>(i * 7 + p);
  }
  files_.make_directories(batches);
  for (const char* name :
       {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
    files_.write_file_atomically(core::join_path(batches, std::string(name) + ".bin"), bytes);
  }
  ASSERT_EQ(convert(batches, "folder", folder, "cifar10").code, kSuccess);
  EXPECT_EQ(files_.list(core::join_path(folder, "train")).front(), "airplane");
  ASSERT_EQ(convert(folder, "webdataset", temp_.file("tars"), "cifar10").code, kSuccess);
  ASSERT_EQ(convert(temp_.file("tars"), "cifar_binary", temp_.file("back"), "cifar10").code, kSuccess);
  EXPECT_EQ(content(temp_.file("back"), data::Subset::kTrain, "cifar10"),
            content(batches, data::Subset::kTrain, "cifar10"));
}

TEST_F(DataCommands, ClassesOfImagenetAreTheSameInEachForm) {
  const auto sample = core::shared_data("imagenet_sample");
  if (!sample) GTEST_SKIP() << core::missing_shared_data("imagenet_sample");
  const auto tfrecords = content(*sample, data::Subset::kValidation, "imagenet");
  for (const std::string to : {"webdataset", "tfrecord"}) {
    ASSERT_EQ(convert(*sample, to, temp_.file(to), "imagenet").code, kSuccess);
    EXPECT_TRUE(content(temp_.file(to), data::Subset::kValidation, "imagenet") == tfrecords) << to;
  }
}

// TFRecords of ImageNet count classes from 1, folders from 0.
TEST_F(DataCommands, ClassFoldersBecomeTfRecordsOfImagenet) {
  ASSERT_EQ(convert(shapes_, "folder", temp_.file("folder")).code, kSuccess);
  ASSERT_EQ(convert(temp_.file("folder"), "tfrecord", temp_.file("records"), "imagenet").code, kSuccess);
  const auto folder = data::datasets().get("imagenet")({.directory = temp_.file("folder")});
  const auto records = data::datasets().get("imagenet")({.directory = temp_.file("records")});
  EXPECT_EQ(folder->label_count(), 12);
  const data::Record last = folder->read(59).value();  // folders come in the order of their names
  EXPECT_EQ(last.label_text, "triangle");
  EXPECT_EQ(last.label, 2);
  EXPECT_EQ(records->read(59).value().label, 3);
  EXPECT_EQ(records->read(59).value().label_text, "triangle");
}

TEST_F(DataCommands, VerifyFindsEachBadSample) {
  const Arguments verify = {"data", "verify", "--data_name=shapes", shapes_};
  const CommandResult good = run_command(verify);
  EXPECT_EQ(good.code, kSuccess) << good.err;
  EXPECT_EQ(good.out, "60 training and 24 validation images of shapes: all good\n");
  damage(core::join_path(shapes_, "train-00001-of-00002"), [](std::string& bytes) { bytes[bytes.size() / 2] ^= 1; });
  damage(core::join_path(shapes_, "validation-00000-of-00001"), [](std::string& bytes) { bytes[7] = 0x10; });
  const CommandResult bad = run_command(verify);
  EXPECT_EQ(bad.code, kFailure);
  EXPECT_EQ(
      count_lines(bad.out, "^bad: checksum of the record's data differs: .*train-00001-of-00002 at offset [0-9]+"), 1);
  EXPECT_EQ(
      count_lines(bad.out, "^bad: checksum of the record's length differs: .*validation-00000-of-00001 at offset 0"),
      1);
  EXPECT_THAT(bad.out, HasSubstr("60 training and 0 validation images of shapes: 2 bad"));
  EXPECT_EQ(run_command({"data", "verify"}).code, kUsage);
  EXPECT_EQ(run_command({"data", "verify", "--data_name=shapes", temp_.file("nowhere")}).code, kFailure);
}

// No shard is bad because of it.
TEST_F(DataCommands, VerifyRefusesAFolderOfIndexFilesThatIsNotThere) {
  const CommandResult typo =
      run_command({"data", "verify", "--data_name=shapes", "--data_index_dir=" + temp_.file("no/where"), shapes_});
  EXPECT_EQ(typo.code, kFailure);
  EXPECT_EQ(typo.out, "");
  EXPECT_THAT(typo.err, HasSubstr(temp_.file("no/where")));
  EXPECT_THAT(typo.err, HasSubstr("check --data_index_dir"));
}

TEST_F(DataCommands, VerifyNeedsNoName) {
  const core::TempDir elsewhere;  // without a data set's name in its path
  ASSERT_EQ(convert(shapes_, "tfrecord", elsewhere.file("records")).code, kSuccess);
  EXPECT_EQ(run_command({"data", "verify", elsewhere.file("records")}).out,
            "60 training and 24 validation images of shapes: all good\n")
      << "by the first record";
  EXPECT_EQ(run_command({"train", "--train_dir=", "--model=trivial", "--data_dir=" + elsewhere.file("records"),
                         "--num_batches=1"})
                .code,
            kSuccess);
}

TEST_F(DataCommands, VerifyDecodesImages) {
  ASSERT_EQ(convert(shapes_, "folder", temp_.file("folder")).code, kSuccess);
  const std::string folder = core::join_path(temp_.file("folder"), "train/circle");
  const std::string image = core::join_path(folder, files_.list(folder).front());
  damage(image, [](std::string& bytes) { bytes.resize(bytes.size() / 2); });
  const CommandResult bad = run_command({"data", "verify", temp_.file("folder")});
  EXPECT_EQ(bad.code, kFailure);
  EXPECT_EQ(count_lines(bad.out, "^bad: .*" + core::base_name(image)), 1) << bad.out;
  EXPECT_THAT(bad.out, HasSubstr("images of shapes: 1 bad")) << "by the folders' names";
}

TEST_F(DataCommands, VerifyListsFilesThatCannotBeOpened) {
  ASSERT_EQ(convert(shapes_, "folder", temp_.file("folder")).code, kSuccess);
  const std::string folder = temp_.file("folder/train/circle");
  std::filesystem::create_symlink("nowhere", folder + "/dangling.jpg");
  ASSERT_EQ(::mkfifo((folder + "/pipe.jpg").c_str(), 0600), 0);
  const CommandResult bad = run_command({"data", "verify", temp_.file("folder")});
  EXPECT_EQ(bad.code, kFailure) << bad.err;
  EXPECT_EQ(count_lines(bad.out,
                        "^bad: (open file failed|a pipe or device cannot be read like a file): .*/(dangling|pipe).jpg"),
            2)
      << bad.out;
  EXPECT_THAT(bad.out, HasSubstr("62 training and 24 validation images of shapes: 2 bad"));
}

// Whatever the library says of it, and whatever its name.
TEST_F(DataCommands, VerifyPrintsOneLineForEachBadFile) {
  const std::string refused =
      core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/data/testdata/formats/tif/refused_jpeg.tif");
  const std::string tiff = files_.read_file(refused);
  if (!data::image_format_of(std::as_bytes(std::span(tiff)))->built_in()) {
    GTEST_SKIP() << core::skip::kNeedsImageFormats;
  }
  files_.make_directories(temp_.file("folder/train/a"));
  for (const char* name : {"folder/train/a/1.tif", "folder/train/a/2\n3.tif"}) {
    files_.write_file_atomically(temp_.file(name), tiff);
  }
  const CommandResult bad = run_command({"data", "verify", temp_.file("folder")});
  EXPECT_EQ(bad.code, kFailure);
  EXPECT_EQ(count_lines(bad.out, ""), 3) << bad.out;
  EXPECT_EQ(count_lines(bad.out, "^bad: TIFF cannot be decoded: .*/a/[12].*tif"), 2) << bad.out;
}

// A shard that has gone is not taken for a set without that subset.
TEST_F(DataCommands, AMissingShardIsNoMissingSubset) {
  const std::string shard = core::join_path(shapes_, "validation-00000-of-00001");
  files_.remove_file(shard);
  EXPECT_EQ(run_command({"data", "verify", "--data_name=shapes", shapes_}).out,
            "60 training and 0 validation images of shapes: all good\n");
  std::filesystem::create_symlink("nowhere", shard);
  const CommandResult verified = run_command({"data", "verify", "--data_name=shapes", shapes_});
  EXPECT_EQ(verified.code, kFailure);
  EXPECT_THAT(verified.out, HasSubstr(shard));
  EXPECT_THAT(verified.out, HasSubstr("60 training and 0 validation images of shapes: 1 bad"));
  const CommandResult converted = convert(shapes_, "folder", temp_.file("folder"));
  EXPECT_EQ(converted.code, kFailure);
  EXPECT_THAT(converted.err, HasSubstr(shard));
  EXPECT_FALSE(files_.exists(temp_.file("folder")));
}

TEST_F(DataCommands, VerifyReadsOnBehindAnEmptyShard) {
  files_.write_file_atomically(core::join_path(shapes_, "train-00000-of-00003"), "");
  EXPECT_EQ(run_command({"data", "verify", "--data_name=shapes", shapes_}).out,
            "60 training and 24 validation images of shapes: all good\n");
}

TEST_F(DataCommands, ADirectoryThatIsNotThereIsNamed) {
  const CommandResult result = run_command({"data", "convert", "--from=/no/such", "--output=" + temp_.file("x")});
  EXPECT_EQ(result.code, kFailure);
  EXPECT_THAT(result.err, HasSubstr("data directory does not exist: /no/such"));
}

TEST_F(DataCommands, IndexWritesWhatRunsRead) {
  const CommandResult result = run_command({"data", "index", shapes_});
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_EQ(result.out, "indexed 84 records in 3 shards, in " + shapes_ + "/idx\n");
  EXPECT_EQ(run_command({"data", "verify", "--data_name=shapes", shapes_}).code, kSuccess);
  damage(core::join_path(shapes_, "idx/train-00000-of-00002.idx"), [](std::string& bytes) { bytes += "9 99\n"; });
  const CommandResult stale = run_command({"data", "verify", "--data_name=shapes", shapes_});
  EXPECT_EQ(stale.code, kFailure);
  EXPECT_THAT(stale.out, HasSubstr("bad: index file is not of this shard"));
  EXPECT_THAT(stale.out, HasSubstr("60 training and 24 validation images of shapes: 1 bad"));
  const CommandResult run = run_command(
      {"train", "--model=trivial", "--data_name=shapes", "--data_dir=" + shapes_, "--num_batches=1", "--device=cpu"});
  EXPECT_EQ(run.code, kFailure);
  EXPECT_THAT(run.err, HasSubstr("trainyard data index"));
  EXPECT_EQ(run_command({"data", "index", temp_.path()}).code, kFailure);
}

TEST_F(DataCommands, IndexLooksIntoTheFoldersOfTheSubsets) {
  const std::string divided = temp_.file("divided");
  for (const std::string& name : files_.list(shapes_)) {
    if (name.find("-of-") == std::string::npos) continue;
    const std::string folder = core::join_path(divided, name.starts_with("train") ? "train" : "val");
    files_.make_directories(folder);
    files_.write_file_atomically(core::join_path(folder, name), files_.read_file(core::join_path(shapes_, name)));
  }
  const CommandResult result = run_command({"data", "index", divided});
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_EQ(result.out, "indexed 84 records in 3 shards, in " + divided + "/train/idx and " + divided + "/val/idx\n");
  EXPECT_EQ(files_.list(core::join_path(divided, "train/idx")).size(), 2U);
  // Runs read them there.
  damage(core::join_path(divided, "val/idx/validation-00000-of-00001.idx"), [](std::string& b) { b += "9 99\n"; });
  const CommandResult stale = run_command({"data", "verify", "--data_name=shapes", divided});
  EXPECT_EQ(stale.code, kFailure);
  EXPECT_THAT(stale.out, HasSubstr("bad: index file is not of this shard"));
  // All in one folder, as --data_index_dir takes it.
  const CommandResult together = run_command({"data", "index", divided, "--output=" + temp_.file("idx")});
  EXPECT_EQ(together.out, "indexed 84 records in 3 shards, in " + temp_.file("idx") + "\n");
  EXPECT_EQ(files_.list(temp_.file("idx")).size(), 3U);
  // Two shards of one name have no place there.
  const std::string name = "val/validation-00000-of-00001";
  files_.write_file_atomically(core::join_path(divided, "train/validation-00000-of-00001"),
                               files_.read_file(core::join_path(divided, name)));
  const CommandResult same = run_command({"data", "index", divided, "--output=" + temp_.file("other")});
  EXPECT_EQ(same.code, kUsage);
  EXPECT_THAT(same.err, HasSubstr("two shards of one name"));
  EXPECT_FALSE(files_.exists(temp_.file("other")));
}

// As trainings divide them: what is written has each image once.
TEST_F(DataCommands, ClassFoldersWithoutSubsetsAreDivided) {
  ASSERT_EQ(convert(shapes_, "folder", temp_.file("folder")).code, kSuccess);
  const std::string whole = temp_.file("whole");  // 12 classes of 5 images
  files_.rename(core::join_path(temp_.file("folder"), "train"), whole);
  files_.make_directories(core::join_path(whole, "zebra"));
  const std::string one = core::join_path(whole, files_.list(whole)[0]);
  files_.write_file_atomically(core::join_path(whole, "zebra/only.png"),
                               files_.read_file(core::join_path(one, files_.list(one)[0])));
  const std::string divided = temp_.file("divided");
  const CommandResult result = convert(whole, "folder", divided);
  EXPECT_EQ(result.out, "wrote 49 training and 12 validation images of shapes to " + divided + "\n") << result.err;
  EXPECT_THAT(result.err, HasSubstr("has no folder val: a fifth of each class"));
  EXPECT_EQ(files_.list(core::join_path(divided, "train/zebra")).size(), 1U);
  EXPECT_EQ(files_.list(core::join_path(divided, "val/zebra")).size(), 0U);
  const std::vector<std::string> train = content(divided, data::Subset::kTrain),
                                 validation = content(divided, data::Subset::kValidation);
  std::vector<std::string> both = train;
  both.insert(both.end(), validation.begin(), validation.end());
  std::sort(both.begin(), both.end());
  std::vector<std::string> all = content(whole, data::Subset::kTrain);
  const std::vector<std::string> rest = content(whole, data::Subset::kValidation);
  all.insert(all.end(), rest.begin(), rest.end());
  std::sort(all.begin(), all.end());
  EXPECT_TRUE(both == all);
  // Each time the same.
  ASSERT_EQ(convert(whole, "webdataset", temp_.file("tars")).code, kSuccess);
  EXPECT_EQ(content(temp_.file("tars"), data::Subset::kValidation), validation);
}

TEST_F(DataCommands, IndexFilesAreThoseOfDali) {
  const auto sample = core::shared_data("imagenet_sample");
  if (!sample) GTEST_SKIP() << core::missing_shared_data("imagenet_sample");
  ASSERT_EQ(run_command({"data", "index", *sample, "--output=" + temp_.file("idx")}).code, kSuccess);
  const std::string golden = core::join_path(*sample, "idx");
  ASSERT_EQ(files_.list(temp_.file("idx")), files_.list(golden));
  for (const std::string& name : files_.list(golden)) {
    EXPECT_EQ(files_.read_file(core::join_path(temp_.file("idx"), name)),
              files_.read_file(core::join_path(golden, name)));
  }
}

TEST_F(DataCommands, ShowWritesAContactSheet) {
  const std::string sheet = temp_.file("sheet.png");
  const Arguments show = {"data",     "show", "--data_name=shapes", "--data_dir=" + shapes_, "--output=" + sheet,
                          "--count=6"};
  const CommandResult result = run_command(show);
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_EQ(
      count_lines(result.out, "^ +[1-6]: sample [0-9]+, label [0-9]+ [a-z]+: .*train-0000[01]-of-00002 at offset"), 6);
  EXPECT_THAT(result.out, HasSubstr("wrote 148 x 112 pixels to " + sheet));
  const std::string bytes = files_.read_file(sheet);
  EXPECT_TRUE(bytes.starts_with("\x89PNG"));
  Arguments other = show;
  other.push_back("--nodistortions");
  EXPECT_EQ(run_command(other).code, kSuccess);
  EXPECT_NE(files_.read_file(sheet), bytes) << "as the flags have it";
  for (const char* flag : {"--epoch=1", "--tf_random_seed=5"}) {
    Arguments another = show;
    another.push_back(flag);
    EXPECT_EQ(run_command(another).code, kSuccess) << flag;
    EXPECT_NE(files_.read_file(sheet), bytes) << flag << " has another order and other crops";
  }
  other.push_back("--subset=validation");
  EXPECT_THAT(run_command(other).out, HasSubstr("validation-00000-of-00001 at offset 0"));
  EXPECT_EQ(run_command({"data", "show"}).code, kUsage);
}

TEST_F(DataCommands, CocoIsRecognisedShownConvertedAndVerified) {
  const std::string coco = temp_.file("boxed"), records = temp_.file("boxed_records"), back = temp_.file("back");
  data::write_small_coco(coco);
  const std::string sheet = temp_.file("boxes.png");
  const CommandResult shown = run_command({"data", "show", "--data_dir=" + coco, "--output=" + sheet, "--count=2"});
  EXPECT_EQ(shown.code, kSuccess) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("boxes of person, toothbrush: " + coco));
  EXPECT_THAT(shown.out, HasSubstr("wrote 612 x 612 pixels"));
  const CommandResult converted =
      run_command({"data", "convert", "--from=" + coco, "--to=tfrecord", "--output=" + records});
  EXPECT_EQ(converted.code, kSuccess) << converted.err;
  EXPECT_THAT(converted.out, HasSubstr("wrote 3 training and 1 validation images of coco to " + records));
  EXPECT_EQ(run_command({"data", "convert", "--from=" + records, "--to=coco", "--output=" + back}).code, kSuccess);
  EXPECT_EQ(files_.read_file(back + "/annotations/instances_val2017.json"),
            files_.read_file(coco + "/annotations/instances_val2017.json"));
  for (const std::string& folder : {coco, records, back}) {
    const CommandResult verified = run_command({"data", "verify", folder});
    EXPECT_EQ(verified.code, kSuccess) << verified.err;
    EXPECT_THAT(verified.out, HasSubstr("2 training and 1 validation images of coco: all good")) << folder;
  }
  EXPECT_EQ(run_command({"data", "convert", "--from=" + coco, "--to=folder", "--output=" + temp_.file("no")}).code,
            kUsage);
}

// A model of as many classes as there are folders, with and without saying so.
TEST_F(DataCommands, TrainsOnEachForm) {
  for (const std::string to : {"webdataset", "folder"}) {
    ASSERT_EQ(convert(shapes_, to, temp_.file(to)).code, kSuccess);
    const Arguments train = {
        "train",        "--train_dir=",           "--model=trivial", "--data_dir=" + temp_.file(to), "--num_batches=2",
        "--device=cpu", "--num_warmup_batches=0", "--batch_size=4",  "--num_intra_threads=1"};
    Arguments named = train;
    named.push_back("--data_name=shapes");
    EXPECT_EQ(run_command(named).code, kSuccess);
    named.push_back("--num_classes=11");
    const CommandResult few = run_command(named);
    if (to == "folder") {
      EXPECT_THAT(few.err, HasSubstr("data set has more classes than the model: expected at most 11, got 12"));
    }
  }
}

}  // namespace
}  // namespace trainyard::cli::data_commands_test
