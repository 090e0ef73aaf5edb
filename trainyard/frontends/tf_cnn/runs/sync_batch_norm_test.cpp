// --sync_batch_norm on a command line: the losses of two replicas that meet, and where it is refused.
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/core/flags/flags.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/frontends/tf_cnn/read_options.h"

namespace trainyard::frontends::sync_batch_norm_test {
namespace {

std::string output_of(std::vector<std::string> arguments) {
  for (const char* more :
       {"--model=resnet20", "--data_name=cifar10", "--device=cpu", "--num_batches=2", "--num_warmup_batches=0",
        "--display_every=1", "--deterministic", "--synthetic", "--train_dir="}) {
    arguments.emplace_back(more);
  }
  std::ostringstream out;
  BenchmarkCnn(read_options(core::parse_flags(tf_cnn_flags(Dialect::kTrainyard), arguments), Dialect::kTrainyard))
      .run(out);
  return out.str();
}

// The loss of the first step, with three digits.
std::string first_loss(const std::vector<std::string>& arguments) {
  std::istringstream lines(output_of(arguments));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("1\t")) continue;
    std::istringstream columns(line);
    std::string column;  // the step, images/sec, the loss, others
    for (int c = 0; c < 3; ++c) std::getline(columns, column, '\t');
    return column;
  }
  ADD_FAILURE() << "no first step";
  return "";
}

TEST(SyncBatchNormOfRuns, ChangesTheLossesOfTwoReplicas) {
  const std::string meeting = first_loss({"--num_gpus=2", "--batch_size=2", "--sync_batch_norm"});
  EXPECT_NE(meeting, first_loss({"--num_gpus=2", "--batch_size=2"}));
  EXPECT_EQ(meeting, first_loss({"--batch_size=4"}));
}

TEST(SyncBatchNormOfRuns, IsRefusedWhereReplicasTrainByThemselves) {
  const std::string message = core::message_of([] {
    output_of({"--num_gpus=2", "--batch_size=2", "--sync_batch_norm", "--variable_update=independent"});
  });
  EXPECT_NE(message.find("--sync_batch_norm"), std::string::npos) << message;
  EXPECT_NE(message.find("independent"), std::string::npos) << message;
}

}  // namespace
}  // namespace trainyard::frontends::sync_batch_norm_test
