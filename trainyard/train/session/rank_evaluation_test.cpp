#include "trainyard/train/session/rank_evaluation.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/sources/described_source.h"
#include "trainyard/parallel/testing/on_ranks.h"
#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/session/rank_batches.h"
#include "trainyard/train/testing/initialized_model.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::rank_evaluation_test {
namespace {

using Group = std::shared_ptr<parallel::ProcessGroup>;

constexpr int kRanks = 3;

struct MeasuredModel : InitializedModel {
  MeasuredModel() : InitializedModel(tiny_graph()) {}
  Evaluator evaluator{EvaluatorOptions{.graph = graph, .devices = {.executor = "reference"}}, set};
};

// Evaluates `samples` in batches of four on all ranks. Returns how many each rank has evaluated, and compares their sum
// with an evaluation of all by one process.
std::array<int64_t, kRanks> evaluate_parts(int64_t samples) {
  MeasuredModel model;
  const Evaluation whole = model.evaluator.run(*tiny_source(samples, 4, 1, false));
  std::array<int64_t, kRanks> parts{};
  parallel::on_ranks(kRanks, [&](const Group& group) {
    MeasuredModel own;
    const auto source = tiny_source(samples, 4, 1, false);
    EXPECT_TRUE(shares_batches(group.get(), *source));
    const Evaluation part = evaluate_own_batches(*group, own.evaluator, *source);
    parts[static_cast<size_t>(group->rank())] = part.samples;
    const Evaluation all = evaluate_over_ranks(group.get(), [&] { return part; });
    EXPECT_EQ(all.samples, samples);
    EXPECT_EQ(all.right_1, whole.right_1);
    EXPECT_NEAR(all.loss, whole.loss, 1e-6);
  });
  return parts;
}

// Five full batches and one of two samples: the first rank has one batch, the others two, the last one the short one,
// too.
TEST(RankEvaluation, EachRankHasNeighbouringBatchesAndTheLastOneTheRest) {
  EXPECT_EQ(evaluate_parts(22), (std::array<int64_t, kRanks>{4, 8, 10}));
}

TEST(RankEvaluation, ARankWithoutABatchEvaluatesNothing) {
  EXPECT_EQ(evaluate_parts(6), (std::array<int64_t, kRanks>{0, 0, 6}));
  EXPECT_EQ(evaluate_parts(8), (std::array<int64_t, kRanks>{0, 4, 4}));
}

TEST(RankEvaluations, TheFirstOneOfASourceAloneHasTheTimeOfAFirstStep) {
  const uint16_t port = parallel::free_port();
  const auto source = tiny_source(4, 4, 1, false);
  std::vector<core::Thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back(core::ThreadOptions{}, [rank, port, &source] {
      const auto group = std::make_shared<parallel::ProcessGroup>(
          parallel::ProcessRank{.rank = rank, .size = 2, .master_port = port},
          parallel::ProcessGroupOptions{
              .deadlines = {.start = std::chrono::seconds(60), .step = std::chrono::milliseconds(300)}});
      RankEvaluations evaluations;
      nn::ParameterSet parameters;
      const auto samples = [&] {
        evaluations.begin(group.get(), source.get(), /*global_step=*/7, parameters);
        const auto own = [rank] {
          if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2000));
          return Evaluation{.samples = 1};
        };
        return evaluate_over_ranks(group.get(), own).samples;
      };
      EXPECT_EQ(samples(), 2) << rank;
      try {
        samples();
        EXPECT_EQ(rank, 1) << "the step's deadline was over";
      } catch (const core::Error&) {  // the other rank hears of it
      }
      group->leave();
    });
  }
  for (core::Thread& thread : threads) thread.join();
}

// Two replicas of each of three processes, of a source that returns the batches of all six.
TEST(RankBatches, AreThoseOfTheReplicasOfTheProcess) {
  parallel::on_ranks(kRanks, [&](const Group& group) {
    OpenDevices devices{.replicas = 2, .processes = group};
    const auto all = tiny_source(20, 2, 6, false);
    const std::vector<data::Batch> expected = tiny_source(20, 2, 6, false)->next();
    const auto own = batches_of_rank(all, devices);
    EXPECT_EQ(own->replicas(), 2);
    EXPECT_EQ(data::batches_in_epoch(*own), data::batches_in_epoch(*all));
    const std::vector<data::Batch> batches = own->next();
    ASSERT_EQ(batches.size(), 2U);
    for (size_t r = 0; r < batches.size(); ++r) {
      const data::Batch& same = expected.at(2 * static_cast<size_t>(group->rank()) + r);
      EXPECT_TRUE(at::equal(batches[r].images(), same.images())) << group->rank() << " " << r;
      EXPECT_EQ(batches[r].first_sample, same.first_sample);
    }
    // Eight samples are left, for four of the six replicas: none has a step.
    EXPECT_TRUE(own->next().empty()) << group->rank();
  });
}

TEST(RankBatches, OfAProcessThatIsAloneAreAll) {
  const auto all = tiny_source(8, 2, 2);
  EXPECT_EQ(batches_of_rank(all, {.replicas = 2}), all);
}

}  // namespace
}  // namespace trainyard::train::rank_evaluation_test
