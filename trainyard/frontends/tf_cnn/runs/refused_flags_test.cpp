// Flags of ours that do not go together, and options that were filled by hand: each refusal with its whole text, and
// the nearest options that pass.
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/frontends/tf_cnn/flag_validation.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/frontends/tf_cnn/options.h"

namespace trainyard::frontends::refused_flags_test {
namespace {

using ::testing::HasSubstr;

// Command lines are written as they would be typed: flags with blanks between them.
std::string problem_of(const std::string& line, Dialect dialect = Dialect::kTrainyard) {
  std::vector<std::string> arguments;
  std::istringstream words(line);
  for (std::string word; words >> word;) arguments.push_back(word);
  return core::problem_of([&] { validate_flags(core::parse_flags(tf_cnn_flags(dialect), arguments), dialect); });
}

struct Row {
  std::string refused, problem, accepted;
};

void expect_refusals(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    EXPECT_EQ(problem_of(row.refused), row.problem) << row.refused;
    EXPECT_EQ(problem_of(row.accepted), "") << row.accepted;
  }
}

TEST(RefusedFlags, OfOptimizers) {
  const std::string mean = ", which keeps the mean that is evaluated itself", place = ", whose mean takes its place",
                    averages = "--ema_decay and --swa_start_epoch are not for --optimizer=";
  expect_refusals(
      {{"--optimizer=lars --decoupled_weight_decay",
        "--decoupled_weight_decay is not for --optimizer=lars, whose weight decay is within its rate",
        "--optimizer=torch_momentum --decoupled_weight_decay"},
       {"--optimizer=torch_momentum --nesterov --momentum_dampening=0.5",
        "--nesterov needs a --momentum_dampening of 0, as in PyTorch", "--optimizer=torch_momentum --nesterov"},
       {"--optimizer=schedule_free_sgd --ema_decay=0.9", averages + "schedule_free_sgd" + mean,
        "--optimizer=sgd --ema_decay=0.9"},
       {"--optimizer=schedule_free_adamw --swa_start_epoch=1", averages + "schedule_free_adamw" + mean,
        "--optimizer=sgd --swa_start_epoch=1"},
       {"--optimizer=schedule_free_sgd --lookahead_steps=1",
        "--lookahead_steps is not for --optimizer=schedule_free_sgd" + place, "--optimizer=sgd --lookahead_steps=1"},
       {"--lookahead_alpha=0.8", "--lookahead_alpha is of --lookahead_steps: pass both, or neither",
        "--lookahead_alpha=0.8 --lookahead_steps=1"},
       {"--lookahead_final_alpha=1", "--lookahead_final_alpha is of --lookahead_steps: pass both, or neither",
        "--lookahead_final_alpha=0.9 --lookahead_steps=1"}});
}

TEST(RefusedFlags, OfReplicasThatExchangeNothing) {
  for (const auto& [name, flags] : {std::pair{"all_reduce_spec", "--all_reduce_spec=xring"},
                                    {"hierarchical_copy", "--hierarchical_copy --num_gpus=2"},
                                    {"gradient_repacking", "--gradient_repacking=2"},
                                    {"agg_small_grads_max_bytes", "--agg_small_grads_max_bytes=1"}}) {
    const std::string refused = fmt::format("--variable_update=independent {}", flags);
    expect_refusals(
        {{refused,
          fmt::format("--{} is for replicas that exchange gradients, not for variable_update=independent", name),
          fmt::format("--variable_update=replicated {}", flags)}});
    EXPECT_EQ(problem_of(refused, Dialect::kTfCnnBenchmarks), "") << refused;
  }
  // A flag of ours, which divides a rate that is scaled with the batch: no plan shows a rate that no run would have.
  const std::string reduction = "--variable_update=independent --num_gpus=2 --gradient_reduction=";
  const std::string problem =
      "--gradient_reduction is for replicas that exchange gradients, not for variable_update=independent";
  for (const char* value : {"sum", "mean"}) {
    EXPECT_EQ(problem_of(reduction + value), problem);
    EXPECT_EQ(problem_of(reduction + value, Dialect::kTfCnnBenchmarks), problem);
  }
  EXPECT_EQ(problem_of(reduction + "auto"), "");
  expect_refusals(
      {{"--network_topology=gcp_v100", "--network_topology is of --hierarchical_copy: pass both, or neither",
        "--network_topology=gcp_v100 --hierarchical_copy --num_gpus=2"},
       {"--agg_small_grads_max_group=3",
        "--agg_small_grads_max_group is of --agg_small_grads_max_bytes: pass both, or neither",
        "--agg_small_grads_max_group=3 --agg_small_grads_max_bytes=1"},
       {"--variable_update=distributed_all_reduce --all_reduce_spec=xring --nocross_replica_sync",
        "variable_update=distributed_all_reduce requires --cross_replica_sync",
        "--variable_update=distributed_all_reduce --all_reduce_spec=xring"},
       {"--variable_update=collective_all_reduce --nocross_replica_sync",
        "variable_update=collective_all_reduce requires --cross_replica_sync",
        "--variable_update=collective_all_reduce"}});
  EXPECT_EQ(problem_of("--network_topology=gcp_v100", Dialect::kTfCnnBenchmarks), "");
}

// What only trainings read, in the two modes that train nothing.
TEST(RefusedFlags, OfTrainings) {
  const std::vector<std::pair<std::string, std::string>> trainings = {
      {"--freeze=conv1.*", "--freeze is for trainings: eval and forward_only train nothing"},
      {"--freeze_until=conv1.*:2", "--freeze_until is for trainings: eval and forward_only train nothing"},
      {"--freeze_after=conv1.*:2", "--freeze_after is for trainings: eval and forward_only train nothing"},
      {"--stop_after_epochs=1", "--stop_after_epochs is for trainings: eval and forward_only train nothing"},
      {"--trackers=mlflow", "--trackers is for trainings: eval and forward_only record no steps"},
      {"--class_weights=balanced", "--class_weights is for trainings: eval and forward_only have no loss of a step"},
      {"--balanced_sampling", "--balanced_sampling is for trainings: eval and forward_only have no loss of a step"},
      {"--existing_run=delete",
       "--existing_run=delete is for trainings: eval and forward_only use the run that is there"},
      {"--stop_at_top_1_accuracy=.5", "--stop_at_top_1_accuracy is only supported with --eval_during_training_*"},
      {"--asp", "--asp prunes what a training starts from; `trainyard sparsity` prunes without training"},
      {"--early_stop=2", "--early_stop is for trainings: eval and forward_only train nothing"},
      {"--describe_input", "--describe_input is for trainings: it shows the input of their evaluations, too"},
      {"--plot_schedule=x.svg", "--plot_schedule is for trainings: eval and forward_only have no learning rate"},
      {"--backbone_model_path=x --model=ssd300",
       "--backbone_model_path is for trainings: eval and forward_only take whole models"}};
  for (const auto& [flags, problem] : trainings) {
    for (const char* mode : {" --eval", " --forward_only"}) {
      EXPECT_EQ(problem_of(flags + " --train_dir=run" + mode), problem) << flags << mode;
    }
    EXPECT_EQ(problem_of(flags + " --train_dir=run"), "") << flags;
    // `trainyard eval` leaves it out of a training's file.
    EXPECT_TRUE(is_training_flag(flags.substr(2, flags.find_first_of("= ") - 2))) << flags;
  }
  for (const char* name : {"train_dir", "num_eval_batches", "eval_exact", "eval_during_training"}) {
    EXPECT_FALSE(is_training_flag(name)) << name;
  }
  EXPECT_EQ(problem_of("--class_weights=none --eval --train_dir=run"), "") << "the default";
  EXPECT_EQ(problem_of("--stop_after_epochs=1", Dialect::kTfCnnBenchmarks),
            "--stop_after_epochs is a flag of trainyard train");
}

// Flags alone record steps only where three flags say so: without one of them a tracker would have nothing.
TEST(RefusedFlags, OfTrackersWithoutNumbers) {
  const std::vector<std::string> needed = {" --train_dir=run", " --summary_verbosity=1", " --save_summaries_steps=10"};
  std::string all;
  for (const std::string& flag : needed) all += flag;
  EXPECT_EQ(problem_of("--trackers=mlflow" + all, Dialect::kTfCnnBenchmarks), "");
  for (const std::string& left_out : needed) {
    std::string line = "--trackers=mlflow --existing_run=keep";
    for (const std::string& flag : needed) line += flag == left_out ? "" : flag;
    EXPECT_EQ(problem_of(line, Dialect::kTfCnnBenchmarks), "--trackers has no numbers to write: the run records none")
        << line;
  }
}

TEST(RefusedFlags, OfTwoThatSayOtherwise) {
  expect_refusals(
      {{"--class_weights=balanced --balanced_sampling",
        "--class_weights and --balanced_sampling balance the classes twice: pass one of them", "--balanced_sampling"},
       {"--balanced_sampling --repeated_augmentation=2",
        "--balanced_sampling repeats images as classes need it, not with --repeated_augmentation",
        "--balanced_sampling --repeated_augmentation=1"},
       {"--trackers=mlflow --summary_verbosity=0", "--trackers has nothing to write with --summary_verbosity=0",
        "--trackers=mlflow --summary_verbosity=1"},
       {"--existing_run=delete", "--existing_run=delete needs --train_dir", "--existing_run=ask"},
       {"--eval --train_dir=run --weights=file", "Only one of --train_dir and --weights can be evaluated",
        "--eval --weights=file"},
       {"--synthetic --data_dir=photos", "--synthetic and --data_dir exclude each other: leave one of them out",
        "--data_dir=photos"}});
}

// --- options that were filled by hand ---

using Change = std::function<void(TfCnnOptions&)>;

std::string problem_with(const Change& change) {
  TfCnnOptions options;
  change(options);
  return core::problem_of([&] { options.validate(); });
}

void evaluate(TfCnnOptions& options) {
  options.mode = RunMode::kEvaluation;
  options.saving.train_dir = "run";
}

TEST(RefusedOptions, OfPrecisions) {
  const auto problem = [](Precision precision, const Change& change) {
    return problem_with([&](TfCnnOptions& o) {
      evaluate(o);
      o.precision = precision;
      change(o);
    });
  };
  const auto none = [](TfCnnOptions&) {};
  const auto half = [](TfCnnOptions& o) { o.device.use_fp16 = true; };
  const auto brain = [](TfCnnOptions& o) { o.device.use_bf16 = true; };
  const auto calibrated = [](TfCnnOptions& o) { o.calibration_batches = 2; };
  EXPECT_EQ(problem(Precision::kFloat32, none), "");
  EXPECT_EQ(problem(Precision::kFloat32, half), "--precision and --use_fp16 exclude each other");
  EXPECT_EQ(problem(Precision::kAuto, half), "");
  EXPECT_EQ(problem(Precision::kFloat32, brain), "--precision=float32 and --use_bf16 exclude each other");
  EXPECT_EQ(problem(Precision::kBfloat16, brain), "");
  EXPECT_EQ(problem(Precision::kInt8, calibrated), "");
  EXPECT_EQ(problem(Precision::kFloat32, calibrated),
            "--calibration_batches is of --trt_mode=INT8, of --precision=int8 and of --qat");
  EXPECT_EQ(problem_with([](TfCnnOptions& o) { o.precision = Precision::kFloat32; }),
            "--precision is of evaluations and predictions");
}

TEST(RefusedOptions, OfFrozenGraphs) {
  const auto problem = [](const std::string& mode, const Change& change) {
    return problem_with([&](TfCnnOptions& o) {
      o.mode = RunMode::kForwardOnly;
      o.freeze_when_forward_only = true;
      o.trt_mode = mode;
      change(o);
    });
  };
  const auto none = [](TfCnnOptions&) {};
  for (const char* mode : {"FP32", "FP16", "INT8"}) EXPECT_EQ(problem(mode, none), "") << mode;
  EXPECT_EQ(problem("INT4", none), "trt_mode cannot be used");
  EXPECT_EQ(problem("FP32", [](TfCnnOptions& o) { o.freeze_when_forward_only = false; }), "trt_mode cannot be used");
  EXPECT_EQ(problem("FP32", [](TfCnnOptions& o) { o.device.use_fp16 = true; }),
            "--trt_mode=FP32 excludes --use_fp16 and --use_bf16");
  EXPECT_EQ(problem("FP16", [](TfCnnOptions& o) { o.device.use_bf16 = true; }), "");
  EXPECT_EQ(problem("INT8", [](TfCnnOptions& o) { o.device.variable_update = "horovod"; }),
            "--trt_mode=INT8 is for one process: each would find scales of its own");
  EXPECT_EQ(problem("FP16", [](TfCnnOptions& o) { o.device.variable_update = "horovod"; }), "");
}

TEST(RefusedOptions, OfEvaluations) {
  const char* const early = "--early_stop_min_delta and --early_stop_metric are of --early_stop, which is not set";
  EXPECT_EQ(problem_with([](TfCnnOptions& o) { o.early_stop_min_delta = 0.5; }), early);
  EXPECT_EQ(problem_with([](TfCnnOptions& o) { o.early_stop_metric = "loss"; }), early);
  EXPECT_EQ(problem_with([](TfCnnOptions& o) {
              o.early_stop = 1;
              o.early_stop_min_delta = 0.5;
              o.early_stop_metric = "loss";
            }),
            "");
  EXPECT_EQ(problem_with([](TfCnnOptions& o) {
              o.early_stop = 1;
              o.early_stop_metric = "none";
            }),
            "--early_stop_metric=none compares nothing");
  EXPECT_EQ(problem_with([](TfCnnOptions& o) {
              o.mode = RunMode::kForwardOnly;
              o.top_k = {3};
            }),
            "--top_k, --calibration_bins and --most_wrong are of evaluations, and forward passes compare no labels");
  EXPECT_EQ(problem_with([](TfCnnOptions& o) { o.top_k = {1}; }), "");
  EXPECT_EQ(problem_with([](TfCnnOptions& o) { o.top_k = {1, 0}; }), "a k of --top_k is out of range");
  const auto views = [](bool evaluates) {
    return problem_with([&](TfCnnOptions& o) {
      o.tta = train::TestTimeAugmentation::kFlip;
      o.evaluate_each_epoch = evaluates;
    });
  };
  EXPECT_EQ(views(false), "--tta is for evaluations, and this run has none");
  EXPECT_EQ(views(true), "");
}

TEST(RefusedOptions, OfTheModelThatIsEvaluated) {
  const auto message = [](const std::string& weights, const std::string& train_dir) {
    TfCnnOptions options;
    options.mode = RunMode::kEvaluation;
    options.weights = weights;
    options.saving.train_dir = train_dir;
    return core::message_of([&] { options.validate(); });
  };
  EXPECT_THAT(message("", ""), HasSubstr("expected either saving.train_dir or weights, got none of them"));
  EXPECT_THAT(message("file", "run"), HasSubstr("expected either saving.train_dir or weights, got both"));
  EXPECT_EQ(message("file", ""), "no error");
  EXPECT_EQ(message("", "run"), "no error");
}

TEST(RefusedOptions, OfQuantizationAwareTrainings) {
  const auto problem = [](const Change& change) {
    return problem_with([&](TfCnnOptions& o) {
      o.dialect = Dialect::kTrainyard;
      o.qat = true;
      o.input.data_dir = "photos";
      change(o);
    });
  };
  const char* const constants = "batch norms are constants in it";
  const char* const in_float = "quantization-aware training computes in float32";
  EXPECT_EQ(problem([](TfCnnOptions& o) { o.calibration_batches = 2; }), "");
  EXPECT_EQ(problem([](TfCnnOptions& o) { o.dialect = Dialect::kTfCnnBenchmarks; }),
            "--qat is a flag of trainyard train");
  EXPECT_EQ(problem(evaluate), "--qat is of trainings");
  EXPECT_EQ(problem([](TfCnnOptions& o) { o.mode = RunMode::kForwardOnly; }), "--qat is of trainings");
  EXPECT_EQ(problem([](TfCnnOptions& o) { o.input.data_dir = ""; }), "nothing is learned from synthetic images");
  EXPECT_EQ(problem([](TfCnnOptions& o) { o.device.use_bf16 = true; }), in_float);
  EXPECT_EQ(problem([](TfCnnOptions& o) { o.device.use_fp16 = true; }), in_float);
  EXPECT_EQ(problem([](TfCnnOptions& o) { o.device.executor = "cpu"; }),
            "quantization-aware training has an executor of its own");
  EXPECT_EQ(problem([](TfCnnOptions& o) { o.device.sync_batch_norm = true; }), constants);
  EXPECT_EQ(problem([](TfCnnOptions& o) { o.average.recalibrate_batch_norm = 1; }), constants);
  EXPECT_EQ(problem([](TfCnnOptions& o) { o.average.recalibrate_batch_norm = 0; }), "");
}

TEST(RefusedOptions, OfRangeTests) {
  const auto problem = [](const Change& change) {
    return problem_with([&](TfCnnOptions& o) {
      o.range_test = RangeTestRequest{.rates = {.lowest = 1e-6, .highest = 1e3, .steps = 180}};
      change(o);
    });
  };
  EXPECT_EQ(problem([](TfCnnOptions& o) { o.freeze.patterns = {"conv1.*"}; }), "");
  EXPECT_EQ(problem([](TfCnnOptions& o) { o.freeze.epochs = {{.pattern = "conv1.*", .begin = 1}}; }),
            "a range test of learning rates trains the same parameters in all steps");
  EXPECT_EQ(problem([](TfCnnOptions& o) { o.fine_tune = FineTuneOptions(); }),
            "--finetune chooses a learning rate, which find-lr looks for");
  EXPECT_EQ(problem(evaluate), "a range test of learning rates trains, and nothing else");
}

TEST(RefusedOptions, OfWhatEvaluationsHaveNot) {
  EXPECT_EQ(problem_with([](TfCnnOptions& o) {
              evaluate(o);
              o.describe_input = true;
            }),
            "only the input of a training is described");
  EXPECT_EQ(problem_with([](TfCnnOptions& o) {
              evaluate(o);
              o.plot_schedule = "rate.svg";
            }),
            "only a training has a schedule to draw");
  EXPECT_EQ(problem_with([](TfCnnOptions& o) { o.describe_input = true; }), "");
  EXPECT_EQ(problem_with([](TfCnnOptions& o) { o.plot_schedule = "rate.svg"; }), "");
}

// Each of the four ways to say when a training is evaluated.
TEST(RefusedOptions, OfEvaluationsWithoutTheirMode) {
  const std::vector<Change> pauses = {[](TfCnnOptions& o) { o.steps.eval_every_n_steps = 5; },
                                      [](TfCnnOptions& o) { o.steps.eval_every_n_epochs = 0.5; },
                                      [](TfCnnOptions& o) { o.steps.eval_at_steps = {5}; },
                                      [](TfCnnOptions& o) { o.steps.eval_at_epochs = {0.5}; }};
  for (size_t i = 0; i < pauses.size(); ++i) {
    TfCnnOptions options;
    pauses[i](options);
    EXPECT_THAT(core::message_of([&] { options.validate(); }),
                HasSubstr("expected mode kTrainingAndEvaluation, got mode training"))
        << i;
    options.mode = RunMode::kTrainingAndEvaluation;
    EXPECT_EQ(core::message_of([&] { options.validate(); }), "no error") << i;
  }
}

TEST(RefusedOptions, OfSizesThatDiffer) {
  const auto message = [](nn::Size2d size) {
    TfCnnOptions options;
    options.input.data_dir = "photos";
    options.input.epoch_sizes = {{0, {16, 20}}, {5, {24, 32}}};
    options.image_size = size;
    return core::message_of([&] { options.validate(); });
  };
  EXPECT_EQ(message({24, 32}), "no error");
  EXPECT_EQ(message(0), "no error");
  EXPECT_THAT(message({32, 24}), HasSubstr("expected 24x32, got 32x24"));
  EXPECT_THAT(message({16, 20}), HasSubstr("expected 24x32, got 16x20"));
}

// The profile of steps with small images had the operations and bytes of the last size.
TEST(RefusedOptions, AProfileIsOfOneSize) {
  TfCnnOptions options;
  options.input.data_dir = "photos";
  options.display.tfprof_file = "profile.json";
  options.input.epoch_sizes = {{0, {24, 32}}};
  EXPECT_EQ(core::message_of([&] { options.validate(); }), "no error");
  options.input.epoch_sizes = {{0, {16, 20}}, {5, {24, 32}}};
  EXPECT_THAT(core::message_of([&] { options.validate(); }),
              HasSubstr("--tfprof_file cannot be used: got it counts the work of images of one size"));
  options.mode = RunMode::kEvaluation;
  options.saving.train_dir = "out";
  EXPECT_EQ(core::message_of([&] { options.validate(); }), "no error") << "images have the last size";
}

}  // namespace
}  // namespace trainyard::frontends::refused_flags_test
