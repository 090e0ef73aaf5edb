#include "trainyard/train/fit/fit.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/sources/combined_source.h"
#include "trainyard/data/sources/folder_source.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/parallel/testing/on_ranks.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/evaluation/metrics.h"
#include "trainyard/train/loop/trainer.h"
#include "trainyard/train/session/validation_record.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/callback_conformance.h"
#include "trainyard/train/testing/light_folder.h"
#include "trainyard/train/testing/tiny_fit.h"

namespace trainyard::train::fit_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr;

TRAINYARD_CALLBACK_CONFORMANCE(ValidationRecord, [] {
  return std::make_shared<ValidationRecord>(best_by(BestMetric::kLoss), EarlyStop{.patience = 2});
});

// 48 samples, batches of 8: 6 steps an epoch, shuffled, with random masks in the network.
FitOptions options(const std::string& train_dir = "") {
  FitOptions chosen = tiny_fit_options(tiny_graph({.dropout = 0.2}), train_dir);
  chosen.validation = tiny_source(20, 8, 1, /*repeat=*/false);
  return chosen;
}

// A rate of 0: no evaluation is better than the first.
FitOptions standing_still(const std::string& train_dir, int64_t patience) {
  FitOptions still = options(train_dir);
  still.learning_rate = 0;
  still.optimizer = optim::sgd();
  still.graph = tiny_graph({.batch_norm = false});
  still.epochs = 10;
  still.early_stop = EarlyStop{.patience = patience};
  return still;
}

// Stops a training behind a step.
class StopAt : public Callback {
 public:
  explicit StopAt(int64_t step) : step_(step) {}
  std::string name() const override { return "stop_at"; }
  void after_step(Trainer& trainer, const StepView& view) override {
    if (view.global_step + 1 == step_) trainer.stop("enough");
  }

 private:
  int64_t step_;
};

// Requests a stop in a step, as a signal does.
class SignalAt : public Callback {
 public:
  SignalAt(int64_t step, core::StopSource& stop) : step_(step), stop_(stop) {}
  std::string name() const override { return "signal_at"; }
  void after_step(Trainer&, const StepView& view) override {
    if (view.global_step + 1 == step_) stop_.request_stop(core::StopReason::kSignal, "SIGTERM");
  }

 private:
  int64_t step_;
  core::StopSource& stop_;
};

class Fit : public ::testing::Test {
 protected:
  const core::TempDir temp_;
  const std::string dir_ = temp_.file("run");
};

void expect_same_bits(const FitResult& a, const FitResult& b) {
  EXPECT_TRUE(at::equal(a.model->parameters().values(), b.model->parameters().values()));
  for (int i = 0; i < static_cast<int>(a.model->parameters().buffer_count()); ++i) {
    EXPECT_TRUE(at::equal(a.model->parameters().buffer(i), b.model->parameters().buffer(i)));
  }
  EXPECT_EQ(a.last->loss, b.last->loss);
  EXPECT_EQ(a.best->value, b.best->value);
  EXPECT_EQ(a.best->global_step, b.best->global_step);
  EXPECT_EQ(a.loss, b.loss);
}

TEST_F(Fit, TrainsEvaluatesAndGivesTheModel) {
  std::vector<FitEpoch> epochs;
  FitOptions chosen = options();
  chosen.epochs = 20;
  chosen.on_epoch = [&](const FitEpoch& epoch) { epochs.push_back(epoch); };
  chosen.metrics = {std::make_shared<PerClassAccuracy>(kTinyClasses)};
  const FitResult result = fit(chosen);
  EXPECT_EQ(result.epochs, 20);
  EXPECT_EQ(result.global_step, 120);
  EXPECT_EQ(result.first_step, 0);
  EXPECT_EQ(result.stop_reason, "");
  ASSERT_EQ(epochs.size(), 20U);
  EXPECT_EQ(epochs[1].global_step, 12);
  EXPECT_EQ(epochs[1].learning_rate, 0.05);
  EXPECT_LT(result.last->loss, epochs[0].validation->loss / 2) << "it learns";
  EXPECT_EQ(result.last->samples, 20);
  EXPECT_EQ(result.last->more.back().first, "mean_class_accuracy");
  double best = epochs[0].validation->loss;
  for (const FitEpoch& epoch : epochs) best = std::min(best, epoch.validation->loss);
  EXPECT_EQ(result.best->value, best);
  // The model is the one that was evaluated.
  const data::Batch batch = tiny_source(20, 20, 1, false)->next()[0];
  const at::Tensor right = result.model->logits(batch.images()).argmax(1).eq(batch.labels());
  EXPECT_EQ(right.sum().item<int64_t>(), result.last->right_1);
}

