// tf_cnn_benchmarks as a library: trains, evaluates, or both, or runs forward only; prints the lines of
// tf_cnn_benchmarks (output/step_log.h) and leaves checkpoints, metrics and a summary in train_dir.
//
//   TfCnnOptions params;                                   // options.h; read_options.h fills it from flags
//   params.model = "resnet20";
//   params.input.data_name = "cifar10";
//   const RunStatistics statistics = BenchmarkCnn(params).run(std::cout);
//
// With a data set and a model of the caller's own (parts/), as examples/own_benchmark.cpp has them:
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
  // `dataset` takes the place of params.input's data, of which the seed counts alone, and `model` that of params.model;
  // null: what params say. Opens nothing. Throws kInvalidArgument for params that do not fit each other, or do not go
  // with a data set or a model of the caller's own.
  explicit BenchmarkCnn(TfCnnOptions params, std::shared_ptr<const BenchmarkDataset> dataset = nullptr,
                        std::shared_ptr<BenchmarkModel> model = nullptr);

  // Logs the warnings of params, runs, and returns the run's statistics. With several processes each returns the same
  // counts, and the chief's lines are the only ones. May be called again, which runs again: with a train_dir it goes
  // on. `stop` ends the run behind its step, as SIGTERM does; the second form cannot be stopped.
  //
  // Throws core::Error: kInvalidArgument for params that do not fit the data or the machine, kUnsupported for what this
  // build does not have, and whatever data, files and training throw. When training throws, the checkpoints that were
  // complete before stay.
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
