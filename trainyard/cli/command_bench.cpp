// Timing of parts of a run, each kind with flags of its own.
#include <algorithm>
#include <iterator>
#include <memory>
#include <ostream>
#include <vector>

#include <fmt/format.h>

#include "trainyard/cli/bench_all_reduce.h"
#include "trainyard/cli/bench_data.h"
#include "trainyard/cli/bench_latency.h"
#include "trainyard/cli/bench_layers.h"
#include "trainyard/cli/bench_quantization.h"
#include "trainyard/cli/bench_update.h"
#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/core/files/output_path.h"
#include "trainyard/core/machine/machine_limits.h"
#include "trainyard/nn/cpu/convolution/choice/convolution_choice.h"

namespace trainyard::cli {
namespace {

void print_limits(bool sixteen_bits, std::ostream& out) {
  if (const auto limits = core::load_machine_limits()) {
    out << fmt::format("the machine's limits: {:.1f} GFLOP/s, {:.1f} GB/s read, {:.1f} GB/s copied\n",
                       1e-9 * limits->flops(sixteen_bits), 1e-9 * limits->read_bytes, 1e-9 * limits->copy_bytes);
  } else {
    out << "the machine's limits: trainyard doctor --limits measures them\n";
  }
}

// Says of each convolution for which there are several kernels which ran, and what the others took.
void print_choices(const nn::KernelChoices& run, std::ostream& out) {
  const std::vector<std::string> choices = nn::cpu::describe_choices(run, nn::cpu::ConvolutionChoices::instance());
  if (choices.empty()) return;
  out << "convolutions were chosen by what each algorithm took on its own:\n";
  for (const std::string& choice : choices) out << "  " << choice << '\n';
}

int run_layers(const Arguments& arguments, Console& console) {
  constexpr const char* kGroup = "Layers";
  core::FlagTable table;
  declare_benched_model_flags(table, kGroup);
  table.integer("batch_size", 0, "images a step; 0: the model's").bounds(0, 1 << 20).group(kGroup);
  table.boolean("forward_only", false, "inference instead of training").group(kGroup);
  table.boolean("freeze_when_forward_only", false, "with --forward_only: batch norms folded into the convolutions")
      .group(kGroup);
  table.integer("num_warmup_batches", 3, "steps before those that count").bounds(0, 1 << 20).group(kGroup);
  table.integer("num_batches", 10, "steps whose median is shown").bounds(1, 1 << 20).group(kGroup);
  table.text("json", std::nullopt, "write the same as JSON into this file").group(kGroup);
  const auto parsed =
      parse_command({"bench layers", "each layer's time, forward and backward", ""}, table, arguments, console);
  if (!parsed) return kSuccess;
  const core::FlagValues& values = parsed->values;
  const BenchedModel benched = read_benched_model(values, "bench layers");
  if (!values.text("json").empty()) require_no_folder("json", values.text("json"));
  const train::LayerReport report = bench_layers({.benched = benched,
                                                  .batch_size = values.integer("batch_size"),
                                                  .forward_only = values.boolean("forward_only"),
                                                  .frozen = values.boolean("freeze_when_forward_only"),
                                                  .warmup_steps = values.integer("num_warmup_batches"),
                                                  .steps = values.integer("num_batches")});
  console.out << train::layer_time_table(report);
  print_choices(*benched.choices, console.out);
  if (report.device.empty()) print_limits(benched.device.use_bf16, console.out);  // which are the CPU's
  if (const std::string path = values.text("json"); !path.empty()) {
    core::write_user_output(path, train::layer_time_json(report));
  }
  return kSuccess;
}

int run_latency(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  declare_bench_latency_flags(table);
  const auto parsed = parse_command({"bench latency", "how long requests of inference wait for their answer", ""},
                                    table, arguments, console);
  if (!parsed) return kSuccess;
  const std::string json = parsed->values.text("json");
  if (!json.empty()) require_no_folder("json", json);
  LatencyBenchOptions options = read_bench_latency_options(parsed->values);
  options.stop = console.stop;
  const LatencyBenchReport report = bench_latency(options);
  console.out << latency_bench_text(report);
  if (!json.empty()) core::write_user_output(json, latency_bench_json(report));
  return kSuccess;
}

int run_input(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  declare_bench_data_flags(table);
  const auto parsed = parse_command({"bench data", "images a second out of the input pipeline, by stage", ""}, table,
                                    arguments, console);
  if (!parsed) return kSuccess;
  for (const std::string& warning : core::flag_warnings(parsed->values)) core::log::warning("{}", warning);
  DataBenchOptions options = read_bench_data_options(parsed->values);
  options.stop = console.stop;
  console.out << data_bench_text(bench_data(options));
  return kSuccess;
}

int run_all_reduce(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  declare_bench_all_reduce_flags(table);
  const auto parsed = parse_command({"bench allreduce", "all-reduces of gradients and of tensors by size", ""}, table,
                                    arguments, console);
  if (!parsed) return kSuccess;
  const std::string json = parsed->values.text("json"), picture = parsed->values.text("output");
  if (!json.empty()) require_no_folder("json", json);
  if (!picture.empty()) require_no_folder("output", picture);
  const AllReduceBenchOptions options = read_bench_all_reduce_options(parsed->values);
  if (!picture.empty() && options.sizes.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "--output draws times by size, and --sizes names none", .remedy = "pass sizes, too"});
  }
  const AllReduceBenchReport report = bench_all_reduce(options, console.out);
  if (report.rank != 0) return kSuccess;
  console.out << all_reduce_bench_table(report) << update_bench_table(report);
  if (!json.empty()) core::write_user_output(json, all_reduce_bench_json(report));
  if (!picture.empty()) core::write_user_output(picture, all_reduce_bench_svg(report));
  return kSuccess;
}

