// The example's options: which values are refused, what is said of those without effect, and what they become.
#include "trainyard/frontends/paddle/arguments.h"

#include <cmath>
#include <functional>
#include <limits>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/stateful.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/frontends/options/image_options.h"
#include "trainyard/frontends/paddle/executor.h"
#include "trainyard/frontends/paddle/flags.h"
#include "trainyard/frontends/paddle/program.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::frontends::program::arguments_test {
namespace {

using ::testing::HasSubstr, ::testing::Not;
using Change = std::function<void(Arguments&)>;

// Synthetic images, a folder that is not there, and else the defaults.
Arguments settled(const Change& change) {
  Arguments args;
  args.places = {"cpu:0"};
  args.image_root.clear();
  args.output_dir = "no_such_folder";
  change(args);
  settle(args);
  return args;
}

std::string refusal(const Change& change) {
  return core::message_of([&] { settled(change); });
}

TEST(Arguments, OutOfRangeAreRefusedWithTheirRange) {
  EXPECT_EQ(refusal([](Arguments&) {}), "no error");
  EXPECT_EQ(refusal([](Arguments& a) { a.lr = -1; }), "--lr cannot be used: expected at least 0, got -1");
  EXPECT_EQ(refusal([](Arguments& a) { a.lr = 0; }), "no error");
  EXPECT_EQ(refusal([](Arguments& a) { a.momentum = std::nan(""); }),
            "--momentum cannot be used: expected at least 0, got nan");
  EXPECT_EQ(refusal([](Arguments& a) { a.weight_decay = std::numeric_limits<double>::infinity(); }),
            "--weight_decay cannot be used: expected at least 0, got inf");
  EXPECT_EQ(refusal([](Arguments& a) { a.warmup_start_lr = -0.5; }),
            "--warmup_start_lr cannot be used: expected at least 0, got -0.5");
  EXPECT_EQ(refusal([](Arguments& a) { a.scale_loss = 0; }),
            "--scale_loss cannot be used: expected more than 0, got 0");
  EXPECT_EQ(refusal([](Arguments& a) { a.normalize_scale = 0; }),
            "--normalize_scale cannot be used: expected more than 0, got 0");
  EXPECT_EQ(refusal([](Arguments& a) { a.rand_crop_scale = {0.5}; }),
            "--rand_crop_scale cannot be used: expected 2 numbers, got 1");
  EXPECT_EQ(refusal([](Arguments& a) {
              a.rand_crop_ratio = {0.5, 1, 2};
            }),
            "--rand_crop_ratio cannot be used: expected 2 numbers, got 3");
  EXPECT_EQ(refusal([](Arguments& a) { a.normalize_mean = {0.5}; }),
            "--normalize_mean cannot be used: expected 3 numbers, got 1");
  EXPECT_EQ(refusal([](Arguments& a) {
              a.normalize_std = {1, 1, 1, 1};
            }),
            "--normalize_std cannot be used: expected 3 numbers, got 4");
  EXPECT_EQ(refusal([](Arguments& a) { a.data_layout = "NCWH"; }),
            "--data_layout cannot be used: expected NCHW or NHWC, got NCWH");
  EXPECT_EQ(refusal([](Arguments& a) { a.optimizer = "Adam"; }),
            "--optimizer cannot be used: expected Momentum, got Adam");
  EXPECT_EQ(refusal([](Arguments& a) { a.lr_scheduler = "Step"; }),
            "--lr_scheduler cannot be used: expected Cosine, got Step");
  for (const std::string prefix : {"", "a/b"}) {
    EXPECT_EQ(refusal([&](Arguments& a) { a.model_prefix = prefix; }),
              "--model_prefix cannot be used: expected the name of a file, without a folder, got '" + prefix + "'");
  }
  for (int64_t Arguments::*const count : {&Arguments::save_interval, &Arguments::eval_interval,
                                          &Arguments::print_interval, &Arguments::benchmark_steps}) {
    EXPECT_THAT(refusal([&](Arguments& a) { a.*count = 0; }),
                HasSubstr("expected a number from 1 to 2147483648, got 0"));
    EXPECT_EQ(refusal([&](Arguments& a) { a.*count = int64_t{1} << 31; }), "no error");
  }
}

TEST(Arguments, NumbersEndWhereTheirMeaningEnds) {
  struct Range {
    const char* option;
    int64_t Arguments::*member;
    int64_t least, most;
  };
  constexpr int64_t kCount = int64_t{1} << 31;
  for (const Range& range : {Range{"epochs", &Arguments::epochs, 1, kCount},
                             {"save_interval", &Arguments::save_interval, 1, kCount},
                             {"eval_interval", &Arguments::eval_interval, 1, kCount},
                             {"warmup_epochs", &Arguments::warmup_epochs, 0, kCount},
                             {"print_interval", &Arguments::print_interval, 1, kCount},
                             {"benchmark_steps", &Arguments::benchmark_steps, 1, kCount},
                             {"benchmark_warmup_steps", &Arguments::benchmark_warmup_steps, 0, kCount},
                             {"batch_size", &Arguments::batch_size, 1, 1'048'576},
                             {"resize_short", &Arguments::resize_short, 1, 16'384},
                             {"dali_num_threads", &Arguments::dali_num_threads, 1, 1024},
                             {"num_of_class", &Arguments::num_of_class, 1, 16'777'216}}) {
    const auto with = [&](int64_t value) { return refusal([&](Arguments& a) { a.*range.member = value; }); };
    const std::string refused = std::string("--") + range.option + " cannot be used: expected a number from " +
                                std::to_string(range.least) + " to " + std::to_string(range.most) + ", got ";
    // A shorter side of one pixel is too short for the crop.
    if (range.member != &Arguments::resize_short) {
      EXPECT_EQ(with(range.least), "no error") << range.option;
    }
    EXPECT_EQ(with(range.most), "no error") << range.option;
    EXPECT_EQ(with(range.least - 1), refused + std::to_string(range.least - 1));
    EXPECT_EQ(with(range.most + 1), refused + std::to_string(range.most + 1));
  }
  EXPECT_EQ(refusal([](Arguments& a) { a.crop_size = 0; }),
            "--crop_size cannot be used: expected a number from 1 to 16384, got 0");
  EXPECT_EQ(refusal([](Arguments& a) { a.label_smoothing = 0; }), "no error");
  EXPECT_EQ(refusal([](Arguments& a) { a.label_smoothing = -0.5; }),
            "--label_smoothing cannot be used: expected a number in [0, 1), got -0.5");
}

TEST(Arguments, ImagesFitTheModelAndTheCrop) {
  EXPECT_EQ(refusal([](Arguments& a) {
              a.image_shape = {3, 224};
            }),
            "--image_shape cannot be used: expected channels, height and width, got 2 numbers");
  EXPECT_EQ(refusal([](Arguments& a) { a.image_shape[0] = 1; }),
            "--image_shape cannot be used: expected 3 channels, or 4 with one of zeros, got 1 channels");
  EXPECT_EQ(refusal([](Arguments& a) { a.image_shape[2] = 192; }),
            "--image_shape cannot be used: expected images of 224 x 224 pixels, as --crop_size=224 makes them, got 224 "
            "x 192");
  EXPECT_EQ(refusal([](Arguments& a) { a.resize_short = 223; }),
            "--resize_short cannot be used: expected at least --crop_size, which is 224, got 223");
  EXPECT_EQ(refusal([](Arguments& a) { a.resize_short = 224; }), "no error");
  EXPECT_EQ(settled([](Arguments&) {}).model_name(), "paddle/resnet50");
  EXPECT_EQ(settled([](Arguments& a) { a.image_shape[0] = 3; }).model_name(), "torchvision/resnet50");
  const core::Error unknown = core::thrown_by([] {
    settled([](Arguments& a) {
      a.image_shape[0] = 3;
      a.model_arch_name = "resnet_fifty";
    });
  });
  EXPECT_THAT(unknown.what(), HasSubstr("resnet_fifty")) << "before anything is opened";
}

TEST(Arguments, EpochsOfAnEvaluationAndABenchmarkAreOne) {
  const Arguments evaluation = settled([](Arguments& a) {
    a.run_scope = RunScope::kEvalOnly;
    a.eval_interval = 4;
  });
  EXPECT_EQ(evaluation.epochs, 1);
  EXPECT_EQ(evaluation.eval_interval, 1);
  const Arguments benchmark = settled([](Arguments& a) {
    a.run_scope = RunScope::kTrainOnly;
    a.benchmark = true;
    a.eval_interval = 4;
  });
  EXPECT_EQ(benchmark.epochs, 1);
  EXPECT_EQ(benchmark.eval_interval, 4);
  EXPECT_EQ(settled([](Arguments&) {}).epochs, 90);
}

TEST(Arguments, WithoutEffectAreNamed) {
  const auto said = [](const Change& change) {
    ::testing::internal::CaptureStderr();
    settled(change);
    return ::testing::internal::GetCapturedStderr();
  };
  const auto idle = [](const std::string& option, const std::string& needed) {
    return HasSubstr("--" + option + " has no effect without --" + needed + "\n");
  };
  EXPECT_THAT(said([](Arguments&) {}), Not(HasSubstr("--")));
  EXPECT_THAT(said([](Arguments& a) { a.use_dynamic_loss_scaling = true; }), idle("use_dynamic_loss_scaling", "amp"));
  EXPECT_THAT(said([](Arguments& a) { a.use_pure_fp16 = true; }), idle("use_pure_fp16", "amp"));
  EXPECT_THAT(said([](Arguments& a) { a.fuse_resunit = true; }), idle("fuse_resunit", "amp"));
  EXPECT_THAT(said([](Arguments& a) { a.prune_model = true; }), idle("prune_model", "asp"));
  EXPECT_THAT(said([](Arguments& a) { a.mask_algo = "mask_2d_best"; }), idle("mask_algo", "asp and --prune_model"));
  EXPECT_THAT(said([](Arguments& a) { a.last_epoch_of_checkpoint = "1"; }),
              idle("last_epoch_of_checkpoint", "from_checkpoint"));
  EXPECT_THAT(said([](Arguments& a) { a.amp = a.use_pure_fp16 = true; }),
              HasSubstr("--use_pure_fp16: that is what --amp does here in any case"));
  EXPECT_THAT(said([](Arguments& a) { a.amp = a.fuse_resunit = true; }),
              HasSubstr("--fuse_resunit: that is what --amp does here in any case"));
  EXPECT_THAT(said([](Arguments& a) {
                a.asp = a.prune_model = true;
                a.run_scope = RunScope::kEvalOnly;
              }),
              HasSubstr("nothing is pruned with --run_scope=eval_only"));
  // Synthetic images are not cropped.
  EXPECT_THAT(said([](Arguments& a) {
                a.rand_crop_scale = {0.5, 1};
              }),
              HasSubstr("--rand_crop_scale has no effect with an empty --image_root\n"));
  EXPECT_THAT(said([](Arguments& a) { a.given = {"rand_crop_ratio"}; }),
              HasSubstr("--rand_crop_ratio has no effect with an empty --image_root\n"));
  EXPECT_THAT(said([](Arguments& a) {
                a.image_root = "no_such_images";
                a.rand_crop_scale = {0.5, 1};
              }),
              Not(HasSubstr("--rand_crop_scale")));
}

TEST(Arguments, FoldersThatAreNoEpochsArePassedOver) {
  const core::TempDir temp;
  core::FileSystem& files = core::local_file_system();
  for (const char* const folder : {"x", "3", "12"}) files.make_directories(temp.file(folder));
  files.write_file_atomically(temp.file("7"), "a file");
  ::testing::internal::CaptureStderr();
  const Arguments args = settled([&](Arguments& a) {
    a.from_checkpoint = temp.path();
    a.last_epoch_of_checkpoint = "auto";
  });
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("Skip folder 'x' since its name is not integer-convertable."));
  EXPECT_THAT(log, Not(HasSubstr("Skip folder '3'")));
  EXPECT_THAT(
      log, HasSubstr("Cannot find a checkpoint in " + temp.file("resnet_50_paddle") + ", disable --from_checkpoint."));
  EXPECT_EQ(args.checkpoint_dir, "");
  EXPECT_EQ(args.start_epoch, 0) << "no folder of an epoch has a checkpoint";
}

struct NoState : core::Stateful {
  void save(core::StateWriter& writer) const override { writer.text("note", "no weights"); }
  void load(const core::StateReader&) override {}
};

// paddle/resnet50 and torchvision/resnet50 are both --model_arch_name=ResNet50. The checkpoint says no way to its
// input.
TEST(Arguments, TheChannelsOfASavedResNet50AreSaid) {
  const core::TempDir temp;
  train::CheckpointStore(temp.file(Arguments().model_prefix), 0)
      .save(5, {.model = "torchvision/resnet50", .dataset = "imagenet", .num_classes = 7}, NoState());
  ::testing::internal::CaptureStderr();
  const Arguments args = settled([&](Arguments& a) { a.from_checkpoint = temp.path(); });
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(args.model_name(), "torchvision/resnet50");
  EXPECT_EQ(args.num_of_class, 7);
  EXPECT_THAT(log, HasSubstr(": 3 channels of --image_shape, --num_of_class=7"));
  EXPECT_THAT(log, Not(HasSubstr("--model_arch_name=")));
}

TEST(ProgramFlags, TakeEachWordForYesAndNo) {
  core::FlagTable table;
  declare_flags(table);
  const auto shows = [&](const std::string& word) {
    return read_arguments(core::parse_flags(table, {"--show_config=" + word})).show_config;
  };
  for (const std::string yes : {"yes", "true", "t", "y", "1", "TRUE"}) EXPECT_TRUE(shows(yes)) << yes;
  for (const std::string no : {"no", "false", "f", "n", "0", "No"}) EXPECT_FALSE(shows(no)) << no;
}

TEST(ProgramFlags, EachReachesItsArgument) {
  core::FlagTable table;
  declare_flags(table);
  const Arguments args = read_arguments(core::parse_flags(table, {"--output_dir=out",
                                                                  "--run_scope=train_only",
                                                                  "--epochs=11",
                                                                  "--save_interval=12",
                                                                  "--eval_interval=13",
                                                                  "--print_interval=14",
                                                                  "--report_file=report",
                                                                  "--data_layout=NHWC",
                                                                  "--benchmark",
                                                                  "--benchmark_steps=15",
                                                                  "--benchmark_warmup_steps=16",
                                                                  "--model_prefix=prefix",
                                                                  "--from_pretrained_params=weights",
                                                                  "--from_checkpoint=checkpoint",
                                                                  "--last_epoch_of_checkpoint=auto",
                                                                  "--show_config=no",
                                                                  "--enable_cpu_affinity=no",
                                                                  "--places=cpu:0,cpu:1",
                                                                  "--image_root=images",
                                                                  "--image_shape=3,17,18",
                                                                  "--batch_size=19",
                                                                  "--dali_random_seed=20",
                                                                  "--dali_num_threads=21",
                                                                  "--dali_output_fp16",
                                                                  "--crop_size=22",
                                                                  "--rand_crop_scale=0.125,0.25",
                                                                  "--rand_crop_ratio=0.375,0.5",
                                                                  "--normalize_scale=0.625",
                                                                  "--normalize_mean=1,2,3",
                                                                  "--normalize_std=4,5,6",
                                                                  "--resize_short=23",
                                                                  "--model_arch_name=lenet",
                                                                  "--num_of_class=24",
                                                                  "--bn_weight_decay",
                                                                  "--label_smoothing=0.75",
                                                                  "--momentum=0.5",
                                                                  "--weight_decay=0.0625",
                                                                  "--lr=7",
                                                                  "--warmup_epochs=25",
                                                                  "--warmup_start_lr=8",
                                                                  "--amp",
                                                                  "--scale_loss=9",
                                                                  "--use_dynamic_loss_scaling",
                                                                  "--use_pure_fp16",
                                                                  "--fuse_resunit",
                                                                  "--asp",
                                                                  "--prune_model",
                                                                  "--mask_algo=mask_2d_best"}));
  EXPECT_EQ(args.output_dir, "out");
  EXPECT_EQ(args.run_scope, RunScope::kTrainOnly);
  EXPECT_EQ(args.epochs, 11);
  EXPECT_EQ(args.save_interval, 12);
  EXPECT_EQ(args.eval_interval, 13);
  EXPECT_EQ(args.print_interval, 14);
  EXPECT_EQ(args.report_file, "report");
  EXPECT_EQ(args.data_layout, "NHWC");
  EXPECT_EQ(args.benchmark_steps, 15);
  EXPECT_EQ(args.benchmark_warmup_steps, 16);
  EXPECT_EQ(args.model_prefix, "prefix");
  EXPECT_EQ(args.from_pretrained_params, "weights");
  EXPECT_EQ(args.from_checkpoint, "checkpoint");
  EXPECT_EQ(args.last_epoch_of_checkpoint, "auto");
  EXPECT_FALSE(args.show_config || args.enable_cpu_affinity);
  EXPECT_EQ(args.places, (std::vector<std::string>{"cpu:0", "cpu:1"}));
  EXPECT_EQ(args.image_root, "images");
  EXPECT_EQ(args.image_shape, (std::vector<int64_t>{3, 17, 18}));
  EXPECT_EQ(args.batch_size, 19);
  EXPECT_EQ(args.dali_random_seed, 20);
  EXPECT_EQ(args.dali_num_threads, 21);
  EXPECT_EQ(args.crop_size, 22);
  EXPECT_EQ(args.rand_crop_scale, (std::vector<double>{0.125, 0.25}));
  EXPECT_EQ(args.rand_crop_ratio, (std::vector<double>{0.375, 0.5}));
  EXPECT_EQ(args.normalize_scale, 0.625);
  EXPECT_EQ(args.normalize_mean, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(args.normalize_std, (std::vector<double>{4, 5, 6}));
  EXPECT_EQ(args.resize_short, 23);
  EXPECT_EQ(args.model_arch_name, "lenet");
  EXPECT_EQ(args.num_of_class, 24);
  EXPECT_EQ(args.label_smoothing, 0.75);
  EXPECT_EQ(args.momentum, 0.5);
  EXPECT_EQ(args.weight_decay, 0.0625);
  EXPECT_EQ(args.lr, 7);
  EXPECT_EQ(args.warmup_epochs, 25);
  EXPECT_EQ(args.warmup_start_lr, 8);
  EXPECT_EQ(args.scale_loss, 9);
  EXPECT_EQ(args.mask_algo, "mask_2d_best");
  EXPECT_EQ(args.given.size(), 48U) << "all of them";
}

// Each switch by itself: no other one is on.
TEST(ProgramFlags, EachSwitchReachesItsArgument) {
  core::FlagTable table;
  declare_flags(table);
  const std::pair<const char*, bool Arguments::*> switches[] = {
      {"benchmark", &Arguments::benchmark},
      {"dali_output_fp16", &Arguments::dali_output_fp16},
      {"bn_weight_decay", &Arguments::bn_weight_decay},
      {"amp", &Arguments::amp},
      {"use_dynamic_loss_scaling", &Arguments::use_dynamic_loss_scaling},
      {"use_pure_fp16", &Arguments::use_pure_fp16},
      {"fuse_resunit", &Arguments::fuse_resunit},
      {"asp", &Arguments::asp},
      {"prune_model", &Arguments::prune_model}};
  for (const auto& [given, member] : switches) {
    const Arguments args = read_arguments(core::parse_flags(table, {std::string("--") + given}));
    for (const auto& [name, other] : switches) EXPECT_EQ(args.*other, other == member) << given << ", " << name;
  }
  EXPECT_FALSE(read_arguments(core::parse_flags(table, {"--show_config=no"})).show_config);
  EXPECT_TRUE(read_arguments(core::parse_flags(table, {"--show_config=no"})).enable_cpu_affinity);
}

TEST(ProgramFlags, TheReportHasWhatTheExampleMakesOfThem) {
  Arguments args;
  args.places = {"cpu:0", "cpu:1"};
  args.processes = 3;
  args.lr = 0.25;
  args.start_epoch = 4;
  const auto value = [&](const std::string& name) -> std::string {
    for (const auto& [option, text] : options_as_json(args)) {
      if (option == name) return text;
    }
    return "none";
  };
  EXPECT_EQ(value("lr"), "1.5") << "of all six places";
  EXPECT_EQ(value("image_channel"), "4");
  EXPECT_EQ(value("start_epoch"), "4");
  EXPECT_EQ(value("run_scope"), "\"train_eval\"");
  EXPECT_EQ(value("from_checkpoint"), "null");
  EXPECT_EQ(value("show_config"), "true");
  EXPECT_EQ(value("places"), "[\"cpu:0\",\"cpu:1\"]");
  args.places.clear();
  args.processes = 1;
  EXPECT_EQ(value("lr"), "0.25");
}

TEST(Report, ShowsTextsAndInfinityAsPythonDoes) {
  const core::TempDir folder;
  std::ostringstream out;
  {
    Report report(out, folder.file("report.json"));
    report.parameters({{"places", "[\"cpu:0\",\"cpu:1\"]"}, {"epochs", "90"}, {"amp", "true"}});
    constexpr double kInfinite = std::numeric_limits<double>::infinity();
    log_info(report, {1}, {{"ips", kInfinite}, {"loss", -kInfinite}}, Mode::kTrain);
  }
  EXPECT_THAT(out.str(), HasSubstr(" - PARAMETER places : ['cpu:0', 'cpu:1']  epochs : 90  amp : True \n"));
  EXPECT_THAT(out.str(), HasSubstr(" - Epoch: 1  train.ips : inf  train.loss : -inf \n"));
  EXPECT_THAT(core::local_file_system().read_file(folder.file("report.json")),
              HasSubstr("\"data\": {\"train.ips\": \"inf\", \"train.loss\": \"-inf\"}}"));
}

TEST(MetricSummary, LatenciesAreBetterWhenTheyAreShort) {
  MetricSummary summary;
  summary.update({{"top5", 0.5}, {"latency_avg", 3}});
  summary.update({{"top5", 0.75}, {"latency_avg", 2}});
  summary.update({{"top5", 0.25}, {"latency_avg", 4}});
  EXPECT_EQ(summary.metrics(), (Metrics{{"top5", 0.75}, {"latency_avg", 2}}));
}

// An epoch is as long as one of ImageNet: its steps, and the positions in it.
TEST(Loader, SyntheticImagesAreAsManyAsInImagenet) {
  Arguments args;
  args.places = {"cpu:0"};
  args.image_root.clear();
  args.image_shape = {3, 32, 32};
  args.crop_size = 32;
  args.resize_short = 36;
  args.batch_size = 16;
  args.dali_num_threads = 1;
  for (const auto& [mode, steps] : {std::pair{Mode::kTrain, int64_t{80'073}}, {Mode::kEval, 3125}}) {
    const Loader loader = build_dataloader(args, mode, train::OpenDevices());
    EXPECT_EQ(loader.steps(), steps);
    const std::vector<data::Batch> batches = loader.source()->next();
    ASSERT_EQ(batches.size(), 1U);
    EXPECT_EQ(batches[0].images().sizes().vec(), (std::vector<int64_t>{16, 3, 32, 32}));
    EXPECT_EQ(loader.source()->position(), (data::Position{0, 16}));
  }
}

// A training has a batch a place; an evaluation takes those of all places as one.
TEST(Loader, BatchesAreThoseOfAllPlaces) {
  Arguments args;
  args.places = {"cpu:0", "cpu:1"};
  args.image_root.clear();
  args.image_shape = {3, 32, 32};
  args.crop_size = 32;
  args.resize_short = 36;
  args.batch_size = 16;
  args.dali_num_threads = 1;
  for (const auto& [mode, steps, images] :
       {std::tuple{Mode::kTrain, int64_t{40'037}, std::vector<int64_t>{16, 16}}, {Mode::kEval, 1563, {32}}}) {
    const Loader loader = build_dataloader(args, mode, train::OpenDevices());
    EXPECT_EQ(loader.steps(), steps);
    std::vector<int64_t> samples;
    for (const data::Batch& batch : loader.source()->next()) samples.push_back(batch.images().size(0));
    EXPECT_EQ(samples, images);
  }
}

TEST(Strategy, FusesUnitsInTrainingsWithAmp) {
  Arguments args;
  args.fuse_resunit = true;
  EXPECT_FALSE(create_strategy(args).fuse_resunit);
  args.amp = true;
  EXPECT_TRUE(create_strategy(args).fuse_resunit);
  EXPECT_FALSE(create_strategy(args, /*is_train=*/false).fuse_resunit);
  args.fuse_resunit = false;
  EXPECT_FALSE(create_strategy(args).fuse_resunit);
  EXPECT_TRUE(create_strategy(args).fuse_bn_act_ops);
  EXPECT_TRUE(create_strategy(args).fuse_elewise_add_act_ops);
  EXPECT_TRUE(create_strategy(args).fuse_bn_add_act_ops);
}

TEST(Optimizer, HasTheNumbersOfTheArguments) {
  Arguments args;
  args.momentum = 0.5;
  args.weight_decay = 0.25;
  args.scale_loss = 8;
  args.amp = args.use_dynamic_loss_scaling = true;
  const Optimizer optimizer = dist_optimizer(args, build_optimizer(args, nullptr));
  EXPECT_EQ(optimizer.options.numbers.at("momentum"), 0.5);
  EXPECT_EQ(optimizer.options.weight_decay, 0.25);
  EXPECT_TRUE(optimizer.amp);
  EXPECT_EQ(optimizer.loss_scale.first_scale(), 8);
  EXPECT_TRUE(optimizer.loss_scale.automatic);
  EXPECT_EQ(optimizer.loss_scale.rule, optim::LossScaleRule::kPaddle);
}

// ResNet50's layers begin as in the example: He's normal numbers by the inputs, and a classifier of uniform ones.
TEST(Program, ResNet50BeginsWithTheExamplesValues) {
  Arguments args;
  args.places = {"cpu:0"};
  Program startup("startup"), train("train");
  build(args, train, startup, 10);
  int convolutions = 0, classifiers = 0;
  for (const nn::Node& node : train.body()->graph.nodes) {
    if (std::holds_alternative<nn::Convolution>(node.op)) {
      ++convolutions;
      for (const nn::ParameterSpec& parameter : node.parameters) {
        EXPECT_EQ(parameter.init, nn::Initializer::he_normal(nn::Initializer::Fan::kIn)) << parameter.name;
      }
    } else if (std::holds_alternative<nn::Linear>(node.op)) {
      ++classifiers;
      ASSERT_EQ(node.parameters.size(), 2U);
      EXPECT_EQ(node.parameters[0].init, nn::Initializer::uniform(1 / std::sqrt(2048.0)));
      EXPECT_EQ(node.parameters[1].init, nn::Initializer::zeros());
      EXPECT_EQ(train.body()->excluded, node.name) << "is not pruned";
    }
  }
  EXPECT_EQ(convolutions, 53);
  EXPECT_EQ(classifiers, 1);
}

TEST(Fetchs, OfAnEvaluationAreNotSmoothed) {
  const Variable logits{"logits", {-1, 7}};
  EXPECT_EQ(create_fetchs(logits, create_feeds({3, 8, 9}), 7, 0.1, Mode::kTrain).label_smoothing, 0.1);
  EXPECT_EQ(create_fetchs(logits, create_feeds({3, 8, 9}), 7, 0.1, Mode::kEval).label_smoothing, 0);
  EXPECT_EQ(create_feeds({3, 8, 9})[0].shape, (std::vector<int64_t>{-1, 3, 8, 9}));
}

}  // namespace
}  // namespace trainyard::frontends::program::arguments_test
