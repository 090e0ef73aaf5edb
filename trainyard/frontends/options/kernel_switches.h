// Which layers run as one, by the flags of tf_cnn_benchmarks that switch what TensorFlow optimizes:
// enable_optimizations, rewriter_config and batchnorm_persistent. Results are the same but for rounding; `trainyard
// bench layers` shows the difference.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/graph/fusion.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

struct KernelSwitches {
  bool enable_optimizations = true;  // false: each layer runs by itself
  // false: batch norms run by themselves. Kernels that keep their numbers at hand are those which cuDNN can join with
  // an addition and an activation (CUDNN_BATCHNORM_SPATIAL_PERSISTENT), and ours join them, too.
  bool batchnorm_persistent = true;
  std::string rewriter_config{};  // empty: none
};

// What a text of the form "name: VALUE", with spaces, commas or line breaks between its entries, asks for.
struct RewriterConfig {
  nn::Fusions fusions{};
  std::optional<nn::Recomputation> recomputation{};  // unset: it says nothing of memory
  std::vector<std::string> warnings{};               // of what it asks for in vain, one sentence each
};

// Reads the text. Names are those of TensorFlow's RewriterConfig, and those of nn::Fusions for a single fusion; values
// are ON, OFF and DEFAULT. AGGRESSIVE is ON. An entry for which there is no counterpart is a warning that names it.
// Later entries hold over earlier ones. Throws kInvalidArgument for another name, value or form.
//
// remapping: all fusions. constant_folding: folded_norm. disable_meta_optimizer: true: no fusion, whatever else is
// said. memory_optimization: RECOMPUTATION_HEURISTICS and HEURISTICS make activations again
// (Recomputation::kElementwise), NO_MEM_OPT keeps them.
RewriterConfig parse_rewriter_config(const std::string& text);

// Returns what the switches allow, with the warnings of rewriter_config. Throws as parse_rewriter_config() does.
[[nodiscard]] RewriterConfig settle_switches(const KernelSwitches& switches);

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