// What the last evaluation explains is what the model that fit() gives does with the images.
TEST_F(Fit, ExplainsItsLastEvaluation) {
  FitOptions chosen = options(dir_);
  chosen.classes = {"a", "b", "c", "d", "e", "f"};
  chosen.more_validations = {{.name = "other", .source = tiny_source(8, 8, 1, /*repeat=*/false)}};
  const FitResult result = fit(chosen);
  const std::string path = core::join_path(dir_, "evaluation.json");
  const auto json = nlohmann::json::parse(core::local_file_system().read_file(path));
  EXPECT_EQ(json["images"], 20);
  EXPECT_EQ(json["global_step"], 18);
  EXPECT_EQ(json["loss"], result.last->loss);
  EXPECT_EQ(json["classes"], nlohmann::json(chosen.classes));
  const data::Batch batch = tiny_source(20, 20, 1, false)->next()[0];
  const at::Tensor predicted = result.model->logits(batch.images()).argmax(1);
  std::vector<std::vector<int64_t>> confusion(kTinyClasses, std::vector<int64_t>(kTinyClasses));
  for (int64_t i = 0; i < 20; ++i) {
    const auto label = static_cast<size_t>(batch.labels()[i].item<int64_t>());
    ++confusion[label][static_cast<size_t>(predicted[i].item<int64_t>())];
  }
  EXPECT_EQ(json["confusion"], nlohmann::json(confusion));
  // A call that trains nothing evaluates again.
  ASSERT_EQ(std::remove(path.c_str()), 0);
  fit(chosen);
  EXPECT_EQ(nlohmann::json::parse(core::local_file_system().read_file(path)), json);
}

// What its first set has counted is not what the last complete evaluation has measured.
TEST_F(Fit, DoesNotExplainAnEvaluationThatIsCutOffInAnotherSet) {
  class StopsWhenArmed : public data::SourceDecorator {
   public:
    StopsWhenArmed(std::shared_ptr<data::BatchSource> inner, const bool& armed, core::StopSource& stop)
        : SourceDecorator(std::move(inner)), armed_(armed), stop_(stop) {}
    std::vector<data::Batch> next() override {
      if (armed_) stop_.request_stop(core::StopReason::kSignal, "SIGTERM");
      return source()->next();
    }

   private:
    const bool& armed_;
    core::StopSource& stop_;
  };
  const auto other = [] { return tiny_source(16, 8, 1, /*repeat=*/false); };
  core::StopSource signal;
  bool armed = false;
  FitOptions broken = options(dir_);
  broken.stop = signal.token();
  broken.on_epoch = [&](const FitEpoch&) { armed = true; };  // behind the evaluation of the first epoch
  broken.more_validations = {{.name = "other", .source = std::make_shared<StopsWhenArmed>(other(), armed, signal)}};
  const FitResult stopped = fit(broken);
  EXPECT_EQ(stopped.global_step, 12);
  ASSERT_TRUE(stopped.last) << "of the first epoch";
  const std::string path = core::join_path(dir_, "evaluation.json");
  EXPECT_FALSE(core::local_file_system().exists(path));

  FitOptions rest = options(dir_);
  rest.more_validations = {{.name = "other", .source = other()}};
  const FitResult resumed = fit(rest);
  const auto json = nlohmann::json::parse(core::local_file_system().read_file(path));
  EXPECT_EQ(json["global_step"], 18);
  EXPECT_EQ(json["loss"], resumed.last->loss);
}

TEST_F(Fit, ExplainsNothingWithALossOfOnesOwnOrWithoutAFolder) {
  FitOptions chosen = options(dir_);
  chosen.loss = [](const at::Tensor& output, const at::Tensor&) { return output.square().mean(); };
  fit(chosen);
  EXPECT_FALSE(core::local_file_system().exists(core::join_path(dir_, "evaluation.json")));
  chosen = options();
  fit(chosen);
  EXPECT_FALSE(core::local_file_system().exists("evaluation.json"));
}

// Two of them would train the same, and look like one training.
TEST_F(Fit, IsOfOneProcess) {
  const core::EnvironmentVariable size("OMPI_COMM_WORLD_SIZE", "2");
  EXPECT_EQ(core::problem_of([&] { fit(options(dir_)); }), "2 processes were started, and each would train alone");
}

