// Selects fusions from the flags of tf_cnn_benchmarks that control TensorFlow's optimizations: enable_optimizations,
// rewriter_config and batchnorm_persistent. Results are the same except for rounding; `trainyard bench layers` shows
// the difference.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/flags/flags.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/graph/fusion.h"

namespace trainyard::frontends {

struct KernelSwitches {
  bool enable_optimizations = true;  // false: no layers are fused
  // false: batch norms are not fused. cuDNN's persistent kernels (CUDNN_BATCHNORM_SPATIAL_PERSISTENT) are those that it
  // can fuse with an addition and an activation, as ours do.
  bool batchnorm_persistent = true;
  std::string rewriter_config{};  // empty: none
};

// Declares the three flags in this group of the help.
void declare_kernel_switches(core::FlagTable& table, const std::string& group);
[[nodiscard]] KernelSwitches read_kernel_switches(const core::FlagValues& values);

// The options in a text of entries "name: VALUE", separated by spaces, commas or line breaks.
struct RewriterConfig {
  nn::Fusions fusions{};
  std::optional<nn::Recomputation> recomputation{};  // unset: not specified
  std::vector<std::string> warnings{};               // of entries without effect, one sentence each
};

// Parses the text. Names are those of TensorFlow's RewriterConfig, and those of nn::Fusions for a single fusion; values
// are ON, OFF and DEFAULT. AGGRESSIVE is ON. An entry without a counterpart gives a warning that names it. Later
// entries override earlier ones. Throws kInvalidArgument for another name, value or form.
//
// remapping: all fusions. constant_folding: folded_norm. disable_meta_optimizer: true disables all fusions.
// memory_optimization: RECOMPUTATION_HEURISTICS and HEURISTICS recompute activations (Recomputation::kElementwise),
// NO_MEM_OPT keeps them.
RewriterConfig parse_rewriter_config(const std::string& text);

// Returns the resulting options, with the warnings of rewriter_config. Throws as parse_rewriter_config() does.
[[nodiscard]] RewriterConfig settle_switches(const KernelSwitches& switches);

}  // namespace trainyard::frontends
