// Training on the CPU plan beside training on the reference executor: the same photographs, the same curve.

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "trainyard/core/memory/cpu_allocator.h"
#include "trainyard/core/testing/test_data.h"
#include "trainyard/data/pipeline/pipeline.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/loss.h"

namespace trainyard::train::cpu_plan_curve_test {
namespace {

constexpr size_t kSteps = 50;

std::vector<data::Batch> photographs(const std::string& directory) {
  data::Pipeline pipeline(data::datasets().get("cifar10")({.directory = directory}),
                          data::transforms().get("cifar10")({.height = 32, .width = 32}),
                          {.batch_size = 32, .height = 32, .width = 32, .seed = 2});
  std::vector<data::Batch> batches;
  while (batches.size() < kSteps) batches.push_back(pipeline.next().at(0));
  return batches;
}

// The loss of each step of gradient descent.
std::vector<double> curve(const std::string& executor_name, const std::vector<data::Batch>& batches) {
  nn::ParameterSet set;
  nn::GradientSink sink(set);
  const auto executor =
      nn::make_executor(executor_name, models::build_model("resnet20", "cifar10", {.num_classes = 10}),
                        {.parameters = &set, .gradients = &sink});
  set.allocate();
  set.initialize(6);
  std::vector<double> losses;
  for (const data::Batch& batch : batches) {
    sink.begin(0, 1);
    const at::Tensor loss = nn::softmax_cross_entropy(executor->forward(batch.images(), {}), batch.labels());
    loss.backward();
    sink.finish();
    losses.push_back(loss.item<double>());
    const at::NoGradGuard no_grad;
    set.values().add_(set.gradients(), -0.001);
    set.values_changed();
  }
  return losses;
}

TEST(RealData, CpuPlanTrainsAsTheReference) {
  const auto path = core::shared_data("cifar10");
  if (!path) GTEST_SKIP() << core::missing_shared_data("cifar10");
  core::install_cpu_allocator();
  const std::vector<data::Batch> batches = photographs(*path);
  const std::vector<double> cpu = curve("cpu", batches), reference = curve("reference", batches);
  // Rounding grows from step to step, as fast as for the reference from values that differ by 2e-7 (tried, at this
  // small rate; at ten times the rate either is off by 1 % after ten steps).
  for (size_t step = 0; step < 10; ++step) EXPECT_NEAR(cpu[step], reference[step], 1e-3 * reference[step]) << step;
  const auto last_mean = [](const std::vector<double>& losses) {
    return std::accumulate(losses.end() - 10, losses.end(), 0.0) / 10;
  };
  EXPECT_NEAR(last_mean(cpu), last_mean(reference), 0.02 * last_mean(reference));
  EXPECT_LT(last_mean(reference), 0.95 * reference[0]) << "it learns";
}

}  // namespace
}  // namespace trainyard::train::cpu_plan_curve_test
