#include "trainyard/parallel/collectives/mpi/mpi_transport.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/build_info.h"
#include "trainyard/core/base/error.h"
#include "trainyard/parallel/collectives/mpi/mpi_launcher.h"
#include "trainyard/parallel/collectives/mpi/mpi_library.h"
#include "trainyard/parallel/process_group/launcher_claims.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

namespace {

struct Version {
  std::mutex mutex;
  std::string text;
};
Version& version() {
  static Version only;
  return only;
}

}  // namespace

MpiLibraryRegistry& mpi_libraries() {
  static auto* registry = new MpiLibraryRegistry("message passing library");
  return *registry;
}

MpiLibrary find_mpi() {
  constexpr const char* kName = "openmpi";
  if (mpi_libraries().has(kName)) return mpi_libraries().get(kName);
  std::string how;
  for (const core::OptionalPart& part : core::build_info().optional_parts) {
    if (part.name == "MPI") how = part.how_to_get;
  }
  throw Error(ErrorCode::kUnsupported,
              {.problem = "this build cannot train in several processes on CPUs: MPI is not built in",
               .remedy = "it needs " + how + "; or use --num_gpus replicas of one process"});
}

std::shared_ptr<ProcessEngine> start_mpi(std::chrono::milliseconds deadline, PeerWatch peers) {
  const MpiLibrary open = find_mpi();
  if (!started_by_mpi()) {
    const std::optional<std::string> rank = read_environment("RANK");
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "no launcher of MPI has started this process",
                 .expected = "processes on CPUs that mpirun or srun --mpi=pmix has started",
                 .actual = rank ? fmt::format("RANK={} in the environment, which starts processes on GPUs", *rank) : "",
                 .remedy = "start them by one of: trainyard launch -n 2 -- train ..., mpirun -n 2 trainyard train ..., "
                           "srun --mpi=pmix -n 2 trainyard train ..."});
  }
  // Without it MPI finds no other process, or ends this process with a message of its own.
  if (!read_environment("PMIX_RANK")) require_whole_group(1);
  static std::atomic<bool> started = false;
  if (started.exchange(true)) {
    throw Error(ErrorCode::kUnsupported, {.problem = "MPI cannot be started twice in a process",
                                          .remedy = "keep what start_mpi() has returned"});
  }
  for (const std::string& setting : mpi_settings()) {
    const size_t equals = setting.find('=');
    setenv(setting.substr(0, equals).c_str(), setting.substr(equals + 1).c_str(), 0);
  }
  auto engine = ProcessEngine::start(
      [open] {
        std::string text;
        auto transport = open(text);
        const std::lock_guard lock(version().mutex);
        version().text = text;
        return transport;
      },
      deadline, std::move(peers));
  require_whole_group(engine->processes());
  return engine;
}

std::string mpi_version() {
  const std::lock_guard lock(version().mutex);
  return version().text;
}

}  // namespace trainyard::parallel
