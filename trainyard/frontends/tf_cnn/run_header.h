// Formats the lines at the top of a run's output, as in tf_cnn_benchmarks, because tools parse them.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/frontends/tf_cnn/prepare.h"

namespace trainyard::frontends {

// The common facts of the header and benchmark_run.log.
struct HeaderFacts {
  std::string model{}, dataset{};
  std::vector<std::string> devices{};
  int64_t batch_size = 0, batch_size_per_device = 0;  // images a step: of all devices of all processes, and of one
  int64_t num_batches = 0;
  double num_epochs = 0;
};
[[nodiscard]] HeaderFacts header_facts(const PreparedRun& run);

using HeaderRow = std::pair<std::string, std::string>;  // "Model:", "resnet20"

// Returns the rows of runs without a sub-command. Those of `trainyard train` and `eval` are in own_header.h.
std::vector<HeaderRow> run_header_rows(const PreparedRun& run);
// "Model:       resnet20" lines and "==========".
void print_run_header(const std::vector<HeaderRow>& rows, std::ostream& out);

}  // namespace trainyard::frontends
