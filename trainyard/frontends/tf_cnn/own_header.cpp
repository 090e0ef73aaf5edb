#include "trainyard/frontends/tf_cnn/own_header.h"

#include <fmt/format.h>

#include "trainyard/core/base/build_info.h"
#include "trainyard/frontends/tf_cnn/fine_tuning.h"
#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/parallel/collectives/all_reduce_spec.h"

namespace trainyard::frontends {
namespace {

std::string counted(int64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string dataset_line(const PreparedRun& run) {
  std::string line = run.dataset_label;
  if (run.train_data) line += fmt::format(", {} to train on", counted(run.train_data->size(), "image"));
  if (run.validation_data) line += fmt::format(", {} to validate on", counted(run.validation_data->size(), "image"));
  return line;
}

std::string steps_line(const PreparedRun& run) {
  if (run.mode() == RunMode::kEvaluation) {
    const int64_t images = run.eval_batch_size * run.replicas * (run.shares_evaluation() ? run.device.ranks() : 1);
    return fmt::format("{} of {}", run.plan.num_eval_batches, counted(images, "image"));
  }
  std::string line = fmt::format("{} of {}, {:.2f} epochs", run.plan.num_batches,
                                 counted(run.examples_per_step(), "image"), run.plan.num_epochs);
  if (run.mode() == RunMode::kForwardOnly) return line;
  return fmt::format("{}, {}", line, run.options.update.optimizer);
}

std::string device_line(const PreparedRun& run) {
  const bool evaluates = run.mode() == RunMode::kEvaluation;
  const std::string device =
      run.device.accelerators.empty() ? std::string("CPU") : run.device.accelerators.front()->name();
  std::string line =
      fmt::format("{} of {}", device, counted(evaluates ? run.eval_batch_size : run.batch_size, "image"));
  if (run.replicas > 1) line = fmt::format("{} x {}", run.replicas, line);
  if (run.device.ranks() > 1) line = fmt::format("{} processes, each {}", run.device.ranks(), line);
  if (run.micro_steps() > 1) line += fmt::format(", {} micro-steps", run.micro_steps());
  line += fmt::format(", {}", run.device.dtype == at::kFloat ? "float32" : c10::toString(run.device.dtype));
  const DeviceOptions& asked = run.options.device;
  if (run.total_replicas() == 1) return line;
  line += fmt::format(", {}", asked.variable_update);
  if (asked.variable_update == "horovod") {
    const std::string& overriding = run.options.update.gradient_reduction;
    line += fmt::format(" ({})", overriding == "auto" ? asked.horovod_reduce : overriding);
  }
  if (asked.all_reduce_spec != parallel::kAutoAllReduceSpec) return line;
  const std::string& spec = run.device.automatic_all_reduce_spec;
  return fmt::format("{}, all-reduce by {}", line, spec.empty() ? "the default" : spec);
}

}  // namespace

std::vector<HeaderRow> own_header_rows(const PreparedRun& run) {
  const data::TransformOptions& image = run.input.transform;
  std::vector<HeaderRow> rows = {
      {"Trainyard:", fmt::format("{}, {}", core::build_info().version, run_mode_name(run.mode()))},
      {"Model:",
       fmt::format("{}, images of {}, {}", run.model->name, models::image_size_text({image.height, image.width}),
                   run.num_classes == 1 ? "1 class" : fmt::format("{} classes", run.num_classes))},
      {"Dataset:", dataset_line(run)},
      {"Steps:", steps_line(run)},
      {"Device:", device_line(run)}};
  if (const std::string line = fine_tuning_line(run); !line.empty()) rows.emplace_back("Fine-tuning:", line);
  return rows;
}

}  // namespace trainyard::frontends
