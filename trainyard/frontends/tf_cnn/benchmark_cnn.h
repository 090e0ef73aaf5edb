// tf_cnn_benchmarks as a library: trains, evaluates, or both, or runs forward only; prints the lines of
// tf_cnn_benchmarks (output/step_log.h) and leaves checkpoints, metrics and a summary in train_dir.
//
//   const BenchmarkParams params = {{"model", "resnet20"}, {"data_name", "cifar10"}, {"num_batches", "100"}};
//   const RunStatistics statistics = BenchmarkCnn(params).run(std::cout);
//
// With a custom data set and model (parts/), as in examples/own_benchmark.cpp:
//
//   BenchmarkCnn(params, std::make_shared<Stripes>(), std::make_shared<Linear>()).run(std::cout);
#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/frontends/tf_cnn/output/run_statistics.h"
#include "trainyard/frontends/tf_cnn/parts/benchmark_dataset.h"
#include "trainyard/frontends/tf_cnn/parts/benchmark_model.h"

namespace trainyard::frontends {
struct TfCnnOptions;  // frontends/tf_cnn/options.h
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

// Flags of tf_cnn_benchmarks by name, with their values as on the command line (docs/flags.md).
using BenchmarkParams = std::vector<std::pair<std::string, std::string>>;

class BenchmarkCnn {
 public:
  // Flags that `params` leave out have tf_cnn_benchmarks' defaults. `dataset` replaces the data that params name, of
  // which only the seed counts, and `model` that of params; null: what params say. Opens nothing. Throws
  // kInvalidArgument for an unknown flag, a value that is none of its flag, params that do not fit each other, and
  // those that do not go with a data set or a model of the caller's own.
  explicit BenchmarkCnn(const BenchmarkParams& params, std::shared_ptr<const BenchmarkDataset> dataset = nullptr,
                        std::shared_ptr<BenchmarkModel> model = nullptr);
  // Does the same with options that were read before (read_options.h).
  explicit BenchmarkCnn(const TfCnnOptions& params, std::shared_ptr<const BenchmarkDataset> dataset = nullptr,
                        std::shared_ptr<BenchmarkModel> model = nullptr);

  // Logs the warnings of params, runs, and returns the run's statistics. With several processes each returns the same
  // counts, and the chief's lines are the only ones. Another call runs again: with a train_dir it continues. `stop`
  // ends the run after its current step, as SIGTERM does; the second form cannot be stopped.
  //
  // Throws core::Error: kInvalidArgument for params that do not fit the data or the machine, kUnsupported for what this
  // build does not have, and whatever data, files and training throw. When training throws, earlier complete
  // checkpoints are kept.
  RunStatistics run(std::ostream& out, const core::StopToken& stop);
  RunStatistics run(std::ostream& out);

 private:
  std::shared_ptr<const TfCnnOptions> params_;
  std::shared_ptr<const BenchmarkDataset> dataset_;
  std::shared_ptr<BenchmarkModel> model_;
};

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
