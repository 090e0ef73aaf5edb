#include "trainyard/parallel/collectives/mpi/mpi_transport.h"

#include <chrono>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/build_info.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/collectives/mpi/mpi_library.h"

namespace trainyard::parallel::mpi_transport_test {
namespace {

using core::ErrorCode, ::testing::HasSubstr;

// A process that no launcher has started.
class MpiTransport : public ::testing::Test {
 protected:
  // Returns why MPI does not start.
  static std::string refusal(ErrorCode code) {
    return core::message_of([] { start_mpi(std::chrono::seconds(20)); }, code);
  }

  const core::EnvironmentVariable size_{"OMPI_COMM_WORLD_SIZE", std::nullopt};
  const core::EnvironmentVariable pmix_rank_{"PMIX_RANK", std::nullopt};
  const core::EnvironmentVariable rank_{"RANK", std::nullopt};
  const core::EnvironmentVariable world_size_{"WORLD_SIZE", std::nullopt};
  const core::EnvironmentVariable pmi_size_{"PMI_SIZE", std::nullopt};
};

TEST_F(MpiTransport, NeedsALauncher) {
  if (!mpi_libraries().has("openmpi")) {
    std::string how;
    for (const core::OptionalPart& part : core::build_info().optional_parts) {
      if (part.name == "MPI") how = part.how_to_get;
    }
    EXPECT_EQ(refusal(ErrorCode::kUnsupported),
              "this build cannot train in several processes on CPUs: MPI is not built in; it needs " + how +
                  "; or use --num_gpus replicas of one process");
    return;
  }
  const std::string problem =
      "no launcher of MPI has started this process: expected processes on CPUs that mpirun or srun --mpi=pmix has "
      "started";
  const std::string remedy =
      "; start them by one of: trainyard launch -n 2 -- train ..., mpirun -n 2 trainyard train ..., srun --mpi=pmix "
      "-n 2 trainyard train ...";
  EXPECT_EQ(refusal(ErrorCode::kInvalidArgument), problem + remedy);
  rank_.set("3");
  EXPECT_EQ(refusal(ErrorCode::kInvalidArgument),
            problem + ", got RANK=3 in the environment, which starts processes on GPUs" + remedy);
  EXPECT_EQ(mpi_version(), "") << "it has not started";
}

// mpirun's own service is needed: MPI would start this process alone, or end it.
TEST_F(MpiTransport, NeedsTheWholeGroupOfItsLauncher) {
  if (!mpi_libraries().has("openmpi")) return;
  size_.set("4");
  EXPECT_THAT(refusal(ErrorCode::kInvalidArgument), HasSubstr("4 processes were started, and 1 of them has met"));
  EXPECT_EQ(mpi_version(), "") << "it has not started";
}

}  // namespace
}  // namespace trainyard::parallel::mpi_transport_test
