#include <algorithm>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <iostream>
#include <iterator>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_description.h"
#include "trainyard/core/base/build_info.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/core/flags/flags.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/parallel/launch/launch.h"
#include "trainyard/parallel/process_group/launcher_claims.h"

namespace trainyard::cli {
namespace {

// What becomes of a command that mpirun or srun starts several times.
enum class Copies {
  kAllowed,  // it reads and prints, decides by itself (train, eval), or trains together
  kRefused,  // each would write the same files, or train alone
};

struct Command {
  const char* name;
  const char* summary;  // null: only the program itself starts it
  int (*run)(const Arguments&, Console&);
  Copies copies = Copies::kAllowed;
  const char* allowed = nullptr;  // the sub-command that only reads and prints
};

constexpr Command kCommands[] = {
    {"train", "train or benchmark a model (also with flags alone, as tf_cnn_benchmarks)", run_train},
    {"train-ctl", "train as NVIDIA DALI's TensorFlow ResNet-N example does", run_train_ctl},
    {"find-lr", "propose a learning rate: a range test with a model and data, and its plot", run_find_lr,
     Copies::kRefused},
    {"tune", "search for the best values of flags, given as ranges in a file: tune FILE.yaml", run_tune_command,
     Copies::kRefused},
    {"eval", "evaluate the newest checkpoint of --train_dir, or --weights", run_eval},
    {"eval-detections", "COCO's twelve numbers of detected boxes: eval-detections ANNOTATIONS.json DETECTIONS.json",
     run_eval_detections, Copies::kRefused},
    {"launch", "processes that train together, by mpirun: launch -n 4 -- train ...", run_launch, Copies::kRefused},
    {"launch-rank", nullptr, run_launch_rank},
    {"launch-keeper", nullptr, run_launch_keeper},
    {"program", "train and evaluate as NVIDIA's PaddlePaddle ResNet-50 example, by its options", run_program},
    {"predict", "top-5 classes of images, objects in them, or logits of an array", run_predict, Copies::kRefused},
    {"report", "a page of one run, or of several compared: report TRAIN_DIR...", run_report, Copies::kRefused},
    {"data", "data sets: write, index, convert, show, verify", run_data, Copies::kRefused, "verify"},
    {"export", "a trained model for other programs: safetensors, ONNX, HDF5 for Keras", run_export, Copies::kRefused},
    {"quantize", "a trained model in 8-bit integers: quantize MODEL --data_dir=DIR --output=FILE", run_quantize,
     Copies::kRefused},
    {"models", "the models by data set, or one model's layers: models NAME", run_models},
    {"bench", "time parts of a run: bench layers --model=NAME, bench data --data_dir=DIR, bench allreduce", run_bench},
    {"simulate", "predict the step time of N workers on a network, by what was measured: --workers=64 --fit=FILE",
     run_simulate, Copies::kRefused},
    {"suite", "tf_cnn_benchmarks' own benchmarks, scaled to this machine: --list, --run=PATTERN", run_suite,
     Copies::kRefused},
    {"sparsity", "2:4 sparsity of a checkpoint or a file of weights: verify, report, prune", run_sparsity,
     Copies::kRefused},
    {"doctor", "this machine, what is built in, and what is missing", run_doctor},
    {"completion", "completion for a shell: source <(trainyard completion bash)", run_completion},
    {"help", "every flag, by group, and the formulas of the optimizers", run_help},
};

void print_commands(std::ostream& out) {
  out << "Trainyard trains and benchmarks image classifiers.\n\nusage: trainyard COMMAND [--flag=value ...]\n\n";
  for (const Command& command : kCommands) {
    if (command.summary != nullptr) fmt::print(out, "  {:10} {}\n", command.name, command.summary);
  }
  out << "\nEach command takes --help; `trainyard help` lists all flags of train and eval.\n"
         "`trainyard --version` says which version this is.\n";
}

// Throws kInvalidArgument where a launcher has started this process several times
// (parallel/process_group/launcher_claims.h) and the command allows no copies. Its help is always printed.
void refuse_copies_of(const Command& command, const Arguments& arguments) {
  if (command.copies == Copies::kAllowed) return;
  const auto asks_for_help = [](const std::string& each) { return each == "--help" || each == "-h"; };
  if (std::any_of(arguments.begin(), arguments.end(), asks_for_help)) return;
  std::string name = command.name;
  if (command.allowed != nullptr) {
    if (arguments.empty() || arguments[0] == command.allowed) return;
    name += " " + arguments[0];
  }
  parallel::refuse_copies(fmt::format("run `trainyard {}` by itself", name));
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Returns whether a file that the command writes is the standard output, "--json=/dev/stdout": text in the same
// stream would damage it.
bool writes_file_to_stdout(const Command& command, const Arguments& arguments) {
  if (!is_one_of(command.name, {"report", "eval-detections", "predict", "data", "export", "quantize", "models", "bench",
                                "simulate", "suite", "sparsity"})) {
    return false;
  }
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& each) {
    const std::string_view value = std::string_view(each).substr(each.find('=') + 1);  // all of it where there is none
    return is_one_of(value, {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"});
  });
}

int dispatch(const Arguments& arguments, Console& console) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    print_commands(console.out);
    return arguments.empty() ? kUsage : kSuccess;
  }
  if (arguments[0] == "--version" && arguments.size() == 1) {
    const core::BuildInfo& build = core::build_info();
    fmt::print(console.out, "trainyard {} ({})\n", build.version, build.git_revision);
    return kSuccess;
  }
  if (arguments[0].starts_with("-")) return run_flags_alone(arguments, console);
  for (const Command& command : kCommands) {
    if (arguments[0] != command.name) continue;
    const Arguments own(arguments.begin() + 1, arguments.end());
    refuse_copies_of(command, own);
    Console messages{std::cerr, console.stop, console.restart_with};
    return command.run(own, writes_file_to_stdout(command, own) ? messages : console);
  }
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (command.summary != nullptr) names.emplace_back(command.name);
  }
  core::Error unknown = core::unknown_name("command", arguments[0], names);
  throw core::Error(core::ErrorCode::kInvalidArgument, unknown.detail());
}

