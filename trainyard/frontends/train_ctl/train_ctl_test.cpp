#include "trainyard/frontends/train_ctl/train_ctl.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/flags/flags.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/data/pipeline/synthetic_source.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/data/tools/convert_dataset.h"
#include "trainyard/formats/logs/event_file.h"
#include "trainyard/frontends/train_ctl/ctl_epochs.h"
#include "trainyard/frontends/train_ctl/ctl_input.h"
#include "trainyard/frontends/train_ctl/ctl_plan.h"
#include "trainyard/frontends/train_ctl/flags.h"
#include "trainyard/parallel/testing/on_ranks.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::frontends::train_ctl_test {
namespace {

constexpr int64_t kSize = 32;

// Text, and a function that hears of each whole line.
class Heard : public std::stringbuf {
 public:
  explicit Heard(std::function<void(const std::string& line)> on_line) : on_line_(std::move(on_line)) {}

 protected:
  int sync() override {
    const std::string all = str();
    for (size_t end = all.find('\n', told_); end != std::string::npos; end = all.find('\n', told_)) {
      const std::string line = all.substr(told_, end - told_);
      told_ = end + 1;
      if (on_line_) on_line_(line);
    }
    return 0;
  }

 private:
  std::function<void(const std::string&)> on_line_;
  size_t told_ = 0;
};

struct Told {
  TrainedCtl trained;
  std::string out;
};

class TrainCtl : public ::testing::Test {
 protected:
  // 42 images for training, 16 for validation, in class folders.
  static void SetUpTestSuite() {
    shared = new core::TempDir;
    data::ShapesOptions options;
    options.train_count = 42;
    options.validation_count = 16;
    data::write_shapes(options, shared->file("shapes"));
    data::convert_dataset(
        {.name = "shapes", .from = shared->file("shapes"), .output = shared->file("images"), .to = "folder"});
  }
  static void TearDownTestSuite() { delete shared; }

  // Ten steps an epoch.
  static TrainCtlParams params(int64_t num_iter, const std::string& unit = "epoch") {
    return {.image_width = kSize,
            .image_height = kSize,
            .momentum = 0.9,
            .loss_scale = 128,
            .data_dir = shared->file("images"),
            .batch_size = 4,
            .num_iter = num_iter,
            .iter_unit = unit,
            .display_every = 5,
            .precision = "fp32",
            .use_xla = false};
  }

  std::string made(const std::string& name) const {
    std::string path = own_.file(name);
    core::local_file_system().make_directories(path);
    return path;
  }

  // on_line: hears of each line, and may ask for the end.
  static Told run(const TrainCtlParams& params,
                  const std::function<void(const std::string& line, core::StopSource&)>& on_line = {}) {
    core::StopSource stop;
    Heard heard([&](const std::string& line) {
      if (on_line) on_line(line, stop);
    });
    std::ostream out(&heard);
    TrainedCtl trained = train_ctl(ctl_zoo_model("trivial", kSize), params, {.out = &out, .stop = stop.token()});
    out.flush();
    return {std::move(trained), heard.str()};
  }

  static std::string lines_with(const std::string& out, const std::string& beginning) {
    std::istringstream lines(out);
    std::string found;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(beginning)) found += line + "\n";
    }
    return found;
  }

  static bool same_bits(const TrainedCtl& a, const TrainedCtl& b) {
    bool same = a.parameters->values().equal(b.parameters->values());
    for (int i = 0; i < static_cast<int>(a.parameters->buffer_count()); ++i) {
      same &= a.parameters->buffer(i).equal(b.parameters->buffer(i));
    }
    return same;
  }

  static inline core::TempDir* shared = nullptr;
  core::TempDir own_;
};

