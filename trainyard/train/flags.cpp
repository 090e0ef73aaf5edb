#include "trainyard/train/flags.h"

namespace trainyard::train {

void declare_weights_of_flag(core::FlagTable& table, const char* group) {
  table
      .choice("weights_of", "average", {"average", "last"},
              "which weights of a checkpoint, or of a training that averages them: the averaged ones where there are "
              "some, or the last ones")
      .group(group);
}

bool wants_averaged_weights(const core::FlagValues& values) {
  return values.text("weights_of") == "average";
}

void declare_run_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Run";
  table.boolean("eval", false, "evaluate the checkpoint in train_dir instead of training").group(kGroup);
  table.boolean("forward_only", false, "run the model forward only: speed of inference").group(kGroup);
  table
      .integer("batch_size", 0,
               "images a device and step; 0: the model's default; auto: as many as there is memory for, which a plan "
               "of the memory tells before the first step, but at most a 16th of an epoch; the model's own learning "
               "rate is then that of its default batch")
      .word("auto")
      .group(kGroup);
  table
      .integer(
          "batch_size_memory_mib", std::nullopt,
          "memory that batch_size=auto may fill; unset: three quarters of what the machine or a GPU has and control "
          "groups allow, or what is free of it where that is less")
      .bounds(1, int64_t{1} << 40)
      .group(kGroup);
  table.integer("num_batches", std::nullopt, "steps after the warm-up; unset, or 0: 100, or what num_epochs says")
      .group(kGroup);
  table.real("num_epochs", std::nullopt, "epochs to run, instead of num_batches").group(kGroup);
  table
      .integer("num_warmup_batches", std::nullopt,
               "steps before the clock starts; they train too. Unset: max(10, 5 autotune_threshold^2)")
      .group(kGroup);
  table.integer("autotune_threshold", std::nullopt, "how often kernels are tried before one is chosen")
      .group(kGroup)
      .translated("it sizes the warm-up, in which kernels are chosen");
  table.integer("micro_steps", 1, "batches of each device that are averaged into one update")
      .bounds(1, 65'536)
      .group(kGroup);
  table
      .choice(
          "on_nan", "ignore", {"stop", "skip", "ignore"},
          "when the loss or a gradient is not finite. stop: end the run, naming the step and the first layer, and save "
          "nothing; skip: leave parameters and statistics as they were, a hundred such steps in a row end the run; "
          "ignore: go on with one warning")
      .group(kGroup);
  table
      .integer("recalibrate_batch_norm", std::nullopt,
               "at the end, set batch norm statistics to the means of this many batches of training data; unset: 200 "
               "with swa_start_epoch, at most an epoch, otherwise 0, which leaves them as they are")
      .bounds(0, int64_t{1} << 40)
      .group(kGroup);
  table
      .list("freeze",
            "parameters that do not train, by patterns of their names: 'conv*,layer1.*'; * stands for any characters. "
            "They keep their values, and batch norms whose parameters are all frozen keep their statistics. `trainyard "
            "models "
            "NAME` lists the layers. On the CPU")
      .group(kGroup);
  table.integer("tf_random_seed", 1234, "seed of everything random: weights, order of records, augmentation, dropout")
      .group(kGroup);
}

void declare_evaluation_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Evaluation";
  table.integer("eval_batch_size", 0, "images a device and step in evaluation; 0: batch_size").group(kGroup);
  table
      .integer("num_eval_batches", std::nullopt,
               "batches of an evaluation, wrapping around the data; unset: num_eval_epochs, else as in training")
      .group(kGroup);
  table.real("num_eval_epochs", std::nullopt, "epochs of an evaluation, instead of num_eval_batches").group(kGroup);
  table.boolean("eval_exact", false, "see every validation sample once, the last batch shorter").group(kGroup);
  table.integer("eval_interval_secs", 0, "with eval: evaluate the newest checkpoint every so many seconds; 0: once")
      .group(kGroup);
  table.integer("eval_during_training_every_n_steps", std::nullopt, "evaluate every so many steps of training")
      .bounds(1)
      .group(kGroup);
  table.real("eval_during_training_every_n_epochs", std::nullopt, "evaluate every so many epochs of training")
      .group(kGroup);
  table.list("eval_during_training_at_specified_steps", "evaluate at these steps of training").group(kGroup);
  table.list("eval_during_training_at_specified_epochs", "evaluate at these epochs of training").group(kGroup);
  table.real("stop_at_top_1_accuracy", std::nullopt, "stop once an evaluation during training reaches this")
      .group(kGroup);
  table
      .integer("early_stop", std::nullopt,
               "stop after so many evaluations in a row without a new best value of what keep_best names, top_1 with "
               "none; what was counted is saved, and a run that has stopped so stays stopped")
      .bounds(1, int64_t{1} << 40)
      .group(kGroup);
  declare_weights_of_flag(table, kGroup);
  table.boolean("collect_eval_results_async", false, "gather results of an evaluation in another process")
      .group(kGroup)
      .later("only ssd300 uses it, which is outside what this project covers for now");
  table.text("eval_dir", "/tmp/tf_cnn_benchmarks/eval", "where --eval writes its TensorBoard events").group(kGroup);
}

}  // namespace trainyard::train
