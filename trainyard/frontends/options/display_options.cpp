#include "trainyard/frontends/options/display_options.h"

#include <utility>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/registry.h"

namespace trainyard::frontends {

core::OptionFlags<DisplayOptions> line_flags() {
  core::OptionFlags<DisplayOptions> flags("Display");
  flags.add("display_every", &DisplayOptions::display_every, "steps between two lines; the first step is always shown");
  flags
      .add("display_perf_ewma", &DisplayOptions::display_perf_ewma,
           "weight of the newest step time in a moving average, instead of the mean of all")
      .bounds(0, 1);
  flags.add("print_training_accuracy", &DisplayOptions::print_training_accuracy,
            "add top-1 and top-5 accuracy of the batch to the lines");
  flags.also(
      [](const core::FlagValues& values, DisplayOptions& options) { options.progress = values.text("progress"); });
  return flags;
}

core::OptionFlags<DisplayOptions> log_flags() {
  core::OptionFlags<DisplayOptions> flags("Checkpoints and logs");
  flags.given(&DisplayOptions::save_summaries_steps,
              flags.table().integer("save_summaries_steps", 0, "steps between two summaries in TensorBoard; 0: none"));
  flags.add("summary_verbosity", &DisplayOptions::summary_verbosity,
            "0: no summaries; 1: scalars; 2: also a histogram of the logarithms of all gradients; 3 and more: also one "
            "of each parameter and of its gradient, and the first three images of the batch");
  flags.add("trackers", &DisplayOptions::trackers,
            "where the numbers of a training are written in addition to its train_dir: mlflow, a store of files that "
            "MLflow reads");
  flags.add("mlflow_dir", &DisplayOptions::mlflow_dir,
            "with trackers=mlflow: the store, MLflow's folder mlruns; unset: mlruns next to train_dir");
  flags.also([](const core::FlagValues&, DisplayOptions& options) {
    for (const std::string& tracker : options.trackers) {
      if (tracker != "mlflow") {
        core::ErrorDetail detail = core::unknown_name("tracker", tracker, {"mlflow"}).detail();
        detail.where = "--trackers";
        throw core::Error(core::ErrorCode::kInvalidArgument, std::move(detail));
      }
    }
    if (options.trackers.empty() && !options.mlflow_dir.empty()) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = "--mlflow_dir is of --trackers=mlflow", .remedy = "pass both, or neither"});
    }
  });
  flags.table()
      .text("plot_schedule", std::nullopt,
            "draw the learning rate against step and epoch into this SVG file, write its numbers beside it (.csv), "
            "say where it warms up, changes, and what its extremes are, and train nothing")
      .group(flags.group());
  flags.table()
      .boolean("describe_input", false,
               "print the operations that training and validation images go through, with their numbers, and train "
               "nothing")
      .group(flags.group());
  flags.add("benchmark_log_dir", &DisplayOptions::benchmark_log_dir,
            "write benchmark_run.log and metric.log (JSON) here");
  flags.add("benchmark_test_id", &DisplayOptions::benchmark_test_id, "a name for this run in benchmark_run.log");
  return flags;
}

core::OptionFlags<DisplayOptions> trace_flags() {
  core::OptionFlags<DisplayOptions> flags("Traces and graphs");
  flags
      .add("trace_file", &DisplayOptions::trace_file,
           "write a trace of the last but one step of the warm-up, or of the first step when the warm-up is shorter; "
           "on a GPU with its kernels and copies, of a step that is not replayed (--xla)")
      .default_value = std::string();
  flags.add("use_chrome_trace_format", &DisplayOptions::use_chrome_trace_format,
            "trace_file for chrome://tracing and Perfetto; false: TensorFlow's StepStats as text");
  flags.add("tfprof_file", &DisplayOptions::tfprof_file,
            "profile the ten steps after the warm-up: print the 20 longest operators, write layers and operators as "
            "JSON; on a GPU by its own time and with its kernels, of steps that are not replayed (--xla)");
  flags.add("ml_perf_compliance_logging", &DisplayOptions::ml_perf_compliance_logging,
            "write what the run does to stderr as MLPerf's v0.5 wants it (:::MLPv0.5.0 resnet ...); for "
            "resnet50_v1.5 and ssd300");
  return flags;
}

core::OptionFlags<DisplayOptions> graph_flags() {
  core::OptionFlags<DisplayOptions> flags("Traces and graphs");
  flags.add(
      "graph_file", &DisplayOptions::graph_file,
      "write the model's graph: text for a name ending in txt, else ONNX with the weights that the run begins with");
  flags.add("partitioned_graph_file_prefix", &DisplayOptions::partitioned_graph_file_prefix,
            "write the graph of each device in the same forms, with the weights of the step that trace_file traces: "
            "NAME_cpu_0.txt of NAME.txt");
  return flags;
}

DisplayOptions read_display_options(const core::FlagValues& values) {
  DisplayOptions options = core::flags_of<line_flags>().read(values);
  core::flags_of<log_flags>().read(values, options);
  core::flags_of<trace_flags>().read(values, options);
  core::flags_of<graph_flags>().read(values, options);
  return options;
}

}  // namespace trainyard::frontends
