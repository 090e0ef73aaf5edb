// tf_cnn_benchmarks as a library: trains, evaluates, or both, or runs forward only; prints the lines of
// tf_cnn_benchmarks (output/step_log.h) and leaves checkpoints, metrics and a summary in train_dir.
//
//   TfCnnOptions params;                                   // options.h; read_options.h fills it from flags
//   params.model = "resnet20";
//   params.input.data_name = "cifar10";
//   const RunStatistics statistics = BenchmarkCnn(params).run(std::cout);
//
// With a custom data set and model (parts/), as in examples/own_benchmark.cpp:
//
//   BenchmarkCnn(params, std::make_shared<Stripes>(), std::make_shared<Linear>()).run(std::cout);
#pragma once

#include <iosfwd>
#include <memory>

#include "trainyard/core/base/export.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/frontends/tf_cnn/options.h"
#include "trainyard/frontends/tf_cnn/output/run_statistics.h"
#include "trainyard/frontends/tf_cnn/parts/benchmark_dataset.h"
#include "trainyard/frontends/tf_cnn/parts/benchmark_model.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

class BenchmarkCnn {
 public:
  // `dataset` replaces params.input's data (only its seed is used), and `model` replaces params.model; null: those of
  // params. Opens nothing. Throws kInvalidArgument for params that do not fit each other, or the custom data set or
  // model.
  explicit BenchmarkCnn(TfCnnOptions params, std::shared_ptr<const BenchmarkDataset> dataset = nullptr,
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

  const TfCnnOptions& params() const { return params_; }

 private:
  TfCnnOptions params_;
  std::shared_ptr<const BenchmarkDataset> dataset_;
  std::shared_ptr<BenchmarkModel> model_;
};

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
