#include "trainyard/train/session/run_report.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/machine/machine_info.h"
#include "trainyard/data/cache/decoded_store.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/train/callbacks/summary_time.h"

namespace trainyard::train {
namespace {

constexpr auto kDigestTimeout = std::chrono::seconds(1);  // of the begin of a run with the digest of its data

std::string digest_of(const std::string& data_dir) {
  core::FileSystem& files = core::local_file_system();
  try {
    return data::identity_of_files(files, data::paths_named(files, data_dir));
  } catch (const core::Error& error) {
    return fmt::format("not known: {}", error.what());
  }
}

}  // namespace

RunReport::RunReport(RunReportOptions options) : options_(std::move(options)) {
  if (!options_.data_dir.empty()) digest_ = std::async(std::launch::async, digest_of, options_.data_dir);
}

void RunReport::begin(int64_t global_step) {
  if (digest_.valid() && digest_.wait_for(kDigestTimeout) == std::future_status::ready)
    options_.record.data_digest = digest_.get();
  RunSummary summary;
  summary.status = RunStatus::kRunning;
  summary.global_step = global_step;
  complete(summary);
  write_run_summary(summary, options_.path);
}

void RunReport::end(RunSummary& summary) {
  if (digest_.valid()) options_.record.data_digest = digest_.get();
  summary.status = summary.stopped_by.empty() ? RunStatus::kFinished : RunStatus::kStopped;
  summary.ended_at = system_wall_clock();
  complete(summary);
  write_run_summary(summary, options_.path);
}

void RunReport::fail(const core::Error& error, int64_t global_step) {
  RunSummary summary;
  summary.status = RunStatus::kFailed;
  summary.error = error.what();
  summary.global_step = global_step;
  summary.ended_at = system_wall_clock();
  complete(summary);
  try {
    write_run_summary(summary, options_.path);
  } catch (const core::Error& second) {
    core::log::warning("the end of the run is not in its summary: {}", second.what());
  }
}

void RunReport::complete(RunSummary& summary) const {
  summary.record = options_.record;
  summary.model = options_.model;
  summary.dataset = options_.dataset;
  summary.mode = options_.mode;
  if (summary.status != RunStatus::kRunning) summary.peak_memory_bytes = core::peak_memory_bytes();
}

}  // namespace trainyard::train