int run_quantization(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  declare_bench_quantization_flags(table);
  const auto parsed =
      parse_command({"bench quantization", "what 8 bits cost each layer of a trained model in accuracy", "[MODEL]"},
                    table, arguments, console);
  if (!parsed) return kSuccess;
  if (parsed->positional.size() > 1) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "bench quantization takes one model",
                       .actual = fmt::format("{} of them", parsed->positional.size())});
  }
  const std::string json = parsed->values.text("json"), picture = parsed->values.text("output");
  if (!json.empty()) require_no_folder("json", json);
  if (!picture.empty()) require_no_folder("output", picture);
  const QuantizationBenchReport report =
      bench_quantization(parsed->values, parsed->positional.empty() ? "" : parsed->positional[0]);
  console.out << quantization_bench_text(report);
  if (!json.empty()) core::write_user_output(json, quantization_bench_json(report));
  if (!picture.empty()) core::write_user_output(picture, quantization_bench_svg(report));
  return kSuccess;
}

constexpr NamedCommand kKinds[] = {
    {"layers", "each layer's time, forward and backward, FLOP/s, bytes/s and share: --model=NAME", run_layers},
    {"latency", "how long a request waits, by batch size, arrival rate and wanted bound: --model=NAME --p99_ms=50",
     run_latency},
    {"allreduce", "all-reduces of a model's gradients and of tensors by size, alone or under mpirun: --sizes=64K,100M",
     run_all_reduce},
    {"quantization",
     "what 8 bits cost each layer in accuracy, and its share of the time: --train_dir=DIR --data_dir=DIR",
     run_quantization},
    {"data", "images a second out of the input pipeline, and the time of each stage: --data_dir=DIR", run_input},
};

}  // namespace

int run_bench(const Arguments& arguments, Console& console) {
  if (console.descriptions != nullptr) {
    for (const NamedCommand& kind : kKinds) kind.run({}, console);
    return kSuccess;
  }
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    console.out << "usage: trainyard bench KIND [--flag=value ...]\n\n";
    for (const NamedCommand& kind : kKinds) console.out << fmt::format("  {:9} {}\n", kind.name, kind.summary);
    console.out << "\neach kind takes --help.\n";
    return arguments.empty() ? kUsage : kSuccess;
  }
  for (const NamedCommand& kind : kKinds) {
    if (arguments[0] == kind.name) return kind.run({arguments.begin() + 1, arguments.end()}, console);
  }
  std::vector<std::string> names;
  std::transform(std::begin(kKinds), std::end(kKinds), std::back_inserter(names), [](auto& kind) { return kind.name; });
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    core::unknown_name("kind of bench", arguments[0], names).detail());
}

}  // namespace trainyard::cli
