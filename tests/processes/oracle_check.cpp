// Processes that MPI starts and that train tf_cnn_benchmarks' oracle (train/testing/variable_update_oracle.h) with
// every optimizer, for tests/processes/processes_test.py:
//
//   mpirun -n 2 trainyard_oracle_check collective_all_reduce 1,2    replicas of each process
//
// Each process ends with 1 where losses are not those of the definition, and says which.
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/collectives/mpi/mpi_transport.h"
#include "trainyard/parallel/collectives/process_communicator.h"
#include "trainyard/train/testing/variable_update_oracle.h"

namespace {

using namespace trainyard;

constexpr auto kDeadline = std::chrono::seconds(60);

std::vector<double> doubles(const at::Tensor& tensor) {
  const auto* const first = tensor.const_data_ptr<double>();
  return {first, first + tensor.numel()};
}

// Collective: the shares of all processes, in their order.
std::vector<train::OracleShare> all_shares(const train::OracleShare& own, core::Communicator& processes) {
  const std::vector<at::Tensor> base = processes.all_gather(at::tensor(own.base, at::kDouble)),
                                beside = processes.all_gather(at::tensor(own.beside, at::kDouble));
  std::vector<train::OracleShare> shares;
  for (size_t p = 0; p < base.size(); ++p) shares.push_back({doubles(base[p]), doubles(beside[p])});
  return shares;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::fprintf(stderr, "usage: mpirun -n 2 %s MODE REPLICAS,REPLICAS\n", arguments[0]);
    return 2;
  }
  try {
    train::OracleLayout layout{.mode = arguments[1], .replicas = {}};
    std::istringstream list(arguments[2]);
    for (std::string replicas; std::getline(list, replicas, ',');) layout.replicas.push_back(std::stoi(replicas));
    const auto exchange = parallel::start_mpi(kDeadline);
    const auto processes = parallel::make_communicator_of_processes(exchange, kDeadline);
    // Sums over three replicas run away at the oracle's rate.
    const int steps = layout.all() > 2 ? 3 : 4, process = exchange->process();
    int compared = 0;
    for (const train::OracleOptimizer& optimizer : train::oracle_optimizers()) {
      SCOPED_TRACE(optimizer.text);
      const train::OracleShare share = train::train_oracle_share(layout, process, optimizer, steps, [&] {
        return parallel::make_process_communicators(exchange, layout.replicas.at(static_cast<size_t>(process)),
                                                    kDeadline);
      });
      train::expect_oracle_losses(train::joined(layout, all_shares(share, *processes)),
                                  train::oracle_losses(layout, optimizer, steps));
      ++compared;
    }
    exchange->finish(kDeadline);
    const bool failed = testing::UnitTest::GetInstance()->Failed();
    std::printf("%s", fmt::format("process {}: {} optimizers {}\n", process, compared,
                                  failed ? "are not all as defined" : "follow their definition")
                          .c_str());
    return failed ? 1 : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