TEST_F(Fit, AResumedTrainingHasTheBitsOfAnUnbrokenOne) {
  const FitResult whole = fit(options());
  for (const int64_t step : {4, 6, 8, 17}) {  // within an epoch, at its end, in the next one, in the last one
    const std::string dir = temp_.file("run" + std::to_string(step));
    FitOptions broken = options(dir);
    broken.callbacks = {std::make_shared<StopAt>(step)};
    const FitResult first = fit(broken);
    EXPECT_EQ(first.global_step, step);
    EXPECT_EQ(first.stop_reason, "enough");
    const FitResult second = fit(options(dir));
    EXPECT_EQ(second.first_step, step);
    EXPECT_EQ(second.global_step, 18);
    expect_same_bits(second, whole);
  }
}

// The signal comes in the last step of an epoch, so that its evaluation is cut off.
TEST_F(Fit, AnEvaluationThatASignalCutsOffIsRepeated) {
  const auto evaluated = [](const std::string& folder) {
    std::vector<int64_t> steps;
    std::istringstream lines(core::local_file_system().read_file(core::join_path(folder, "metrics.jsonl")));
    for (std::string line; std::getline(lines, line);) {
      const auto row = nlohmann::json::parse(line);
      if (row["phase"] == "eval") steps.push_back(row["global_step"].get<int64_t>());
    }
    return steps;
  };
  const FitResult whole = fit(options(temp_.file("whole")));
  ASSERT_THAT(evaluated(temp_.file("whole")), testing::ElementsAre(6, 12, 18));
  for (const int64_t step : {6, 18}) {
    const std::string folder = temp_.file(std::to_string(step));
    core::StopSource signal;
    FitOptions broken = options(folder);
    broken.stop = signal.token();
    broken.callbacks = {std::make_shared<SignalAt>(step, signal)};
    const FitResult stopped = fit(broken);
    EXPECT_EQ(stopped.global_step, step);
    EXPECT_EQ(stopped.stop_reason, "SIGTERM");
    EXPECT_EQ(stopped.last.has_value(), step == 18) << "of the epoch before";
    std::vector<int64_t> epochs;
    FitOptions rest = options(folder);
    rest.on_epoch = [&](const FitEpoch& epoch) { epochs.push_back(epoch.epoch); };
    const FitResult resumed = fit(rest);
    EXPECT_EQ(resumed.stop_reason, "");
    EXPECT_EQ(epochs.front(), step / 6) << "its end is said when it is evaluated";
    EXPECT_EQ(epochs.back(), 3);
    EXPECT_EQ(resumed.last->loss, whole.last->loss);
    EXPECT_EQ(resumed.best->value, whole.best->value);
    EXPECT_EQ(resumed.best->global_step, whole.best->global_step);
    EXPECT_TRUE(at::equal(resumed.model->parameters().values(), whole.model->parameters().values()));
    EXPECT_EQ(fit(rest).last->loss, whole.last->loss);
    EXPECT_THAT(evaluated(folder), testing::ElementsAre(6, 12, 18)) << "once each";
  }
}

TEST_F(Fit, ACompleteTrainingIsEvaluatedAgainAndGoesOnForMoreEpochs) {
  const FitResult first = fit(options(dir_));
  const FitResult again = fit(options(dir_));
  EXPECT_EQ(again.first_step, 18);
  EXPECT_EQ(again.global_step, 18);
  EXPECT_TRUE(std::isnan(again.loss));
  EXPECT_EQ(again.last->loss, first.last->loss);
  EXPECT_EQ(again.best->value, first.best->value);
  FitOptions more = options(dir_);
  more.epochs = 4;
  EXPECT_EQ(fit(more).global_step, 24);
}

TEST_F(Fit, ItsCheckpointsAreModels) {
  const FitResult result = fit(options(dir_));
  const auto last = load_model(dir_);
  EXPECT_TRUE(at::equal(last->parameters().values(), result.model->parameters().values()));
  EXPECT_EQ(last->graph().name, "tiny");
  const auto best = load_model(core::join_path(dir_, "best"));
  EXPECT_EQ(best->description().num_classes, kTinyClasses);
  std::ifstream rows(core::join_path(dir_, "metrics.jsonl"));
  std::string line, all;
  int evaluations = 0;
  while (std::getline(rows, line)) evaluations += line.find("\"eval\"") != std::string::npos ? 1 : 0;
  EXPECT_EQ(evaluations, 3);
}

TEST_F(Fit, StopsEarlyAndStaysStopped) {
  const FitOptions still = standing_still(dir_, 2);
  const FitResult result = fit(still);
  EXPECT_EQ(result.epochs, 3);
  EXPECT_THAT(result.stop_reason, AllOf(HasSubstr("loss has not been better"), HasSubstr("in 2 evaluations")));
  EXPECT_EQ(result.best->global_step, 6);
  const FitResult again = fit(still);
  EXPECT_EQ(again.global_step, 18) << "no step more";
  EXPECT_EQ(again.stop_reason, result.stop_reason);
}

