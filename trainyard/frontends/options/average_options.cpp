#include "trainyard/frontends/options/average_options.h"

namespace trainyard::frontends {

core::OptionFlags<AverageOptions> average_flags() {
  using A = AverageOptions;
  core::OptionFlags<A> flags("Averaged weights");
  flags
      .add("ema_decay", &A::ema_decay,
           "keep an exponential moving average of weights and batch norm statistics with this decay, as 0.9999; it is "
           "evaluated, saved and exported")
      .bounds(0)
      .below(1);
  flags.add("ema_warmup", &A::ema_warmup,
            "with ema_decay: the decay of the average's update t is at most (1 + t) / (10 + t), as TensorFlow's with "
            "num_updates");
  flags
      .add("swa_start_epoch", &A::swa_start_epoch,
           "keep the mean of the weights at the ends of the epochs behind this one (stochastic weight averaging, "
           "Izmailov et al. 2018); it is evaluated, saved and exported, with recalibrated batch norms")
      .bounds(0, 1e9);
  flags
      .add("average_every", &A::average_every,
           "steps between two updates of averaged weights; unset: 1 with ema_decay, an epoch with swa_start_epoch")
      .bounds(1, int64_t{1} << 40);
  flags.also([](const core::FlagValues& values, A& options) {
    options.averaged_weights = read_averaged_weights(values);
    options.recalibrate_batch_norm = values.optional_integer("recalibrate_batch_norm");
  });
  return flags;
}

void declare_weights_of_flag(core::FlagTable& table, const std::string& group) {
  table
      .choice("weights_of", "average", {"average", "last"},
              "which weights of a checkpoint, or of a training that averages them: the averaged ones where there are "
              "some, or the last ones")
      .group(group);
}

std::optional<bool> read_averaged_weights(const core::FlagValues& values) {
  if (!values.given("weights_of")) return std::nullopt;
  return values.text("weights_of") == "average";
}

}  // namespace trainyard::frontends
