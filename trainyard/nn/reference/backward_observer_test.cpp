// What the reference executor tells its observer, forward and backward.

#include "trainyard/nn/reference/backward_observer.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/gradient_sink.h"

namespace trainyard::nn::backward_observer_test {
namespace {

using Phase = NodeRun::Phase;

// A value with two users, parameters with and without bias, and nodes that autograd does not see (dropout in
// inference).
Graph residual_graph() {
  GraphBuilder b({.image = {3, 6, 6}, .name = "residual"});
  const auto x = b.convolution("conv1", b.input(), {.out_channels = 4, .kernel = 3, .padding = Padding::all(1)});
  auto y = b.activation("relu", b.batch_norm("bn", x));
  y = b.dropout("drop", b.add("add", {x, y}), 0.25);
  return b.build(b.linear("fc", b.global_average_pool("pool", y), {.out_features = 5}));
}

class Recorder : public NodeObserver {
 public:
  struct Run {
    std::vector<int> nodes;
    Phase phase;
    std::string kernel;
    NodeRun::Clock::time_point begin, end;
  };
  void begins() override { ++begun; }
  void ran(const NodeRun& run) override {
    EXPECT_EQ(begun, ++told) << "each piece of work begins once: " << run.kernel;
    runs.push_back({{run.nodes.begin(), run.nodes.end()}, run.phase, std::string(run.kernel), run.begin, run.end});
  }
  std::vector<int> nodes(Phase phase) const {
    std::vector<int> result;
    for (const Run& run : runs) {
      if (run.phase == phase) result.insert(result.end(), run.nodes.begin(), run.nodes.end());
    }
    return result;
  }
  int count(const std::string& kernel) const {
    return static_cast<int>(
        std::count_if(runs.begin(), runs.end(), [&](const Run& run) { return run.kernel == kernel; }));
  }
  std::vector<Run> runs;
  int begun = 0, told = 0;
};

struct Rig {
  explicit Rig(Mode mode = Mode::kTraining) : sink(set) {
    executor = make_executor("reference", residual_graph(), {.mode = mode, .parameters = &set, .gradients = &sink});
    set.allocate();
    set.initialize(1);
  }
  at::Tensor forward() { return executor->forward(at::linspace(-2, 2, 216).sin().view({2, 3, 6, 6}), {.seed = 3}); }
  void step() {
    sink.begin(0, 1);
    forward().pow(2).sum().backward();
    sink.finish();
  }
  ParameterSet set;
  GradientSink sink;
  std::unique_ptr<Executor> executor;
  Recorder recorder;
};

TEST(NodeObserver, HearsOfEachNodeInTheOrderOfRunning) {
  Rig rig;
  rig.executor->set_observer(&rig.recorder);
  rig.step();
  // input, conv1, bn, relu, add, drop, pool, fc
  EXPECT_EQ(rig.recorder.nodes(Phase::kForward), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(rig.recorder.runs[1].kernel, "convolution");
  EXPECT_EQ(rig.recorder.runs.front().kernel, "input");
  // LibTorch's functions without its namespaces.
  for (const char* const function : {"ConvolutionBackward0", "ReluBackward0"}) {
    EXPECT_EQ(rig.recorder.count(function), 1) << function;
  }
  EXPECT_EQ(rig.recorder.count("AccumulateGrad"), 5);
  std::vector<int> backward = rig.recorder.nodes(Phase::kBackward);
  EXPECT_EQ(std::set<int>(backward.begin(), backward.end()), (std::set<int>{1, 2, 3, 4, 5, 6, 7}));
  // fc's parameters may be written at any time after fc's own function; all else follows the graph.
  std::erase_if(backward, [](int node) { return node == 7; });
  EXPECT_TRUE(std::is_sorted(backward.rbegin(), backward.rend()));
}

TEST(NodeObserver, HearsOfTheParametersGradientsToo) {
  Rig rig;
  rig.executor->set_observer(&rig.recorder);
  for (int step = 0; step < 3; ++step) {
    rig.recorder.runs.clear();
    rig.step();
    std::vector<int> accumulations;
    for (const Recorder::Run& run : rig.recorder.runs) {
      if (run.kernel.find("AccumulateGrad") != std::string::npos) accumulations.push_back(run.nodes.at(0));
    }
    std::sort(accumulations.begin(), accumulations.end());
    EXPECT_EQ(accumulations, (std::vector<int>{1, 2, 2, 7, 7})) << "step " << step;
  }
}

TEST(NodeObserver, GetsTimesThatDoNotOverlap) {
  Rig rig;
  rig.executor->set_observer(&rig.recorder);
  const auto begin = NodeRun::Clock::now();
  rig.step();
  const auto end = NodeRun::Clock::now();
  auto last = begin;
  for (const Recorder::Run& run : rig.recorder.runs) {
    EXPECT_GE(run.begin, last) << run.kernel;
    EXPECT_GT(run.end, run.begin) << run.kernel;
    last = run.end;
  }
  EXPECT_GE(end, last);
}

TEST(NodeObserver, ChangesNoResult) {
  Rig plain, observed;
  observed.executor->set_observer(&observed.recorder);
  plain.step();
  observed.step();
  EXPECT_TRUE(at::equal(plain.set.gradients(), observed.set.gradients()));
  EXPECT_TRUE(at::equal(plain.set.buffer(0), observed.set.buffer(0)));
  observed.executor->set_observer(nullptr);
  observed.recorder.runs.clear();
  observed.step();
  EXPECT_TRUE(observed.recorder.runs.empty());
}

TEST(NodeObserver, HearsOfAParameterOnceWhereTwoGraphsShareIt) {
  Rig rig;
  rig.executor->set_observer(&rig.recorder);
  rig.sink.begin(0, 2);
  const at::Tensor kept = rig.forward();  // its graph keeps the leaves' functions alive
  rig.forward().pow(2).sum().backward();
  EXPECT_EQ(std::count_if(rig.recorder.runs.begin(), rig.recorder.runs.end(),
                          [](const auto& run) { return run.kernel.find("AccumulateGrad") != std::string::npos; }),
            5);
}

TEST(NodeObserver, HearsOfInferenceWithoutBackward) {
  Rig rig(Mode::kInference);
  rig.executor->set_observer(&rig.recorder);
  rig.forward();
  EXPECT_EQ(rig.recorder.nodes(Phase::kForward).size(), 8u);
  EXPECT_TRUE(rig.recorder.nodes(Phase::kBackward).empty());
}

TEST(NodeObserver, EndsTheStepByThrowing) {
  struct Thrower : NodeObserver {
    void ran(const NodeRun& run) override {
      if (run.phase == Phase::kBackward) throw core::Error(core::ErrorCode::kInvalidArgument, "enough");
    }
  } thrower;
  Rig rig;
  rig.executor->set_observer(&thrower);
  EXPECT_THROW(rig.step(), core::Error);
  rig.executor->set_observer(nullptr);
  EXPECT_NO_THROW(rig.step());
}

}  // namespace
}  // namespace trainyard::nn::backward_observer_test