// What the early stop has counted is in the checkpoint: a run that is broken between two evaluations ends where the
// unbroken one does.
TEST_F(Fit, PatienceGoesOnInAResumedRun) {
  const FitOptions still = standing_still(dir_, 3);
  FitOptions broken = still;
  broken.callbacks = {std::make_shared<StopAt>(15)};  // behind the second evaluation, the first that is not better
  EXPECT_EQ(fit(broken).epochs, 2);
  const FitResult result = fit(still);
  EXPECT_EQ(result.epochs, 4);
  EXPECT_EQ(result.best->global_step, 6);
}

// A program that is told to end calls fit() for a training that is complete: there is nothing to save, and no error.
TEST_F(Fit, AStopOfATrainingWithoutAStepLeftIsNoError) {
  const FitResult complete = fit(options(dir_));
  FitOptions stopped = options(dir_);
  core::StopSource signal;
  signal.request_stop(core::StopReason::kSignal, "SIGTERM");
  stopped.stop = signal.token();
  const FitResult again = fit(stopped);
  EXPECT_EQ(again.epochs, 3);
  EXPECT_EQ(again.stop_reason, "");
  EXPECT_FALSE(again.last) << "it was cut off";
  EXPECT_EQ(again.best->value, complete.best->value);
  EXPECT_TRUE(at::equal(again.model->parameters().values(), complete.model->parameters().values()));
}

TEST_F(Fit, AnImprovementBelowMinDeltaDoesNotCount) {
  ValidationRecord record(best_by(BestMetric::kTop1), EarlyStop{.patience = 2, .min_delta = 0.1});
  record.add({.top_1 = 0.5}, 1);
  record.add({.top_1 = 0.55}, 2);
  EXPECT_FALSE(record.stop_reason());
  record.add({.top_1 = 0.625}, 3);
  record.add({.top_1 = std::nan("")}, 4);
  EXPECT_FALSE(record.stop_reason()) << "0.625 is better than 0.5 by more than 0.1";
  record.add({.top_1 = 0.7}, 5);
  EXPECT_EQ(record.stop_reason(),
            "top_1_accuracy has not been better by more than 0.1 than 0.625, of step 3, in 2 evaluations");
}

// Evaluations that get better by less than min_delta end the training. FitResult::best is the checkpoint in best all
// the same.
TEST_F(Fit, WithMinDeltaTheBestIsTheOneThatIsKept) {
  FitOptions chosen = standing_still(dir_, 3);
  chosen.learning_rate = 0.02;
  chosen.early_stop->min_delta = 1000;
  std::vector<FitEpoch> epochs;
  chosen.on_epoch = [&](const FitEpoch& epoch) { epochs.push_back(epoch); };
  const FitResult result = fit(chosen);
  ASSERT_EQ(epochs.size(), 4U);
  EXPECT_THAT(result.stop_reason, HasSubstr("by more than 1000"));
  const auto best = std::min_element(epochs.begin(), epochs.end(), [](const FitEpoch& a, const FitEpoch& b) {
    return a.validation->loss < b.validation->loss;
  });
  ASSERT_NE(best, epochs.begin()) << "it learns";
  EXPECT_EQ(result.best->value, best->validation->loss);
  EXPECT_EQ(result.best->global_step, best->global_step);
  EXPECT_EQ(find_checkpoint(core::join_path(dir_, "best")).global_step, best->global_step);
}

TEST_F(Fit, BeginsWithWeightsAndANewHead) {
  const FitResult first = fit(options());
  nn::ParameterSet trained = first.model->parameters().clone();
  const std::string path = temp_.file("tiny.safetensors");
  save_weights(path, trained);
  FitOptions tuned = options();
  tuned.learning_rate = 0;
  tuned.optimizer = optim::sgd();
  tuned.epochs = 1;
  tuned.weights = path;
  const auto value = [](const FitResult& result, const char* name) {
    const nn::ParameterSet& set = result.model->parameters();
    return set.value(*set.find(name));
  };
  EXPECT_TRUE(at::equal(value(fit(tuned), "fc.weight"), value(first, "fc.weight")));
  nn::GraphBuilder b({.image = {3, 5, 5}, .name = "tiny"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 8, .kernel = 3, .padding = nn::Padding::all(1)});
  x = b.global_average_pool("pool", b.activation("relu", b.batch_norm("bn", x)));
  tuned.graph = b.build(b.linear("fc", x, {.out_features = 9}));
  const FitResult other = fit(tuned);
  EXPECT_TRUE(at::equal(value(other, "conv.weight"), value(first, "conv.weight")));
  EXPECT_EQ(value(other, "fc.weight").size(0), 9);
}

