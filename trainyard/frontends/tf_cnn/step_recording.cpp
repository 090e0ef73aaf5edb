#include "trainyard/frontends/tf_cnn/step_recording.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/files/output_path.h"
#include "trainyard/formats/logs/tf_profile.h"
#include "trainyard/frontends/tf_cnn/output/device_name.h"
#include "trainyard/frontends/tf_cnn/output/graph_files.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/train/callbacks/recording_callback.h"
#include "trainyard/train/profile/layer_report.h"
#include "trainyard/train/profile/step_trace.h"
#include "trainyard/train/profile/tf_profile.h"

namespace trainyard::frontends {
namespace {

using Steps = std::span<const train::StepRecord>;
constexpr int64_t kProfiledSteps = 10;
constexpr size_t kPrintedOperators = 20;

void write(const std::string& path, const std::string& text) {
  core::FileSystem& files = core::local_file_system();
  if (const std::string folder = core::parent_path(path); !folder.empty()) files.make_directories(folder);
  core::write_user_output(path, text, files);
}

// Returns what the steps were, if not a training in float32 of images of the model's own size, as `trainyard bench
// layers` calls it.
std::vector<std::string> conditions_of(const PreparedRun& run) {
  std::vector<std::string> conditions;
  if (const nn::Size2d size = run.options.image_size; size != nn::Size2d(0)) {
    conditions.push_back("images of " + models::image_size_text(size));
  }
  const bool forward_only = run.mode() == RunMode::kForwardOnly;
  std::string dtype = run.device.dtype == at::kBFloat16 ? "bfloat16" : run.device.dtype == at::kHalf ? "float16" : "";
  if (forward_only && run.options.trt_mode == "INT8") dtype = dtype.empty() ? "int8" : "int8 and " + dtype;
  if (!dtype.empty()) conditions.push_back(dtype);
  const bool frozen = run.options.freeze_when_forward_only;
  if (forward_only) conditions.emplace_back(frozen ? "forward only, frozen" : "forward only");
  return conditions;
}

// Returns the last but one step of the warm-up, or the run's first one.
int64_t traced_step(const train::RecordingOptions& options) {
  return std::max<int64_t>(-2, -options.warmup_steps);
}

}  // namespace

ProfilePaths profile_paths(const std::string& path) {
  constexpr std::string_view kJson = ".json";
  if (!path.ends_with(kJson)) return {.proto = path, .json = path + std::string(kJson)};
  return {.proto = path.substr(0, path.size() - kJson.size()) + ".pb", .json = path};
}

void add_recordings(train::Trainer& trainer, const std::function<void(train::StepRecorder*)>& record,
                    const RecordedRun& recorded, const PreparedRun& run, const Print& print) {
  train::RecordingOptions options;
  options.warmup_steps = recorded.warmup_steps;
  options.replicas = recorded.replicas;
  options.accelerator = run.device.accelerator();
  options.record = record;
  if (const std::string path = run.options.display.trace_file; !path.empty()) {
    const bool chrome = run.options.display.use_chrome_trace_format;
    options.recordings.push_back(
        {traced_step(options), 1, [path, print, &run, chrome](Steps steps) {
           print(fmt::format("Dumping trace to {}", path));
           const formats::Trace trace = train::step_trace(steps, run.graph);
           int64_t lost = 0;
           for (const train::StepRecord& step : steps) lost += step.device ? step.device->lost : 0;
           if (lost > 0) print(fmt::format("{} records of what the GPU ran had no room: they are not in it", lost));
           write(path, chrome ? formats::chrome_trace(trace) : formats::step_stats_text(trace));
         }});
  }
  if (const std::string prefix = run.options.display.partitioned_graph_file_prefix; !prefix.empty()) {
    options.recordings.push_back({traced_step(options), 1, [prefix, print, &run, recorded](Steps) {
                                    const std::vector<nn::ParameterSet*> sets = recorded.parameters();
                                    for (int r = 0; r < recorded.replicas; ++r) {
                                      const nn::ParameterSet& own =
                                          *sets[sets.size() == 1 ? 0 : static_cast<size_t>(r)];
                                      write_graph_file(partition_path(prefix, device_name(run.device, r)), run.graph,
                                                       own, "partitioned GraphDef", print);
                                    }
                                  }});
  }
  if (const std::string path = run.options.display.tfprof_file; !path.empty()) {
    options.recordings.push_back(
        {0, kProfiledSteps, [path, print, &run, recorded](Steps steps) {
           const ProfilePaths files = profile_paths(path);
           print(fmt::format("Dumping {} to {}", run.own_dialect() ? "profile" : "ProfileProto", path));
           write(files.proto, formats::tf_profile_proto(train::tf_profile(steps, run.graph, recorded.images)));
           const auto element = static_cast<int64_t>(c10::elementSize(run.device.dtype));
           train::LayerReport report = train::layer_report(steps, run.graph, recorded.executor,
                                                           {.batch = recorded.images, .activation_bytes = element});
           report.conditions = conditions_of(run);
           write(files.json, train::layer_time_json(report));
           std::string table = train::operator_time_table(report, kPrintedOperators);
           table.pop_back();  // `print` ends the line
           print(table);
         }});
  }
  if (!options.recordings.empty()) trainer.add(std::make_shared<train::RecordingCallback>(options));
}

}  // namespace trainyard::frontends
