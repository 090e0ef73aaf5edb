// run_summary.json of a run: written when its training begins and when it ends, however it does.
#pragma once

#include <cstdint>
#include <future>
#include <string>

#include "trainyard/core/base/error.h"
#include "trainyard/train/callbacks/run_summary.h"

namespace trainyard::train {

struct RunReportOptions {
  std::string path{};  // of the file, in a directory that exists
  RunRecord record{};  // what was asked for and what was chosen, without the data's digest
  std::string model{}, dataset{}, mode{};
  std::string data_dir{};  // whose files' digest is recorded; empty: there are none
};

// One thread.
class RunReport {
 public:
  // Starts to compute the digest, on a thread of its own.
  explicit RunReport(RunReportOptions options);

  // Replaces what an earlier run has left: status "running". Throws kIo, kNoSpace.
  void begin(int64_t global_step);
  // Completes `summary`, of a run that was not ended by an error, and writes it. Throws kIo, kNoSpace.
  void end(RunSummary& summary);
  // Writes status "failed" with the error's text. A file that cannot be written is a warning: the run's error counts.
  void fail(const core::Error& error, int64_t global_step);

  const std::string& path() const { return options_.path; }

 private:
  void complete(RunSummary& summary) const;

  RunReportOptions options_;
  std::future<std::string> digest_;  // of the data's files, of which there may be millions
};

}  // namespace trainyard::train