// Its checkpoint has what became of them.
TEST_F(Fit, AResumedTrainingDoesNotReadTheWeightsThatItBeganWith) {
  nn::ParameterSet trained = fit(options()).model->parameters().clone();
  const std::string path = temp_.file("tiny.safetensors");
  save_weights(path, trained);
  FitOptions tuned = options(dir_);
  tuned.weights = path;
  tuned.epochs = 1;
  fit(tuned);
  core::local_file_system().remove_file(path);
  tuned.epochs = 2;
  EXPECT_EQ(fit(tuned).epochs, 2);
  tuned.train_dir = temp_.file("other");
  EXPECT_TRUE(core::error_of([&] { fit(tuned); }));
}

TEST_F(Fit, ReplicasTrainAsOneDoes) {
  FitOptions one = options(), two = options();
  one.graph = two.graph = tiny_graph({.batch_norm = false});
  two.devices.replicas = 2;
  two.intra_op_threads = 2;
  two.variable_update = "replicated";
  const auto all = tiny_source(48, 48)->next()[0];
  two.train = std::make_shared<data::TensorSource>(
      all.images(), all.labels(), data::TensorSourceOptions{.batch_size = 4, .replicas = 2, .shuffle = true});
  // Without evaluations on two threads: gcc's TSan does not understand OpenMP's teams.
  one.validation = two.validation = nullptr;
  const FitResult by_one = fit(one), by_two = fit(two);
  EXPECT_EQ(by_two.global_step, by_one.global_step);
  const at::Tensor apart = by_two.model->parameters().values() - by_one.model->parameters().values();
  EXPECT_LT(apart.abs().max().item<double>(), 1e-5);
}

TEST_F(Fit, TakesASchedule) {
  std::vector<double> rates;
  FitOptions chosen = options();
  int64_t told = 0;
  chosen.schedule = [&](int64_t steps) {
    told = steps;
    return [](int64_t step) { return 0.1 / static_cast<double>(step + 1); };
  };
  chosen.on_epoch = [&](const FitEpoch& epoch) { rates.push_back(epoch.learning_rate); };
  fit(chosen);
  EXPECT_EQ(told, 18);
  EXPECT_EQ(rates, (std::vector<double>{0.1 / 6, 0.1 / 12, 0.1 / 18}));
}

TEST_F(Fit, ALossOfOnesOwnIsTrainedAndMeasured) {
  FitOptions chosen = options();
  chosen.loss = [](const at::Tensor& output, const at::Tensor&) { return output.square().mean(); };
  const FitResult result = fit(chosen);
  const data::Batch batch = tiny_source(20, 20, 1, false)->next()[0];
  EXPECT_NEAR(result.last->loss, result.model->logits(batch.images()).square().mean().item<double>(), 1e-4);
}

TEST_F(Fit, TrainsOnAFolderAndNamesItsClasses) {
  write_light_folder(temp_);
  FitOptions chosen;
  nn::GraphBuilder b({.image = {3, 16, 16}, .name = "light"});
  chosen.graph = b.build(b.linear("fc", b.global_average_pool("pool", b.input()), {.out_features = 2}));
  const auto train = data::open_folder(
      temp_.file("data"), {.size = 16, .batch_size = 8, .part = data::FolderPart::kTraining, .worker_threads = 1});
  chosen.train = train;
  data::FolderOptions rest{.size = 16,
                           .batch_size = 8,
                           .training = false,
                           .part = data::FolderPart::kValidation,
                           .classes = train->classes(),
                           .worker_threads = 1};
  chosen.validation = data::open_folder(temp_.file("data"), rest);
  chosen.epochs = 10;
  chosen.train_dir = dir_;
  chosen.learning_rate = 0.1;
  chosen.intra_op_threads = 1;
  const FitResult result = fit(chosen);
  EXPECT_EQ(result.last->top_1, 1.0);
  const auto model = load_model(dir_);
  EXPECT_EQ(model->predict_file(temp_.file("data/dark/0.png"), 1).top[0].name, "dark");
  EXPECT_EQ(model->predict_file(temp_.file("data/bright/0.png"), 1).top[0].name, "bright");
  EXPECT_EQ(model->description().input->normalization, train->transform().normalization);

  // No score is one of images that were trained on.
  FitOptions overlapping = chosen;
  rest.part = data::FolderPart::kAll;
  overlapping.validation = data::open_folder(temp_.file("data"), rest);
  EXPECT_THAT(core::message_of([&] { fit(overlapping); }), HasSubstr("the validation has images of the training"));

  rest.part = data::FolderPart::kValidation;
  rest.classes = {"dark", "bright"};
  overlapping.validation = data::open_folder(temp_.file("data"), rest);
  EXPECT_THAT(core::message_of([&] { fit(overlapping); }),
              HasSubstr("the validation numbers its classes in another way than the training: FitOptions::validation"));

  chosen.classes = {"one"};
  EXPECT_THAT(core::message_of([&] { fit(chosen); }), HasSubstr("another number of outputs"));
  chosen.classes = {"one", "two"};
  EXPECT_THAT(core::message_of([&] { fit(chosen); }), HasSubstr("the checkpoint is of other classes"));
}

