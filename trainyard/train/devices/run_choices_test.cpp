// Kernel choices are part of a run: several processes that train together follow the first one's, a checkpoint brings
// its own. (What a file of the user's says about a resumed run: tests/run_identity_test.py.)
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/nn/execution/kernel_choices.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/parallel/testing/free_port.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/memory_source.h"

namespace trainyard::train::run_choices_test {
namespace {

using Choices = std::map<std::string, std::string>;

// Two convolutions that oneDNN computes in two ways where there is AVX-512.
TowerTrainerOptions options(std::shared_ptr<nn::KernelChoices> choices) {
  nn::GraphBuilder b({.image = {3, 16, 16}, .name = "two ways"});
  auto x = b.input();
  for (const char* name : {"a", "b", "c"}) {
    x = b.convolution(name, x, {.out_channels = 32, .kernel = 3, .padding = nn::Padding::all(1)});
    x = b.activation(std::string(name) + "/relu", b.batch_norm(std::string(name) + "/bn", x));
  }
  return {.graph = b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 5})),
          .devices = {.executor = "cpu",
                      .kernels = {.convolutions = nn::ConvolutionPolicy::kByShape, .choices = std::move(choices)}},
          .threads = {.intra_op_threads = 1},
          .seed = 7,
          .make_optimizer = [](nn::ParameterSet& set) { return optim::optimizers().get("tf_nesterov")(set, {}); },
          .learning_rate = optim::constant(0.05)};
}

std::shared_ptr<MemorySource> images() {
  constexpr int64_t kCount = 8;
  return std::make_shared<MemorySource>((at::linspace(-2, 2, kCount * 768) * 37).sin().view({kCount, 3, 16, 16}),
                                        at::zeros({kCount}, at::kLong), 4);
}

std::shared_ptr<nn::KernelChoices> reversed(const Choices& choices) {
  auto result = std::make_shared<nn::KernelChoices>();
  for (const auto& [what, kernel] : choices) result->add(what, kernel == "direct" ? "winograd" : "direct");
  return result;
}

struct Trained {
  at::Tensor values;
  Choices choices;
};

Trained train(TowerTrainerOptions options) {
  TowerTrainer trainer(std::move(options), images());
  trainer.train({.steps_per_epoch = 3});
  return {trainer.parameters().values().clone(), trainer.options().devices.kernels.choices->all()};
}

TEST(RunChoices, OfTheFirstRankHoldOnAll) {
  const Trained alone = train(options(nullptr));
  if (alone.choices.empty()) return;  // no AVX-512: there is one way
  EXPECT_FALSE(at::equal(train(options(reversed(alone.choices))).values, alone.values)) << "they change bits";

  const uint16_t port = parallel::free_port();
  std::vector<Trained> ranks(2);
  std::vector<core::Thread> threads;
  for (size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back(core::ThreadOptions{.name = "rank"}, [&, rank] {
      TowerTrainerOptions own = options(rank == 0 ? nullptr : reversed(alone.choices));
      const auto group = std::make_shared<parallel::ProcessGroup>(
          parallel::ProcessRank{.rank = static_cast<int>(rank), .size = 2, .master_port = port},
          std::chrono::seconds(20));
      own.devices.processes = group;
      ranks[rank] = train(std::move(own));
      group->leave();
    });
  }
  for (core::Thread& thread : threads) thread.join();
  for (const Trained& rank : ranks) {
    EXPECT_EQ(rank.choices, alone.choices);
    EXPECT_TRUE(at::equal(rank.values, alone.values));
  }
}

// Loading also replaces what was compiled already.
TEST(RunChoices, OfACheckpointHoldInTheRunThatLoadsIt) {
  TowerTrainer saved(options(nullptr), images());
  saved.train({.steps_per_epoch = 2});
  const Choices choices = saved.options().devices.kernels.choices->all();
  core::MemoryState state;
  saved.save(state);
  saved.train({.steps_per_epoch = 5, .starting_step = 2});

  TowerTrainer other(options(reversed(choices)), images());
  other.train({.steps_per_epoch = 1});
  other.load(state);
  EXPECT_EQ(other.options().devices.kernels.choices->all(), choices);
  other.train({.steps_per_epoch = 5, .starting_step = 2});
  EXPECT_TRUE(at::equal(other.parameters().values(), saved.parameters().values()));
}

}  // namespace
}  // namespace trainyard::train::run_choices_test
