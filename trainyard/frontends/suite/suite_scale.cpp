#include <algorithm>
#include <charconv>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/frontends/input/dataset_choice.h"
#include "trainyard/frontends/options/device_settings.h"
#include "trainyard/frontends/suite/suite.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/frontends/tf_cnn/read_options.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/train/devices/open_devices.h"

namespace trainyard::frontends {
namespace {

constexpr Dialect kSuiteDialect = Dialect::kTfCnnBenchmarks;

std::pair<std::string, std::string> split_argument(const std::string& argument) {
  const size_t equals = argument.find('=');
  if (equals == std::string::npos) return {argument.substr(2), ""};
  return {argument.substr(2, equals - 2), argument.substr(equals + 1)};
}

class Scaler {
 public:
  Scaler(const SuiteEntry& entry, const SuiteMachine& machine)
      : machine_(machine), searches_batch_(entry.searches_batch) {
    std::istringstream words{std::string(entry.arguments)};
    for (std::string word; words >> word;) add(word);
    if (machine.gpus == 0 && !says_device_) {
      scaled_.arguments.emplace_back("--device=cpu");
      scaled_.changes.emplace_back("device gpu -> cpu");
    }
  }
  ScaledEntry take() { return std::move(scaled_); }

 private:
  void add(const std::string& argument) {
    const auto [name, value] = split_argument(argument);
    if (name == "device") says_device_ = true;
    if (name == "num_gpus") return add_devices(value);
    if (name == "batch_size" && searches_batch_) {
      scaled_.arguments.emplace_back("--batch_size=auto");  // the original's search begins with the number
      return;
    }
    if (name == "data_dir") {
      if (machine_.data_dir.empty()) scaled_.refusal = "it needs data: pass --data_dir";
      scaled_.arguments.push_back("--data_dir=" + machine_.data_dir);
      return;
    }
    if (name == "backbone_model_path") {
      scaled_.changes.emplace_back("backbone_model_path left out");  // its values do not change the speed
      return;
    }
    if (machine_.gpus == 0 && replaced(name)) return;
    scaled_.arguments.push_back(argument);
  }

  void add_devices(const std::string& value) {
    int wanted = 1;
    std::from_chars(value.data(), value.data() + value.size(), wanted);
    const int most = std::max(1, machine_.gpus > 0 ? machine_.gpus : machine_.cores);
    const int devices = std::min(wanted, most);
    scaled_.arguments.push_back(fmt::format("--num_gpus={}", devices));
    if (devices != wanted) scaled_.changes.push_back(fmt::format("num_gpus {} -> {}", wanted, devices));
  }

  // Flags of GPUs, on a machine that has none.
  bool replaced(const std::string& name) {
    if (name == "use_fp16") {
      if (machine_.bfloat16) scaled_.arguments.emplace_back("--use_bf16");
      scaled_.changes.emplace_back(machine_.bfloat16 ? "use_fp16 -> use_bf16" : "use_fp16 left out");
      return true;
    }
    for (const char* of_gpus : {"xla", "xla_compile", "all_reduce_spec"}) {
      if (name != of_gpus) continue;
      scaled_.changes.push_back(name + " left out");
      return true;
    }
    return false;
  }

  const SuiteMachine& machine_;
  const bool searches_batch_;
  ScaledEntry scaled_;
  bool says_device_ = false;
};

// Returns the program's own refusal of a run on this machine, before it opens a device; empty: it would begin.
std::string refusal_of_program(const std::vector<std::string>& arguments, const SuiteMachine& machine) {
  try {
    const TfCnnOptions options = read_suite_options(arguments);
    options.validate();
    models::find_model(options.model, choose_dataset(options.input.data_name, options.input.data_dir).name);
    plan_devices(options.device,
                 {.evaluation = options.mode == RunMode::kEvaluation,
                  .forward_only = options.mode == RunMode::kForwardOnly,
                  .decodes_on_gpu = options.input.decode_on_gpu,
                  .prunes = options.update.sparsity.has_value()},
                 machine.gpus);
  } catch (const core::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

SuiteMachine suite_machine(std::string data_dir) {
  return {.gpus = train::gpu_count(),
          .cores = core::available_cores(),
          .bfloat16 = core::cpu_has_avx512_bf16(),
          .data_dir = std::move(data_dir)};
}

TfCnnOptions read_suite_options(const std::vector<std::string>& arguments) {
  return read_options(core::parse_flags(tf_cnn_flags(kSuiteDialect), arguments), kSuiteDialect);
}

ScaledEntry scale_entry(const SuiteEntry& entry, const SuiteMachine& machine) {
  ScaledEntry scaled = Scaler(entry, machine).take();
  if (scaled.refusal.empty()) scaled.refusal = refusal_of_program(scaled.arguments, machine);
  return scaled;
}

}  // namespace trainyard::frontends
