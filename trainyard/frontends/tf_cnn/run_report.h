// Writes run_summary.json of `trainyard train` when a training begins and when it ends, for any reason.
#pragma once

#include <future>
#include <string>

#include "trainyard/core/base/error.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/train/callbacks/run_summary.h"

namespace trainyard::frontends {

// Writes into run.train_dir(), which must exist. For one thread.
class RunReport {
 public:
  explicit RunReport(const PreparedRun& run);

  // Replaces the file of an earlier run, with status "running". Throws kIo, kNoSpace.
  void begin(int64_t global_step);
  // Completes `summary`, of a run that was not ended by an error, and writes it.
  void end(train::RunSummary& summary);
  // Writes status "failed" with the error's text. Only warns when the file cannot be written, because the run's error
  // is more important.
  void fail(const core::Error& error, int64_t global_step);

  const std::string& path() const { return path_; }

 private:
  void complete(train::RunSummary& summary);

  const PreparedRun& run_;
  std::string path_;
  train::RunRecord record_;
  std::future<std::string> digest_;  // digest of the data's files, of which there may be millions
};

// Returns the record of the requested options and the choices, without the data's digest.
train::RunRecord make_run_record(const PreparedRun& run);

}  // namespace trainyard::frontends