TEST_F(TrainCtl, PrintsTheLinesOfTheExample) {
  TrainCtlParams asked = params(2);
  asked.log_dir = made("log");
  asked.export_dir = made("export");
  const Told told = run(asked);
  std::string out = std::regex_replace(told.out, std::regex(own_.path()), "DIR");
  out = std::regex_replace(out, std::regex("[0-9]+\\.[0-9]+"), "#");
  EXPECT_EQ(out,
            "Initializing from scratch.\n"
            "global_step: 5 images_per_sec: #\n"
            "global_step: 10 images_per_sec: #\n"
            "epoch: 0 time_taken: #\n"
            "Saved checkpoint for epoch 1: DIR/log/model.ckpt-10\n"
            "loss: # - top1: # - top5: # - val_loss: # - val_top1: # - val_top5: # - learning_rate: #\n"
            "global_step: 15 images_per_sec: #\n"
            "global_step: 20 images_per_sec: #\n"
            "epoch: 1 time_taken: #\n"
            "Saved checkpoint for epoch 2: DIR/log/model.ckpt-20\n"
            "loss: # - top1: # - top5: # - val_loss: # - val_top1: # - val_top5: # - learning_rate: #\n"
            "The model is saved to DIR/export/saved_model_rn50.h5\n");
  EXPECT_EQ(told.trained.global_step, 20);
  EXPECT_EQ(told.trained.validation->samples, 16);
  EXPECT_FALSE(told.trained.stopped);
  EXPECT_EQ(told.trained.means.steps, 10);
}

TEST_F(TrainCtl, GoesOnWithTheBitsOfAnUnbrokenRun) {
  TrainCtlParams straight = params(3);
  straight.log_dir = made("straight");
  const Told whole = run(straight);
  const std::string epochs = lines_with(whole.out, "loss: ");

  // With the next epoch.
  TrainCtlParams asked = params(1);
  asked.log_dir = made("epochs");
  std::string parts = lines_with(run(asked).out, "loss: ");
  asked.num_iter = 3;
  const Told next = run(asked);
  EXPECT_TRUE(same_bits(next.trained, whole.trained));
  EXPECT_EQ(parts + lines_with(next.out, "loss: "), epochs);
  EXPECT_TRUE(next.out.starts_with("Restored from " + asked.log_dir + "/model.ckpt-10\n")) << next.out;

  // In the middle of one, where a run of so many batches ended.
  asked = params(7, "batch");
  asked.log_dir = made("batches");
  const Told seven = run(asked);
  EXPECT_EQ(seven.trained.global_step, 7);
  asked.num_iter = 3;
  asked.iter_unit = "epoch";
  const Told middle = run(asked);
  EXPECT_TRUE(same_bits(middle.trained, whole.trained));
  EXPECT_EQ(lines_with(middle.out, "loss: "), epochs) << "means are those of whole epochs";

  // And where somebody stopped it.
  asked.log_dir = made("stopped");
  const Told stopped = run(asked, [](const std::string& line, core::StopSource& stop) {
    if (line.starts_with("global_step: 15 ")) stop.request_stop(core::StopReason::kSignal, "SIGINT");
  });
  EXPECT_TRUE(stopped.trained.stopped);
  EXPECT_EQ(stopped.trained.global_step, 15);
  EXPECT_NE(stopped.out.find("Saved checkpoint for epoch 2, step 5 of 10: " + asked.log_dir + "/model.ckpt-15\n"),
            std::string::npos)
      << stopped.out;
  EXPECT_TRUE(same_bits(run(asked).trained, whole.trained));
}

// The stop comes within the last step of an epoch, which leaves no time for its validation. Behind the last epoch
// nothing else is left to do.
TEST_F(TrainCtl, RepeatsTheValidationThatAStopHasCutOff) {
  const std::string epochs = lines_with(run(params(2)).out, "loss: ");
  const auto values_in = [](const std::string& directory) {
    std::multiset<std::string> values;
    for (const std::string& name : core::local_file_system().list(directory)) {
      if (!name.starts_with("events")) continue;
      const auto file = core::local_file_system().open_read(core::join_path(directory, name));
      formats::EventFileReader reader(*file);
      while (const auto event = reader.next()) {
        for (const formats::SummaryValue& value : event->values) {
          values.insert(fmt::format("{} {}", value.tag, event->step));
        }
      }
    }
    return values;
  };
  for (const int64_t step : {10, 20}) {
    TrainCtlParams asked = params(2);
    asked.log_dir = made(fmt::format("log{}", step));
    asked.tensorboard_dir = made(fmt::format("board{}", step));
    const Told cut = run(asked, [&](const std::string& line, core::StopSource& stop) {
      if (line.starts_with(fmt::format("global_step: {} ", step)))
        stop.request_stop(core::StopReason::kSignal, "SIGTERM");
    });
    EXPECT_TRUE(cut.trained.stopped);
    EXPECT_EQ(cut.trained.global_step, step);
    EXPECT_FALSE(cut.trained.validation.has_value());

    const Told resumed = run(asked);
    EXPECT_EQ(resumed.trained.global_step, 20);
    EXPECT_EQ(resumed.trained.validation->samples, 16);
    EXPECT_EQ(lines_with(resumed.out, "loss: "), step == 10 ? epochs : epochs.substr(epochs.find('\n') + 1)) << step;
    for (const char* const once : {"train_loss 10", "val_loss 10", "val_top1 10", "train_loss 20", "val_loss 20"}) {
      EXPECT_EQ(values_in(asked.tensorboard_dir).count(once), 1U) << once << " " << step;
    }
    EXPECT_EQ(run(asked).out, fmt::format("Restored from {}/model.ckpt-20\n", asked.log_dir)) << "it is repeated once";
  }
}

