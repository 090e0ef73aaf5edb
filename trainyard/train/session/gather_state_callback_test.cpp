// Checkpoints of ranks that keep something of their own: a run that continues from one has the bits of a run that was
// not cut.
#include "trainyard/train/session/gather_state_callback.h"

#include <array>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/parallel/testing/connected_ranks.h"
#include "trainyard/parallel/testing/on_ranks.h"
#include "trainyard/train/checkpoint/checkpoint_reader.h"
#include "trainyard/train/session/training_session.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::gather_state_callback_test {
namespace {

using Group = std::shared_ptr<parallel::ProcessGroup>;
constexpr int64_t kSteps = 9;

struct Plan {
  parallel::CompressionMethod method = parallel::CompressionMethod::kPowerSgd;
  int ranks = 3;
  int64_t end = kSteps;
  int64_t save_steps = 0;
  double save_seconds = 0;
};

// Trains from the directory's newest checkpoint on. Returns the values of each rank.
std::vector<at::Tensor> train(const Plan& plan, const std::string& directory) {
  const auto engines = parallel::make_engines(plan.ranks);
  std::vector<at::Tensor> values(static_cast<size_t>(plan.ranks));
  parallel::on_ranks(plan.ranks, [&](const Group& group) {
    const auto rank = static_cast<size_t>(group->rank());
    TowerTrainerOptions options = tiny_options();
    options.exchange.variable_update = "horovod";
    options.exchange.compression = {
        .method = plan.method, .matrix_approximation_rank = 1, .min_compression_rate = 1, .top_k_share = 0.1};
    options.devices.processes = group;
    options.devices.make_communicators = [&] { return parallel::make_process_communicators(engines[rank], 1); };
    // Each rank has a loss of its own: what compression loses of it differs.
    options.hooks.input_pre = [&](int, data::Batch& batch) {
      batch.tensors.set("images", batch.tensors["images"].add(0.1 * group->rank()));
    };
    TowerTrainer trainer(options, tiny_source(80, 8));
    TrainingSession session(trainer, {.directory = group->rank() == 0 ? directory : "", .ranks = group});
    session.open();
    session.resume();
    const int64_t first = trainer.global_step();
    SessionSteps steps;
    steps.checkpoints = CheckpointCallbackOptions{.save_steps = plan.save_steps, .save_seconds = plan.save_seconds};
    session.prepare(std::move(steps));
    session.train({.steps_per_epoch = plan.end, .starting_step = first});
    values[rank] = trainer.parameters().values().clone();
  });
  return values;
}

TEST(GatherState, ARunThatContinuesHasTheBitsOfOneThatWasNotCut) {
  for (const auto method : {parallel::CompressionMethod::kPowerSgd, parallel::CompressionMethod::kTopK}) {
    const core::TempDir whole_directory, cut_directory;
    const std::vector<at::Tensor> whole = train({.method = method}, whole_directory.path());
    train({.method = method, .end = 4}, cut_directory.path());
    const std::vector<at::Tensor> cut = train({.method = method}, cut_directory.path());
    for (size_t r = 0; r < whole.size(); ++r) {
      EXPECT_TRUE(whole[r].equal(whole[0])) << r;
      EXPECT_TRUE(cut[r].equal(whole[0])) << r;
    }
    // Without what the ranks have kept it would have other bits.
    const core::TempDir other_directory;
    train({.method = method, .ranks = 3, .end = 4}, other_directory.path());
    const std::vector<at::Tensor> two = train({.method = method, .ranks = 2}, other_directory.path());
    EXPECT_TRUE(two[0].equal(two[1])) << "another number of ranks continues, too";
  }
}

// Rank 0 alone knows when time is up. Each checkpoint has the memories of all ranks.
TEST(GatherState, CheckpointsByStepsAndByTimeAreWhole) {
  for (const Plan& plan : {Plan{.save_steps = 4}, Plan{.save_seconds = 1e-9}}) {
    const core::TempDir directory;
    train(plan, directory.path());
    const auto checkpoints = CheckpointStore(directory.path()).list();
    EXPECT_EQ(checkpoints.size(), plan.save_steps > 0 ? 3 : 5);  // 4, 8 and 9; or the last five
    for (const CheckpointInfo& checkpoint : checkpoints) {
      const CheckpointReader reader(checkpoint.path, core::local_file_system());
      for (int rank = 0; rank < plan.ranks; ++rank) {
        EXPECT_FALSE(reader.names("compression/error/" + std::to_string(rank) + "/").empty()) << checkpoint.path;
      }
      EXPECT_EQ(reader.integer("compression/steps"), checkpoint.global_step);
    }
  }
}

}  // namespace
}  // namespace trainyard::train::gather_state_callback_test
