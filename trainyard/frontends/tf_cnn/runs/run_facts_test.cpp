// What a prepared run says of itself: the header's rows, run_summary.json's record, MLPerf's facts and the statistics.
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/build_info.h"
#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/frontends/tf_cnn/compliance_facts.h"
#include "trainyard/frontends/tf_cnn/output/step_log.h"
#include "trainyard/frontends/tf_cnn/own_header.h"
#include "trainyard/frontends/tf_cnn/run_header.h"
#include "trainyard/frontends/tf_cnn/run_record.h"
#include "trainyard/frontends/tf_cnn/run_statistics.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/parallel/testing/on_ranks.h"
#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/testing/callback_conformance.h"

namespace trainyard::frontends::run_facts_test {
namespace {

using ::testing::ElementsAre;
using Group = std::shared_ptr<parallel::ProcessGroup>;

// 7 steps of 8 images each, of 80.
PreparedRun run_of(Dialect dialect, const std::string& model = "lenet") {
  PreparedRun run;
  run.options.dialect = dialect;
  run.model = &models::find_model(model, "imagenet");
  run.dataset_label = "photos";
  run.input.transform.height = 20;
  run.input.transform.width = 24;
  run.batch_size = 8;
  run.eval_batch_size = 5;
  run.num_classes = 4;
  run.train_examples = 80;
  run.validation_examples = 30;
  run.plan.num_batches = 7;
  run.plan.num_epochs = 0.7;
  run.plan.num_eval_batches = 3;
  run.plan.num_eval_epochs = 0.5;
  run.plan.num_warmup_batches = 2;
  return run;
}

// Returns what stands behind a name of the header of `trainyard train`.
std::string own_row(const PreparedRun& run, const std::string& name) {
  for (const HeaderRow& row : own_header_rows(run)) {
    if (row.first == name) return row.second;
  }
  return "none";
}

TEST(OwnHeader, SaysWhatIsTrained) {
  PreparedRun run = run_of(Dialect::kTrainyard);
  EXPECT_EQ(own_row(run, "Trainyard:"), std::string(core::build_info().version) + ", training");
  EXPECT_EQ(own_row(run, "Model:"), "lenet, images of 20x24, 4 classes");
  EXPECT_EQ(own_row(run, "Dataset:"), "photos");
  EXPECT_EQ(own_row(run, "Steps:"), "7 of 8 images, 0.70 epochs, sgd");
  EXPECT_EQ(own_row(run, "Device:"), "CPU of 8 images, float32");
  EXPECT_EQ(own_row(run, "Fine-tuning:"), "none");
  run.num_classes = 1;
  run.batch_size = 1;
  run.options.micro_steps = 3;
  run.device.dtype = at::kBFloat16;
  run.options.fine_tune.emplace();
  run.options.fine_tune->chosen = {{"optimizer", "torch_adamw"}, {"num_epochs", "60"}};
  EXPECT_EQ(own_row(run, "Model:"), "lenet, images of 20x24, 1 class");
  EXPECT_EQ(own_row(run, "Steps:"), "7 of 3 images, 0.70 epochs, sgd");
  EXPECT_EQ(own_row(run, "Device:"), "CPU of 1 image, 3 micro-steps, BFloat16");
  EXPECT_EQ(own_row(run, "Fine-tuning:"), "--optimizer=torch_adamw --num_epochs=60");
}

TEST(OwnHeader, SaysWhatIsEvaluatedAndWhatOnlyPasses) {
  PreparedRun run = run_of(Dialect::kTrainyard);
  run.options.mode = RunMode::kEvaluation;
  run.replicas = 2;
  EXPECT_EQ(own_row(run, "Steps:"), "3 of 10 images");
  EXPECT_EQ(own_row(run, "Device:"), "2 x CPU of 5 images, float32, parameter_server");
  run.options.mode = RunMode::kForwardOnly;
  EXPECT_EQ(own_row(run, "Steps:"), "7 of 16 images, 0.70 epochs");
  EXPECT_EQ(own_row(run, "Device:"), "2 x CPU of 8 images, float32, parameter_server");
}

TEST(OwnHeader, SaysHowProcessesAndReplicasAreJoined) {
  parallel::on_ranks(2, [](const Group& group) {
    PreparedRun run = run_of(Dialect::kTrainyard);
    run.device.processes = group;
    run.options.device.variable_update = "horovod";
    EXPECT_EQ(own_row(run, "Steps:"), "7 of 16 images, 0.70 epochs, sgd");
    EXPECT_EQ(own_row(run, "Device:"), "2 processes, each CPU of 8 images, float32, horovod (average)");
    run.options.update.gradient_reduction = "sum";
    run.replicas = 3;
    EXPECT_EQ(own_row(run, "Device:"), "2 processes, each 3 x CPU of 8 images, float32, horovod (sum)");
    run.options.device.variable_update = "collective_all_reduce";
    run.options.device.all_reduce_spec = "auto";
    EXPECT_EQ(own_row(run, "Device:"),
              "2 processes, each 3 x CPU of 8 images, float32, collective_all_reduce, all-reduce by the default");
    run.device.automatic_all_reduce_spec = "ring:256K:rechd";
    EXPECT_EQ(own_row(run, "Device:"),
              "2 processes, each 3 x CPU of 8 images, float32, collective_all_reduce, all-reduce by ring:256K:rechd");
    // Processes share the images of an evaluation.
    run.options.mode = RunMode::kEvaluation;
    EXPECT_EQ(own_row(run, "Steps:"), "3 of 30 images");
  });
}

TEST(RunHeader, HasARowForEachFact) {
  PreparedRun run = run_of(Dialect::kTfCnnBenchmarks);
  run.replicas = 2;
  run.options.steps.batch_group_size = 4;
  run.options.data_format = "NHWC";
  run.threads.use_numa_affinity = true;
  std::ostringstream out;
  print_run_header(run_header_rows(run), out);
  EXPECT_EQ(out.str(),
            "TensorFlow:  2.13\n"
            "Model:       lenet5\n"
            "Dataset:     photos\n"
            "Mode:        training\n"
            "SingleSess:  False\n"
            "Batch size:  16 global\n"
            "             8 per device\n"
            "             4 batches per prepocessing group\n"
            "Num batches: 7\n"
            "Num epochs:  0.70\n"
            "Devices:     ['/cpu:0', '/cpu:1']\n"
            "NUMA bind:   True\n"
            "Data format: NHWC\n"
            "Optimizer:   sgd\n"
            "Variables:   parameter_server\n"
            "==========\n");
}

TEST(HeaderFacts, CountTheImagesOfAllProcesses) {
  parallel::on_ranks(2, [](const Group& group) {
    PreparedRun run = run_of(Dialect::kTfCnnBenchmarks);
    run.device.processes = group;
    run.replicas = 3;
    run.options.micro_steps = 2;
    EXPECT_EQ(header_facts(run).batch_size, 8 * 3 * 2) << "without the micro-steps";
    run.options.dialect = Dialect::kTrainyard;
    EXPECT_EQ(header_facts(run).batch_size, 8 * 3 * 2 * 2);
    run.options.mode = RunMode::kEvaluation;
    HeaderFacts facts = header_facts(run);
    EXPECT_EQ(facts.batch_size, 5 * 3 * 2);
    EXPECT_EQ(facts.batch_size_per_device, 5);
    EXPECT_EQ(facts.num_batches, 3);
    EXPECT_EQ(facts.num_epochs, 0.5);
    // tf_cnn_benchmarks says what a training of the validation images would be.
    run.options.dialect = Dialect::kTfCnnBenchmarks;
    run.options.steps.num_epochs = 2;
    facts = header_facts(run);
    EXPECT_EQ(facts.batch_size_per_device, 8);
    EXPECT_EQ(facts.num_batches, 2) << "60 images, 48 a step of both processes";
    EXPECT_EQ(facts.num_epochs, 3.2);
  });
}

TEST(HeaderFacts, NameTheDevicesOfAllProcesses) {
  parallel::on_ranks(2, [](const Group& group) {
    PreparedRun run = run_of(Dialect::kTfCnnBenchmarks);
    run.device.processes = group;
    run.options.device.variable_update = "horovod";
    EXPECT_THAT(header_facts(run).devices, ElementsAre("horovod/cpu:0", "horovod/cpu:1"));
    run.options.device.variable_update = "distributed_all_reduce";
    run.replicas = 2;
    EXPECT_THAT(header_facts(run).devices,
                ElementsAre("job:worker/replica:0/task0/cpu:0", "job:worker/replica:0/task0/cpu:1",
                            "job:worker/replica:0/task1/cpu:0", "job:worker/replica:0/task1/cpu:1"));
  });
}

TEST(RunRecord, HoldsWhatWasAskedForAndWhatWasChosen) {
  PreparedRun run = run_of(Dialect::kTrainyard);
  run.options.flags.all = {{"batch_size", core::FlagValue(int64_t{8})}, {"qat", core::FlagValue(true)}};
  run.options.flags.given = {{"model", "lenet"}, {"tf_random_seed", "99"}};
  run.input.seed = 99;
  run.input.data_dir = "photos/../photos";
  run.device.executor = "cpu";
  run.eval_exact = true;
  const train::RunRecord record = make_run_record(run);
  EXPECT_EQ(record.command, "trainyard train");
  EXPECT_EQ(record.flags, run.options.flags.all);
  EXPECT_THAT(record.given_flags, ElementsAre("model", "tf_random_seed"));
  EXPECT_EQ(record.choices, (std::vector<std::pair<std::string, std::string>>{{"device", "/cpu:0"},
                                                                              {"executor", "cpu"},
                                                                              {"batch_size", "8"},
                                                                              {"eval_batch_size", "5"},
                                                                              {"num_batches", "7"},
                                                                              {"num_warmup_batches", "2"},
                                                                              {"eval_exact", "true"}}));
  EXPECT_EQ(record.data_dir, (std::filesystem::current_path() / "photos").string());
  EXPECT_EQ(record.num_classes, 4);
  EXPECT_EQ(record.train_examples, 80);
  EXPECT_EQ(record.validation_examples, 0) << "nothing is evaluated";
  EXPECT_EQ(record.seed, 99U);
  EXPECT_EQ(record.instruction_set, core::describe_cpu_isa());
  EXPECT_TRUE(record.gpus.empty());
  EXPECT_GT(record.started_at, 1.7e9);
  for (const RunMode mode : {RunMode::kTrainingAndEvaluation, RunMode::kEvaluation}) {
    run.options.mode = mode;
    EXPECT_EQ(make_run_record(run).validation_examples, 30);
  }
}

TEST(RunRecord, IsAPartOfTheReportInTheTrainDirectory) {
  PreparedRun run = run_of(Dialect::kTrainyard);
  run.options.saving.train_dir = "runs/1";
  run.options.mode = RunMode::kTrainingAndEvaluation;
  run.input.data_dir = "photos";
  const train::RunReportOptions report = make_run_report(run);
  EXPECT_EQ(report.path, "runs/1/run_summary.json");
  EXPECT_EQ(report.record.validation_examples, 30);
  EXPECT_EQ(report.model, "lenet");
  EXPECT_EQ(report.dataset, "photos");
  EXPECT_EQ(report.mode, "training + evaluation");
  EXPECT_EQ(report.data_dir, "photos");
  run.input.data_dir = "";
  EXPECT_EQ(make_run_report(run).data_dir, "");
  EXPECT_EQ(make_run_report(run).record.data_dir, "") << "synthetic images";
}

TEST(ComplianceFacts, AreThoseOfTheRun) {
  PreparedRun run = run_of(Dialect::kTfCnnBenchmarks, "resnet50_v1.5");
  run.replicas = 2;
  run.input.seed = 9;
  run.input.shuffle_buffer = 77;
  run.options.data_format = "NHWC";
  run.options.update.optimizer = "tf_nesterov";
  run.options.update.numbers["momentum"] = 0.8;
  run.options.update.weight_decay = 0.25;
  run.options.stop_at_top_1_accuracy = 0.75;
  run.options.learning_rate.init_learning_rate = 1;
  run.options.learning_rate.warmup_epochs = 6;
  run.plan.num_batches = 1000;
  ComplianceFacts facts = compliance_facts(run);
  EXPECT_EQ(facts.seed, 9U);
  EXPECT_EQ(facts.batch_size, 16);
  EXPECT_EQ(facts.batch_norm_span, 8);
  EXPECT_EQ(facts.train_examples, 80);
  EXPECT_EQ(facts.validation_examples, 30);
  EXPECT_EQ(facts.shuffle_buffer, 77);
  EXPECT_TRUE(facts.channels_last);
  EXPECT_TRUE(facts.updates);
  EXPECT_FALSE(facts.detector);
  EXPECT_FALSE(facts.own_loss);
  EXPECT_EQ(facts.optimizer, "momentum");
  EXPECT_EQ(facts.momentum, 0.8);
  EXPECT_EQ(facts.weight_decay, 0.25);
  EXPECT_EQ(facts.eval_target, 0.75);
  EXPECT_EQ(facts.eval_epoch_offset, std::nullopt);
  EXPECT_FALSE(facts.images.has_value()) << "synthetic images are not transformed";
  EXPECT_EQ(facts.warmup_steps, 30) << "6 epochs of 80 images, 16 a step";

  run.options.mode = RunMode::kForwardOnly;
  run.options.data_format = "NCHW";
  run.options.update.optimizer = "tf_rmsprop";
  run.options.stop_at_top_1_accuracy = 0;
  run.options.steps.eval_every_n_epochs = 4;
  run.input.data_dir = "photos";
  facts = compliance_facts(run);
  EXPECT_FALSE(facts.channels_last);
  EXPECT_FALSE(facts.updates);
  EXPECT_EQ(facts.optimizer, "rmsprop");
  EXPECT_EQ(facts.eval_target, std::nullopt);
  EXPECT_EQ(facts.eval_epoch_offset, 3) << "counted from the end of the first epoch";
  ASSERT_TRUE(facts.images.has_value());
  EXPECT_FALSE(facts.images->training);
  EXPECT_EQ(facts.images->height, 20);
  EXPECT_EQ(facts.warmup_steps, 0);

  run.options.mode = RunMode::kEvaluation;
  run.options.update.optimizer = "sgd";
  run.options.update.numbers.clear();
  run.options.steps.eval_at_epochs = {3, 5};
  facts = compliance_facts(run);
  EXPECT_TRUE(facts.images->training);
  EXPECT_EQ(facts.optimizer, "sgd");
  EXPECT_EQ(facts.momentum, 0);
  EXPECT_EQ(facts.eval_epoch_offset, 2) << "of the first of them";
  EXPECT_EQ(facts.warmup_steps, 0) << "an evaluation has no rate";
  run.model = &models::find_model("ssd300", "coco");
  EXPECT_TRUE(compliance_facts(run).detector);
}

class OwnModel : public BenchmarkModel {
 public:
  std::string name() const override { return "own"; }
  InputShapes get_input_shapes(data::Subset) const override { return {{"images", {3, 4, 4}}, {"labels", {}}}; }
  nn::Graph build_network(const models::ModelOptions&) const override { return {}; }
  train::LossFunction loss_function() const override { return loss; }
  train::LossFunction loss;
};

class OwnData : public BenchmarkDataset {
 public:
  std::string name() const override { return "own"; }
  int64_t num_classes() const override { return 2; }
  int64_t num_examples_per_epoch(data::Subset) const override { return 2; }
  std::shared_ptr<data::BatchSource> make_source(const WantedBatches&) const override { return nullptr; }
};

// The caller's own parts make the images and the loss.
TEST(ComplianceFacts, OfTheCallersOwnParts) {
  PreparedRun run = run_of(Dialect::kTfCnnBenchmarks, "resnet50_v1.5");
  const auto model = std::make_shared<OwnModel>();
  run.own.model = model;
  run.input.data_dir = "photos";
  EXPECT_FALSE(compliance_facts(run).own_loss) << "the model has none";
  EXPECT_TRUE(compliance_facts(run).images.has_value());
  model->loss = [](const at::Tensor& output, const at::Tensor&) { return output; };
  EXPECT_TRUE(compliance_facts(run).own_loss);
  run.own.dataset = std::make_shared<OwnData>();
  EXPECT_FALSE(compliance_facts(run).images.has_value());
}

// A global step is one of both processes, so that epochs count the images of both.
TEST(ComplianceFacts, CountTheImagesOfAllProcesses) {
  parallel::on_ranks(2, [](const Group& group) {
    PreparedRun run = run_of(Dialect::kTfCnnBenchmarks, "resnet50_v1.5");
    run.device.processes = group;
    run.options.device.variable_update = "horovod";
    run.replicas = 3;
    const ComplianceFacts facts = compliance_facts(run);
    EXPECT_EQ(facts.batch_size, 8 * 3 * 2);
    EXPECT_EQ(facts.batch_norm_span, 8);
  });
}

// tf_cnn_benchmarks' header of an evaluation: batches of all processes, and the epochs that these are.
TEST(RunHeader, OfAnEvaluationCountsTheImagesOfAllProcesses) {
  parallel::on_ranks(2, [](const Group& group) {
    PreparedRun run = run_of(Dialect::kTfCnnBenchmarks);
    run.device.processes = group;
    run.options.device.variable_update = "horovod";
    run.options.mode = RunMode::kEvaluation;
    run.options.steps.num_batches = 5;
    const HeaderFacts facts = header_facts(run);
    EXPECT_EQ(facts.batch_size, 16);
    EXPECT_EQ(facts.num_batches, 5);
    EXPECT_DOUBLE_EQ(facts.num_epochs, 5.0 * 16 / 30);
    run.options.steps.num_batches.reset();
    run.options.steps.num_epochs = 1;
    EXPECT_EQ(header_facts(run).num_batches, 2) << "30 images, 16 a step";
  });
}

TEST(RunStatistics, AreThoseOfAllWorkers) {
  double now = 0;
  const auto log = std::make_shared<StepLog>(StepLogOptions{.batch_size = 8,
                                                            .num_workers = 3,
                                                            .warmup_steps = 1,
                                                            .print = [](std::string_view) {},
                                                            .clock = [&now] { return now += 2; }});
  train::PretendTrainer trainer;
  train::run_callback(trainer, log, {.steps_per_epoch = 1 + 4});
  const RunStatistics statistics = statistics_of(*log, 3);
  EXPECT_EQ(statistics.num_workers, 3);
  EXPECT_EQ(statistics.num_steps, 12);
  EXPECT_EQ(statistics.average_wall_time, 0.5) << "two seconds of four steps";
  EXPECT_EQ(statistics.images_per_sec, 3 * 4 * 8 / 2.0);
}

TEST(RunStatistics, HaveWhatTheEvaluationHas) {
  train::Evaluation evaluation;
  evaluation.top_1 = 0.25;
  evaluation.top_5 = 0.75;
  RunStatistics statistics;
  set_accuracies(evaluation, statistics);
  EXPECT_EQ(statistics.top_1_accuracy, 0.25);
  EXPECT_EQ(statistics.top_5_accuracy, 0.75);
  EXPECT_EQ(statistics.average_precision, std::nullopt);
  evaluation.shows_top_5 = false;
  statistics = {};
  set_accuracies(evaluation, statistics);
  EXPECT_EQ(statistics.top_1_accuracy, 0.25);
  EXPECT_EQ(statistics.top_5_accuracy, std::nullopt);
  evaluation.has_accuracies = false;
  evaluation.more = {{"COCO/AP", 0.5}};
  statistics = {};
  set_accuracies(evaluation, statistics);
  EXPECT_EQ(statistics.top_1_accuracy, std::nullopt);
  EXPECT_EQ(statistics.average_precision, 0.5);
}

}  // namespace
}  // namespace trainyard::frontends::run_facts_test