// Launch must know whether starting a rank again could help.
int code_of_error(core::ErrorCode code) {
  if (code == core::ErrorCode::kCancelled) return kStoppedBySignal;
  const bool of_data = code == core::ErrorCode::kCorruptData || code == core::ErrorCode::kNotFound;
  return of_data && std::getenv(parallel::kRankOfLaunchVariable) != nullptr ? parallel::kWrongData
                                                                            : core::exit_code(code);
}

// Returns whether a command line sets a boolean flag of its command. One that the command refuses sets none.
bool sets_flag(const Arguments& arguments, std::string_view flag) try {
  const Command* const command = std::find_if(std::begin(kCommands), std::end(kCommands),
                                              [&](const Command& each) { return arguments[0] == each.name; });
  std::vector<CommandDescription> descriptions;
  std::ostringstream nothing;
  Console console{.out = nothing, .descriptions = &descriptions};
  command->run({}, console);
  std::vector<std::string> positional;
  return core::parse_flags(descriptions.front().flags, Arguments(arguments.begin() + 1, arguments.end()), positional)
      .boolean(flag);
} catch (const core::Error&) {
  return false;
}

}  // namespace

bool stops_on_request(const Arguments& arguments) {
  if (arguments.empty()) return true;
  const std::string_view kind = arguments.size() > 1 ? std::string_view(arguments[1]) : "";
  if (arguments[0] == "bench") return is_one_of(kind, {"latency", "data"});
  if (arguments[0] == "data") return is_one_of(kind, {"convert", "verify"});
  if (arguments[0] == "report") return sets_flag(arguments, "watch");
  if (arguments[0] == "suite") return !sets_flag(arguments, "list");
  return !is_one_of(arguments[0], {"eval-detections", "export", "quantize", "models", "simulate", "sparsity", "doctor",
                                   "completion", "help"});
}

std::vector<CommandDescription> describe_commands() {
  std::vector<CommandDescription> descriptions;
  std::ostringstream nothing;
  Console console{.out = nothing, .descriptions = &descriptions};
  for (const Command& command : kCommands) {
    if (command.summary != nullptr) command.run({}, console);
  }
  return descriptions;
}

int run(const Arguments& arguments, Console& console) {
  try {
    core::cpu_isa_limit();  // refuses an unknown one before anything runs without it
    int code = dispatch(arguments, console);
    console.out.flush();
    if (!console.out) throw core::Error(core::ErrorCode::kIo, {.problem = "writing results failed", .where = "stdout"});
    return code;
  } catch (const core::Error& error) {
    core::log::error("{}", error.what());
    return code_of_error(error.code());
  } catch (const std::bad_alloc&) {
    core::log::error("out of memory; use a smaller --batch_size");
    return kFailure;
  } catch (const std::exception& error) {
    core::log::error("internal: {}; please report this with the command", error.what());
    return kFailure;
  }
}

}  // namespace trainyard::cli