TEST_F(Fit, ADirectoryOfAnotherTrainingIsRefused) {
  fit(options(dir_));
  FitOptions other = options(dir_);
  other.graph = tiny_graph({.dropout = 0.5});
  EXPECT_THAT(core::message_of([&] { fit(other); }), AllOf(HasSubstr("another graph"), HasSubstr("'dropout'")));
  other = options(dir_);
  other.resume = false;
  EXPECT_THAT(core::message_of([&] { fit(other); }), HasSubstr("there is a training already"));
}

// The first node that differs, as it was and as it is; one graph may begin as the other one.
TEST_F(Fit, AnotherGraphIsToldByItsFirstOtherNode) {
  const nn::Graph usual = tiny_graph();
  nn::GraphBuilder b({.image = {3, 5, 5}, .name = "tiny"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 8, .kernel = 3, .padding = nn::Padding::all(1)});
  x = b.global_average_pool("pool", b.activation("relu", b.batch_norm("bn", x)));
  const nn::Graph longer = b.build(b.activation("end", b.linear("fc", x, {.out_features = kTinyClasses})));
  const auto refusal = [&](const nn::Graph& before, const nn::Graph& now) {
    const std::string directory = temp_.file(before.nodes.back().name + "_" + now.nodes.back().name);
    FitOptions first = options(directory), second = options(directory);
    first.epochs = 1;
    first.graph = before;
    second.graph = now;
    fit(first);
    return core::message_of([&] { fit(second); });
  };
  EXPECT_THAT(refusal(usual, longer), AllOf(HasSubstr("another graph"), HasSubstr("expected no more nodes, got "),
                                            HasSubstr(" 'end' "), HasSubstr("choose another train_dir")));
  EXPECT_THAT(refusal(longer, usual), AllOf(HasSubstr(" 'end' "), HasSubstr(", got no more nodes")));
  EXPECT_THAT(refusal(tiny_graph({.dropout = 0.2}), usual),
              AllOf(HasSubstr("expected dropout 'dropout' "), HasSubstr(", got linear 'fc' ")));
}

// Where a complete epoch ended would be within one, or beyond its end.
TEST_F(Fit, EpochsOfAnotherLengthAreRefused) {
  FitOptions first = options(dir_);
  first.epochs = 1;
  fit(first);
  for (const int64_t batch_size : {4, 16}) {
    FitOptions other = options(dir_);
    other.train = shuffled_tiny_source(batch_size);
    EXPECT_THAT(core::message_of([&] { fit(other); }),
                AllOf(HasSubstr("epochs of another length"),
                      HasSubstr("expected 6 steps, got " + std::to_string(48 / batch_size) + " steps")));
  }
  EXPECT_EQ(fit(options(dir_)).epochs, 3);
}

TEST_F(Fit, ADirectoryWithACheckpointOfTensorFlowIsRefusedAndLeftAsItIs) {
  core::FileSystem& files = core::local_file_system();
  files.make_directories(dir_);
  files.write_file_atomically(dir_ + "/ckpt-1.index", "x");
  for (const bool resume : {true, false}) {
    FitOptions chosen = options(dir_);
    chosen.resume = resume;
    EXPECT_THAT(core::message_of([&] { fit(chosen); }, core::ErrorCode::kUnsupported),
                AllOf(HasSubstr("checkpoint of TensorFlow"), HasSubstr("ckpt-1.index")));
    EXPECT_EQ(files.list(dir_), (std::vector<std::string>{"ckpt-1.index"}));
  }
}