// A validation at the end that is due no more is not made.
TEST_F(TrainCtl, LeavesOutACutValidationWhereMoreIsTrained) {
  TrainCtlParams asked = params(5, "batch");
  asked.log_dir = made("log");
  run(asked, [](const std::string& line, core::StopSource& stop) {
    if (line.starts_with("global_step: 5 ")) stop.request_stop(core::StopReason::kSignal, "SIGTERM");
  });
  asked.num_iter = 7;
  const std::string losses = lines_with(run(asked).out, "loss: ");
  EXPECT_EQ(std::count(losses.begin(), losses.end(), '\n'), 1) << losses;
  EXPECT_NE(losses.find("val_loss"), std::string::npos) << losses;
}

// A run continues with the model and the images of its checkpoint where the flags do not say them.
TEST_F(TrainCtl, TakesFromTheCheckpointWhatNoFlagSays) {
  TrainCtlParams asked = params(1);
  asked.log_dir = made("log");
  asked.export_dir = made("export");
  asked.dali_mode = "CPU";
  run(asked);
  core::FlagTable table;
  declare_train_ctl_flags(table);
  const auto taken = [&](const std::vector<std::string>& flags) {
    const core::FlagValues values = core::parse_flags(table, flags);
    TrainCtlParams read = read_train_ctl_params(values);
    const std::string model = take_saved_choices(values, read);
    return fmt::format("{} {}x{}", model, *read.image_height, *read.image_width);
  };
  EXPECT_EQ(taken({"--log_dir=" + asked.log_dir}), fmt::format("dali/trivial {0}x{0}", kSize));
  EXPECT_EQ(taken({"--log_dir=" + asked.log_dir, "--model=resnet50", "--image_height=64"}), "resnet50 64x224");
  EXPECT_EQ(taken({"--predict", "--export_dir=" + asked.export_dir}), fmt::format("resnet50 {0}x{0}", kSize));
  EXPECT_EQ(taken({}), "resnet50 224x224");

  // The way to the input, which --dali_mode says otherwise.
  const auto resumed = [&](const std::string& mode) {
    TrainCtlParams next = asked;
    next.num_iter = mode == "none" ? 2 : 3;
    next.dali_mode = mode;
    ::testing::internal::CaptureStderr();
    run(next);
    std::string said = ::testing::internal::GetCapturedStderr();
    const train::CheckpointFacts facts = train::read_checkpoint_facts(train::find_checkpoint(asked.log_dir));
    EXPECT_EQ(facts.preprocessor, "dali");
    EXPECT_EQ(facts.input->resize_convention, data::ResizeConvention::kDali);
    return said;
  };
  EXPECT_EQ(resumed("none").find("instead of"), std::string::npos);
  EXPECT_EQ(resumed("CPU").find("instead of"), std::string::npos);
}

// Only the first rank's machine may have the run: the others make their images as it does.
TEST_F(TrainCtl, RanksWithoutTheRunMakeTheImagesOfItsCheckpoint) {
  TrainCtlParams asked = params(1);
  asked.log_dir = made("log");
  asked.dali_mode = "CPU";
  run(asked);
  asked.dali_mode = "none";
  parallel::on_ranks(2, [&](const std::shared_ptr<parallel::ProcessGroup>& group) {
    TrainCtlParams own = asked;
    if (group->rank() == 1) own.log_dir = this->own_.file("elsewhere");
    const std::optional<TrainedInput> trained = saved_ctl_input(own, group.get());
    ASSERT_TRUE(trained.has_value()) << group->rank();
    EXPECT_EQ(trained->origin.empty(), group->rank() == 1) << "rank 0 says what differs";
    const InputSettings settings = open_ctl_input(own, trained).settings;
    EXPECT_EQ(settings.preprocessor, "dali") << group->rank();
    EXPECT_EQ(settings.transform.resize_convention, data::ResizeConvention::kDali) << group->rank();
    if (group->rank() == 0) own.log_dir = this->own_.file("nowhere");
    EXPECT_FALSE(saved_ctl_input(own, group.get()).has_value()) << "a new run";
  });
}

