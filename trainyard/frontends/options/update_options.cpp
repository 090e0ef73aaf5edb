#include "trainyard/frontends/options/update_options.h"

#include "trainyard/core/flags/option_flags.h"
#include "trainyard/frontends/options/parameter_groups.h"
#include "trainyard/optim/flags.h"

namespace trainyard::frontends {
namespace {

void add_clipping_flags(core::OptionFlags<UpdateOptions>& flags) {
  using U = UpdateOptions;
  flags.group("Clipping");
  flags.add(
      "clip_norm", &U::clip_norm,
      "clip the gradient of each parameter to this norm (Keras' clipnorm); of --clip_norm, --clip_global_norm and "
      "--adaptive_clip one at most, in front of --gradient_clip");
  flags.add(
      "clip_global_norm", &U::clip_global_norm,
      "clip all gradients to this norm of all of them together (Keras' global_clipnorm, PyTorch's clip_grad_norm_)");
  flags.add("adaptive_clip", &U::adaptive_clip,
            "clip the gradient of each unit, the weights of one output, to this part of the norm of its weights (Brock "
            "et al. 2021: 0.01); not of the last layer");
  flags.choice("clip_rule", &U::clip_rule, {"tensorflow", "pytorch"},
               "tensorflow: norms are of the gradients of the whole loss, weight decay among it; pytorch: of those "
               "without, which is added behind the clipping, and 1e-6 is added to the norm");
}

core::OptionFlags<UpdateOptions> make_update_flags() {
  using U = UpdateOptions;
  core::OptionFlags<U> flags("Optimizer");
  flags.add("decoupled_weight_decay", &U::decoupled_weight_decay,
            "the weight decay shrinks the weights by learning rate times weight decay in each update, and is no part "
            "of the loss; torch_adamw, keras_adamw, lion, lamb, schedule_free_adamw and muon's matrices always do so");
  flags.add("gradient_clip", &U::gradient_clip, "clip each element of the reduced gradients to [-x, x]");
  flags.add("weight_decay", &U::weight_decay,
            "adds this times half the sum of squares of all parameters but batch normalization's to the loss");
  flags.table()
      .list("parameter_groups",
            "parameters with another learning rate or weight decay: PATTERN:RATE_FACTOR[:WEIGHT_DECAY],... as in "
            "head.*:10 or *.bias:1:0. The rate is the step's times the factor, 0 leaves values as they are; the last "
            "pattern that matches a parameter counts")
      .group(flags.group());
  flags.add("layer_decay", &U::layer_decay,
            "factor of the learning rate from each layer to the one in front of it, for fine-tuning: of vision "
            "transformers, ConvNeXt and ResNets by blocks, of other models by twelve parameters, as timm's; 1: none");
  flags.add("sam_rho", &U::sam_rho,
            "sharpness-aware minimization around the optimizer: take the gradient at so far from the weights, uphill; "
            "each step passes over its batch twice. 0: none");
  flags.add("lookahead_steps", &U::lookahead_steps,
            "Lookahead around the optimizer (Zhang et al. 2019): after each so many updates slow weights move towards "
            "the weights, which continue from them. 0: none");
  flags.add("lookahead_alpha", &U::lookahead_alpha, "how far Lookahead's slow weights move: 1 is all the way");
  flags.add(
      "lookahead_final_alpha", &U::lookahead_final_alpha,
      "--lookahead_alpha at the end of the training, approached with the cube of the steps that are done; the last "
      "step sets the weights to the slow ones");
  flags.table()
      .boolean("single_l2_loss_op", false, "join all variables before the weight decay term is computed")
      .group(flags.group())
      .translated("parameters are always flat: same result either way");
  flags.table()
      .boolean("sparse_to_dense_grads", false, "turn sparse gradients into dense ones")
      .group(flags.group())
      .translated("gradients are always dense: same result either way");
  add_clipping_flags(flags);
  flags.also([](const core::FlagValues& values, U& options) {
    options.optimizer = values.text("optimizer");
    options.groups = parse_parameter_groups(values.list("parameter_groups"));
    options.numbers = optim::read_optimizer_numbers(values, optim::optimizer_of_flag(options.optimizer));
    options.delayed = values.text("variable_consistency") == "relaxed";
    options.gradient_reduction = values.text("gradient_reduction");
    options.on_nan = train::on_nan_from_name(values.text("on_nan"));
    if (values.given("muon_exclude")) options.muon_exclude = values.list("muon_exclude");
    if (values.boolean("asp")) options.sparsity = optim::read_pruning_flags(values);
  });
  return flags;
}

}  // namespace

optim::OptimizerNumbers UpdateOptions::all_numbers() const {
  optim::OptimizerNumbers all = optim::default_optimizer_numbers(optim::optimizer_of_flag(optimizer));
  for (const auto& [name, value] : numbers) all[name] = value;
  return all;
}

void declare_update_flags(core::FlagTable& table) {
  optim::declare_optimizer_flags(table);
  core::flags_of<make_update_flags>().declare(table);
}

UpdateOptions read_update_options(const core::FlagValues& values) {
  return core::flags_of<make_update_flags>().read(values);
}

}  // namespace trainyard::frontends