TEST_F(Fit, OptionsThatCannotBeAreNamed) {
  const auto refused = [](const std::function<void(FitOptions&)>& change) {
    FitOptions bad = options();
    change(bad);
    return core::message_of([&] { fit(bad); });
  };
  EXPECT_THAT(refused([](FitOptions& o) { o.graph = {}; }), HasSubstr("FitOptions::graph"));
  EXPECT_THAT(refused([](FitOptions& o) { o.train = nullptr; }), HasSubstr("FitOptions::train"));
  EXPECT_THAT(refused([](FitOptions& o) { o.epochs = 0; }),
              HasSubstr("FitOptions::epochs: expected at least 1, got 0"));
  EXPECT_THAT(refused([](FitOptions& o) { o.devices.replicas = 2; }), HasSubstr("another number of replicas"));
  EXPECT_THAT(refused([](FitOptions& o) { o.best.name = "top_1_acuracy"; }),
              AllOf(HasSubstr("one of loss, top_1_accuracy, top_5_accuracy, mean_class_accuracy"),
                    HasSubstr("did you mean 'top_1_accuracy'?")));
  EXPECT_THAT(refused([](FitOptions& o) { o.early_stop = EarlyStop{.patience = 0}; }),
              HasSubstr("early_stop.patience"));
  EXPECT_THAT(refused([](FitOptions& o) {
                o.early_stop.emplace();
                o.validation = nullptr;
              }),
              HasSubstr("FitOptions::early_stop"));
  EXPECT_THAT(refused([](FitOptions& o) { o.callbacks = {nullptr}; }), HasSubstr("FitOptions::callbacks"));
  EXPECT_THAT(refused([](FitOptions& o) { o.metrics = {nullptr}; }), HasSubstr("FitOptions::metrics"));
  EXPECT_THAT(
      refused([](FitOptions& o) { o.adjust = [](TowerTrainerOptions& trainer) { trainer.graph = nn::Graph{}; }; }),
      HasSubstr("FitOptions::adjust"));
}

