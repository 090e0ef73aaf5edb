// Writes a run into MLflow's file store, which `mlflow ui` and MLflow's client read (docs/formats/mlflow.md):
//
//   mlruns/<experiment>/meta.yaml
//   mlruns/<experiment>/<run>/meta.yaml           state, name, start and end
//   mlruns/<experiment>/<run>/metrics/eval/loss   a line a value: milliseconds, value, step
//   mlruns/<experiment>/<run>/params/batch_size   the value
//   mlruns/<experiment>/<run>/tags/mlflow.runName
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainyard/core/files/file_system.h"
#include "trainyard/train/monitors/line_file.h"
#include "trainyard/train/monitors/monitor.h"

namespace trainyard::train {

struct MlflowOptions {
  std::string store{};       // the folder mlruns
  std::string experiment{};  // name of the experiment, which is made where the store has none of that name
  std::string run_name{};
  std::string run_file{};  // file that keeps which run of the store this is, for a training that continues
  std::vector<std::pair<std::string, std::string>> params{};  // flags and their values
  int64_t start_step = 0;                                     // where the run begins or continues
  bool evaluates_again = false;                               // the evaluation at start_step is repeated
};

class MlflowMonitor : public Monitor {
 public:
  // Makes the run, or continues the one that options.run_file names: then it first removes the values of steps after
  // options.start_step, as JsonLinesMonitor does, and with evaluates_again those of an evaluation at that step, too.
  // Throws kIo, kNoSpace.
  explicit MlflowMonitor(MlflowOptions options, core::FileSystem& files = core::local_file_system());

  void write(const Scalars& scalars) override;
  // Says that the run has ended.
  void close() override;

  // Returns the folder of the run.
  [[nodiscard]] const std::string& run_folder() const { return folder_; }

 private:
  std::string find_or_make_experiment();
  void write_meta(int status, const std::string& end_time);
  // Returns the file of a metric's values. A name that is a value and a folder in the store, "loss" and "loss/mean",
  // cannot be both: what comes later gets '_' for '/', or '_' at its end.
  std::string path_of(std::string metric) const;
  LineFile& file_of(const std::string& metric);

  MlflowOptions options_;
  core::FileSystem& files_;
  std::string experiment_id_, run_id_, folder_;
  int64_t start_time_ = 0;  // milliseconds since the Unix epoch
  std::map<std::string, std::unique_ptr<LineFile>> metrics_;
};

// Returns the name with what MLflow does not take in names of metrics and parameters as '_'.
[[nodiscard]] std::string mlflow_name(std::string_view name);

}  // namespace trainyard::train
