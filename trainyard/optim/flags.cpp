#include "trainyard/optim/flags.h"

namespace trainyard::optim {
namespace {

void declare_optimizer_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Optimizer";
  constexpr const char* kRmsprop = "the rmsprop optimizer";
  constexpr const char* kAdam = "the adam optimizer";
  table.choice("optimizer", "sgd", {"momentum", "sgd", "rmsprop", "adam"}, "momentum is Nesterov momentum")
      .pending_value("rmsprop", kRmsprop)
      .pending_value("adam", kAdam)
      .group(kGroup);
  table.real("momentum", 0.9, "of the momentum optimizer").group(kGroup);
  table.real("rmsprop_decay", 0.9, "decay of rmsprop's mean square").group(kGroup).pending(kRmsprop);
  table.real("rmsprop_momentum", 0.9, "momentum of rmsprop").group(kGroup).pending(kRmsprop);
  table.real("rmsprop_epsilon", 1.0, "added inside rmsprop's square root").group(kGroup).pending(kRmsprop);
  table.real("adam_beta1", 0.9, "decay of adam's mean").group(kGroup).pending(kAdam);
  table.real("adam_beta2", 0.999, "decay of adam's mean square").group(kGroup).pending(kAdam);
  table.real("adam_epsilon", 1e-8, "added to adam's root").group(kGroup).pending(kAdam);
  table.real("gradient_clip", std::nullopt, "clip each element of the reduced gradients to [-x, x]").group(kGroup);
  table
      .real("weight_decay", 4e-5,
            "adds this times half the sum of squares of all parameters but batch normalization's to the loss")
      .group(kGroup);
  table.boolean("single_l2_loss_op", false, "join all variables before the weight decay term is computed")
      .group(kGroup)
      .translated("parameters are always flat: same result either way");
  table.boolean("sparse_to_dense_grads", false, "turn sparse gradients into dense ones")
      .group(kGroup)
      .translated("gradients are always dense: same result either way");
}

void declare_clipping_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Clipping";
  table
      .real(
          "clip_norm", std::nullopt,
          "clip the gradient of each parameter to this norm (Keras' clipnorm); of --clip_norm, --clip_global_norm and "
          "--adaptive_clip one at most, in front of --gradient_clip")
      .group(kGroup);
  table
      .real(
          "clip_global_norm", std::nullopt,
          "clip all gradients to this norm of all of them together (Keras' global_clipnorm, PyTorch's clip_grad_norm_)")
      .group(kGroup);
  table
      .real("adaptive_clip", std::nullopt,
            "clip the gradient of each unit, the weights of one output, to this part of the norm of its weights (Brock "
            "et al. 2021: 0.01); not of the last layer")
      .group(kGroup);
  table
      .choice("clip_rule", "tensorflow", {"tensorflow", "pytorch"},
              "tensorflow: norms are of the gradients of the whole loss, weight decay among it; pytorch: of those "
              "without, which is added behind the clipping, and 1e-6 is added to the norm")
      .group(kGroup);
}

void declare_average_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Averaged weights";
  table
      .real("ema_decay", std::nullopt,
            "keep an exponential moving average of weights and batch norm statistics with this decay, as 0.9999; it is "
            "evaluated, saved and exported")
      .bounds(0, 1)
      .group(kGroup);
  table
      .boolean(
          "ema_warmup", false,
          "with ema_decay: the decay of the average's update t is at most (1 + t) / (10 + t), as TensorFlow's with "
          "num_updates")
      .group(kGroup);
  table
      .real("swa_start_epoch", std::nullopt,
            "keep the mean of the weights at the ends of the epochs behind this one (stochastic weight averaging, "
            "Izmailov et al. 2018); it is evaluated, saved and exported, with recalibrated batch norms")
      .bounds(0, 1e9)
      .group(kGroup);
  table
      .integer("average_every", std::nullopt,
               "steps between two updates of averaged weights; unset: 1 with ema_decay, an epoch with swa_start_epoch")
      .bounds(1, int64_t{1} << 40)
      .group(kGroup);
}

