// How parameters are updated: optimizer, clipping, regularization. What a run is asked for, and its flags.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/flags/flags.h"
#include "trainyard/optim/optimizers/optimizer_options.h"
#include "trainyard/optim/sparsity/prune.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::frontends {

struct UpdateOptions {
  std::string optimizer = "sgd";      // name in optim::optimizers(), or tf_cnn_benchmarks' name
  optim::OptimizerNumbers numbers{};  // numbers of its formula; others have the defaults of their flags
  bool decoupled_weight_decay = false;
  double weight_decay = 4e-5;
  std::vector<optim::ParameterGroup> groups{};  // parameters with another rate or decay; the last match counts
  std::optional<double> gradient_clip{};
  std::optional<double> clip_norm{}, clip_global_norm{}, adaptive_clip{};  // one of the three at most
  std::string clip_rule = "tensorflow";                                    // "pytorch"
  double layer_decay = 1;                                                  // 1: none
  bool delayed = false;         // each update applies the gradients of the previous step
  double sam_rho = 0;           // 0: no sharpness-aware minimization
  int64_t lookahead_steps = 0;  // 0: no Lookahead
  double lookahead_alpha = 0.5;
  std::optional<double> lookahead_final_alpha{};  // empty: it stays
  std::string gradient_reduction = "auto";        // "sum", "mean"
  train::OnNan on_nan = train::OnNan::kIgnore;
  std::optional<optim::SparsityOptions> sparsity{};        // set: --asp
  std::optional<std::vector<std::string>> muon_exclude{};  // not set: the layer of the output

  // Return what the optimizer has.
  [[nodiscard]] bool has_muon_matrices() const { return optimizer == "muon_sgd" || optimizer == "muon_adamw"; }
  [[nodiscard]] bool is_schedule_free() const {
    return optimizer == "schedule_free_sgd" || optimizer == "schedule_free_adamw";
  }
  // Returns `numbers`, and the defaults of all other numbers that have flags.
  [[nodiscard]] optim::OptimizerNumbers all_numbers() const;
};

// Declares the flags of optimizers and of clipping.
void declare_update_flags(core::FlagTable& table);
// Reads them, and --variable_consistency, --gradient_reduction, --on_nan and --asp, which others declare.
[[nodiscard]] UpdateOptions read_update_options(const core::FlagValues& values);

}  // namespace trainyard::frontends
