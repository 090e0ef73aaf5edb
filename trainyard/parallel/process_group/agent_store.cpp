#include "trainyard/parallel/process_group/agent_store.h"

#include <exception>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "trainyard/core/base/error.h"

namespace trainyard::parallel {

std::string share_in_agent_store(const ProcessRank& process, const std::string& of_first,
                                 std::chrono::milliseconds deadline) {
  // torchrun restarts a failed group with the same store.
  const std::string key = fmt::format("trainyard/{}", read_environment("TORCHELASTIC_RESTART_COUNT").value_or("0"));
  c10d::TCPStoreOptions options;
  options.port = process.master_port;
  options.waitWorkers = false;
  options.timeout = deadline;
  try {
    c10d::TCPStore store(process.master_address, options);
    if (process.rank == 0) {
      store.set(key, std::vector<uint8_t>(of_first.begin(), of_first.end()));
      return of_first;
    }
    const std::vector<uint8_t> bytes = store.get(key);
    return {bytes.begin(), bytes.end()};
  } catch (const std::exception& error) {
    const std::string text = error.what();  // continues with a stack trace
    throw core::Error(core::ErrorCode::kTimeout,
                      {.problem = "torchrun's store does not say where the ranks meet",
                       .where = fmt::format("rank {} of {}, {}:{}", process.rank, process.size, process.master_address,
                                            process.master_port),
                       .actual = text.substr(0, text.find('\n')),
                       .remedy = "look whether torchrun and rank 0 run"});
  }
}

}  // namespace trainyard::parallel
