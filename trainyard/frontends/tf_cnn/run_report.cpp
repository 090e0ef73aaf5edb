#include "trainyard/frontends/tf_cnn/run_report.h"

#include <chrono>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/data/cache/decoded_store.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/frontends/tf_cnn/output/device_name.h"
#include "trainyard/frontends/tf_cnn/run_files.h"
#include "trainyard/train/callbacks/summary_callback.h"

namespace trainyard::frontends {
namespace {

constexpr auto kDigestTimeout = std::chrono::seconds(1);  // of the begin of a run with the digest of its data

std::string full_path(const std::string& path) {
  std::error_code unknown;
  const std::filesystem::path full = std::filesystem::absolute(path, unknown);
  return unknown ? path : full.lexically_normal().string();
}

std::string digest_of(const std::string& data_dir) {
  core::FileSystem& files = core::local_file_system();
  try {
    return data::identity_of_files(files, data::paths_named(files, data_dir));
  } catch (const core::Error& error) {
    return fmt::format("not known: {}", error.what());
  }
}

}  // namespace

train::RunRecord make_run_record(const PreparedRun& run) {
  train::RunRecord record;
  record.command = run.own_dialect() ? "trainyard train" : "trainyard";
  record.flags = run.options.flags.all;
  for (const auto& [name, value] : run.options.flags.given) record.given_flags.push_back(name);
  record.choices = {{"device", device_name(run.device, 0)},
                    {"executor", run.device.executor},
                    {"batch_size", std::to_string(run.batch_size)},
                    {"eval_batch_size", std::to_string(run.eval_batch_size)},
                    {"num_batches", std::to_string(run.plan.num_batches)},
                    {"num_warmup_batches", std::to_string(run.plan.num_warmup_batches)},
                    {"eval_exact", run.eval_exact ? "true" : "false"}};
  if (!run.input.synthetic()) record.data_dir = full_path(run.input.data_dir);
  record.num_classes = run.num_classes;
  record.train_examples = run.train_examples;
  const bool evaluates = run.mode() == RunMode::kTrainingAndEvaluation || run.mode() == RunMode::kEvaluation;
  record.validation_examples = evaluates ? run.validation_examples : 0;
  record.seed = run.input.seed;
  record.instruction_set = core::describe_cpu_isa();
  for (const auto& gpu : run.device.accelerators) record.gpus.push_back(gpu->name());
  record.started_at = train::system_wall_clock();
  return record;
}

RunReport::RunReport(const PreparedRun& run)
    : run_(run), path_(core::join_path(run.train_dir(), kSummary)), record_(make_run_record(run)) {
  if (!run.input.synthetic()) digest_ = std::async(std::launch::async, digest_of, run.input.data_dir);
}

void RunReport::begin(int64_t global_step) {
  if (digest_.valid() && digest_.wait_for(kDigestTimeout) == std::future_status::ready)
    record_.data_digest = digest_.get();
  train::RunSummary summary;
  summary.status = train::RunStatus::kRunning;
  summary.global_step = global_step;
  complete(summary);
  train::write_run_summary(summary, path_);
}

void RunReport::end(train::RunSummary& summary) {
  if (digest_.valid()) record_.data_digest = digest_.get();
  summary.status = summary.stopped_by.empty() ? train::RunStatus::kFinished : train::RunStatus::kStopped;
  summary.ended_at = train::system_wall_clock();
  complete(summary);
  train::write_run_summary(summary, path_);
}

void RunReport::fail(const core::Error& error, int64_t global_step) {
  train::RunSummary summary;
  summary.status = train::RunStatus::kFailed;
  summary.error = error.what();
  summary.global_step = global_step;
  summary.ended_at = train::system_wall_clock();
  complete(summary);
  try {
    train::write_run_summary(summary, path_);
  } catch (const core::Error& second) {
    core::log::warning("the end of the run is not in its summary: {}", second.what());
  }
}

void RunReport::complete(train::RunSummary& summary) {
  summary.record = record_;
  summary.model = run_.model->name;
  summary.dataset = run_.dataset_label;
  summary.mode = run_mode_name(run_.mode());
}

}  // namespace trainyard::frontends
