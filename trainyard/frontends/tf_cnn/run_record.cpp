#include "trainyard/frontends/tf_cnn/run_record.h"

#include <filesystem>
#include <string>
#include <system_error>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/frontends/tf_cnn/output/device_name.h"
#include "trainyard/frontends/tf_cnn/run_files.h"
#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/train/callbacks/summary_time.h"

namespace trainyard::frontends {
namespace {

std::string full_path(const std::string& path) {
  std::error_code unknown;
  const std::filesystem::path full = std::filesystem::absolute(path, unknown);
  return unknown ? path : full.lexically_normal().string();
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

train::RunReportOptions make_run_report(const PreparedRun& run) {
  return {.path = core::join_path(run.train_dir(), kSummary),
          .record = make_run_record(run),
          .model = run.model->name,
          .dataset = run.dataset_label,
          .mode = std::string(run_mode_name(run.mode())),
          .data_dir = run.input.synthetic() ? "" : run.input.data_dir};
}

}  // namespace trainyard::frontends