TEST(TrainCtlFlags, EachReachesItsParameter) {
  core::FlagTable table;
  declare_train_ctl_flags(table);
  const auto read = [&](const std::vector<std::string>& flags) {
    return read_train_ctl_params(core::parse_flags(table, flags));
  };
  const TrainCtlParams params = read({"--image_width=40",
                                      "--image_height=24",
                                      "--image_format=channels_first",
                                      "--data_dir=data",
                                      "--data_idx_dir=idx",
                                      "--dali_mode=CPU",
                                      "--dali_threads=3",
                                      "--distort_color",
                                      "-b5",
                                      "-i7",
                                      "-uepoch",
                                      "--momentum=0.75",
                                      "--precision=bf16",
                                      "--loss_scale=64",
                                      "--use_xla",
                                      "--devices=2",
                                      "--horovod",
                                      "--seed=9",
                                      "--log_dir=log",
                                      "--export_dir=export",
                                      "--tensorboard_dir=b",
                                      "--display_every=11"});
  EXPECT_EQ(params.image_width, 40);
  EXPECT_EQ(params.image_height, 24);
  EXPECT_EQ(params.image_format, "channels_first");
  EXPECT_EQ(params.data_dir, "data");
  EXPECT_EQ(params.data_idx_dir, "idx");
  EXPECT_EQ(params.dali_mode, "CPU");
  EXPECT_EQ(params.dali_threads, 3);
  EXPECT_TRUE(params.distort_color && params.horovod);
  EXPECT_EQ(params.batch_size, 5);
  EXPECT_EQ(params.num_iter, 7);
  EXPECT_EQ(params.iter_unit, "epoch");
  EXPECT_EQ(params.momentum, 0.75);
  EXPECT_EQ(params.precision, "bf16");
  EXPECT_EQ(params.loss_scale, 64);
  EXPECT_EQ(params.use_xla, true);
  EXPECT_EQ(params.devices, 2);
  EXPECT_EQ(params.seed, 9U);
  EXPECT_EQ(params.log_dir, "log");
  EXPECT_EQ(params.export_dir, "export");
  EXPECT_EQ(params.tensorboard_dir, "b");
  EXPECT_EQ(params.display_every, 11);
  const TrainCtlParams plain = read({});
  EXPECT_EQ(plain.batch_size, 256);
  EXPECT_EQ(plain.num_iter, 300);
  EXPECT_EQ(plain.iter_unit, "batch");
  EXPECT_EQ(plain.dali_threads, std::nullopt) << "its default depends on --dali_mode";
  EXPECT_EQ(plain.display_every, 10);
}

// Each line is seen when it is printed: what follows may take long.
TEST(TrainCtlFlags, ScriptArgumentsAreALineEach) {
  core::FlagTable table;
  table.text("name", std::nullopt, "not set");
  table.integer("count", 3, "given");
  table.integer("threads", 4, "by a rule").automatic("all");
  table.integer("more_threads", 4, "by a rule, and given").automatic("all");
  table.boolean("quiet", false, "by default");
  std::vector<std::string> lines;
  Heard heard([&](const std::string& line) { lines.push_back(line); });
  std::ostream out(&heard);
  print_script_arguments(core::parse_flags(table, {"--count=5", "--more_threads=2"}), out);
  EXPECT_EQ(lines, (std::vector<std::string>{"Script arguments:", "  --name=", "  --count=5",
                                             "  --threads=", "  --more_threads=2", "  --quiet=false"}));
}

