// Batch norms that are recalibrated against torch.optim.swa_utils.update_bn (tools/golden/update_bn.py).
#include "trainyard/train/evaluation/batch_norm_recalibration.h"

#include <cmath>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/golden_lines.h"
#include "trainyard/train/testing/callback_conformance.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::batch_norm_recalibration_test {
namespace {

nn::Graph golden_network() {
  nn::GraphBuilder b({.image = {2, 6, 6}, .name = "golden"});
  auto x = b.convolution("conv1", b.input(), {.out_channels = 4, .kernel = 3, .padding = nn::Padding::all(1)});
  x = b.activation("relu", b.batch_norm("bn1", x));
  x = b.convolution("conv2", x, {.out_channels = 3, .kernel = 3, .stride = 2, .padding = nn::Padding::all(1)});
  x = b.global_average_pool("pool", b.batch_norm("bn2", x));
  return b.build(b.linear("fc", x, {.out_features = 5}));
}

// The script's parameters, in the order of declaration.
void fill_values(nn::ParameterSet& set) {
  for (int p = 0; p < static_cast<int>(set.size()); ++p) {
    const at::Tensor value = set.value({p}).view(-1);
    for (int64_t i = 0; i < value.numel(); ++i) value[i] = std::sin(0.37 * static_cast<double>(i) + p);
  }
  set.values_changed();
}

std::shared_ptr<data::BatchSource> golden_source(at::ScalarType dtype, int replicas = 1) {
  const at::Tensor images = at::zeros({12, 2, 6, 6}, dtype), labels = at::zeros({12}, at::kLong);
  for (int64_t b = 0; b < 3; ++b) {
    const at::Tensor batch = images.narrow(0, 4 * b, 4).view(-1);
    for (int64_t i = 0; i < batch.numel(); ++i) {
      batch[i] = 2 * std::cos(0.11 * static_cast<double>(i) + static_cast<double>(b)) + static_cast<double>(b);
    }
  }
  return std::make_shared<MemorySource>(images, labels, 4, replicas, false);
}

void expect_golden(const nn::ParameterSet& set, double tolerance) {
  int buffers = 0;
  for (const std::string& line : core::golden_lines("trainyard/train/testdata/update_bn.txt")) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    const at::Tensor buffer = set.buffer(set.find_buffer(name).value());
    int64_t i = 0;
    for (double expected = 0; words >> expected; ++i) {
      EXPECT_NEAR(buffer[i].item<double>(), expected, tolerance * (1 + std::abs(expected))) << name << " " << i;
    }
    EXPECT_EQ(i, buffer.numel());
    ++buffers;
  }
  EXPECT_EQ(buffers, 4);
}

TEST(BatchNormRecalibration, MeetsPyTorchsUpdateBn) {
  struct Case {
    const char* executor;
    at::ScalarType dtype;
    double tolerance;
  };
  for (const Case& tested :
       {Case{"reference", at::kDouble, 1e-12}, Case{"reference", at::kFloat, 1e-5}, Case{"cpu", at::kFloat, 1e-5}}) {
    nn::ParameterSet set({.dtype = tested.dtype});
    const auto training =
        nn::make_executor(tested.executor, golden_network(), {.dtype = tested.dtype, .parameters = &set});
    set.allocate();
    fill_values(set);
    for (int b = 0; b < 4; ++b) set.buffer(b).fill_(77);  // of which nothing may be left
    const at::Tensor values = set.values().clone();
    const uint64_t version = set.version();
    const auto source = golden_source(tested.dtype);
    recalibrate_batch_norms(
        {.graph = golden_network(), .devices = {.executor = tested.executor, .dtype = tested.dtype}}, set, *source, 3);
    expect_golden(set, tested.tolerance);
    EXPECT_TRUE(set.values().equal(values));
    EXPECT_GT(set.version(), version) << "executors that fold batch norms must hear of it";
    // The input is at its end: nothing changes.
    const at::Tensor mean = set.buffer(0).clone();
    EXPECT_THROW(
        recalibrate_batch_norms({.graph = golden_network(), .devices = {.dtype = tested.dtype}}, set, *source, 3),
        core::Error);
    EXPECT_TRUE(set.buffer(0).equal(mean));
  }
}

TEST(BatchNormRecalibration, FrozenBatchNormsKeepTheirStatistics) {
  nn::ParameterSet set;
  const auto training = nn::make_executor("cpu", golden_network(), {.parameters = &set});
  set.allocate();
  fill_values(set);
  set.buffer(set.find_buffer("bn1.running_mean").value()).fill_(0.3);
  set.buffer(set.find_buffer("bn1.running_var").value()).fill_(1.7);
  for (const char* name : {"bn1.weight", "bn1.bias"}) set.set_trainable(*set.find(name), false);
  const at::Tensor kept = set.buffer(set.find_buffer("bn1.running_mean").value()).clone();
  const at::Tensor changed = set.buffer(set.find_buffer("bn2.running_mean").value()).clone();
  recalibrate_batch_norms({.graph = golden_network()}, set, *golden_source(at::kFloat), 3);
  EXPECT_TRUE(set.buffer(set.find_buffer("bn1.running_mean").value()).equal(kept));
  EXPECT_FALSE(set.buffer(set.find_buffer("bn2.running_mean").value()).equal(changed));
}