TEST_F(Fit, NumbersAndSourcesThatCannotBeAreNamed) {
  const auto refused = [](const std::function<void(FitOptions&)>& change) {
    FitOptions bad = options();
    change(bad);
    return core::message_of([&] { bad.validate(); });
  };
  EXPECT_EQ(refused([](FitOptions&) {}), "no error");
  EXPECT_EQ(refused([](FitOptions& o) { o.steps_per_epoch = -1; }),
            "a number is out of range: FitOptions::steps_per_epoch: expected at least 0, got -1");
  EXPECT_EQ(refused([](FitOptions& o) { o.devices.replicas = 0; }),
            "a number is out of range: FitOptions::devices.replicas: expected at least 1, got 0");
  EXPECT_EQ(refused([](FitOptions& o) { o.intra_op_threads = -1; }),
            "a number is out of range: FitOptions::intra_op_threads: expected at least 0, got -1");
  EXPECT_EQ(refused([](FitOptions& o) { o.early_stop = EarlyStop{.patience = 0}; }),
            "a number is out of range: FitOptions::early_stop.patience: expected at least 1, got 0");
  EXPECT_EQ(refused([](FitOptions& o) { o.early_stop = EarlyStop{.patience = 1, .min_delta = -1}; }),
            "a number is out of range: FitOptions::early_stop.min_delta: expected 0 or more, got -1.000000");
  EXPECT_EQ(refused([](FitOptions& o) { o.early_stop = EarlyStop{.patience = 1, .min_delta = 0}; }), "no error");
  const std::string replicas = "a source has batches for another number of replicas: FitOptions::";
  EXPECT_EQ(refused([](FitOptions& o) { o.train = shuffled_tiny_source(8, 2); }),
            replicas + "train: expected 1, got 2; give the source's options as many replicas");
  EXPECT_EQ(refused([](FitOptions& o) { o.validation = tiny_source(20, 8, 2, false); }),
            replicas + "validation: expected 1, got 2; give the source's options as many replicas");
  const std::string no_end = "the validation is a source that has no end: FitOptions::";
  EXPECT_EQ(refused([](FitOptions& o) { o.validation = tiny_source(20, 8); }),
            no_end + "validation: expected TensorSourceOptions{.repeat = false}, got .repeat = true");
  EXPECT_EQ(refused([](FitOptions& o) {
              o.more_validations = {
                  {.name = "drawn",
                   .source = std::make_shared<data::FunctionSource>(
                       [](const data::BatchPlace&) { return core::NamedTensors(); }, data::FunctionSourceOptions{})}};
            }),
            no_end +
                "more_validations, 'drawn': expected a source that ends, got a FunctionSource; take a "
                "TensorSource or a GeneratorSource with .repeat = false");
  const auto generator = [](bool repeat) {
    return std::make_shared<data::GeneratorSource>(
        [](int64_t, const core::StopToken&) -> data::Generator { return [] { return std::nullopt; }; },
        data::GeneratorSourceOptions{.repeat = repeat});
  };
  EXPECT_EQ(refused([&](FitOptions& o) { o.validation = generator(true); }),
            no_end + "validation: expected GeneratorSourceOptions{.repeat = false}, got .repeat = true");
  EXPECT_EQ(refused([&](FitOptions& o) { o.validation = generator(false); }), "no error");
  const auto zipped = [](bool repeat) {
    return std::make_shared<data::ZippedSource>(
        std::vector<std::shared_ptr<data::BatchSource>>{tiny_source(20, 8), tiny_source(20, 8, 1, repeat)});
  };
  EXPECT_EQ(refused([&](FitOptions& o) { o.validation = zipped(true); }),
            no_end +
                "validation: expected a source that ends, got a combination of sources of which none ends; make "
                "one of them with .repeat = false");
  EXPECT_EQ(refused([&](FitOptions& o) { o.validation = zipped(false); }), "no error");
  const auto set_named = [](std::string name, std::vector<std::shared_ptr<Metric>> metrics = {}) {
    return FitValidation{std::move(name), tiny_source(20, 8, 1, false), std::move(metrics)};
  };
  EXPECT_EQ(refused([&](FitOptions& o) { o.more_validations = {set_named("")}; }),
            "a validation set has no name of its own: FitOptions::more_validations: expected a name beside train and "
            "eval, got ''");
  EXPECT_EQ(refused([&](FitOptions& o) { o.more_validations = {set_named("hard", {nullptr})}; }),
            "a metric is null: FitOptions::more_validations, 'hard'");
  EXPECT_EQ(refused([](FitOptions& o) { o.more_validations = {{.name = "none"}}; }),
            "there is no source to evaluate: FitOptions::more_validations, 'none'");
  const std::string same_name = "two numbers of an evaluation have the same name: FitOptions::";
  EXPECT_THAT(refused([](FitOptions& o) { o.metrics = {std::make_shared<TopKAccuracy>()}; }),
              HasSubstr(same_name + "metrics: expected a name that no other has, got 'top_1_accuracy'"));
  EXPECT_THAT(refused([&](FitOptions& o) {
                o.more_validations = {
                    set_named("hard", {std::make_shared<TopKAccuracy>(2), std::make_shared<TopKAccuracy>(2)})};
              }),
              AllOf(HasSubstr(same_name + "more_validations, 'hard'"), HasSubstr("got 'top_2_accuracy'")));
  EXPECT_EQ(refused([](FitOptions& o) { o.metrics = {std::make_shared<TopKAccuracy>(2)}; }), "no error");
  const auto without_validation = [&](const std::function<void(FitOptions&)>& change) {
    return refused([&](FitOptions& o) {
      o.validation = nullptr;
      change(o);
    });
  };
  const std::string no_use = "nothing is evaluated that it is for: FitOptions::";
  EXPECT_EQ(without_validation([](FitOptions&) {}), "no error");
  EXPECT_EQ(without_validation([](FitOptions& o) { o.early_stop.emplace(); }),
            no_use + "early_stop: expected a validation, got none");
  EXPECT_EQ(without_validation([](FitOptions& o) { o.metrics = {std::make_shared<PerClassAccuracy>(kTinyClasses)}; }),
            no_use + "metrics: expected a validation, got none");
  EXPECT_EQ(without_validation([&](FitOptions& o) { o.more_validations = {set_named("hard")}; }),
            no_use + "more_validations: expected a validation, got none");
}

TEST_F(Fit, ASourceWithoutAnEndNeedsTheStepsOfAnEpoch) {
  FitOptions endless = options();
  endless.train = std::make_shared<data::FunctionSource>([](const data::BatchPlace&) { return core::NamedTensors(); },
                                                         data::FunctionSourceOptions{});
  EXPECT_EQ(core::message_of([&] { fit(endless); }),
            "the source does not say how many batches an epoch has: FitOptions::train; set steps_per_epoch");
}

TEST_F(Fit, ReplicasOfSeveralProcessesShareEachStep) {
  parallel::on_ranks(2, [](const std::shared_ptr<parallel::ProcessGroup>& group) {
    FitOptions together = options();
    together.devices.processes = group;
    together.train = shuffled_tiny_source(4, 2);
    EXPECT_EQ(core::message_of([&] { together.validate(); }), "no error");
    for (const std::string update : {"asynchronous", "independent"}) {
      together.variable_update = update;
      EXPECT_EQ(core::message_of([&] { together.validate(); }),
                "replicas of several processes do not exchange gradients so: FitOptions::variable_update: expected one "
                "whose replicas share each step, such as the default, got " +
                    update);
    }
  });
}

}  // namespace
}  // namespace trainyard::train::fit_test
