// What the auxiliary classifiers of a training (--auxiliary_heads) begin with.
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/scoped_state.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/options.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/frontends/tf_cnn/trainer_options.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/execution/declared_set.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::frontends::auxiliary_heads_test {
namespace {

using ::testing::HasSubstr, ::testing::Not;

// Some files were published with the weights of the main output alone.
TEST(AuxiliaryHeads, ThatTheWeightsLackAreNew) {
  const core::TempDir temp;
  const auto graph = [](bool with_heads) {
    nn::GraphBuilder b({.image = {3, 4, 4}, .name = "torchvision/googlenet"});
    const auto x = b.global_average_pool("pool", b.input());
    const auto logits = b.linear("fc", x, {.out_features = 2});
    std::vector<nn::GraphOutput> others;
    if (with_heads) {
      const auto norm = b.batch_norm("aux1.bn", b.input());
      const auto head = b.linear("aux1.fc2", b.global_average_pool("aux1.pool", norm), {.out_features = 2});
      others.push_back({"aux1", head.id, 0.3});
    }
    return b.build(logits, std::move(others));
  };
  nn::ParameterSet saved = nn::declared_set(graph(false));
  saved.initialize(1);
  saved.values().fill_(0.25);
  train::save_weights(temp.file("w.safetensors"), saved);
  PreparedRun run;
  run.options.dialect = Dialect::kTrainyard;
  run.num_classes = 2;
  run.model = &models::find_model("torchvision/googlenet", "imagenet");
  run.graph = graph(true);
  run.options.auxiliary_heads = true;
  run.options.weights = temp.file("w.safetensors");
  nn::ParameterSet loaded = nn::declared_set(run.graph);
  loaded.initialize(2);
  const at::Tensor before = loaded.value(*loaded.find("aux1.fc2.weight")).clone();
  ::testing::internal::CaptureStderr();
  make_start(run)(loaded);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("gives no auxiliary classifiers: they begin with new values ("));
  EXPECT_EQ(loaded.value(*loaded.find("fc.weight")).mean().item<float>(), 0.25F);
  EXPECT_TRUE(loaded.value(*loaded.find("aux1.fc2.weight")).equal(before));
}

// With the statistics of their batch norms.
TEST(AuxiliaryHeads, OfARunsFolderAreLoaded) {
  const core::TempDir temp;
  TfCnnOptions options;
  options.dialect = Dialect::kTrainyard;
  options.model = "torchvision/googlenet";
  options.auxiliary_heads = true;
  options.image_size = 64;
  options.num_classes = 3;
  options.batch_size = 2;
  options.device.gpu = false;
  options.steps.num_batches = 1;
  options.steps.num_warmup_batches = 0;
  options.saving.train_dir = temp.file("run");
  std::ostringstream out;
  BenchmarkCnn(options).run(out);
  options.saving.train_dir.clear();
  options.weights = temp.file("run");
  const PreparedRun run = prepare(options);
  nn::ParameterSet begun = nn::declared_set(run.graph), trained = nn::declared_set(run.graph);
  begun.initialize(2);
  ::testing::internal::CaptureStderr();
  make_start(run)(begun);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr("auxiliary")));
  const auto saved = train::open_checkpoint(train::find_checkpoint(temp.file("run")), nullptr);
  trained.load(core::ScopedReader(*saved, "model/"));
  ASSERT_TRUE(begun.find("aux2.fc2.weight"));
  for (const nn::Segment& segment : begun.segments()) {
    EXPECT_TRUE(begun.value(segment.id).equal(trained.value(segment.id))) << segment.spec.name;
  }
  for (int i = 0; i < static_cast<int>(begun.buffer_count()); ++i) {
    EXPECT_TRUE(begun.buffer(i).equal(trained.buffer(i))) << i;
  }
}

}  // namespace
}  // namespace trainyard::frontends::auxiliary_heads_test
