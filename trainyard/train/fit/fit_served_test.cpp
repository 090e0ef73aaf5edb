// What fit() evaluates, compares and gives away: averaged weights, any number of any validation set, models that know
// their input.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/sources/folder_source.h"
#include "trainyard/data/sources/mapped_source.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/train/evaluation/metrics.h"
#include "trainyard/train/fit/fit.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/light_folder.h"
#include "trainyard/train/testing/tiny_fit.h"

namespace trainyard::train::fit_served_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr;

FitOptions options(const std::string& train_dir = "") {
  FitOptions chosen = tiny_fit_options(tiny_graph(), train_dir);
  chosen.validation = tiny_source(20, 8, 1, /*repeat=*/false);
  chosen.optimizer = optim::momentum();
  return chosen;
}

// The weights and statistics of a model, in one tensor.
at::Tensor all_of(const nn::ParameterSet& set) {
  at::Tensor all = set.values().clone();
  for (int b = 0; b < static_cast<int>(set.buffer_count()); ++b) all = at::cat({all, set.buffer(b).flatten()});
  return all;
}

int64_t right_of(const Model& model) {
  const data::Batch batch = tiny_source(20, 20, 1, false)->next()[0];
  return model.logits(batch.images()).argmax(1).eq(batch.labels()).sum().item<int64_t>();
}

double loss_of_model(const Model& model) {
  const data::Batch batch = tiny_source(20, 20, 1, false)->next()[0];
  const at::Tensor log_probabilities = model.logits(batch.images()).log_softmax(1);
  return -log_probabilities.gather(1, batch.labels().unsqueeze(1)).mean().item<double>();
}

class FitServes : public ::testing::Test {
 protected:
  const core::TempDir temp_;
  const std::string dir_ = temp_.file("run");

  std::string light_folder() const { return write_light_folder(temp_); }
};

TEST_F(FitServes, AveragedWeightsWhereTheTrainingAverages) {
  std::vector<double> losses;
  FitOptions chosen = options(dir_);
  chosen.average = optim::WeightAverageOptions{.decay = 0.9};
  chosen.on_epoch = [&](const FitEpoch& epoch) { losses.push_back(epoch.validation->loss); };
  const FitResult result = fit(chosen);
  // The same training without an average has the last weights.
  FitOptions plain = options();
  const FitResult last = fit(plain);
  EXPECT_FALSE(at::equal(result.model->parameters().values(), last.model->parameters().values()));
  EXPECT_NE(result.last->loss, last.last->loss);

  EXPECT_NEAR(result.last->loss, loss_of_model(*result.model), 1e-5) << "what was evaluated is what is returned";
  EXPECT_EQ(result.last->right_1, right_of(*result.model));
  EXPECT_EQ(result.best->value, *std::min_element(losses.begin(), losses.end()));
  const auto loaded = load_model(dir_), best = load_model(dir_, {.best = true});
  EXPECT_TRUE(at::equal(all_of(loaded->parameters()), all_of(result.model->parameters())));
  EXPECT_NEAR(loss_of_model(*best), result.best->value, 1e-5);
  const auto trained = load_model(dir_, {.averaged_weights = false});
  EXPECT_TRUE(at::equal(all_of(trained->parameters()), all_of(last.model->parameters())));
}

