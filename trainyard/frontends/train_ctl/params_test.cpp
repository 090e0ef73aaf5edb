#include <functional>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/frontends/train_ctl/ctl_plan.h"
#include "trainyard/frontends/train_ctl/train_ctl.h"

namespace trainyard::frontends::params_test {
namespace {

TrainCtlParams whole() {
  return {.image_width = 32,
          .image_height = 32,
          .momentum = 0.9,
          .loss_scale = 128,
          .batch_size = 4,
          .num_iter = 2,
          .iter_unit = "batch",
          .display_every = 10,
          .precision = "fp32",
          .use_xla = false};
}

using Change = std::function<void(TrainCtlParams&)>;

std::string refusal(const Change& change, int gpus = 0, core::ErrorCode code = core::ErrorCode::kInvalidArgument) {
  TrainCtlParams params = whole();
  change(params);
  return core::message_of([&] { params.validate(gpus); }, code);
}

TEST(TrainCtlParams, AreCompleteWithTheRequiredOnes) {
  whole().validate(0);
}

TEST(TrainCtlParams, NameTheOneThatIsMissing) {
  const std::pair<const char*, Change> missing[] = {{"image_width", [](auto& p) { p.image_width.reset(); }},
                                                    {"image_height", [](auto& p) { p.image_height.reset(); }},
                                                    {"momentum", [](auto& p) { p.momentum.reset(); }},
                                                    {"loss_scale", [](auto& p) { p.loss_scale.reset(); }},
                                                    {"batch_size", [](auto& p) { p.batch_size.reset(); }},
                                                    {"num_iter", [](auto& p) { p.num_iter.reset(); }},
                                                    {"iter_unit", [](auto& p) { p.iter_unit.reset(); }},
                                                    {"display_every", [](auto& p) { p.display_every.reset(); }},
                                                    {"precision", [](auto& p) { p.precision.reset(); }},
                                                    {"use_xla", [](auto& p) { p.use_xla.reset(); }}};
  for (const auto& [name, change] : missing) {
    EXPECT_TRUE(refusal(change).starts_with(std::string("the parameter ") + name + " is missing")) << refusal(change);
  }
  EXPECT_EQ(refusal([](auto& p) { p.iter_unit.reset(); }),
            "the parameter iter_unit is missing: train_ctl: expected epoch or batch, got none");
}

TEST(TrainCtlParams, NameTheOneThatCannotBe) {
  const std::pair<const char*, Change> bad[] = {{"image_width", [](auto& p) { p.image_width = 0; }},
                                                {"image_height", [](auto& p) { p.image_height = 1 << 20; }},
                                                {"image_format", [](auto& p) { p.image_format = "NHWC"; }},
                                                {"momentum", [](auto& p) { p.momentum = 1.5; }},
                                                {"loss_scale", [](auto& p) { p.loss_scale = 0; }},
                                                {"batch_size", [](auto& p) { p.batch_size = -1; }},
                                                {"num_iter", [](auto& p) { p.num_iter = 0; }},
                                                {"iter_unit", [](auto& p) { p.iter_unit = "steps"; }},
                                                {"display_every", [](auto& p) { p.display_every = 0; }},
                                                {"precision", [](auto& p) { p.precision = "fp64"; }},
                                                {"dali_mode", [](auto& p) { p.dali_mode = "cpu"; }},
                                                {"dali_threads", [](auto& p) { p.dali_threads = 0; }},
                                                {"devices", [](auto& p) { p.devices = 0; }}};
  for (const auto& [name, change] : bad) {
    EXPECT_TRUE(refusal(change).starts_with(std::string("the parameter ") + name + " cannot be used"))
        << refusal(change);
  }
  EXPECT_EQ(refusal([](auto& p) { p.precision = "fp64"; }),
            "the parameter precision cannot be used: train_ctl: expected one of fp32, fp16, bf16, got 'fp64'");
}

// The least and the most that each may be, and what lies behind it.
TEST(TrainCtlParams, RangesEndWhereTheyShould) {
  static constexpr int64_t kMostSteps = int64_t{1} << 53;
  const Change ends[] = {[](auto& p) { p.momentum = 0; },
                         [](auto& p) { p.momentum = 1; },
                         [](auto& p) { p.batch_size = 1; },
                         [](auto& p) { p.batch_size = 1 << 20; },
                         [](auto& p) { p.num_iter = 1; },
                         [](auto& p) { p.num_iter = kMostSteps; },
                         [](auto& p) { p.display_every = kMostSteps; },
                         [](auto& p) { p.dali_threads = 1; },
                         [](auto& p) { p.dali_threads = 1024; },
                         [](auto& p) { p.devices = 1024; }};
  for (const Change& change : ends) EXPECT_EQ(refusal(change), "no error");
  const auto beyond = [](const char* name, const char* expected, const std::string& actual, const Change& change) {
    EXPECT_EQ(refusal(change), std::string("the parameter ") + name + " cannot be used: train_ctl: expected " +
                                   expected + ", got " + actual);
  };
  beyond("momentum", "a number from 0 to 1", "-0.5", [](auto& p) { p.momentum = -0.5; });
  beyond("batch_size", "a number from 1 to 1048576", "1048577", [](auto& p) { p.batch_size = (1 << 20) + 1; });
  beyond("num_iter", "a number from 1 to 9007199254740992", "9007199254740993",
         [](auto& p) { p.num_iter = kMostSteps + 1; });
  beyond("dali_threads", "a number from 1 to 1024", "1025", [](auto& p) { p.dali_threads = 1025; });
  beyond("devices", "a number from 1 to 1024", "1025", [](auto& p) { p.devices = 1025; });
  beyond("loss_scale", "a number above 0", "inf",
         [](auto& p) { p.loss_scale = std::numeric_limits<double>::infinity(); });
}

TEST(TrainCtlParams, RefuseContradictions) {
  const core::TempDir folder;
  for (const char* name : {"log_dir", "dali_mode", "data_idx_dir", "distort_color"}) {
    const std::string wanted = name;
    const std::string message = refusal([&](TrainCtlParams& p) {
      if (wanted == "log_dir") p.log_dir = folder.path();
      if (wanted == "dali_mode") p.dali_mode = "CPU";
      if (wanted == "data_idx_dir") p.data_idx_dir = folder.path();
      if (wanted == "distort_color") p.distort_color = true;
    });
    EXPECT_TRUE(message.starts_with(wanted + " needs data_dir")) << message;
  }
  EXPECT_NE(refusal([](auto& p) {
              p.data_dir = "data";
              p.dali_mode = "CPU";
              p.distort_color = true;
            }).find("whose pipeline changes no colours"),
            std::string::npos);
}

TEST(TrainCtlParams, WantDirectoriesThatAreThere) {
  const core::TempDir folder;
  const std::string none = folder.file("none"), file = folder.file("file");
  core::local_file_system().write_file_atomically(file, "x");
  EXPECT_EQ(refusal([&](auto& p) { p.export_dir = none; }),
            "the directory export_dir does not exist: train_ctl: got " + none + "; make it first");
  EXPECT_TRUE(refusal([&](auto& p) { p.tensorboard_dir = none; }).starts_with("the directory tensorboard_dir"));
  EXPECT_TRUE(refusal([&](auto& p) {
                p.data_dir = folder.path();
                p.log_dir = none;
              }).starts_with("the directory log_dir"));
  EXPECT_NE(refusal([&](auto& p) { p.export_dir = file; }).find("expected a directory"), std::string::npos);
}

TEST(TrainCtlParams, NameTheOneThatNeedsAGpu) {
  constexpr auto kUnsupported = core::ErrorCode::kUnsupported;
  const Change fp16 = [](auto&p) { p.precision = "fp16"; }, xla = [](auto&p) { p.use_xla = true; };
  const Change decodes = [](auto& p) {
    p.data_dir = "data";
    p.dali_mode = "GPU";
  };
  EXPECT_TRUE(refusal(fp16, 0, kUnsupported).starts_with("precision=fp16 needs a GPU"));
  EXPECT_TRUE(refusal(xla, 0, kUnsupported).starts_with("use_xla=true needs a GPU"));
  EXPECT_TRUE(refusal(decodes, 0, kUnsupported).starts_with("dali_mode=GPU needs a GPU"));
  for (const Change& change : {fp16, xla, decodes}) {
    TrainCtlParams params = whole();
    change(params);
    params.validate(1);
  }
}

TEST(TrainCtlParams, OfAPredictionAreFew) {
  const core::TempDir folder;
  TrainCtlParams params{.image_width = 32, .image_height = 32, .batch_size = 4, .export_dir = folder.path()};
  params.validate_for_prediction();
  EXPECT_EQ(params.export_path(), folder.file("saved_model_rn50.h5"));
  params.export_dir.clear();
  EXPECT_EQ(
      core::message_of([&] { params.validate_for_prediction(); }, core::ErrorCode::kInvalidArgument),
      "the parameter export_dir is missing: predict_ctl: expected the directory into which a training has exported "
      "its model, got none");
}

// Each process has one device. Rank 0 alone needs directories, so that the others cannot refuse what they lack.
TEST(TrainCtlParams, OfSeveralProcesses) {
  EXPECT_EQ(refusal([](auto& p) { p.horovod = true, p.devices = 2; }),
            "the parameter devices cannot be used: train_ctl: expected 1 with horovod: each process has one, got 2");
  TrainCtlParams params = whole();
  params.export_dir = "/no/where";
  EXPECT_THROW(params.validate(0), core::Error);
  params.horovod = true;
  params.validate(0);
  EXPECT_THROW(params.validate_directories(), core::Error);
}

TEST(CtlPlan, CountsTheDevicesOfAllProcesses) {
  TrainCtlParams params = whole();
  params.devices = 4;
  const CtlPlan devices = make_ctl_plan(params, 42, 103);
  params.devices = 1;
  const CtlPlan processes = make_ctl_plan(params, 42, 103, 4);
  EXPECT_EQ(processes.global_batch_size, devices.global_batch_size);
  EXPECT_EQ(processes.steps_per_epoch, devices.steps_per_epoch);
  EXPECT_EQ(processes.validation_steps, devices.validation_steps);
}

TEST(CtlPlan, CountsWholeBatches) {
  TrainCtlParams params = whole();
  params.devices = 2;  // 8 images a step
  params.iter_unit = "epoch";
  CtlPlan plan = make_ctl_plan(params, 42, 103);
  EXPECT_EQ(plan.steps_per_epoch, 5);
  EXPECT_EQ(plan.end_step, 10);
  EXPECT_EQ(plan.validation_steps, 12);
  EXPECT_TRUE(plan.validates_each_epoch);
  params.iter_unit = "batch";
  params.num_iter = 7;
  plan = make_ctl_plan(params, 42, 103);
  EXPECT_EQ(plan.end_step, 7);
  EXPECT_EQ(plan.validation_steps, 10);
  EXPECT_FALSE(plan.validates_each_epoch);
  EXPECT_EQ(core::message_of([&] { make_ctl_plan(params, 7, 0); }, core::ErrorCode::kInvalidArgument),
            "batch_size is larger than the data: an epoch has no whole batch: synthetic images: expected at most 7 "
            "images on 2 devices, got 8");
}

TEST(CtlPlan, HasNoMoreStepsThanADoubleCounts) {
  TrainCtlParams params = whole();
  params.iter_unit = "epoch";
  params.num_iter = int64_t{1} << 53;
  EXPECT_EQ(make_ctl_plan(params, 42, 0).end_step, int64_t{1} << 53);
  params.num_iter = (int64_t{1} << 53) / 10;
  EXPECT_EQ(make_ctl_plan(params, 42, 0).end_step, 9007199254740990);
}

TEST(CtlPlan, GradientsAreAveragedOverDevices) {
  TrainCtlParams params = whole();
  const CtlModel model = ctl_zoo_model("trivial", 32)(kCtlClasses, 4);
  const auto exchange_of = [&] {
    return ctl_trainer_options(model, params, make_ctl_plan(params, 42, 0), {}, {}).exchange;
  };
  EXPECT_EQ(exchange_of().variable_update, "parameter_server");
  params.devices = 2;
  EXPECT_EQ(exchange_of().variable_update, "replicated");
  EXPECT_EQ(exchange_of().reduction, parallel::GradientReduction::kMean);
  params.devices = 1;
  params.horovod = true;
  EXPECT_EQ(exchange_of().variable_update, "horovod");
}

// By hand, from the example's table.
TEST(CtlPlan, HasTheRatesOfTheExample) {
  const optim::LearningRate rate = ctl_learning_rate({.global_batch_size = 512, .steps_per_epoch = 10});
  EXPECT_EQ(rate(0), 0);
  EXPECT_DOUBLE_EQ(rate(25), 0.1);
  EXPECT_DOUBLE_EQ(rate(49), 0.2 * 49 / 50);
  EXPECT_DOUBLE_EQ(rate(50), 0.2);
  EXPECT_DOUBLE_EQ(rate(300), 0.2);
  EXPECT_DOUBLE_EQ(rate(301), 0.02);
  EXPECT_DOUBLE_EQ(rate(600), 0.02);
  EXPECT_DOUBLE_EQ(rate(601), 0.002);
  EXPECT_DOUBLE_EQ(rate(800), 0.002);
  EXPECT_DOUBLE_EQ(rate(801), 0.0002);
  EXPECT_DOUBLE_EQ(rate(1000000), 0.0002);
}

}  // namespace
}  // namespace trainyard::frontends::params_test
