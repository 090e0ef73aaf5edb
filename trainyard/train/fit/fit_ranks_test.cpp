// fit() on several processes, which are threads here: what it trains and evaluates together, and what it refuses.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/parallel/testing/connected_ranks.h"
#include "trainyard/parallel/testing/on_ranks.h"
#include "trainyard/train/evaluation/metrics.h"
#include "trainyard/train/fit/fit.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/tiny_fit.h"

namespace trainyard::train::fit_ranks_test {
namespace {

using ::testing::HasSubstr;
using Group = std::shared_ptr<parallel::ProcessGroup>;
using Engine = std::shared_ptr<parallel::ProcessEngine>;

FitOptions options_of_all(const std::string& train_dir = "") {
  FitOptions chosen = tiny_fit_options(tiny_graph({.batch_norm = false}), train_dir);
  chosen.epochs = 2;
  chosen.validation = tiny_source(20, 4, 1, /*repeat=*/false);
  chosen.metrics = {std::make_shared<PerClassAccuracy>(kTinyClasses)};
  return chosen;
}

// The same training, of which each of two processes has `replicas`.
FitOptions options_of_rank(const Group& group, const Engine& engine, int replicas, const std::string& train_dir = "") {
  FitOptions chosen = options_of_all(train_dir);
  chosen.train = shuffled_tiny_source(8 / (2 * replicas), 2 * replicas);
  chosen.devices.replicas = chosen.intra_op_threads = replicas;
  chosen.devices.processes = group;
  chosen.devices.exchange = engine;
  chosen.devices.choose_communicators();
  return chosen;
}

// The mean of the accuracies of the classes that the validation has.
double mean_class_accuracy(const Model& model) {
  const data::Batch batch = tiny_source(20, 20, 1, /*repeat=*/false)->next()[0];
  const at::Tensor right = model.logits(batch.images()).argmax(1).eq(batch.labels());
  double sum = 0, classes = 0;
  for (int64_t c = 0; c < kTinyClasses; ++c) {
    const at::Tensor own = batch.labels().eq(c);
    const auto count = own.sum().item<int64_t>();
    if (count == 0) continue;
    sum += own.logical_and(right).sum().item<double>() / static_cast<double>(count);
    ++classes;
  }
  return sum / classes;
}

// The value of the metric that PerClassAccuracy names for all classes together.
double mean_of(const Evaluation& evaluation) {
  for (const auto& [name, value] : evaluation.more) {
    if (name == "mean_class_accuracy") return value;
  }
  ADD_FAILURE() << "there is no mean_class_accuracy";
  return -1;
}

TEST(FitRanks, TrainAndEvaluateAsOneProcess) {
  const core::TempDir temp;
  const FitResult expected = fit(options_of_all());
  EXPECT_NEAR(mean_of(*expected.last), mean_class_accuracy(*expected.model), 1e-6);
  for (const int replicas : {1, 2}) {
    const std::string run = temp.file("run" + std::to_string(replicas));
    const auto engines = parallel::make_engines(2);
    std::vector<std::optional<FitResult>> results(2);
    parallel::on_ranks(2, [&](const Group& group) {
      const auto rank = static_cast<size_t>(group->rank());
      FitOptions chosen = options_of_rank(group, engines[rank], replicas, run);
      chosen.adjust = [replicas](TowerTrainerOptions& trainer) {
        EXPECT_EQ(trainer.exchange.variable_update, replicas > 1 ? "collective_all_reduce" : "horovod");
      };
      results[rank] = fit(chosen);
    });
    ASSERT_TRUE(results[0] && results[1]);
    const at::Tensor apart = results[0]->model->parameters().values() - expected.model->parameters().values();
    EXPECT_LT(apart.abs().max().item<double>(), 1e-5) << replicas;
    EXPECT_TRUE(at::equal(results[1]->model->parameters().values(), results[0]->model->parameters().values()));
    for (const std::optional<FitResult>& result : results) {
      EXPECT_EQ(result->global_step, 12);
      EXPECT_EQ(result->last->samples, 20);
      EXPECT_EQ(result->last->right_1, expected.last->right_1);
      EXPECT_NEAR(result->last->loss, expected.last->loss, 1e-4);
      EXPECT_EQ(result->last->more.size(), expected.last->more.size());
      EXPECT_NEAR(mean_of(*result->last), mean_of(*expected.last), 1e-6);
    }
    const auto json =
        nlohmann::json::parse(core::local_file_system().read_file(core::join_path(run, "evaluation.json")));
    EXPECT_EQ(json["images"], 20) << "those of both ranks";
  }
}

TEST(FitRanks, BeginOnlyWithTheSameNumbers) {
  const auto refusal = [](const std::function<void(FitOptions&)>& change) {
    const auto engines = parallel::make_engines(2);
    std::vector<std::string> said(2);
    parallel::on_ranks(2, [&](const Group& group) {
      const auto rank = static_cast<size_t>(group->rank());
      FitOptions chosen = options_of_rank(group, engines[rank], 1);
      chosen.epochs = 1;
      chosen.classes = {"a", "b", "c", "d", "e", "f"};
      if (rank == 1) change(chosen);
      // Of the two, the later one may hear of the error from the other.
      const auto error = core::error_of([&] { fit(chosen); });
      said[rank] = error ? error->what() : "no error";
    });
    EXPECT_THAT(said[1], HasSubstr("ranks begin differently: "));
    return said[0];
  };
  const std::string differently = "ranks begin differently: ";
  EXPECT_THAT(refusal([](FitOptions& o) { o.graph = tiny_graph({.batch_norm = false, .dropout = 0.5}); }),
              HasSubstr(differently + "layer "));
  EXPECT_THAT(refusal([](FitOptions& o) { o.classes[5] = "g"; }), HasSubstr(differently + "class 5 of the data: "));
  EXPECT_THAT(refusal([](FitOptions& o) { o.epochs = 2; }), HasSubstr(differently + "epochs"));
  EXPECT_THAT(refusal([](FitOptions& o) { o.steps_per_epoch = 5; }), HasSubstr(differently + "steps of an epoch"));
  EXPECT_THAT(refusal([](FitOptions& o) { o.seed = 6; }), HasSubstr(differently + "seed: "));
  EXPECT_THAT(refusal([](FitOptions& o) { o.learning_rate = 0.25; }), HasSubstr("expected 0.05"));
}

}  // namespace
}  // namespace trainyard::train::fit_ranks_test
