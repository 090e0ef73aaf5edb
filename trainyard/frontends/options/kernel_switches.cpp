#include "trainyard/frontends/options/kernel_switches.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/option_flags.h"

namespace trainyard::frontends {
namespace {

core::OptionFlags<KernelSwitches> switch_flags(const std::string& group) {
  using K = KernelSwitches;
  core::OptionFlags<K> flags(group);
  flags.add("enable_optimizations", &K::enable_optimizations,
            "run layers as one where they follow each other; false: each by itself");
  flags.add("rewriter_config", &K::rewriter_config,
            "which layers run as one: \"remapping: OFF norm_activation: ON\"; memory_optimization: "
            "RECOMPUTATION_HEURISTICS is recompute=elementwise");
  flags.add("batchnorm_persistent", &K::batchnorm_persistent,
            "allow batch normalization kernels that add and activate, too; false: each batch norm runs by itself");
  return flags;
}

constexpr std::pair<std::string_view, bool nn::Fusions::*> kFusions[] = {
    {"norm_addition", &nn::Fusions::norm_addition},
    {"norm_activation", &nn::Fusions::norm_activation},
    {"convolution_activation", &nn::Fusions::convolution_activation},
    {"sum_activation", &nn::Fusions::sum_activation},
    {"layer_scale", &nn::Fusions::layer_scale},
    {"folded_norm", &nn::Fusions::folded_norm},
    {"inverted_residual", &nn::Fusions::inverted_residual},
};

// Switches of TensorFlow's optimizers of graphs without a counterpart: there is nothing to switch.
constexpr std::string_view kWithoutCounterpart[] = {"layout_optimizer",
                                                    "shape_optimization",
                                                    "arithmetic_optimization",
                                                    "dependency_optimization",
                                                    "loop_optimization",
                                                    "function_optimization",
                                                    "debug_stripper",
                                                    "disable_model_pruning",
                                                    "scoped_allocator_optimization",
                                                    "pin_to_host_optimization",
                                                    "implementation_selector",
                                                    "auto_mixed_precision",
                                                    "auto_mixed_precision_mkl",
                                                    "common_subgraph_elimination",
                                                    "min_graph_nodes",
                                                    "meta_optimizer_iterations",
                                                    "use_plugin_optimizers",
                                                    "meta_optimizer_timeout_ms"};

[[noreturn]] void refuse_config(const std::string& text, std::string problem, std::string expected,
                                std::string actual) {
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = std::move(problem),
                                                        .where = "--rewriter_config=" + text,
                                                        .expected = std::move(expected),
                                                        .actual = std::move(actual)});
}

// Returns the entries as names and values.
std::vector<std::pair<std::string, std::string>> entries_of(const std::string& text) {
  std::vector<std::string> words;
  bool open = false;  // a word is being read
  for (const char c : text) {
    if (c == ' ' || c == '\n' || c == '\t' || c == ',' || c == ';') {
      open = false;
    } else if (c == ':') {
      words.emplace_back(":");
      open = false;
    } else {
      if (!open) words.emplace_back();
      words.back() += c;
      open = true;
    }
  }
  std::vector<std::pair<std::string, std::string>> entries;
  for (size_t i = 0; i < words.size(); i += 3) {
    const bool whole = i + 2 < words.size() && words[i + 1] == ":" && words[i] != ":" && words[i + 2] != ":";
    if (!whole) refuse_config(text, "it is no list of switches", "NAME: VALUE, one behind the other", words[i]);
    entries.emplace_back(words[i], words[i + 2]);
  }
  return entries;
}

class ConfigReader {
 public:
  explicit ConfigReader(const std::string& text) : text_(text) {}

  RewriterConfig read() {
    for (const auto& [name, value] : entries_of(text_)) read_entry(name, value);
    if (disabled_) config_.fusions = nn::Fusions::none();
    return std::move(config_);
  }

 private:
  void read_entry(const std::string& name, const std::string& value) {
    const auto single =
        std::find_if(std::begin(kFusions), std::end(kFusions), [&](auto& f) { return f.first == name; });
    if (single != std::end(kFusions)) {
      config_.fusions.*single->second = is_on(name, value);
    } else if (name == "remapping") {
      config_.fusions = is_on(name, value) ? nn::Fusions{} : nn::Fusions::none();
    } else if (name == "constant_folding") {
      config_.fusions.folded_norm = is_on(name, value);
    } else if (name == "disable_meta_optimizer") {
      if (value != "true" && value != "false")
        refuse_config(text_, "a switch has no such value", "true or false", value);
      disabled_ = value == "true";
    } else if (name == "memory_optimization") {
      read_memory(name, value);
    } else if (std::find(std::begin(kWithoutCounterpart), std::end(kWithoutCounterpart), name) !=
               std::end(kWithoutCounterpart)) {
      ignore(name, value, "there is nothing here that it would switch");
    } else {
      std::string known = "remapping, constant_folding, memory_optimization, disable_meta_optimizer";
      for (const auto& fusion : kFusions) known += fmt::format(", {}", fusion.first);
      refuse_config(text_, "there is no such switch", "one of TensorFlow's RewriterConfig, or " + known, name);
    }
  }

  bool is_on(const std::string& name, const std::string& value) {
    if (value == "AGGRESSIVE") ignore(name, value, "it is taken as ON");
    if (value == "ON" || value == "DEFAULT" || value == "AGGRESSIVE") return true;
    if (value != "OFF") refuse_config(text_, name + " has no such value", "ON, OFF, DEFAULT or AGGRESSIVE", value);
    return false;
  }

  void read_memory(const std::string& name, const std::string& value) {
    if (value == "DEFAULT_MEM_OPT") return;
    if (value == "NO_MEM_OPT") {
      config_.recomputation = nn::Recomputation::kNone;
    } else if (value == "RECOMPUTATION_HEURISTICS" || value == "HEURISTICS") {
      config_.recomputation = nn::Recomputation::kElementwise;
    } else if (value == "MANUAL" || value == "SWAPPING_HEURISTICS" || value == "SCHEDULING_HEURISTICS") {
      ignore(name, value, "activations are kept or made again, not moved elsewhere");
    } else {
      refuse_config(text_, name + " has no such value", "NO_MEM_OPT, RECOMPUTATION_HEURISTICS or HEURISTICS", value);
    }
  }

  void ignore(const std::string& name, const std::string& value, const char* why) {
    config_.warnings.push_back(fmt::format("rewriter_config: {}: {} is ignored: {}", name, value, why));
  }

  const std::string& text_;
  RewriterConfig config_;
  bool disabled_ = false;
};

}  // namespace

void declare_kernel_switches(core::FlagTable& table, const std::string& group) {
  switch_flags(group).declare(table);
}

KernelSwitches read_kernel_switches(const core::FlagValues& values) {
  return switch_flags("").read(values);
}

RewriterConfig parse_rewriter_config(const std::string& text) {
  return ConfigReader(text).read();
}

RewriterConfig settle_switches(const KernelSwitches& switches) {
  RewriterConfig settled = parse_rewriter_config(switches.rewriter_config);
  if (!switches.enable_optimizations) settled.fusions = nn::Fusions::none();
  if (!switches.batchnorm_persistent) settled.fusions.norm_addition = settled.fusions.norm_activation = false;
  return settled;
}

}  // namespace trainyard::frontends