void declare_learning_rate_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Learning rate";
  table
      .real("init_learning_rate", std::nullopt,
            "the learning rate, or where its decay starts; unset: the model's schedule")
      .group(kGroup);
  table
      .text("piecewise_learning_rate_schedule", std::nullopt,
            "\"LR0;E1;LR1;...;En;LRn\": rate LR0, from epoch E1 on LR1, and so on; epochs are whole numbers")
      .group(kGroup);
  table.real("num_epochs_per_decay", 0, "epochs between two decays of init_learning_rate").group(kGroup);
  table.real("learning_rate_decay_factor", 0, "the factor of each decay").group(kGroup);
  table.real("minimum_learning_rate", 0, "the decay stops here").group(kGroup);
  table
      .real("num_learning_rate_warmup_epochs", 0,
            "the rate rises from 0 in these epochs; with init_learning_rate or a piecewise schedule only")
      .group(kGroup);
  table
      .choice("learning_rate_schedule", "auto", {"auto", "constant", "piecewise", "cosine"},
              "auto: what the other flags say; cosine: from init_learning_rate to 0 over the run, after the warm-up")
      .group(kGroup);
  table.boolean("compute_lr_on_cpu", false, "compute the rate on the host")
      .group(kGroup)
      .translated("the rate is always computed on the host: same result either way");
}

void declare_loss_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Loss";
  table
      .choice("loss_type_to_report", "total_loss", {"base_loss", "total_loss"},
              "total_loss holds the weight decay term")
      .group(kGroup);
  table.real("label_smoothing", 0, "part of the target that is spread evenly over all classes")
      .bounds(0, 1)
      .group(kGroup);
  table.real("fp16_loss_scale", std::nullopt, "with use_fp16: factor of the loss; unset: 128; 1: none").group(kGroup);
  table
      .boolean("fp16_enable_auto_loss_scale", false,
               "with use_fp16: halve the loss scale on overflow and raise it again")
      .group(kGroup);
  table.integer("fp16_inc_loss_scale_every_n", 1000, "steps without overflow after which the loss scale doubles")
      .group(kGroup);
}

constexpr const char* kSparsity = "Sparsity";

}  // namespace

void declare_pruning_flags(core::FlagTable& table) {
  table
      .choice(
          "mask_algo", "mask_1d", mask_algorithm_names(),
          "which two weights of four stay: those of the greatest magnitude, or, in 4 x 4 blocks whose transposes are "
          "2:4 too, greedily, by the best of all patterns, or by the one that Paddle's mask_2d_best takes, which "
          "adds up weights with their signs")
      .group(kSparsity);
  table
      .list("asp_exclude",
            "layers that stay dense, by name or pattern: stem,layer4.*; empty: none. Those of fewer than four inputs "
            "always do")
      .automatic("the layer of the output")
      .group(kSparsity);
}

SparsityOptions read_pruning_flags(const core::FlagValues& values) {
  SparsityOptions options;
  options.algorithm = mask_algorithm_from_name(values.text("mask_algo"));
  if (values.given("asp_exclude")) options.exclude = values.list("asp_exclude");
  return options;
}

namespace {

void declare_sparsity_flags(core::FlagTable& table) {
  table
      .boolean("asp", false,
               "prune the weights that the training starts from to 2:4 sparsity, and hold them there; a run that "
               "resumes goes on with its masks")
      .group(kSparsity);
  declare_pruning_flags(table);
}

}  // namespace

void declare_flags(core::FlagTable& table) {
  declare_optimizer_flags(table);
  declare_clipping_flags(table);
  declare_average_flags(table);
  declare_learning_rate_flags(table);
  declare_loss_flags(table);
  declare_sparsity_flags(table);
}

}  // namespace trainyard::optim