TEST(BatchNormRecalibration, RefusesWhatHasNoEffect) {
  nn::ParameterSet set;
  const nn::Graph graph = tiny_graph({.batch_norm = false});
  const auto training = nn::make_executor("cpu", graph, {.parameters = &set});
  set.allocate();
  const auto source = tiny_source(8, 4);
  EXPECT_THROW(recalibrate_batch_norms({.graph = graph}, set, *source, 1), core::Error);
  EXPECT_THROW(recalibrate_batch_norms({.graph = tiny_graph()}, set, *source, 0), core::Error);
}

// A trainer's own weights, at its last step and at no other.
TEST(BatchNormRecalibration, CallbackActsAtTheEndOnce) {
  struct Look : Callback {
    std::string name() const override { return "look"; }
    void after_step(Trainer& trainer, const StepView&) override {
      nn::ParameterSet& set = static_cast<TowerTrainer&>(trainer).parameters();
      means.push_back(set.buffer(set.find_buffer("bn.running_mean").value()).clone());
    }
    std::vector<at::Tensor> means;
  };
  std::vector<at::Tensor> plain, recalibrated;
  int sources = 0;
  for (const bool recalibrates : {false, true}) {
    TowerTrainer trainer(tiny_options(), tiny_source(40, 8));
    if (recalibrates) {
      trainer.add(std::make_shared<RecalibrationCallback>(
          RecalibrationCallback::Options{.norms = {.graph = tiny_graph()},
                                         .batches = 2,
                                         .make_source =
                                             [&] {
                                               ++sources;
                                               return tiny_source(40, 8);
                                             },
                                         .parameters = [&]() -> nn::ParameterSet& { return trainer.parameters(); }}));
    }
    const auto look = std::make_shared<Look>();
    trainer.add(look);
    trainer.train({.steps_per_epoch = 3});
    (recalibrates ? recalibrated : plain) = look->means;
  }
  EXPECT_EQ(sources, 1);
  EXPECT_TRUE(plain[0].equal(recalibrated[0]));
  EXPECT_TRUE(plain[1].equal(recalibrated[1]));
  EXPECT_FALSE(plain[2].equal(recalibrated[2]));
}

TRAINYARD_CALLBACK_CONFORMANCE(Recalibration, [] {
  static nn::ParameterSet set;
  static const auto executor = nn::make_executor("cpu", tiny_graph(), {.parameters = &set});
  if (!set.allocated()) set.allocate();
  return std::make_shared<RecalibrationCallback>(
      RecalibrationCallback::Options{.norms = {.graph = tiny_graph()},
                                     .batches = 1,
                                     .make_source = [] { return tiny_source(8, 4); },
                                     .parameters = []() -> nn::ParameterSet& { return set; }});
});

// A batch of the source is one of each replica, and each of them weighs the same.
TEST(BatchNormRecalibration, UsesTheBatchesOfAllReplicas) {
  nn::ParameterSet set({.dtype = at::kDouble});
  const auto training = nn::make_executor("reference", golden_network(), {.dtype = at::kDouble, .parameters = &set});
  set.allocate();
  fill_values(set);
  recalibrate_batch_norms({.graph = golden_network(), .devices = {.executor = "reference", .dtype = at::kDouble}}, set,
                          *golden_source(at::kDouble, 3), 1);
  expect_golden(set, 1e-12);
}

// The evaluation after it may be repeated by a run that is not stopped, and needs the statistics then.
TEST(BatchNormRecalibration, OneThatWasStoppedChangesNothingAndIsRepeated) {
  nn::ParameterSet set;
  const auto executor = nn::make_executor("cpu", tiny_graph(), {.parameters = &set});
  set.allocate();
  set.initialize(1);
  const at::Tensor mean = set.buffer(set.find_buffer("bn.running_mean").value());
  mean.fill_(77);
  bool stopped = true;
  int sources = 0;
  RecalibrationCallback callback({.norms = {.graph = tiny_graph(), .stops = [&] { return stopped; }},
                                  .batches = 2,
                                  .make_source =
                                      [&] {
                                        ++sources;
                                        return tiny_source(40, 8);
                                      },
                                  .parameters = [&]() -> nn::ParameterSet& { return set; }});
  ::testing::internal::CaptureStderr();
  callback.run(5);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find(
                "a recalibration was stopped: batch norms keep the statistics that they had"),
            std::string::npos);
  EXPECT_EQ(mean[3].item<double>(), 77);
  stopped = false;
  callback.run(5);
  EXPECT_LT(mean[3].item<double>(), 10);
  EXPECT_EQ(sources, 2);
  callback.run(5);
  EXPECT_EQ(sources, 2) << "it has been done after this step";
}

}  // namespace
}  // namespace trainyard::train::batch_norm_recalibration_test