TEST(TrainCtlFlags, OfATrainingAreWarnedOfInAPrediction) {
  core::FlagTable table;
  declare_train_ctl_flags(table);
  const auto said = [&](const std::vector<std::string>& flags) {
    const core::FlagValues values = core::parse_flags(table, flags);
    ::testing::internal::CaptureStderr();
    static_cast<void>(read_train_ctl_params(values));
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string warned = said({"--predict", "--export_dir=x", "-b4", "--num_iter=3", "--precision=fp16"});
  EXPECT_NE(warned.find("--num_iter has no effect with --predict"), std::string::npos) << warned;
  EXPECT_NE(warned.find("--precision has no effect with --predict"), std::string::npos) << warned;
  EXPECT_EQ(said({"--predict", "--export_dir=x", "-b4", "--image_width=32", "--image_height=32", "--seed=2"}), "");
  EXPECT_EQ(said({"--num_iter=3", "--precision=fp16"}), "");
}

TEST_F(TrainCtl, StopsAndStillExports) {
  TrainCtlParams asked = params(100);
  asked.export_dir = made("export");
  const Told told = run(asked, [](const std::string& line, core::StopSource& stop) {
    if (line.starts_with("global_step: 5 ")) stop.request_stop(core::StopReason::kSignal, "SIGINT");
  });
  EXPECT_EQ(told.trained.global_step, 5);
  EXPECT_TRUE(told.out.ends_with("Keyboard interrupt\nThe model is saved to " + asked.export_path() + "\n"))
      << told.out;
  EXPECT_TRUE(core::local_file_system().exists(asked.export_path()));
}

TEST_F(TrainCtl, CountsBatchesAndValidatesBehindTheLast) {
  const Told told = run(params(12, "batch"));
  EXPECT_EQ(told.trained.global_step, 12);
  EXPECT_EQ(told.trained.means.steps, 2) << "of the second epoch";
  const std::string losses = lines_with(told.out, "loss: ");
  EXPECT_EQ(losses.find("val_loss"), losses.rfind("val_loss")) << losses;
  EXPECT_EQ(told.trained.validation->samples, 16);
}

TEST_F(TrainCtl, HasNothingToValidateOnWithSyntheticImages) {
  TrainCtlParams asked = params(2, "batch");
  asked.data_dir.clear();
  const Told told = run(asked);
  EXPECT_FALSE(told.trained.validation.has_value());
  EXPECT_EQ(told.out.find("val_"), std::string::npos) << told.out;
}

TEST_F(TrainCtl, SaysThatThereAreTooFewImagesToValidateOn) {
  TrainCtlParams asked = params(1);
  asked.batch_size = 20;
  ::testing::internal::CaptureStderr();
  const Told told = run(asked);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("there are 16 images for it, fewer than the 20 of a step"),
            std::string::npos);
  EXPECT_FALSE(told.trained.validation.has_value());
}

TEST_F(TrainCtl, ValidatesInASingleStep) {
  TrainCtlParams asked = params(2, "batch");
  asked.batch_size = 16;
  const Told told = run(asked);
  ASSERT_TRUE(told.trained.validation.has_value());
  EXPECT_EQ(told.trained.validation->samples, 16);
  EXPECT_NE(told.out.find(" - val_loss: "), std::string::npos) << told.out;
}

TEST_F(TrainCtl, TwoDevicesHaveABatchEach) {
  TrainCtlParams asked = params(1);
  asked.devices = 2;
  asked.batch_size = 2;
  const Told told = run(asked);
  EXPECT_EQ(told.trained.global_step, 10);
  ASSERT_TRUE(told.trained.validation.has_value());
  EXPECT_EQ(told.trained.validation->samples, 16) << "4 steps of the batches of both";
}

TEST_F(TrainCtl, KeepsHeightAndWidthApart) {
  constexpr int64_t kHeight = 24, kWidth = 40;
  TrainCtlParams asked = params(1, "batch");
  asked.image_height = kHeight;
  asked.image_width = kWidth;
  asked.log_dir = made("log");
  asked.export_dir = made("export");
  std::ostringstream out, said;
  const TrainedCtl trained = train_ctl(ctl_zoo_model("trivial", {kHeight, kWidth}), asked, {.out = &out});
  EXPECT_EQ(trained.input.height, kHeight);
  EXPECT_EQ(trained.input.width, kWidth);
  core::FlagTable table;
  declare_train_ctl_flags(table);
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--log_dir=" + asked.log_dir}, {"--predict", "--export_dir=" + asked.export_dir}}) {
    const core::FlagValues values = core::parse_flags(table, flags);
    TrainCtlParams read = read_train_ctl_params(values);
    take_saved_choices(values, read);
    EXPECT_EQ(read.image_height, kHeight) << flags[0];
    EXPECT_EQ(read.image_width, kWidth) << flags[0];
  }
  EXPECT_EQ(predict_ctl(asked, {.out = &said}).sizes().vec(), (std::vector<int64_t>{12, kCtlClasses}));
  std::swap(asked.image_height, asked.image_width);
  EXPECT_NE(core::message_of([&] { predict_ctl(asked); }).find("expected [3, 24, 40], got [3, 40, 24]"),
            std::string::npos);
}

