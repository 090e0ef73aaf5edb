// Which batches a run takes from its data: of a data set of the caller's own all that is asked of it, and of class
// folders how often each class comes.
#include <memory>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/parallel/testing/on_ranks.h"

namespace trainyard::frontends::sources_test {
namespace {

using Group = std::shared_ptr<parallel::ProcessGroup>;

// Keeps what is asked of it.
class Asked : public BenchmarkDataset {
 public:
  std::string name() const override { return "asked"; }
  int64_t num_classes() const override { return 5; }
  int64_t num_examples_per_epoch(data::Subset) const override { return 48; }
  std::shared_ptr<data::BatchSource> make_source(const WantedBatches& asked) const override {
    wanted = asked;
    return std::make_shared<data::FunctionSource>(
        [](const data::BatchPlace&) {
          return core::NamedTensors{{"images", at::zeros({1, 3, 6, 4})}};
        },
        data::FunctionSourceOptions{.replicas = asked.replicas, .batch_size = asked.batch_size});
  }
  mutable WantedBatches wanted;
};

// Two devices of four images each, of 6 x 4 pixels; evaluations in batches of three.
PreparedRun run_of(const std::shared_ptr<Asked>& dataset) {
  nn::GraphBuilder b({.image = {3, 6, 4}, .name = "linear"});
  PreparedRun run;
  run.own.dataset = dataset;
  run.graph = b.build(b.linear("head", b.flatten("flat", b.input()), {.out_features = 5}));
  run.replicas = 2;
  run.batch_size = 4;
  run.eval_batch_size = 3;
  run.num_classes = 5;
  run.input.seed = 9;
  return run;
}

TEST(Sources, OfTrainingsDivideTheSamplesAmongProcesses) {
  parallel::on_ranks(2, [](const Group& group) {
    const auto dataset = std::make_shared<Asked>();
    PreparedRun run = run_of(dataset);
    run.device.processes = group;
    run.eval_exact = true;
    make_source(run, data::Subset::kTrain);
    const WantedBatches& wanted = dataset->wanted;
    EXPECT_EQ(wanted.subset, data::Subset::kTrain);
    EXPECT_EQ(wanted.batch_size, 4);
    EXPECT_EQ(wanted.replicas, 2);
    EXPECT_EQ(wanted.first_replica, 2 * group->rank());
    EXPECT_EQ(wanted.total_replicas, 4);
    EXPECT_EQ(wanted.image_size, nn::Size2d(6, 4));
    EXPECT_EQ(wanted.num_classes, 5);
    EXPECT_EQ(wanted.seed, 9U);
    EXPECT_TRUE(wanted.training);
    EXPECT_TRUE(wanted.repeat) << "however evaluations are";
    make_source(run, data::Subset::kTrain, Share::kAll);
    EXPECT_EQ(wanted.first_replica, 0) << "for a calibration, which each process makes whole";
    EXPECT_EQ(wanted.total_replicas, 2);
  });
}

// Of custom data each process evaluates all.
TEST(Sources, OfEvaluationsHaveTheirOwnBatches) {
  parallel::on_ranks(2, [](const Group& group) {
    const auto dataset = std::make_shared<Asked>();
    PreparedRun run = run_of(dataset);
    run.device.processes = group;
    make_source(run, data::Subset::kValidation);
    const WantedBatches& wanted = dataset->wanted;
    EXPECT_EQ(wanted.subset, data::Subset::kValidation);
    EXPECT_EQ(wanted.batch_size, 3);
    EXPECT_EQ(wanted.replicas, 2);
    EXPECT_EQ(wanted.first_replica, 0);
    EXPECT_EQ(wanted.total_replicas, 2);
    EXPECT_EQ(wanted.image_size, nn::Size2d(6, 4));
    EXPECT_EQ(wanted.num_classes, 5);
    EXPECT_EQ(wanted.seed, 9U);
    EXPECT_FALSE(wanted.training);
    EXPECT_TRUE(wanted.repeat);
    run.eval_exact = true;
    make_source(run, data::Subset::kValidation);
    EXPECT_FALSE(wanted.repeat);
  });
}

// Makes synthetic batches of its own, and keeps what is asked of it.
class Synthetic : public BenchmarkModel {
 public:
  std::string name() const override { return "synthetic"; }
  InputShapes get_input_shapes(data::Subset) const override { return {{"images", {3, 6, 4}}, {"labels", {}}}; }
  nn::Graph build_network(const models::ModelOptions&) const override { return {}; }
  core::NamedTensors get_synthetic_inputs(const SyntheticBatch& asked) const override {
    wanted.push_back(asked);
    return core::NamedTensors{{"images", at::zeros({asked.batch_size, 3, 6, 4})}};
  }
  mutable std::vector<SyntheticBatch> wanted;
};

// Batches are numbered from 0 in each replica, and replicas over all processes.
TEST(Sources, OfAModelThatMakesItsBatchesNumberTheReplicasOfAllProcesses) {
  parallel::on_ranks(2, [](const Group& group) {
    const auto model = std::make_shared<Synthetic>();
    PreparedRun run = run_of(nullptr);
    run.own.model = model;
    run.device.processes = group;
    const auto source = make_source(run, data::Subset::kTrain);
    ASSERT_NE(source, nullptr);
    model->wanted.clear();  // whether there are some was asked, too
    EXPECT_EQ(source->next().size(), 2U);
    EXPECT_EQ(source->next().size(), 2U);
    ASSERT_EQ(model->wanted.size(), 4U);
    for (size_t i = 0; i < 4; ++i) {
      const SyntheticBatch& wanted = model->wanted[i];
      EXPECT_EQ(wanted.batch_size, 4) << i;
      EXPECT_EQ(wanted.num_classes, 5) << i;
      EXPECT_EQ(wanted.seed, 9U) << i;
      EXPECT_EQ(wanted.batch, i < 2 ? 0 : 1) << i;
      EXPECT_EQ(wanted.replica, 2 * group->rank() + (i % 2 == 0 ? 0 : 1)) << i;
    }
  });
}

// Six dark images and two light ones: an epoch is a batch.
TEST(Sources, WeightedClassesComeAsOftenAsTheyAre) {
  const core::TempDir temp;
  core::FileSystem& files = core::local_file_system();
  for (int i = 0; i < 8; ++i) {
    const std::string folder = temp.file(i < 6 ? "photos/dark" : "photos/light");
    files.make_directories(folder);
    const auto bytes = data::encode_png(data::flat_image(8, 8, i < 6 ? uint8_t{20} : uint8_t{200}));
    files.write_file_atomically(core::join_path(folder, std::to_string(i) + ".png"),
                                {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  TfCnnOptions options;
  options.dialect = Dialect::kTrainyard;
  options.model = "lenet";
  options.batch_size = 8;
  options.device.gpu = false;
  options.steps.num_batches = 1;
  options.input.data_dir = temp.file("photos");
  options.input.split_class_folders = false;
  const auto light_images = [](const PreparedRun& run) {
    int64_t light = 0;
    const auto source = make_source(run, data::Subset::kTrain);
    for (int epoch = 0; epoch < 3; ++epoch) light += source->next().at(0).labels().sum().item<int64_t>();
    source->stop();
    return light;
  };
  EXPECT_EQ(light_images(prepare(options)), 3 * 2);
  options.loss.class_weights = "balanced";
  const PreparedRun weighted = prepare(options);
  ASSERT_NE(weighted.train_labels, nullptr);
  EXPECT_EQ(weighted.train_labels->size(), 8U);
  EXPECT_EQ(light_images(weighted), 3 * 2) << "the loss weighs them, and no sample comes twice";
  options.loss.class_weights = "none";
  options.input.balanced_sampling = true;
  EXPECT_EQ(light_images(prepare(options)), 3 * 4);
}

}  // namespace
}  // namespace trainyard::frontends::sources_test
