// What a run's options become of a trainer's: averages, recalibration, exchange, and what parameter servers refuse.
#include "trainyard/frontends/tf_cnn/trainer_options.h"

#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/frontends/tf_cnn/freezing.h"
#include "trainyard/frontends/tf_cnn/schedule.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/parallel/testing/on_ranks.h"

namespace trainyard::frontends::trainer_options_test {
namespace {

using ::testing::ElementsAre;

nn::Graph network(bool with_norm) {
  nn::GraphBuilder b({.image = {3, 4, 4}, .name = "network"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 2, .kernel = 1});
  if (with_norm) x = b.batch_norm("norm", x);
  return b.build(b.linear("head", b.flatten("flat", x), {.out_features = 2}));
}

// 10 steps of 4 images make an epoch of 40.
PreparedRun run_of(bool with_norm = true) {
  PreparedRun run;
  run.options.dialect = Dialect::kTrainyard;
  run.options.learning_rate.init_learning_rate = 0.5;
  run.model = &models::find_model("lenet", "imagenet");
  run.graph = network(with_norm);
  run.num_classes = 2;
  run.batch_size = 4;
  run.train_examples = 40;
  run.plan.num_batches = 30;
  return run;
}

TEST(RecalibrationBatches, AreOfAnAverageUnlessTheyAreAskedFor) {
  const auto batches = [](const std::function<void(PreparedRun&)>& change) {
    PreparedRun run = run_of();
    change(run);
    return recalibration_batches(run);
  };
  const auto average = [](PreparedRun& run) { run.options.average.swa_start_epoch = 1; };
  EXPECT_EQ(batches([](PreparedRun&) {}), 0);
  EXPECT_EQ(batches(average), 10) << "an epoch";
  EXPECT_EQ(batches([&](PreparedRun& run) {
              average(run);
              run.train_examples = 4000;
            }),
            200)
      << "at most";
  EXPECT_EQ(batches([&](PreparedRun& run) {
              average(run);
              run.train_examples = 1;
            }),
            1)
      << "at least";
  EXPECT_EQ(batches([](PreparedRun& run) { run.options.update.optimizer = "schedule_free_sgd"; }), 10);
  EXPECT_EQ(batches([&](PreparedRun& run) {
              average(run);
              run.options.qat = true;
            }),
            0);
  EXPECT_EQ(batches([&](PreparedRun& run) {
              average(run);
              run.graph = network(false);
            }),
            0)
      << "there is nothing to recalibrate";
  EXPECT_EQ(batches([&](PreparedRun& run) {
              average(run);
              run.options.average.recalibrate_batch_norm = 0;
            }),
            0);
  EXPECT_EQ(batches([](PreparedRun& run) { run.options.average.recalibrate_batch_norm = 3; }), 3);
  PreparedRun without = run_of(false);
  without.options.average.recalibrate_batch_norm = 3;
  EXPECT_EQ(core::problem_of([&] { static_cast<void>(recalibration_batches(without)); }),
            "there are no batch norms to recalibrate");
}

TEST(TrainerOptions, AverageWeightsByStepsOrFromAnEpochOn) {
  PreparedRun run = run_of();
  EXPECT_FALSE(make_trainer_options(run).average.has_value());
  run.options.average.swa_start_epoch = 1.5;
  std::optional<optim::WeightAverageOptions> average = make_trainer_options(run).average;
  ASSERT_TRUE(average.has_value());
  EXPECT_EQ(average->kind, optim::AverageKind::kEqual);
  EXPECT_EQ(average->every, 10) << "an epoch";
  EXPECT_EQ(average->first_step, 15);
  run.options.average.average_every = 3;
  EXPECT_EQ(make_trainer_options(run).average->every, 3);

  run.options.average = {.ema_decay = 0.75, .ema_warmup = true};
  average = make_trainer_options(run).average;
  ASSERT_TRUE(average.has_value());
  EXPECT_EQ(average->kind, optim::AverageKind::kExponential);
  EXPECT_EQ(average->decay, 0.75);
  EXPECT_TRUE(average->warmup);
  EXPECT_EQ(average->every, 1);
  EXPECT_EQ(average->first_step, 0);
  run.options.average.average_every = 5;
  EXPECT_EQ(make_trainer_options(run).average->every, 5);
}

TEST(TrainerOptions, AreThoseOfTheRun) {
  PreparedRun run = run_of();
  run.replicas = 2;
  run.input.seed = 77;
  run.options.micro_steps = 3;
  run.options.update.on_nan = train::OnNan::kSkip;
  run.options.update.sam_rho = 0.125;
  run.options.update.gradient_reduction = "sum";
  run.options.device.variable_update = "replicated";
  run.options.device.sync_batch_norm = true;
  run.threads.intra_op_threads = 5;
  run.threads.replica.resize(2);
  run.other_sizes = {network(false)};
  train::TowerTrainerOptions options = make_trainer_options(run);
  EXPECT_EQ(options.threads.intra_op_threads, 5);
  EXPECT_EQ(options.threads.placement.size(), 2U);
  ASSERT_EQ(options.other_sizes.size(), 1U);
  EXPECT_EQ(options.other_sizes[0].nodes.size(), run.other_sizes[0].nodes.size());
  EXPECT_EQ(options.graph.nodes.size(), run.graph.nodes.size());
  EXPECT_EQ(options.devices.replicas, 2);
  EXPECT_EQ(options.seed, 77U);
  EXPECT_EQ(options.micro_steps, 3);
  EXPECT_EQ(options.on_nan, train::OnNan::kSkip);
  ASSERT_TRUE(options.sharpness_aware.has_value());
  EXPECT_EQ(options.sharpness_aware->rho, 0.125);
  EXPECT_EQ(options.exchange.variable_update, "replicated");
  EXPECT_EQ(options.exchange.reduction, parallel::GradientReduction::kSum);
  EXPECT_TRUE(options.exchange.sync_batch_norm);
  EXPECT_EQ(options.learning_rate(0), 0.5);
  EXPECT_TRUE(options.schedules.empty());

  run.options.update.sam_rho = 0;
  run.options.update.gradient_reduction = "mean";
  run.options.device.variable_update = "parameter_server";
  run.options.device.staged_vars = true;
  options = make_trainer_options(run);
  EXPECT_FALSE(options.sharpness_aware.has_value());
  EXPECT_EQ(options.exchange.variable_update, "staged_parameter_server");
  EXPECT_EQ(options.exchange.reduction, parallel::GradientReduction::kMean);
}

// Returns the options of the optimizer of the network's parameters.
optim::OptimizerOptions optimizer_options(const std::function<void(UpdateOptions&)>& change,
                                          std::optional<int64_t> updates = std::nullopt) {
  TfCnnOptions options;
  change(options.update);
  const nn::Graph graph = network(true);
  nn::ParameterSet parameters;
  for (const nn::Node& node : graph.nodes) {
    for (const nn::ParameterSpec& parameter : node.parameters) parameters.declare(parameter);
  }
  parameters.allocate();
  const std::unique_ptr<optim::Optimizer> optimizer = make_optimizer(options, &graph, updates)(parameters);
  return optimizer->options();
}

TEST(MakeOptimizer, HasWhatTheUpdateAsksFor) {
  const optim::OptimizerOptions plain = optimizer_options([](UpdateOptions&) {});
  EXPECT_EQ(plain.weight_decay, 4e-5);
  EXPECT_FALSE(plain.decoupled_decay || plain.delayed);
  EXPECT_FALSE(plain.gradient_clip || plain.norm_clip || plain.lookahead);
  EXPECT_EQ(plain.layer_decay, 1);
  EXPECT_TRUE(plain.groups.empty() && plain.muon_exclude.empty());
  const optim::OptimizerOptions asked = optimizer_options([](UpdateOptions& update) {
    update.optimizer = "torch_momentum";
    update.numbers["momentum"] = 0.75;
    update.weight_decay = 0.25;
    update.decoupled_weight_decay = true;
    update.gradient_clip = 3;
    update.layer_decay = 0.5;
  });
  EXPECT_EQ(asked.numbers.at("momentum"), 0.75);
  EXPECT_EQ(asked.weight_decay, 0.25);
  EXPECT_TRUE(asked.decoupled_decay);
  EXPECT_EQ(asked.gradient_clip, 3);
  EXPECT_EQ(asked.layer_decay, 0.5);
  EXPECT_TRUE(optimizer_options([](UpdateOptions& update) { update.delayed = true; }).delayed);
}

TEST(MakeOptimizer, ClipsByTheNormThatIsAskedFor) {
  const auto clip_of = [](const std::function<void(UpdateOptions&)>& change) {
    return optimizer_options(change).norm_clip.value_or(optim::NormClip{.bound = -1});
  };
  const optim::NormClip global = clip_of([](UpdateOptions& update) { update.clip_global_norm = 2; });
  EXPECT_EQ(global.kind, optim::NormClipKind::kGlobal);
  EXPECT_EQ(global.bound, 2);
  EXPECT_EQ(global.rule, optim::NormClipRule::kTensorFlow);
  EXPECT_TRUE(global.excluded.empty());
  const optim::NormClip each = clip_of([](UpdateOptions& update) {
    update.clip_norm = 3;
    update.clip_rule = "pytorch";
  });
  EXPECT_EQ(each.kind, optim::NormClipKind::kParameter);
  EXPECT_EQ(each.bound, 3);
  EXPECT_EQ(each.rule, optim::NormClipRule::kPyTorch);
  EXPECT_TRUE(each.excluded.empty());
  const optim::NormClip adaptive = clip_of([](UpdateOptions& update) { update.adaptive_clip = 0.25; });
  EXPECT_EQ(adaptive.kind, optim::NormClipKind::kAdaptive);
  EXPECT_EQ(adaptive.bound, 0.25);
  EXPECT_THAT(adaptive.excluded, ElementsAre("head.weight", "head.bias"));
}

TEST(MakeOptimizer, HasTheParametersOfTheLastLayerInPlaceOfItsWord) {
  const optim::OptimizerOptions options = optimizer_options([](UpdateOptions& update) {
    update.groups = {{.pattern = "conv.*", .rate_factor = 0.5},
                     {.pattern = "head", .rate_factor = 10, .weight_decay = 0.125}};
  });
  ASSERT_EQ(options.groups.size(), 3U);
  EXPECT_EQ(options.groups[0].pattern, "conv.*");
  EXPECT_EQ(options.groups[0].rate_factor, 0.5);
  EXPECT_EQ(options.groups[0].weight_decay, std::nullopt);
  for (const size_t i : {1, 2}) {
    EXPECT_EQ(options.groups[i].pattern, i == 1 ? "head.weight" : "head.bias");
    EXPECT_EQ(options.groups[i].rate_factor, 10);
    EXPECT_EQ(options.groups[i].weight_decay, 0.125);
  }
  const auto excluded = [](const std::optional<std::vector<std::string>>& asked) {
    return optimizer_options([&asked](UpdateOptions& update) {
             update.optimizer = "muon_sgd";
             update.muon_exclude = asked;
           })
        .muon_exclude;
  };
  EXPECT_THAT(excluded(std::nullopt), ElementsAre("head.weight", "head.bias"));
  EXPECT_THAT(excluded(std::vector<std::string>{"conv"}), ElementsAre("conv"));
}

TEST(MakeOptimizer, LooksAheadToTheEndOfTheTrainingWhereItIsKnown) {
  const auto ahead = [](std::optional<int64_t> updates) {
    return optimizer_options(
               [](UpdateOptions& update) {
                 update.lookahead_steps = 4;
                 update.lookahead_alpha = 0.25;
                 update.lookahead_final_alpha = 0.75;
               },
               updates)
        .lookahead.value_or(optim::Lookahead());
  };
  const optim::Lookahead known = ahead(30);
  EXPECT_EQ(known.steps, 4);
  EXPECT_EQ(known.alpha, 0.25);
  EXPECT_EQ(known.final_alpha, 0.75);
  EXPECT_EQ(known.updates, 30);
  const optim::Lookahead unknown = ahead(std::nullopt);
  EXPECT_EQ(unknown.steps, 4);
  EXPECT_EQ(unknown.alpha, 0.25);
  EXPECT_EQ(unknown.final_alpha, std::nullopt);
}

TEST(TrainerOptions, SumOverProcessesWhereHorovodIsToSum) {
  PreparedRun run = run_of();
  run.options.device.horovod_reduce = "sum";
  EXPECT_EQ(make_trainer_options(run).exchange.reduction, std::nullopt) << "one process";
  run.options.device.variable_update = "horovod";
  EXPECT_EQ(make_trainer_options(run).exchange.reduction, parallel::GradientReduction::kSum);
  run.options.update.gradient_reduction = "mean";
  EXPECT_EQ(make_trainer_options(run).exchange.reduction, parallel::GradientReduction::kMean);
  run.options.update.gradient_reduction = "auto";
  run.options.device.horovod_reduce = "average";
  EXPECT_EQ(make_trainer_options(run).exchange.reduction, std::nullopt);
}

TEST(TrainerOptions, MomentumMayBeScheduled) {
  PreparedRun run = run_of();
  run.options.update.optimizer = "tf_momentum";
  run.options.learning_rate.schedule = "one_cycle";
  run.options.learning_rate.cycle_momentum = true;
  const train::TowerTrainerOptions options = make_trainer_options(run);
  ASSERT_EQ(options.schedules.size(), 1U);
  EXPECT_THAT(options.schedules[0].names, ElementsAre("momentum", "beta1"));
  EXPECT_DOUBLE_EQ(options.schedules[0].schedule(0), run.options.learning_rate.one_cycle.most_momentum);
}

TEST(HeadParameters, AreThoseOfTheLastLayer) {
  EXPECT_THAT(head_parameters(network(true)), ElementsAre("head.weight", "head.bias"));
}

TEST(HeadParameters, OfADetectorAreThoseOfAllPredictions) {
  nn::GraphBuilder b({.image = {3, 4, 4}, .name = "detector"});
  const auto x = b.convolution("conv", b.input(), {.out_channels = 2, .kernel = 1});
  const auto offsets = b.convolution("offsets", x, {.out_channels = 4, .kernel = 1, .bias = true});
  const auto scores = b.convolution("scores", x, {.out_channels = 3, .kernel = 1, .bias = true});
  const nn::Graph graph = b.build(b.box_rows("boxes", {offsets, scores}, {.coordinates = 4, .classes = 3}));
  EXPECT_THAT(head_parameters(graph), ElementsAre("offsets.weight", "offsets.bias", "scores.weight", "scores.bias"));
}

TEST(ServedUpdate, RefusesWhatServersCannotMake) {
  const auto problem = [](int servers, const std::function<void(TfCnnOptions&)>& change) {
    TfCnnOptions options;
    options.device.cluster.ps_hosts.assign(static_cast<size_t>(servers), "host:1");
    change(options);
    const auto error = core::error_of([&] { check_served_update(options); });
    if (!error) return std::string();
    EXPECT_EQ(error->code(), core::ErrorCode::kUnsupported);
    return error->detail().problem;
  };
  const std::string refusal = " does not work with parameter servers";
  EXPECT_EQ(problem(2, [](TfCnnOptions&) {}), "");
  EXPECT_EQ(problem(1, [](TfCnnOptions& o) { o.update.lookahead_final_alpha = 1; }),
            "--lookahead_final_alpha, whose servers do not know the number of steps," + refusal);
  EXPECT_EQ(problem(1, [](TfCnnOptions& o) { o.update.adaptive_clip = 0.01; }), "--adaptive_clip" + refusal);
  EXPECT_EQ(problem(1, [](TfCnnOptions& o) { o.update.sam_rho = 0.05; }),
            "--sam_rho, whose gradients servers would complete for a second time," + refusal);
  EXPECT_EQ(problem(1, [](TfCnnOptions& o) { o.fine_tune = FineTuneOptions(); }), "--finetune" + refusal);
  EXPECT_EQ(problem(1, [](TfCnnOptions& o) { o.qat = true; }), "--qat" + refusal);
  EXPECT_EQ(problem(1, [](TfCnnOptions& o) { o.update.sparsity.emplace(); }), "--asp" + refusal);
  EXPECT_EQ(problem(1, [](TfCnnOptions& o) { o.update.optimizer = "schedule_free_adamw"; }),
            "--optimizer=schedule_free_adamw, whose server alone knows what is evaluated," + refusal);
  EXPECT_EQ(problem(1,
                    [](TfCnnOptions& o) {
                      o.update.groups = {{.pattern = "*.bias"}, {.pattern = "head"}};
                    }),
            "--parameter_groups=head:..., whose servers do not know the layer of the output," + refusal);
  EXPECT_EQ(problem(1, [](TfCnnOptions& o) { o.update.groups = {{.pattern = "head.*"}}; }), "");
  EXPECT_EQ(problem(1, [](TfCnnOptions& o) { o.update.optimizer = "muon_sgd"; }),
            "--optimizer=muon_sgd, whose servers do not know the layer of the output," + refusal);
  EXPECT_EQ(problem(1,
                    [](TfCnnOptions& o) {
                      o.update.optimizer = "muon_sgd";
                      o.update.muon_exclude.emplace();
                    }),
            "");
}

TEST(ServedUpdate, NormsAndMatricesNeedOneServerThatHasThemWhole) {
  const auto problem = [](int servers, const std::function<void(TfCnnOptions&)>& change) {
    TfCnnOptions options;
    options.device.cluster.ps_hosts.assign(static_cast<size_t>(servers), "host:1");
    change(options);
    const auto error = core::error_of([&] { check_served_update(options); });
    return error ? error->detail().problem : std::string();
  };
  const std::string refusal = " does not work with parameter servers",
                    norms = ", which needs norms of whole parameters, over several servers";
  const std::function<void(TfCnnOptions&)> changes[] = {
      [](TfCnnOptions& o) { o.update.clip_norm = 1; }, [](TfCnnOptions& o) { o.update.clip_global_norm = 1; },
      [](TfCnnOptions& o) { o.update.optimizer = "lars"; }, [](TfCnnOptions& o) { o.update.optimizer = "lamb"; },
      [](TfCnnOptions& o) {
        o.update.optimizer = "muon_adamw";
        o.update.muon_exclude.emplace();
      }};
  const std::string problems[] = {"a clip by norms over several servers", "a clip by norms over several servers",
                                  "--optimizer=lars" + norms, "--optimizer=lamb" + norms,
                                  "--optimizer=muon_adamw, which needs whole matrices, over several servers"};
  for (size_t i = 0; i < std::size(changes); ++i) {
    EXPECT_EQ(problem(1, changes[i]), "") << i;
    EXPECT_EQ(problem(2, changes[i]), problems[i] + refusal);
  }
  EXPECT_EQ(problem(2, [](TfCnnOptions& o) { o.update.gradient_clip = 1; }), "");
}

// Two devices with batches of 4 images to train on and of 3 to evaluate.
PreparedRun planned() {
  PreparedRun run = run_of();
  run.replicas = 2;
  run.eval_batch_size = 3;
  run.validation_examples = 19;
  run.options.steps.num_batches = 30;
  run.options.steps.num_eval_epochs = 2;
  return run;
}

TEST(StepPlan, CountsTheBatchesOfTheRun) {
  PreparedRun run = planned();
  train::StepPlan plan = make_step_plan(run);
  EXPECT_EQ(plan.num_batches, 30);
  EXPECT_DOUBLE_EQ(plan.num_epochs, 30 * 8 / 40.0);
  EXPECT_EQ(plan.num_eval_batches, 7) << "38 images in batches of 6";
  run.eval_exact = true;
  plan = make_step_plan(run);
  EXPECT_EQ(plan.num_eval_batches, 4) << "19 images, the last batch shorter";
  EXPECT_EQ(plan.num_eval_epochs, 1);
  run.validation_examples = 18;
  EXPECT_EQ(make_step_plan(run).num_eval_batches, 3);
  parallel::on_ranks(2, [](const std::shared_ptr<parallel::ProcessGroup>& group) {
    PreparedRun of_rank = planned();
    of_rank.device.processes = group;
    of_rank.eval_exact = true;
    const train::StepPlan shared = make_step_plan(of_rank);
    EXPECT_DOUBLE_EQ(shared.num_epochs, 30 * 16 / 40.0);
    EXPECT_EQ(shared.num_eval_batches, 2) << "19 images in batches of 12";
  });
}

TEST(StepPlan, RefusesAnEvaluationOfNoImage) {
  PreparedRun run = planned();
  run.options.mode = RunMode::kTrainingAndEvaluation;
  run.options.steps.num_eval_epochs = 0.05;
  const auto problem = [&run] {
    const auto error = core::error_of([&run] { static_cast<void>(make_step_plan(run)); });
    return error ? error->detail().problem + ": " + error->detail().where : std::string();
  };
  const std::string refusal = "the evaluation is shorter than an image: ";
  EXPECT_EQ(problem(), refusal + "--num_eval_epochs=0.05") << "19 images";
  EXPECT_EQ(core::thrown_by([&run] { static_cast<void>(make_step_plan(run)); }).detail().expected,
            "at least one of 19 images");
  run.options.steps.num_eval_epochs = 0.06;
  EXPECT_EQ(problem(), "") << "one image";
  // Unset, it is as long as the training.
  run.options.steps = {.num_epochs = 0.05};
  EXPECT_EQ(problem(), refusal + "--num_epochs=0.05");
  run.options.mode = RunMode::kEvaluation;
  EXPECT_EQ(problem(), refusal + "--num_epochs=0.05");
  run.eval_exact = true;
  EXPECT_EQ(problem(), "");
  run.eval_exact = false;
  run.options.mode = RunMode::kTraining;
  EXPECT_EQ(problem(), "") << "which evaluates nothing";
}

// The steps of `trainyard train` all count, so that a warm-up is only what is asked for.
TEST(StepPlan, HasAWarmupWhereItIsAskedForAndInBenchmarks) {
  const auto warmup = [](const std::function<void(PreparedRun&)>& change) {
    PreparedRun run = planned();
    change(run);
    return make_step_plan(run).num_warmup_batches;
  };
  EXPECT_EQ(warmup([](PreparedRun&) {}), 0);
  EXPECT_EQ(warmup([](PreparedRun& run) { run.options.steps.num_warmup_batches = 5; }), 5);
  EXPECT_EQ(warmup([](PreparedRun& run) { run.options.steps.autotune_threshold = 2; }), 20);
  EXPECT_EQ(warmup([](PreparedRun& run) { run.options.mode = RunMode::kForwardOnly; }), 10);
  EXPECT_EQ(warmup([](PreparedRun& run) { run.options.dialect = Dialect::kTfCnnBenchmarks; }), 10);
}

// One that was found by the free memory does not change the model's rate; a size that is asked for does.
TEST(Schedule, ABatchThatWasFoundLeavesTheModelsRate) {
  PreparedRun run = run_of();
  run.options.learning_rate.init_learning_rate.reset();
  run.model = &models::find_model("resnet50", "imagenet");
  run.train_examples = 1281167;
  run.plan.num_batches = 200'000;
  run.batch_size = 2 * run.model->default_batch_size;
  run.replicas = 2;
  const auto rate = [&run] { return make_schedule(run).learning_rate(100'000); };
  const double asked = rate();
  run.options.batch_size = kLargestBatch;
  EXPECT_DOUBLE_EQ(rate(), asked / 2);
}

}  // namespace
}  // namespace trainyard::frontends::trainer_options_test
