// MLPerf's lines (--ml_perf_compliance_logging): their format, what they say of a network, and how often a run writes
// them. tests/mlperf_test.py holds a run of resnet50_v1.5 to MLPerf's rules.
#include <algorithm>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/compliance_facts.h"
#include "trainyard/frontends/tf_cnn/mlperf/compliance_log.h"
#include "trainyard/frontends/tf_cnn/mlperf/compliance_run.h"
#include "trainyard/frontends/tf_cnn/mlperf/model_lines.h"
#include "trainyard/frontends/tf_cnn/options.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/models/registry/model_registry.h"

namespace trainyard::frontends::mlperf_test {
namespace {

using ::testing::Contains, ::testing::Each, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::MatchesRegex,
    ::testing::Not;

// Keeps tags with their values, "input_batch_size: 2", without what is in front of them.
class Written {
 public:
  std::shared_ptr<ComplianceLog> log() {
    return std::make_shared<ComplianceLog>(ComplianceLogOptions{
        .write = [this](std::string_view line) { lines.emplace_back(line.substr(line.find(") ") + 2)); }});
  }
  std::vector<std::string> lines;
};

std::vector<std::string> beginning_with(const std::vector<std::string>& lines, const std::string& begin) {
  std::vector<std::string> found;
  std::copy_if(lines.begin(), lines.end(), std::back_inserter(found),
               [&](const std::string& line) { return line.starts_with(begin); });
  return found;
}

TEST(ComplianceLog, WritesTheLinesOfMlPerfsLogger) {
  std::vector<std::string> lines;
  const ComplianceLog log(
      {.write = [&](std::string_view line) { lines.emplace_back(line); }, .wall_clock = [] { return 1539229878.125; }});
  log.write("run_start");
  log.write("eval_size", "50000");
  ASSERT_EQ(lines.size(), 2U);
  const std::string here = R"(\(trainyard/frontends/tf_cnn/runs/mlperf_test\.cpp:[0-9]+\))";
  EXPECT_THAT(lines[0], MatchesRegex(":::MLPv0\\.5\\.0 resnet 1539229878\\.125000000 " + here + " run_start"));
  EXPECT_THAT(lines[1], MatchesRegex(":::MLPv0\\.5\\.0 resnet 1539229878\\.125000000 " + here + " eval_size: 50000"));
}

TEST(ComplianceLog, TextIsJson) {
  EXPECT_EQ(json_text("a \"b\" \\ \n"), R"("a \"b\" \\ \n")");
  EXPECT_EQ(json_text("\xff"), "\"\xef\xbf\xbd\"");
}

// By a log that MLPerf's reference implementation left of the same block.
TEST(ModelLines, TellOfAFirstBlock) {
  Written written;
  write_model_lines(*written.log(), models::build_model("resnet50_v1.5", "imagenet", {.num_classes = 1001}), {});
  const std::vector<std::string>& lines = written.lines;
  ASSERT_GT(lines.size(), 12U);
  EXPECT_EQ(
      std::vector<std::string>(lines.begin(), lines.begin() + 10),
      (std::vector<std::string>{
          "model_hp_initial_shape: [3, 224, 224]", "model_hp_conv2d_fixed_padding: \"(3, 224, 224) -> (64, 112, 112)\"",
          R"(model_hp_conv2d_fixed_padding: {"stride": 2, "filters": 64, "initializer": "truncated_normal", "use_bias": false})",
          R"json(model_hp_batch_norm: {"shape": "(64, 112, 112)", "momentum": 0.9, "epsilon": 1e-05, "center": true, "scale": true, "training": true})json",
          "model_hp_relu", "model_hp_initial_max_pool: \"(64, 112, 112) -> (64, 56, 56)\"",
          "model_hp_block_type: \"bottleneck_block\"", R"(model_hp_begin_block: {"block_type": "bottleneck_block"})",
          "model_hp_resnet_topology: \" Block Input: (64, 56, 56)\"",
          "model_hp_conv2d_fixed_padding: \"(64, 56, 56) -> (64, 56, 56)\""}));
  const std::vector<std::string> projections = beginning_with(lines, "model_hp_projection_shortcut");
  EXPECT_THAT(projections, ElementsAre("model_hp_projection_shortcut: \"(64, 56, 56) -> (256, 56, 56)\"",
                                       "model_hp_projection_shortcut: \"(256, 56, 56) -> (512, 28, 28)\"",
                                       "model_hp_projection_shortcut: \"(512, 28, 28) -> (1024, 14, 14)\"",
                                       "model_hp_projection_shortcut: \"(1024, 14, 14) -> (2048, 7, 7)\""));
  EXPECT_EQ(beginning_with(lines, "model_hp_begin_block").size(), 16U);
  EXPECT_EQ(beginning_with(lines, "model_hp_shorcut_add").size(), 16U);
  EXPECT_EQ(beginning_with(lines, "model_hp_relu").size(), 49U);
  EXPECT_THAT(beginning_with(lines, "model_hp_end_block").back(), HasSubstr(" Block Output: (2048, 7, 7)"));
  EXPECT_THAT(std::vector<std::string>(lines.end() - 3, lines.end()),
              ElementsAre("model_hp_end_block: \" Block Output: (2048, 7, 7)\"", "model_hp_dense: 1001",
                          "model_hp_final_shape: [1001]"));
}

TEST(ModelLines, AreOfAnyNetworkAndLayout) {
  nn::GraphBuilder b({.image = {3, 8, 6}, .name = "layers"});
  auto x = b.convolution("layer1.conv", b.input(),
                         {.out_channels = 4, .kernel = 1, .bias = true, .weight_init = nn::Initializer::he_normal()});
  x = b.activation("tanh", x, nn::Activation::Function::kTanh);
  x = b.max_pool("layerX.0.pool", x, {.kernel = 2, .stride = 2});
  const nn::Graph graph = b.build(b.linear("layer", b.flatten("flat", x), {.out_features = 5}));
  Written written;
  write_model_lines(*written.log(), graph, {.training = false, .channels_last = true});
  EXPECT_THAT(
      written.lines,
      ElementsAre(
          "model_hp_initial_shape: [8, 6, 3]", "model_hp_conv2d_fixed_padding: \"(8, 6, 3) -> (8, 6, 4)\"",
          R"(model_hp_conv2d_fixed_padding: {"stride": 1, "filters": 4, "initializer": "normal", "use_bias": true})",
          "model_hp_initial_max_pool: \"(8, 6, 4) -> (4, 3, 4)\"", "model_hp_dense: 5", "model_hp_final_shape: [5]"));
}

TEST(ModelLines, TellOfWhatWeightsBeginWithAndOfABlockAtTheEnd) {
  using I = nn::Initializer;
  nn::GraphBuilder b({.image = {3, 8, 6}, .name = "block"});
  auto x = b.convolution("layer12.10.a", b.input(), {.out_channels = 2, .kernel = 1, .weight_init = I::uniform(0.1)});
  x = b.convolution("layer12.10.b", x,
                    {.out_channels = 2, .kernel = 1, .stride = {2, 3}, .bias = true, .weight_init = I::constant(0.5)});
  Written written;
  write_model_lines(*written.log(), b.build(x), {});
  EXPECT_THAT(
      written.lines,
      ElementsAre(
          "model_hp_initial_shape: [3, 8, 6]", "model_hp_block_type: \"bottleneck_block\"",
          R"(model_hp_begin_block: {"block_type": "bottleneck_block"})",
          "model_hp_resnet_topology: \" Block Input: (3, 8, 6)\"",
          "model_hp_conv2d_fixed_padding: \"(3, 8, 6) -> (2, 8, 6)\"",
          R"(model_hp_conv2d_fixed_padding: {"stride": 1, "filters": 2, "initializer": "uniform", "use_bias": false})",
          "model_hp_conv2d_fixed_padding: \"(2, 8, 6) -> (2, 4, 2)\"",
          R"(model_hp_conv2d_fixed_padding: {"stride": 2, "filters": 2, "initializer": "constant", "use_bias": true})",
          "model_hp_end_block: \" Block Output: (2, 4, 2)\"", "model_hp_final_shape: [2, 4, 2]"));
}

ComplianceFacts facts_of_ten_images() {
  nn::GraphBuilder b({.image = {3, 4, 4}, .name = "linear"});
  return {.graph = b.build(b.linear("fc", b.flatten("flat", b.input()), {.out_features = 2})),
          .seed = 7,
          .batch_size = 4,
          .batch_norm_span = 2,
          .train_examples = 10,
          .validation_examples = 6};
}

TEST(ComplianceRun, CountsWhatWasTrainedAndEachEpoch) {
  Written written;
  ComplianceFacts facts = facts_of_ten_images();
  facts.eval_target = 0.75;
  ComplianceRun run(written.log(), facts);
  run.enter_loop(3);
  for (int64_t step = 98; step <= 201; ++step) run.note_rate(step, 0.5 / static_cast<double>(step));
  run.begin_evaluation_in_loop(5);
  run.end_evaluation(6, 0.5, 5);
  run.leave_loop(9);
  run.end(false);
  EXPECT_THAT(written.lines,
              ElementsAre("train_loop", "opt_learning_rate: 0.005", "opt_learning_rate: 0.0025", "input_size: 8",
                          "eval_start", "eval_stop", "eval_size: 6", R"(eval_accuracy: {"epoch": 2, "value": 0.5})",
                          "eval_target: 0.75", "input_size: 16", "train_epoch: 0", "train_epoch: 1", "train_epoch: 2",
                          "train_epoch: \"3, but this epoch only has 60.00000000000001% of the examples of a normal "
                          "epoch\"",
                          "run_stop: {\"success\": false}", "run_final"));
}

TEST(ComplianceRun, LeavesOutWhatThereIsNot) {
  Written written;
  ComplianceRun run(written.log(), facts_of_ten_images());
  run.enter_loop(0);
  run.begin_evaluation_in_loop(5);
  run.end_evaluation(6, {}, 5);
  run.leave_loop(5);
  run.end(true);
  EXPECT_THAT(written.lines,
              ElementsAre("train_loop", "input_size: 20", "eval_start", "eval_stop", "eval_size: 6", "train_epoch: 0",
                          "train_epoch: 1", "run_stop: {\"success\": true}", "run_final"));
}

TEST(ComplianceRun, TellsHowImagesComeAndWhatUpdates) {
  ComplianceFacts facts = facts_of_ten_images();
  facts.images = data::TransformOptions{};
  facts.images->normalization = data::Normalization::minus_mean(data::kImagenetChannelMeans);
  facts.images->use_boxes = false;
  facts.shuffle_buffer = 10000;
  facts.optimizer = "momentum";
  facts.momentum = 0.9;
  facts.weight_decay = 1e-4;
  facts.warmup_steps = 11;
  facts.eval_epoch_offset = 2;
  Written training;
  ComplianceRun(training.log(), facts).begin_training();
  EXPECT_THAT(
      training.lines,
      ElementsAre("eval_offset: 2", "eval_epoch_offset: 2", "run_set_random_seed: 7", "input_order",
                  "input_batch_size: 4", "input_bn_span: 2", "preproc_num_train_examples: 10", "input_shard: 10000",
                  "input_crop_uses_bboxes: false", "input_distorted_crop_min_object_covered: 0.1",
                  "input_distorted_crop_aspect_ratio_range: [0.75, 1.33]",
                  "input_distorted_crop_area_range: [0.05, 1.0]", "input_distorted_crop_max_attempts: 100",
                  "input_random_flip", "input_resize: [224, 224]", "input_mean_subtraction: [123.68, 116.78, 103.94]",
                  "model_hp_initial_shape: [3, 4, 4]", "model_hp_dense: 2", "model_hp_final_shape: [2]",
                  "model_hp_loss_fn: \"categorical_cross_entropy\"", "model_exclude_bn_from_l2: true",
                  "opt_weight_decay: 0.0001", "model_l2_regularization: 0.0001", "opt_learning_rate_warmup_steps: 11",
                  "opt_name: \"stochastic_gradient_descent_with_momentum\"", "opt_momentum: 0.9"));
  Written evaluation;
  ComplianceRun(evaluation.log(), facts).begin_evaluations();
  EXPECT_THAT(evaluation.lines,
              ElementsAre("run_set_random_seed: 7", "input_order", "preproc_num_eval_examples: 6",
                          "input_resize_aspect_preserving: {\"min\": 256}", "input_central_crop: [224, 224]",
                          "input_resize: [224, 224]", "input_mean_subtraction: [123.68, 116.78, 103.94]",
                          "model_hp_initial_shape: [3, 4, 4]", "model_hp_dense: 2", "model_hp_final_shape: [2]"));
}

TEST(ComplianceRun, AMeanOfZeroHasNoSign) {
  ComplianceFacts facts = facts_of_ten_images();
  facts.images = data::TransformOptions{};
  facts.images->normalization = {.scale = {1, 1, 1}, .shift = {0, -1.5F, 0}};
  Written training;
  ComplianceRun(training.log(), facts).begin_training();
  EXPECT_THAT(training.lines, Contains("input_mean_subtraction: [0.0, 1.5, 0.0]"));
}

TEST(ComplianceRun, TellsOfOtherOptimizersAndForwardPasses) {
  ComplianceFacts facts = facts_of_ten_images();
  facts.own_loss = true;
  facts.eval_epoch_offset = 0.5;
  facts.images = data::TransformOptions{};
  facts.images->crop.method = data::CropMethod::kResizedCrop;
  facts.images->eval_resize_size = 100;
  Written sgd;
  ComplianceRun(sgd.log(), facts).begin_training();
  EXPECT_THAT(sgd.lines, Contains("opt_name: \"stochastic_gradient_descent\""));
  EXPECT_THAT(sgd.lines, Contains("eval_offset: 0.5"));
  EXPECT_THAT(sgd.lines, Contains("input_random_flip"));
  for (const char* absent : {"opt_momentum", "model_hp_loss_fn", "model_l2", "input_distorted", "input_mean"}) {
    EXPECT_TRUE(beginning_with(sgd.lines, absent).empty()) << absent;
  }
  Written evaluation;
  ComplianceRun(evaluation.log(), facts).begin_evaluations();
  EXPECT_THAT(evaluation.lines, Contains("input_resize_aspect_preserving: {\"min\": 100}"));
  facts.images->eval_resize_size = 0;
  facts.images->height = 160;
  facts.images->width = 192;
  Written oblong;
  ComplianceRun(oblong.log(), facts).begin_evaluations();
  EXPECT_THAT(oblong.lines, Contains("input_resize_aspect_preserving: {\"min\": 183}"));  // 1.145 * 160
  EXPECT_THAT(oblong.lines, Contains("input_central_crop: [160, 192]"));
  facts.images->eval_central_part = 0.875F;
  ComplianceRun(evaluation.log(), facts).begin_evaluations();
  EXPECT_EQ(beginning_with(evaluation.lines, "input_resize_aspect").size(), 1U);

  facts.optimizer = "adam";
  Written adam;
  ComplianceRun(adam.log(), facts).begin_training();
  EXPECT_THAT(adam.lines, Contains("opt_name: \"adam\""));

  facts.updates = false;
  facts.images->training = false;
  Written forward;
  ComplianceRun(forward.log(), facts).begin_training();
  for (const char* absent : {"opt_", "model_hp_loss_fn", "model_exclude", "input_random_flip"}) {
    EXPECT_TRUE(beginning_with(forward.lines, absent).empty()) << absent;
  }
}

// tf_cnn_benchmarks, ssd_model.py and benchmark_cnn.py: what it logs of ssd300, without the tags that MLPerf's
// benchmark of SSD has not.
TEST(ComplianceRun, TellsOfADetector) {
  Written written;
  ComplianceLogOptions options = compliance_log_options("ssd300");
  EXPECT_EQ(options.benchmark, "ssd");
  options.write = [&written](std::string_view line) { written.lines.emplace_back(line.substr(line.find(") ") + 2)); };
  ComplianceFacts facts = facts_of_ten_images();
  facts.detector = true;
  facts.images = data::TransformOptions{};
  facts.shuffle_buffer = 10000;
  facts.optimizer = "momentum";
  facts.momentum = 0.9;
  facts.weight_decay = 5e-4;
  facts.warmup_steps = 11;
  facts.eval_target = 0.212;
  ComplianceRun run(std::make_shared<ComplianceLog>(options), facts);
  run.begin_training();
  run.begin_evaluations();
  run.enter_loop(0);
  run.begin_evaluation_in_loop(5);
  run.end_evaluation(6, 0.25, 5);
  run.leave_loop(5);
  run.end(true);
  EXPECT_THAT(
      written.lines,
      ElementsAre("backbone: \"resnet34\"", "loc_conf_out_channels: [256, 512, 512, 256, 256, 256]",
                  "num_defaults_per_cell: [4, 6, 6, 6, 4, 4]", "input_order", "input_batch_size: 4", "input_bn_span: 2",
                  "feature_sizes: [38, 19, 10, 5, 3, 1]", "steps: [8, 16, 32, 64, 100, 300]",
                  "scales: [21, 45, 99, 153, 207, 261, 315]", "aspect_ratios: [[2], [2, 3], [2, 3], [2, 3], [2], [2]]",
                  "num_default_boxes: 8732", "num_cropping_iterations: 50", "input_size: 300",
                  "random_flip_probability: 0.5", "data_normalization_mean: [0.485, 0.456, 0.406]",
                  "data_normalization_std: [0.229, 0.224, 0.225]", "input_shard: 10000", "opt_weight_decay: 0.0005",
                  "opt_learning_rate_warmup_steps: 11", "opt_name: \"stochastic_gradient_descent_with_momentum\"",
                  "opt_momentum: 0.9", "input_order", "data_normalization_mean: [0.485, 0.456, 0.406]",
                  "data_normalization_std: [0.229, 0.224, 0.225]", "train_loop", "input_size: 20", "eval_start: 2",
                  "nms_threshold: 0.5", "nms_max_detections: 200", R"(eval_accuracy: {"epoch": 2, "value": 0.25})",
                  R"(eval_iteration_accuracy: {"iteration": 5, "value": 0.25})", "eval_stop: 2", "eval_size: 6",
                  "eval_target: 0.212", "train_epoch: 0", "train_epoch: 1", "run_stop: {\"success\": true}",
                  "run_final"));
}

// mlperf_test.testMlPerfCompliance: a small network in the place of resnet50_v1.5, two steps, an evaluation behind
// each.
class Small : public BenchmarkModel {
 public:
  std::string name() const override { return "mlperf_test_model"; }
  InputShapes get_input_shapes(data::Subset) const override { return {{"images", {3, 224, 224}}, {"labels", {}}}; }
  nn::Graph build_network(const models::ModelOptions& options) const override {
    nn::GraphBuilder b({.image = options.image_shape(), .name = name()});
    auto x = b.batch_norm("bn", b.convolution("conv", b.input(), {.out_channels = 1, .kernel = 1}));
    x = b.max_pool("pool", b.activation("relu", x), {.kernel = 1, .stride = 1});
    x = b.linear("affine0", b.flatten("flat", x), {.out_features = 1});
    return b.build(b.linear("affine1", x, {.out_features = options.num_classes}));
  }
};

TfCnnOptions two_steps() {
  TfCnnOptions params;
  params.model = "resnet50_v1.5";
  params.device.gpu = false;
  params.batch_size = 2;
  params.steps.num_warmup_batches = 0;
  params.steps.num_batches = 2;
  params.steps.num_eval_batches = 3;
  params.learning_rate.init_learning_rate = 0.001;
  params.update.weight_decay = 0.5;
  params.update.optimizer = "momentum";
  params.update.numbers["momentum"] = 0.5;
  params.input.seed = 9876;
  params.display.ml_perf_compliance_logging = true;
  return params;
}

std::vector<std::string> lines_of(const TfCnnOptions& params) {
  std::ostringstream out;
  testing::internal::CaptureStderr();
  BenchmarkCnn(params, nullptr, std::make_shared<Small>()).run(out);
  EXPECT_THAT(out.str(), Not(HasSubstr(":::MLP")));
  std::istringstream log(testing::internal::GetCapturedStderr());
  std::vector<std::string> lines;
  for (std::string line; std::getline(log, line);) {
    if (line.starts_with(":::MLPv0.5.0 resnet ")) lines.push_back(line.substr(line.find(") ") + 2));
  }
  return lines;
}

TEST(MlPerf, ATrainingWithEvaluationsHasTheOriginalsLines) {
  TfCnnOptions params = two_steps();
  params.mode = RunMode::kTrainingAndEvaluation;
  params.steps.eval_every_n_steps = 1;
  params.stop_at_top_1_accuracy = 1.0;
  const std::vector<std::string> lines = lines_of(params);
  const std::pair<const char*, size_t> counts[] = {{"input_order", 2},
                                                   {"run_set_random_seed: 9876", 2},
                                                   {"preproc_num_train_examples: 1281167", 1},
                                                   {"preproc_num_eval_examples: 50000", 1},
                                                   {"model_hp_batch_norm", 2},
                                                   {"model_hp_conv2d_fixed_padding", 4},
                                                   {"model_hp_relu", 2},
                                                   {"model_hp_initial_max_pool", 2},
                                                   {"model_hp_dense", 4},
                                                   {"model_hp_loss_fn: \"categorical_cross_entropy\"", 1},
                                                   {"model_exclude_bn_from_l2: true", 1},
                                                   {"model_l2_regularization: 0.5", 1},
                                                   {"opt_weight_decay: 0.5", 1},
                                                   {"opt_name: \"stochastic_gradient_descent_with_momentum\"", 1},
                                                   {"opt_momentum: 0.5", 1},
                                                   {"opt_learning_rate: 0.001", 1},
                                                   {"run_start", 1},
                                                   {"input_batch_size: 2", 1},
                                                   {"train_loop", 1},
                                                   {"train_epoch: \"0, but this epoch only has ", 1},
                                                   {"input_size: 2", 2},
                                                   {"eval_start", 2},
                                                   {"eval_stop", 2},
                                                   {"eval_size: 6", 2},
                                                   {"eval_accuracy: {\"epoch\": 0, \"value\": ", 2},
                                                   {"eval_target: 1.0", 2},
                                                   {"run_stop: {\"success\": false}", 1},
                                                   {"run_final", 1}};
  for (const auto& [tag, count] : counts) EXPECT_EQ(beginning_with(lines, tag).size(), count) << tag;
  EXPECT_EQ(lines.front(), "run_start");
  EXPECT_EQ(lines.back(), "run_final");
}

TEST(MlPerf, SynchronizedBatchNormsSpanTheImagesOfAllReplicas) {
  TfCnnOptions params = two_steps();
  params.device.replicas = 2;
  EXPECT_EQ(compliance_facts(prepare(params)).batch_norm_span, 2);
  params.device.sync_batch_norm = true;
  EXPECT_EQ(compliance_facts(prepare(params)).batch_norm_span, 4);
}

TEST(MlPerf, SuccessIsThatTheGoalWasReached) {
  TfCnnOptions params = two_steps();
  params.mode = RunMode::kTrainingAndEvaluation;
  params.steps.eval_every_n_steps = 1;
  params.stop_at_top_1_accuracy = 0.5;
  class Reached : public Small {
   public:
    void postprocess(EvaluationResults& results) override { results.numbers["top_1_accuracy"] = 0.5; }
  };
  std::ostringstream out;
  testing::internal::CaptureStderr();
  BenchmarkCnn(params, nullptr, std::make_shared<Reached>()).run(out);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("run_stop: {\"success\": true}\n"));
  EXPECT_THAT(out.str(), HasSubstr("Stopping, as eval accuracy at least 0.5 was reached"));
}

TEST(MlPerf, OtherModesHaveTheirLines) {
  const core::TempDir temp;
  TfCnnOptions training = two_steps();
  training.saving.train_dir = temp.file("run");
  const std::vector<std::string> trained = lines_of(training);
  EXPECT_TRUE(beginning_with(trained, "eval_").empty());
  EXPECT_EQ(beginning_with(trained, "input_size: 4").size(), 1U);
  EXPECT_EQ(trained.back(), "run_final");

  const std::vector<std::string> again = lines_of(training);
  EXPECT_THAT(std::vector<std::string>(again.end() - 4, again.end()),
              ElementsAre("train_loop", HasSubstr("train_epoch: "), "run_stop: {\"success\": false}", "run_final"))
      << "nothing was left to do";

  TfCnnOptions evaluation = training;
  evaluation.mode = RunMode::kEvaluation;
  const std::vector<std::string> evaluated = lines_of(evaluation);
  EXPECT_EQ(evaluated.front(), "run_start");
  EXPECT_EQ(beginning_with(evaluated, "eval_start").size(), 1U);
  EXPECT_EQ(beginning_with(evaluated, "preproc_num_eval_examples").size(), 1U);
  EXPECT_THAT(evaluated.back(), HasSubstr("eval_accuracy: {\"epoch\": 0, "));
  EXPECT_TRUE(beginning_with(evaluated, "train_").empty());

  TfCnnOptions forward = two_steps();
  forward.mode = RunMode::kForwardOnly;
  const std::vector<std::string> passed = lines_of(forward);
  EXPECT_EQ(beginning_with(passed, "train_loop").size(), 1U);
  EXPECT_TRUE(beginning_with(passed, "opt_").empty());
  EXPECT_THAT(beginning_with(passed, "model_hp_batch_norm"), Each(HasSubstr("\"training\": false")));
  EXPECT_EQ(passed.back(), "run_final");
}

// MLPerf's clock runs from the start of the program on, also where the data cannot be read.
TEST(MlPerf, TheStartIsWrittenBeforeTheDataAreRead) {
  TfCnnOptions params = two_steps();
  params.input.data_dir = "/no/where";
  std::ostringstream out;
  testing::internal::CaptureStderr();
  EXPECT_TRUE(core::error_of([&] { BenchmarkCnn(params).run(out); }).has_value());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(") run_start\n"));
}

TEST(MlPerf, IsForItsModelAndForRuns) {
  TfCnnOptions params = two_steps();
  params.model = "resnet50";
  EXPECT_THAT(core::message_of([&] { params.validate(); }),
              HasSubstr("--ml_perf_compliance_logging is only compatible when --model is one of the following: "
                        "resnet50_v1.5, ssd300"));
  params.model = "ssd300";
  params.validate();
  params = two_steps();
  params.plot_schedule = "x.svg";
  EXPECT_THAT(core::message_of([&] { params.validate(); }), HasSubstr("--plot_schedule"));
}

}  // namespace
}  // namespace trainyard::frontends::mlperf_test