TEST_F(TrainCtl, KeepsThreeCheckpoints) {
  TrainCtlParams asked = params(5);
  asked.log_dir = made("log");
  run(asked);
  std::vector<int64_t> steps;
  for (const train::CheckpointInfo& saved : train::CheckpointStore(asked.log_dir).list()) {
    steps.push_back(saved.global_step);
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{30, 40, 50}));
  const Told again = run(asked);
  EXPECT_EQ(again.out, "Restored from " + asked.log_dir + "/model.ckpt-50\n") << "nothing is left to do";
}

TEST_F(TrainCtl, RefusesACheckpointOfAnotherRunAndLosesNothing) {
  TrainCtlParams asked = params(1);
  asked.log_dir = made("log");
  run(asked);
  EXPECT_NE(core::message_of([&] { train_ctl(ctl_zoo_model("lenet", kSize), asked, {}); }).find("dali/trivial"),
            std::string::npos);
  TrainCtlParams other = asked;
  other.batch_size = 5;
  EXPECT_NE(core::message_of([&] { run(other); }).find("had epochs of another length: expected 10 steps, got 8 steps"),
            std::string::npos);
  EXPECT_EQ(run(asked).trained.global_step, 10) << "it is as it was";
}

TEST_F(TrainCtl, RefusesAModelThatDoesNotFit) {
  TrainCtlParams asked = params(1);
  const auto refusal = [&](const CtlModelFunction& model, core::ErrorCode code = core::ErrorCode::kInvalidArgument) {
    return core::message_of([&] { train_ctl(model, asked, {}); }, code);
  };
  EXPECT_EQ(refusal({}), "train_ctl needs a model function");
  EXPECT_EQ(refusal([](int64_t, int64_t) { return CtlModel{}; }), "the model function gave an empty graph");
  EXPECT_EQ(
      refusal(ctl_zoo_model("trivial", 48)),
      "the model function gave a model of other images than image_height and image_width say: train_ctl: expected "
      "[3, 32, 32], got [3, 48, 48]");
  EXPECT_EQ(refusal([](int64_t classes, int64_t batch) { return ctl_zoo_model("trivial", kSize)(classes / 2, batch); }),
            "the model function gave a model of other classes than it was asked for: train_ctl: expected [1000], got "
            "[500]");
  asked.export_dir = made("export");
  const auto no_keras = [](int64_t classes, int64_t) {
    nn::GraphBuilder b({.image = {3, kSize, kSize}, .name = "normalized"});
    return CtlModel{.graph = b.build(b.linear("fc", b.flatten("flat", b.local_response_norm("lrn", b.input(), {})),
                                              {.out_features = classes}))};
  };
  EXPECT_NE(refusal(no_keras, core::ErrorCode::kUnsupported).find("lrn"), std::string::npos)
      << "before the training, not behind it";
}

TEST_F(TrainCtl, ExportsWhatPredictCtlLoads) {
  TrainCtlParams asked = params(1);
  asked.export_dir = made("export");
  EXPECT_EQ(core::code_of([&] { predict_ctl(asked); }), core::ErrorCode::kNotFound);
  Told told = run(asked);
  std::ostringstream out;
  const at::Tensor probabilities = predict_ctl(asked, {.out = &out});
  EXPECT_EQ(out.str(), "The loaded model predicts 12 images.\n");
  data::SyntheticSource images(
      {.batch_size = 4, .height = kSize, .width = kSize, .samples = ctl_synthetic_samples(), .seed = asked.seed});
  const at::Tensor expected = told.trained.predict(images.next()[0].images());
  EXPECT_LT(probabilities.slice(0, 0, 4).sub(expected).abs().max().item<float>(), 1e-6F);
  EXPECT_NEAR(probabilities.sum().item<double>(), 12, 1e-4);

  TrainCtlParams nowhere = asked;
  nowhere.export_dir.clear();
  EXPECT_NE(core::message_of([&] { predict_ctl(nowhere); }).find("the parameter export_dir is missing"),
            std::string::npos);
  TrainCtlParams larger = asked;
  larger.image_width = 48;
  EXPECT_NE(core::message_of([&] { predict_ctl(larger); }).find("expected [3, 32, 32], got [3, 32, 48]"),
            std::string::npos);
  core::FileSystem& files = core::local_file_system();
  files.write_file_atomically(asked.export_path(), files.read_file(asked.export_path()).substr(0, 3000));
  EXPECT_EQ(core::code_of([&] { predict_ctl(asked); }), core::ErrorCode::kCorruptData);
}

