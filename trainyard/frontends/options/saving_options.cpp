#include "trainyard/frontends/options/saving_options.h"

namespace trainyard::frontends {

core::OptionFlags<SavingOptions> saving_flags() {
  using S = SavingOptions;
  core::OptionFlags<S> flags("Checkpoints and logs");
  flags.add("train_dir", &S::train_dir,
            "checkpoints, TensorBoard events, metrics.jsonl and metrics.csv go here; a run continues from the newest "
            "checkpoint in it");
  flags.table()
      .choice(
          "existing_run", "keep", {"ask", "keep", "back_up", "delete", "new_name"},
          "what becomes of a run that train_dir holds when a training begins: keep goes on with it, back_up renames "
          "the directory, delete deletes what the run has written, new_name takes another directory for the new "
          "run; ask asks on a terminal, and is keep elsewhere")
      .group(flags.group());
  flags.also([](const core::FlagValues& values, S& options) {
    options.existing_run = train::parse_existing_run(values.text("existing_run"));
  });
  flags.table()
      .text("weights", std::nullopt,
            "start from these weights, or evaluate them: a safetensors file or a state dict of torch.save (.pth, "
            ".pt) with torchvision's names, a checkpoint's folder, or a checkpoint of tf_cnn_benchmarks")
      .group(flags.group());
  flags.add("save_model_secs", &S::save_model_secs, "seconds between two checkpoints; 0: only at the end");
  flags.add("save_model_steps", &S::save_model_steps, "steps between two checkpoints");
  flags.add("max_ckpts_to_keep", &S::max_ckpts_to_keep, "older checkpoints are removed");
  flags.add("keep_best", &S::keep_best,
            "keep the checkpoint of the best evaluation as train_dir/best: of the highest top_1, top_5 or "
            "mean_class_accuracy (the mean over the classes), or of the lowest loss; none keeps none. Of another "
            "number of a model of your own, NAME:highest or NAME:lowest");
  flags.add("ignore_damaged_checkpoints", &S::ignore_damaged_checkpoints,
            "where the newest checkpoint is damaged, take the newest intact one, or start from the beginning when "
            "there is none; training keeps the damaged ones under other names");
  return flags;
}

}  // namespace trainyard::frontends