// Where the average stands still, nothing gets better, whatever the weights that train do.
TEST_F(FitServes, TheAverageDecidesOnTheEarlyStop) {
  FitOptions chosen = options();
  chosen.epochs = 20;
  chosen.early_stop = EarlyStop{.patience = 2};
  EXPECT_GT(fit(chosen).epochs, 3) << "the weights that train get better";
  chosen.average = optim::WeightAverageOptions{.every = 100'000};
  const FitResult still = fit(chosen);
  EXPECT_EQ(still.epochs, 3);
  EXPECT_EQ(still.best->global_step, 6);
}

TEST_F(FitServes, AnEqualAverageHasTheStatisticsOfItsWeights) {
  FitOptions chosen = options(dir_);
  chosen.average = optim::WeightAverageOptions{.kind = optim::AverageKind::kEqual, .first_step = 4};
  const FitResult result = fit(chosen);
  const FitResult last = fit(options());
  const nn::ParameterSet &served = result.model->parameters(), &trained = last.model->parameters();
  for (int b = 0; b < static_cast<int>(served.buffer_count()); ++b) {
    EXPECT_FALSE(at::equal(served.buffer(b), trained.buffer(b))) << "they are measured anew";
  }
  EXPECT_NEAR(result.last->loss, loss_of_model(*result.model), 1e-5);
  const auto loaded = load_model(dir_), weights = load_model(dir_, {.averaged_weights = false});
  EXPECT_TRUE(at::equal(all_of(loaded->parameters()), all_of(served)));
  EXPECT_TRUE(at::equal(all_of(weights->parameters()), all_of(trained))) << "the batches go on as they would have";

  // In a run that is broken, too.
  class Stop : public Callback {
    std::string name() const override { return "stop"; }
    void after_step(Trainer& trainer, const StepView& view) override {
      if (view.global_step == 8) trainer.stop("enough");
    }
  };
  FitOptions broken = options(temp_.file("broken")), rest = options(broken.train_dir);
  broken.average = rest.average = chosen.average;
  broken.callbacks = {std::make_shared<Stop>()};
  EXPECT_EQ(fit(broken).global_step, 9);
  EXPECT_TRUE(at::equal(all_of(fit(rest).model->parameters()), all_of(served)));
}

TEST_F(FitServes, ARecalibrationThatFailsLeavesTheBatchesToTheTraining) {
  class FailsOnce : public data::SourceDecorator {  // at the second batch of the first recalibration
   public:
    FailsOnce(std::shared_ptr<data::BatchSource> inner, bool foreign)
        : SourceDecorator(std::move(inner)), foreign_(foreign) {}
    void seek(data::Position position) override {
      if (!failed_) left_ = 1;
      SourceDecorator::seek(position);
    }
    std::vector<data::Batch> next() override {
      if (left_ == 0) {
        left_ = -1;
        failed_ = true;
        if (foreign_) throw std::runtime_error("an image is gone");
        throw core::Error(core::ErrorCode::kIo, "an image is gone");
      }
      if (left_ > 0) --left_;
      return source()->next();
    }

   private:
    bool foreign_;
    int left_ = -1;  // batches until it fails; -1: it does not
    bool failed_ = false;
  };
  FitOptions whole = options();
  whole.average = optim::WeightAverageOptions{.kind = optim::AverageKind::kEqual, .first_step = 4};
  const FitResult unbroken = fit(whole);
  for (const bool foreign : {false, true}) {
    const std::string directory = temp_.file(foreign ? "foreign" : "own");
    FitOptions broken = options(directory), rest = options(directory);
    broken.average = rest.average = whole.average;
    broken.train = std::make_shared<FailsOnce>(broken.train, foreign);
    EXPECT_THAT(core::message_of([&] { fit(broken); }, foreign ? core::ErrorCode::kInternal : core::ErrorCode::kIo),
                HasSubstr("an image is gone"));
    const FitResult result = fit(rest);
    EXPECT_EQ(result.first_step, 6) << "the epoch is saved";
    EXPECT_TRUE(at::equal(all_of(result.model->parameters()), all_of(unbroken.model->parameters())));
  }
}

TEST_F(FitServes, TheBestByAnyNumberOfAnySet) {
  class Steps : public SumMetric {  // the later the higher, as nothing else here is
   public:
    Steps() : SumMetric(0, 1) {}
    void begin() override {
      SumMetric::begin();
      ++evaluations;
    }
    void update(const MetricBatch&) override {}
    std::vector<std::pair<std::string, double>> results() const override { return {{"evaluations", evaluations}}; }
    int evaluations = 0;
  };
  FitOptions chosen = options(dir_);
  chosen.more_validations = {
      {.name = "hard",
       .source = tiny_source(30, 8, 1, /*repeat=*/false),
       .metrics = {std::make_shared<Steps>(), std::make_shared<PerClassAccuracy>(kTinyClasses)}}};
  for (const bool lowest : {false, true}) {
    chosen.train_dir = temp_.file(lowest ? "lowest" : "highest");
    chosen.best = {.name = "hard/evaluations", .lowest = lowest};
    const FitResult result = fit(chosen);
    EXPECT_EQ(result.best->global_step, lowest ? 6 : 18);
    ASSERT_EQ(result.last_of_more.size(), 1U);
    EXPECT_EQ(result.last_of_more[0].first, "hard");
    EXPECT_EQ(result.last_of_more[0].second.samples, 30);
    EXPECT_EQ(result.last->samples, 20);
  }
  std::ifstream rows(core::join_path(chosen.train_dir, "metrics.jsonl"));
  const std::string all{std::istreambuf_iterator<char>(rows), {}};
  EXPECT_THAT(all, AllOf(HasSubstr("\"hard\""), HasSubstr("evaluations"), HasSubstr("mean_class_accuracy")));

  std::vector<FitEpoch> epochs;
  chosen.train_dir = "";
  chosen.best = {.name = "hard/mean_class_accuracy"};
  chosen.on_epoch = [&](const FitEpoch& epoch) { epochs.push_back(epoch); };
  const FitResult result = fit(chosen);
  double best = 0;
  for (const FitEpoch& epoch : epochs) {
    best = std::max(best, value_of(epoch.more_validations[0].second, "mean_class_accuracy").value());
  }
  EXPECT_EQ(result.best->value, best);
}

TEST_F(FitServes, RefusesToCompareByWhatItDoesNotKnow) {
  const auto refused = [](const std::function<void(FitOptions&)>& change) {
    FitOptions bad = options();
    change(bad);
    return core::message_of([&] { fit(bad); });
  };
  const auto named = [](std::string name) { return FitValidation{std::move(name), tiny_source(20, 8, 1, false), {}}; };
  EXPECT_THAT(refused([&](FitOptions& o) {
                o.more_validations = {named("hard")};
                o.best.name = "hart/loss";
              }),
              AllOf(HasSubstr("hard/mean_class_accuracy"), HasSubstr("did you mean 'hard/loss'?")));
  EXPECT_THAT(refused([&](FitOptions& o) {
                o.more_validations = {named("a"), named("a")};
              }),
              HasSubstr("a validation set has no name of its own"));
  EXPECT_THAT(refused([&](FitOptions& o) { o.more_validations = {named("eval")}; }), HasSubstr("got 'eval'"));
  EXPECT_THAT(refused([](FitOptions& o) { o.more_validations = {{.name = "none"}}; }),
              HasSubstr("FitOptions::more_validations, 'none'"));
  class Confidence : public MeanLoss {
   public:
    Confidence() : MeanLoss({}, "confidence") {}
  };
  EXPECT_THAT(refused([](FitOptions& o) {
                o.metrics = {std::make_shared<Confidence>()};
                o.best = {.name = "confidence"};
              }),
              AllOf(HasSubstr("nothing says whether high or low values of 'confidence' are good"),
                    HasSubstr("BestBy::lowest")));
}

TEST_F(FitServes, GraphsWhoseInputIsCalledAsTheyLike) {
  FitOptions usual = options();
  const FitResult expected = fit(usual);
  const auto renamed = [](const std::shared_ptr<data::BatchSource>& source) {
    return std::make_shared<data::MappedSource>(source, [](data::Batch& batch) {
      batch.tensors = {{"pixels", batch.images()}, {"labels", batch.labels()}};
    });
  };
  FitOptions chosen = options();
  std::get<nn::Input>(chosen.graph.nodes.front().op).name = "pixels";
  chosen.train = renamed(chosen.train);
  chosen.validation = renamed(chosen.validation);
  const FitResult result = fit(chosen);
  EXPECT_EQ(result.last->loss, expected.last->loss);
  EXPECT_TRUE(at::equal(result.model->parameters().values(), expected.model->parameters().values()));
  chosen.average = optim::WeightAverageOptions{.kind = optim::AverageKind::kEqual};
  EXPECT_EQ(fit(chosen).last->samples, 20) << "norms are measured anew by that name, too";
}

TEST_F(FitServes, ADecoratedSourceSaysWhatTheInnerOneSays) {
  class Noisy : public data::SourceDecorator {
   public:
    explicit Noisy(std::shared_ptr<data::BatchSource> inner) : SourceDecorator(std::move(inner)) {}
    std::vector<data::Batch> next() override {
      std::vector<data::Batch> batches = source()->next();
      for (data::Batch& batch : batches) batch.tensors.set("images", batch.images().add(0.01));
      return batches;
    }
  };
  const std::string folder = light_folder();
  const auto train = data::open_folder(folder, {.size = 16, .batch_size = 8, .worker_threads = 1});
  nn::GraphBuilder b({.image = {3, 16, 16}, .name = "light"});
  FitOptions chosen;
  chosen.graph = b.build(b.linear("fc", b.global_average_pool("pool", b.input()), {.out_features = 2}));
  chosen.train = std::make_shared<Noisy>(std::make_shared<Noisy>(train));
  chosen.epochs = 10;
  chosen.train_dir = dir_;
  chosen.learning_rate = 0.1;
  chosen.intra_op_threads = 1;
  const FitResult result = fit(chosen);
  EXPECT_EQ(result.global_step, 20) << "the epoch is that of the folder";
  const std::string file = temp_.file("light.safetensors");
  save_model(file, result.model->description(), result.model->parameters());
  for (const std::string& path : {dir_, file}) {
    const auto model = load_model(path);
    EXPECT_EQ(model->description().input->normalization, train->transform().normalization);
    EXPECT_EQ(model->description().input->eval_resize_size, train->transform().eval_resize_size);
    EXPECT_EQ(model->predict_file(folder + "/dark/0.png", 1).top[0].name, "dark");
    EXPECT_EQ(model->predict_file(folder + "/bright/0.png", 1).top[0].name, "bright");
  }
  // What a validation must not be is seen through sources, too.
  chosen.validation = std::make_shared<Noisy>(data::open_folder(folder, {.size = 16, .batch_size = 8}));
  EXPECT_THAT(core::message_of([&] { fit(chosen); }), HasSubstr("a source of training images, which has no end"));
}

TEST_F(FitServes, AModelWhoseInputNobodySaysIsNotSaved) {
  const FitResult result = fit(options(dir_));
  const std::string file = temp_.file("tiny.safetensors");
  const auto save = [&](const FitResult& of) { save_model(file, of.model->description(), of.model->parameters()); };
  EXPECT_THAT(core::message_of([&] { save(result); }), HasSubstr("set it, or FitOptions::input where fit() trains"));
  EXPECT_EQ(right_of(*load_model(dir_)), result.last->right_1) << "tensors it takes";
  const std::vector<std::byte> image = data::encode_png(data::flat_image(5, 5, 9));
  EXPECT_THAT(core::message_of([&] { result.model->predict(image); }), HasSubstr("does not say how an image becomes"));

  FitOptions said = options(temp_.file("said"));
  said.input = data::TransformOptions{.normalization = data::Normalization::symmetric()};
  save(fit(said));
  EXPECT_EQ(load_model(file)->predict(image).top.size(), 5U);
  // A preset for images of 224 is one for the graph's, in its ratio; a size of the caller's own stays.
  said = options();
  said.input = data::input_presets().get("torchvision");
  EXPECT_EQ(said.input->eval_resize_size, 256);
  EXPECT_EQ(fit(said).model->description().input->eval_resize_size, 6) << "5 * 256 / 224";
  said = options();
  said.input = data::TransformOptions{.eval_resize_size = 9};
  EXPECT_EQ(fit(said).model->description().input->eval_resize_size, 9);
  FitOptions tensors = options();
  tensors.transform = "";
  save(fit(tensors));
  EXPECT_FALSE(load_model(file)->description().input.has_value());
}

TEST_F(FitServes, FrozenParametersAsTheyBegan) {
  FitOptions chosen = options(dir_);
  chosen.epochs = 1;
  chosen.freeze = {"conv.*", "bn.*"};
  const FitResult result = fit(chosen);
  FitOptions none = options();
  none.learning_rate = 0;
  none.freeze = chosen.freeze;
  none.optimizer = optim::sgd();
  const FitResult start = fit(none);
  const auto value = [](const FitResult& of, const char* name) {
    const nn::ParameterSet& set = of.model->parameters();
    const auto parameter = set.find(name);
    return parameter ? set.value(*parameter) : set.buffer(*set.find_buffer(name));
  };
  for (const char* name : {"conv.weight", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"}) {
    EXPECT_TRUE(at::equal(value(result, name), value(start, name))) << name;
  }
  EXPECT_FALSE(at::equal(value(result, "fc.weight"), value(start, "fc.weight")));
  chosen.freeze = {"covn.*"};
  chosen.train_dir = "";
  EXPECT_THAT(core::message_of([&] { fit(chosen); }, core::ErrorCode::kNotFound), HasSubstr("did you mean 'conv.*'?"));
}

}  // namespace
}  // namespace trainyard::train::fit_served_test
