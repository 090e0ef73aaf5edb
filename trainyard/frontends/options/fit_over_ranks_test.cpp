#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/helper_task.h"
#include "trainyard/data/sources/tensor_source.h"
#include "trainyard/frontends/options/device_names.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/evaluation/metrics.h"
#include "trainyard/train/fit/fit.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::frontends::fit_over_ranks_test {
namespace {

// Counts the samples that are read.
class CountedSource : public data::SourceDecorator {
 public:
  explicit CountedSource(std::shared_ptr<data::BatchSource> source) : SourceDecorator(std::move(source)) {}
  std::vector<data::Batch> next() override {
    std::vector<data::Batch> batches = source()->next();
    for (const data::Batch& batch : batches) samples += batch.samples();
    return batches;
  }
  int64_t samples = 0;
};

// Has the batches of another source, and does not say how many.
class UnsizedSource : public data::BatchSource {
 public:
  explicit UnsizedSource(std::shared_ptr<data::BatchSource> source) : source_(std::move(source)) {}
  int64_t batch_size() const override { return source_->batch_size(); }
  int replicas() const override { return source_->replicas(); }
  std::vector<data::Batch> next() override { return source_->next(); }
  double waited_seconds() const override { return source_->waited_seconds(); }
  void stop() override { source_->stop(); }
  data::Position position() const override { return source_->position(); }
  void seek(data::Position position) override { source_->seek(position); }

 private:
  std::shared_ptr<data::BatchSource> source_;
};

std::shared_ptr<data::BatchSource> tensors(int64_t samples, data::TensorSourceOptions options) {
  const data::Batch all = train::tiny_source(samples, samples)->next()[0];
  return std::make_shared<data::TensorSource>(all.images(), all.labels(), std::move(options));
}

struct Training {
  // Six full batches and one of two samples, which the ranks share; and a set that does not say how many it has.
  std::shared_ptr<CountedSource> validation =
      std::make_shared<CountedSource>(tensors(50, {.batch_size = 8, .repeat = false}));
  std::shared_ptr<CountedSource> unsized =
      std::make_shared<CountedSource>(std::make_shared<UnsizedSource>(tensors(20, {.batch_size = 8, .repeat = false})));
  train::FitOptions options{};

  // Two replicas, however many processes they are in.
  Training(train::OpenDevices devices, const std::string& train_dir) {
    options.graph = train::tiny_graph({.dropout = 0.2});
    options.train = tensors(64, {.batch_size = 8, .replicas = 2, .shuffle = true});
    options.validation = validation;
    options.metrics = {std::make_shared<train::PerClassAccuracy>(train::kTinyClasses)};
    options.more_validations = {{.name = "unsized", .source = unsized}};
    options.epochs = 2;
    options.train_dir = train_dir;
    options.optimizer = optim::momentum({.weight_decay = 1e-3});
    options.learning_rate = 0.05;
    options.devices = std::move(devices);
    options.intra_op_threads = 1;
    options.seed = 5;
  }
};

void expect_same(const train::Evaluation& a, const train::Evaluation& b) {
  EXPECT_EQ(a.samples, b.samples);
  EXPECT_EQ(a.right_1, b.right_1);
  EXPECT_EQ(a.right_5, b.right_5);
  EXPECT_NEAR(a.loss, b.loss, 1e-12);  // parts are added up in another order
  EXPECT_EQ(a.more, b.more);
  ASSERT_EQ(a.classes.size(), b.classes.size());
  for (size_t i = 0; i < a.classes.size(); ++i) {
    EXPECT_EQ(a.classes[i].right, b.classes[i].right);
    EXPECT_EQ(a.classes[i].total, b.classes[i].total);
  }
}

// What each process does that mpirun has started (tests/processes/ranks_test.py): the same as one process with two
// replicas, but it reads its own half of the validation images only.
void fit_with_the_others(const std::string& directory) {
  const train::OpenDevices opened = open_named_devices_together(read_device_names({"cpu"}));
  Training together(opened, core::join_path(directory, "fit"));
  const train::FitResult result = train::fit(together.options);
  Training again(opened, core::join_path(directory, "fit"));
  const train::FitResult continued = train::fit(again.options);
  opened.leave();
  // Rank 0 writes what all ranks have counted, behind the last collective call.
  if (opened.is_chief()) {
    const auto explained =
        nlohmann::json::parse(core::local_file_system().read_file(core::join_path(directory, "fit/evaluation.json")));
    EXPECT_EQ(explained["images"], 50);
    int64_t right = 0;
    for (size_t c = 0; c < explained["confusion"].size(); ++c) right += explained["confusion"][c][c].get<int64_t>();
    EXPECT_EQ(right, result.last->right_1);
  }

  train::OpenDevices two;
  two.replicas = 2;
  Training alone(two, "");
  const train::FitResult wanted = train::fit(alone.options);
  ASSERT_EQ(wanted.last->samples, 50);
  EXPECT_EQ(alone.validation->samples, 100);
  EXPECT_EQ(together.unsized->samples, alone.unsized->samples) << "each rank has read all of it";
  for (const train::FitResult* each : {&result, &continued}) {
    EXPECT_EQ(each->global_step, 8);
    EXPECT_TRUE(at::equal(each->model->parameters().values(), wanted.model->parameters().values()));
    expect_same(*each->last, *wanted.last);
    expect_same(each->last_of_more.at(0).second, wanted.last_of_more.at(0).second);
    EXPECT_EQ(each->best->global_step, wanted.best->global_step);
  }
  EXPECT_EQ(continued.first_step, 8);
  EXPECT_EQ(again.validation->samples * 2, together.validation->samples) << "one evaluation, and no step";
  std::printf("SAYS %s_%d\n", opened.is_chief() ? "chief" : "another", static_cast<int>(together.validation->samples));
}
const bool kFitsWithTheOthers = core::add_helper_task("TRAINYARD_FIT_TASK", "FitTask.InAProcess", fit_with_the_others);

}  // namespace
}  // namespace trainyard::frontends::fit_over_ranks_test
