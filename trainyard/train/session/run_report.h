// Writes run_summary.json when a training begins, and when it ends, with or without an error.
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
  // Starts to compute the digest of the data's files on another thread.
  explicit RunReport(RunReportOptions options);

  // Replaces the file of an earlier run by one with status "running". Throws kIo, kNoSpace.
  void begin(int64_t global_step);
  // Completes and writes `summary`, of a run that ended without an error. Throws kIo, kNoSpace.
  void end(RunSummary& summary);
  // Writes status "failed" with the error's text. Only warns when the file cannot be written, because the run's error
  // matters more.
  void fail(const core::Error& error, int64_t global_step);

  const std::string& path() const { return options_.path; }

 private:
  void complete(RunSummary& summary) const;

  RunReportOptions options_;
  std::future<std::string> digest_;  // of the data's files, of which there may be millions
};

}  // namespace trainyard::train
