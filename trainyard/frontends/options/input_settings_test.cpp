#include "trainyard/frontends/options/input_settings.h"

#include <optional>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/frontends/options/input_options.h"
#include "trainyard/frontends/tf_cnn/flags.h"

namespace trainyard::frontends::input_settings_test {
namespace {

InputSettings read(const std::vector<std::string>& arguments, const std::string& dataset = "imagenet") {
  const core::FlagValues values = core::parse_flags(tf_cnn_flags(), arguments);
  return settle_input(read_input_options(values), dataset, 224, static_cast<int>(values.integer("num_gpus")));
}

std::string why(const std::vector<std::string>& arguments, const std::string& dataset = "imagenet") {
  try {
    read(arguments, dataset);
  } catch (const core::Error& error) {
    EXPECT_FALSE(error.detail().remedy.empty());
    return error.what();
  }
  return "";
}

TEST(InputSettings, DecodingOnTheGpuIsAskedForByName) {
  EXPECT_FALSE(read({"--data_dir=x"}).decode_on_gpu);
  for (const char* mode : {"none", "CPU"}) {
    EXPECT_FALSE(read({"--data_dir=x", std::string("--dali_mode=") + mode}).decode_on_gpu);
  }
  EXPECT_TRUE(read({"--data_dir=x", "--dali_mode=GPU", "--nodistortions"}).decode_on_gpu);
}

TEST(InputSettings, ASizeOfTheShorterSideThatFollowsTheImagesIsSaid) {
  const auto log_of = [](const std::vector<std::string>& arguments, nn::Size2d size) {
    ::testing::internal::CaptureStderr();
    const core::FlagValues values = core::parse_flags(tf_cnn_flags(), arguments);
    static_cast<void>(settle_input(read_input_options(values), "imagenet", size, 1));
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string said = log_of({"--data_dir=x", "--input_preprocessor=torchvision"}, 96);
  EXPECT_NE(said.find("to 110 pixels for a model of 96x96"), std::string::npos) << said;
  EXPECT_NE(said.find("--eval_resize_size"), std::string::npos) << said;
  EXPECT_EQ(log_of({"--data_dir=x", "--input_preprocessor=torchvision"}, 224), "");
  EXPECT_EQ(log_of({"--data_dir=x", "--input_preprocessor=torchvision", "--eval_resize_size=128"}, 96), "");
  EXPECT_EQ(log_of({"--data_dir=x"}, 96), "");
}

TEST(InputSettings, DecodingOnTheGpuIsAtFullSize) {
  const InputSettings settings = read({"--data_dir=x", "--dali_mode=GPU", "--input_preprocessor=dali"});
  EXPECT_TRUE(settings.decode_on_gpu);
  EXPECT_FALSE(settings.transform.scaled_decode);
  EXPECT_TRUE(read({"--data_dir=x", "--input_preprocessor=dali"}).transform.scaled_decode);
  EXPECT_NE(why({"--data_dir=x", "--dali_mode=GPU", "--nodistortions", "--scaled_decode"}).find("scaled_decode"),
            std::string::npos);
}

TEST(InputSettings, WhatDoesNotGoWithDecodingOnTheGpuIsSaid) {
  const auto says = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  says(why({"--dali_mode=GPU", "--nodistortions"}), "no files");
  says(why({"--dali_mode=GPU", "--nodistortions", "--data_dir=x"}, "cifar10"), "cifar10");
  says(why({"--dali_mode=GPU", "--nodistortions", "--data_dir=x", "--datasets_repeat_cached_sample"}), "repeat_cached");
  says(why({"--dali_mode=GPU", "--nodistortions", "--data_dir=x", "--num_gpus=2"}), "2 GPUs");
  says(why({"--dali_mode=GPU", "--data_dir=x"}), "--nodistortions");
  says(why({"--dali_mode=GPU", "--nodistortions", "--data_dir=x", "--random_erasing=0.5"}), "erasing");
  says(why({"--dali_mode=GPU", "--nodistortions", "--data_dir=x", "--cutmix_alpha=1"}), "--cutmix_alpha");
  says(why({"--dali_mode=GPU", "--nodistortions", "--data_dir=x", "--progressive_sizes=0:9"}), "--progressive_sizes");
}

TEST(InputSettings, FlagsOfDataAreRefusedWithoutAny) {
  const auto refusal = [](const std::string& flag) { return flag + " has no use without data; pass --data_dir, too"; };
  EXPECT_EQ(why({"--data_index_dir=y"}), refusal("--data_index_dir"));
  EXPECT_EQ(why({"--labels_csv=y.csv"}), refusal("--labels_csv"));
  EXPECT_EQ(why({"--balanced_sampling"}), refusal("--balanced_sampling"));
  EXPECT_EQ(why({"--validation_split=0.25"}), refusal("--validation_split"));
  EXPECT_EQ(why({"--folds=3", "--fold=1"}), refusal("--folds"));
  EXPECT_EQ(why({}), "");
}

// A cache inside of the data would change what it is compared with.
TEST(InputSettings, ACacheOfDecodedImagesIsNotInsideTheData) {
  for (const char* const inside : {"x", "x/cache", "y/../x/cache", "./x/"}) {
    EXPECT_EQ(why({"--data_dir=x", std::string("--decoded_cache_dir=") + inside}),
              std::string("--decoded_cache_dir is inside --data_dir: got ") + inside + "; name a folder elsewhere");
  }
  for (const char* const elsewhere : {"xy", "y/x", "x/../cache"}) {
    EXPECT_EQ(read({"--data_dir=x", std::string("--decoded_cache_dir=") + elsewhere}).decoded_cache_dir, elsewhere);
  }
}

TEST(InputSettings, ACacheOfDecodedImagesHasThemAtFullSize) {
  for (const char* const cache : {"--decoded_cache_mib=3", "--decoded_cache_dir=y"}) {
    EXPECT_FALSE(read({"--data_dir=x", "--input_preprocessor=dali", cache}).transform.scaled_decode) << cache;
    EXPECT_NE(why({"--data_dir=x", "--scaled_decode", cache}).find("--scaled_decode does not go with a cache"),
              std::string::npos)
        << cache;
  }
}

TEST(InputSettings, FlagsOfThePipelineReachIt) {
  const InputSettings plain = read({"--data_dir=x"});
  const auto with = [](const std::string& flag) { return read({"--data_dir=x", flag}); };
  const auto pipeline = [&](const std::string& flag) { return pipeline_options(with(flag), true); };
  // One batch more than those that are ready: the one in the making.
  EXPECT_EQ(pipeline_options(plain, true).prefetch_batches, 2);
  EXPECT_EQ(pipeline("--nodatasets_use_prefetch").prefetch_batches, 1);
  EXPECT_EQ(pipeline("--datasets_prefetch_buffer_size=3").prefetch_batches, 4);
  EXPECT_EQ(pipeline("--multi_device_iterator_max_buffer_size=5").prefetch_batches, 6);
  EXPECT_EQ(pipeline("--datasets_num_private_threads=7").worker_threads, 7);
  EXPECT_EQ(pipeline("--shuffle_buffer=10").order.shuffle_buffer, 10);
  EXPECT_TRUE(pipeline("--datasets_repeat_cached_sample").repeat_cached_sample);
  EXPECT_EQ(pipeline("--tf_random_seed=5").seed, 5U);
  EXPECT_EQ(pipeline_options(with("--tf_random_seed=5"), false).seed, 5U);
  EXPECT_EQ(pipeline_options(plain, true).seed, 1234U);

  EXPECT_EQ(plain.record_cache_bytes, 0);
  EXPECT_GT(with("--datasets_use_caching").record_cache_bytes, 0);
  EXPECT_EQ(read({"--data_dir=x", "--datasets_use_caching", "--record_cache_mib=4"}).record_cache_bytes, 4 << 20);
  EXPECT_EQ(plain.decoded_cache_bytes, 0);
  EXPECT_EQ(with("--decoded_cache_mib=3").decoded_cache_bytes, 3 << 20);
  EXPECT_EQ(with("--decoded_cache_dir=y").decoded_cache_dir, "y");
  EXPECT_FALSE(plain.balanced_sampling);
  EXPECT_TRUE(with("--balanced_sampling").balanced_sampling);
  EXPECT_EQ(plain.on_unknown_class, data::OnUnknownClass::kFail);
  EXPECT_EQ(with("--on_unknown_class=skip").on_unknown_class, data::OnUnknownClass::kSkip);
}

// Each process of a machine took half of its free memory.
TEST(InputSettings, ProcessesOfAMachineShareItsMemory) {
  const core::EnvironmentVariable mpirun("OMPI_COMM_WORLD_LOCAL_SIZE", std::nullopt);
  const core::EnvironmentVariable torchrun("LOCAL_WORLD_SIZE", std::nullopt);
  const core::EnvironmentVariable srun("SLURM_STEP_NUM_TASKS", std::nullopt);
  const core::EnvironmentVariable nodes("SLURM_STEP_NUM_NODES", std::nullopt);
  const core::EnvironmentVariable step("SLURM_STEP_ID", "0");
  const core::EnvironmentVariable terminal("SLURM_PTY_PORT", std::nullopt);
  const auto cache = [](const std::string& flag = "--tf_random_seed=1") {
    return read({"--data_dir=x", "--datasets_use_caching", flag}).record_cache_bytes;
  };
  const int64_t alone = cache();
  for (const auto* const variable : {&mpirun, &torchrun, &srun}) {
    variable->set("8");
    EXPECT_GT(cache(), 0);
    EXPECT_LT(cache(), alone / 4);
    EXPECT_EQ(cache("--record_cache_mib=4"), 4 << 20) << "as asked";
    variable->set("none");
    EXPECT_GT(cache(), alone / 4);
    variable->set(std::nullopt);
  }
  srun.set("16");
  nodes.set("16");
  EXPECT_GT(cache(), alone / 4) << "one on each machine";
  nodes.set("2");
  EXPECT_LT(cache(), alone / 4) << "eight on each machine";
  terminal.set("40000");
  EXPECT_GT(cache(), alone / 4) << "the shell of srun --pty is alone";
}

TEST(InputSettings, TheDataSetIsOpenedAsTheFlagsSay) {
  const core::FlagValues values =
      core::parse_flags(tf_cnn_flags(), {"--data_dir=x", "--data_index_dir=y", "--labels_csv=z.csv",
                                         "--on_unlabelled_file=skip", "--folds=3", "--fold=1"});
  InputSettings settings = settle_input(read_input_options(values), "imagenet", 224, 1);
  const data::DatasetOptions options = dataset_options(settings, data::Subset::kValidation);
  EXPECT_EQ(options.directory, "x");
  EXPECT_EQ(options.subset, data::Subset::kValidation);
  EXPECT_EQ(options.index_directory, "y");
  EXPECT_EQ(options.labels_csv, "z.csv");
  EXPECT_EQ(options.on_unlabelled_file, data::OnUnlabelledFile::kSkip);
  EXPECT_EQ(options.division, (data::Division{.folds = 3, .fold = 1}));
  EXPECT_TRUE(options.divide);
  EXPECT_TRUE(options.requires_division) << "data that cannot be divided are refused where a flag asks for it";
  settings.division_is_saved = true;
  EXPECT_FALSE(dataset_options(settings, data::Subset::kTrain).requires_division);
  settings.division_is_saved = false;
  settings.division.reset();
  EXPECT_FALSE(dataset_options(settings, data::Subset::kTrain).requires_division);
  EXPECT_FALSE(dataset_options(read({"--data_dir=x", "--nosplit_class_folders"}), data::Subset::kTrain).divide);
}

TEST(InputSettings, ThePipelineHasTheSizeOfTheImages) {
  const core::FlagValues values = core::parse_flags(tf_cnn_flags(), {"--data_dir=x", "--on_bad_sample=substitute"});
  const InputSettings settings = settle_input(read_input_options(values), "imagenet", {96, 128}, 1);
  const data::PipelineOptions training = pipeline_options(settings, true),
                              evaluation = pipeline_options(settings, false);
  EXPECT_EQ(training.height, 96);
  EXPECT_EQ(training.width, 128);
  EXPECT_EQ(training.bad_samples.policy, data::OnBadSample::kSubstitute);
  EXPECT_TRUE(training.order.shuffle);
  EXPECT_FALSE(evaluation.order.shuffle);
}

// Several labels an image would be lost in it.
TEST(InputSettings, ACacheOfDecodedImagesHasOneLabelAnImage) {
  const core::TempDir temp;
  core::FileSystem& files = core::local_file_system();
  files.make_directories(temp.file("photos"));
  for (const char* const name : {"photos/a.png", "photos/b.png"}) {
    const auto png = data::encode_png(data::flat_image(8, 8, 100));
    files.write_file_atomically(temp.file(name), {reinterpret_cast<const char*>(png.data()), png.size()});
  }
  files.write_file_atomically(temp.file("labels.csv"), "file,labels\na.png,cat;dog\nb.png,dog\n");
  InputOptions options;
  options.data_dir = temp.file("photos");
  options.labels_csv = temp.file("labels.csv");
  options.split_class_folders = false;
  const auto opened = [&] { return open_dataset(settle_input(options, "imagenet", 224, 1), data::Subset::kTrain); };
  EXPECT_TRUE(opened()->has_label_sets());
  options.decoded_cache_bytes = 1 << 20;
  EXPECT_EQ(core::message_of([&] { opened(); }, core::ErrorCode::kUnsupported),
            "a cache of decoded images keeps one label an image: got several labels an image (--labels_csv); leave "
            "--decoded_cache_mib and --decoded_cache_dir out");
}

// Folds of one size have images of the same number and classes, but others at each place.
TEST(InputSettings, ACacheOfDecodedImagesIsOfOneDivision) {
  const core::TempDir temp;
  core::FileSystem& files = core::local_file_system();
  for (const std::string name : {"cat/a.png", "cat/b.png", "cat/c.png", "dog/a.png", "dog/b.png", "dog/c.png"}) {
    const std::string path = temp.file("photos/" + name);
    files.make_directories(core::parent_path(path));
    const auto png = data::encode_png(data::flat_image(8, 8, 100));
    files.write_file_atomically(path, {reinterpret_cast<const char*>(png.data()), png.size()});
  }
  InputOptions options;
  options.data_dir = temp.file("photos");
  options.decoded_cache_dir = temp.file("decoded");
  const auto reads = [&](int64_t fold) {
    options.division = data::Division{.folds = 3, .fold = fold};
    return open_dataset(settle_input(options, "imagenet", 224, 1), data::Subset::kTrain)->read(0).ok();
  };
  EXPECT_TRUE(reads(0));
  EXPECT_TRUE(reads(0)) << "by what the cache has";
  EXPECT_NE(core::message_of([&] { reads(1); }).find("cached decoded images are of other data"), std::string::npos);
}

TEST(InputSettings, BatchesAreMadeOtherwiseInTrainingAlone) {
  const InputSettings settings =
      read({"--data_dir=x", "--mixup_alpha=0.2", "--cutmix_alpha=0.5", "--mixup_prob=0.75", "--mixup_switch_prob=0.25",
            "--repeated_augmentation=3", "--progressive_sizes=0:128,5:224"});
  const data::PipelineOptions training = pipeline_options(settings, true),
                              evaluation = pipeline_options(settings, false);
  EXPECT_EQ(training.mix.mixup_alpha, 0.2);
  EXPECT_EQ(training.mix.cutmix_alpha, 0.5);
  EXPECT_EQ(training.mix.probability, 0.75);
  EXPECT_EQ(training.mix.cutmix_probability, 0.25);
  EXPECT_EQ(training.repeated_augmentation, 3);
  EXPECT_EQ(settings.epoch_sizes.size(), 2u);
  EXPECT_FALSE(evaluation.mix.enabled());
  EXPECT_EQ(evaluation.repeated_augmentation, 1);
}

}  // namespace
}  // namespace trainyard::frontends::input_settings_test