TEST_F(TrainCtl, TracesTheFirstStepForTensorBoard) {
  TrainCtlParams asked = params(2);
  asked.tensorboard_dir = made("board");
  run(asked);
  const std::string trace = core::local_file_system().read_file(asked.tensorboard_dir + "/train_step.trace.json");
  EXPECT_NE(trace.find("conv1"), std::string::npos) << trace.substr(0, 300);
}

TEST_F(TrainCtl, SaysWhenTheDataIsGoneAndKeepsItsCheckpoints) {
  TrainCtlParams asked = params(1000);
  asked.data_dir = own_.file("images");
  std::filesystem::copy(shared->file("images"), asked.data_dir, std::filesystem::copy_options::recursive);
  asked.log_dir = made("log");
  const core::Error error = core::thrown_by([&] {
    run(asked, [&](const std::string& line, core::StopSource&) {
      if (line.starts_with("loss: ")) std::filesystem::remove_all(asked.data_dir);
    });
  });
  EXPECT_TRUE(error.code() == core::ErrorCode::kNotFound || error.code() == core::ErrorCode::kIo) << error.what();
  EXPECT_NE(std::string(error.what()).find(asked.data_dir), std::string::npos) << error.what();
  asked.data_dir = shared->file("images");
  asked.num_iter = 2;
  EXPECT_EQ(run(asked).trained.global_step, 20);
}

// The second device begins with other weights and another velocity: the first step's gradients are those of two
// models, and from then on there is one.
TEST(CtlEpochs, MakeDevicesThatBeganDifferentlyEqual) {
  const CtlModel model = ctl_zoo_model("trivial", kSize)(kCtlClasses, 2);
  const CtlPlan plan{.global_batch_size = 4, .steps_per_epoch = 3, .end_step = 3};
  const auto after = [&](int64_t steps, bool broadcasts) {
    train::TowerTrainerOptions options = ctl_trainer_options(model, {.momentum = 0.9, .batch_size = 2, .devices = 2},
                                                             plan, {.executor = "auto"}, {.intra_op_threads = 2});
    options.learning_rate = optim::constant(0.01);
    int64_t calls = 0;
    nn::ParameterSet* second = nullptr;
    options.hooks.reduce_pre = [&](int replica, nn::ParameterSet& set) {
      if (replica == 0) return;
      second = &set;
      if (calls++ == 0) set.values().mul_(1.5);
    };
    train::TowerTrainer trainer(
        options, std::make_shared<data::SyntheticSource>(data::SyntheticOptions{
                     .batch_size = 2, .local_replicas = 2, .total_replicas = 2, .height = kSize, .width = kSize}));
    std::ostringstream out;
    if (broadcasts) trainer.add(std::make_shared<CtlEpochs>(trainer, CtlEpochsOptions{.plan = plan, .out = &out}));
    trainer.train({.steps_per_epoch = steps});
    const nn::ParameterSet& first = trainer.parameters();
    bool statistics = true;
    for (int b = 0; b < static_cast<int>(first.buffer_count()); ++b) {
      statistics &= first.buffer(b).equal(second->buffer(b));
    }
    return std::pair(first.values().equal(second->values()), statistics);
  };
  EXPECT_EQ(after(1, false), std::pair(false, false)) << "without it they are not";
  EXPECT_EQ(after(3, false).first, false);
  EXPECT_EQ(after(1, true), std::pair(true, true));
  EXPECT_EQ(after(3, true).first, true) << "slots are equal, too";
}

TEST(CtlModel, HasTheRegularizationOfKerasLayers) {
  const CtlModel model = ctl_zoo_model("resnet50")(1000, 1);
  EXPECT_EQ(model.graph.name, "dali/resnet50");
  EXPECT_EQ(model.regularization.size(), 53u + 2u);
  EXPECT_EQ(model.regularization.front().pattern, "conv1.weight");
  EXPECT_EQ(model.regularization.back().pattern, "fc1000.bias");
}

}  // namespace
}  // namespace trainyard::frontends::train_ctl_test
