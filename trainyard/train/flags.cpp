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

namespace {

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

void declare_distillation_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Distillation";
  table
      .text("distill_from", std::nullopt,
            "learn from a teacher, too: a file of weights (safetensors, .pth), a checkpoint, or a train_dir, whose "
            "newest checkpoint it then is; its classes must be the model's")
      .group(kGroup);
  table.text("distill_model", std::nullopt, "the teacher's model; unset: what distill_from says").group(kGroup);
  table
      .real("distill_weight", std::nullopt,
            "the teacher's part w of the loss: (1 - w) cross-entropy + w T^2 KL(teacher, model); unset: 0.5")
      .bounds(0, 1)
      .group(kGroup);
  table
      .real("distill_temperature", std::nullopt,
            "T: both outputs are divided by it before the softmax of that part; unset: 1")
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

void declare_display_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Display";
  table.integer("display_every", 10, "steps between two lines; the first step is always shown").group(kGroup);
  table
      .real("display_perf_ewma", std::nullopt,
            "weight of the newest step time in a moving average, instead of the mean of all")
      .bounds(0, 1)
      .group(kGroup);
  table.boolean("print_training_accuracy", false, "add top-1 and top-5 accuracy of the batch to the lines")
      .group(kGroup);
}

void declare_output_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Checkpoints and logs";
  table
      .text("train_dir", std::nullopt,
            "checkpoints, TensorBoard events, metrics.jsonl and metrics.csv go here; a run continues from the newest "
            "checkpoint in it")
      .group(kGroup);
  table
      .choice(
          "existing_run", "keep", {"ask", "keep", "back_up", "delete", "new_name"},
          "what becomes of a run that train_dir holds when a training begins: keep goes on with it, back_up renames "
          "the directory, delete deletes what the run has written, new_name takes another directory for the new run; "
          "ask asks on a terminal, and is keep elsewhere")
      .group(kGroup);
  table
      .text("weights", std::nullopt,
            "start from these weights, or evaluate them: a safetensors file or a state dict of torch.save (.pth, .pt) "
            "with torchvision's names, or a checkpoint's folder")
      .group(kGroup);
  table.integer("save_model_secs", 0, "seconds between two checkpoints; 0: only at the end").group(kGroup);
  table.integer("save_model_steps", std::nullopt, "steps between two checkpoints").group(kGroup);
  table.integer("max_ckpts_to_keep", 5, "older checkpoints are removed").group(kGroup);
  table
      .text(
          "keep_best", "none",
          "keep the checkpoint of the best evaluation as train_dir/best: of the highest top_1, top_5 or "
          "mean_class_accuracy (the mean over the classes), or of the lowest loss; none keeps none. Of another number "
          "of a model of your own, NAME:highest or NAME:lowest")
      .group(kGroup);
  table
      .boolean("ignore_damaged_checkpoints", false,
               "where the newest checkpoint is damaged, take the newest intact one, or start from the beginning when "
               "there is none; training keeps the damaged ones under other names")
      .group(kGroup);
  table.integer("save_summaries_steps", 0, "steps between two summaries in TensorBoard; 0: none").group(kGroup);
  table
      .integer("summary_verbosity", 0,
               "0: no summaries; 1: scalars; 2: also a histogram of the logarithms of all gradients; 3 and more: also "
               "one of "
               "each parameter and of its gradient, and the first three images of the batch")
      .group(kGroup);
  table
      .text("plot_schedule", std::nullopt,
            "draw the learning rate against step and epoch into this SVG file, write its numbers beside it (.csv), say "
            "where it warms up, changes, and what its extremes are, and train nothing")
      .group(kGroup);
  table.text("benchmark_log_dir", std::nullopt, "write benchmark_run.log and metric.log (JSON) here").group(kGroup);
  table.text("benchmark_test_id", std::nullopt, "a name for this run in benchmark_run.log").group(kGroup);
}

void declare_trace_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Traces and graphs";
  table
      .text(
          "trace_file", "",
          "write a trace of the last but one step of the warm-up, or of the first step when the warm-up is shorter; on "
          "a GPU with its kernels and copies, of a step that is not replayed (--xla)")
      .group(kGroup);
  table
      .boolean("use_chrome_trace_format", true,
               "trace_file for chrome://tracing and Perfetto; false: TensorFlow's StepStats as text")
      .group(kGroup);
  table
      .text("tfprof_file", std::nullopt,
            "profile the ten steps after the warm-up: print the 20 longest operators, write layers and operators as "
            "JSON; on a GPU by its own time and with its kernels, of steps that are not replayed (--xla)")
      .group(kGroup);
  table
      .boolean("ml_perf_compliance_logging", false,
               "write what the run does to stderr as MLPerf's v0.5 wants it (:::MLPv0.5.0 resnet ...); for "
               "resnet50_v1.5")
      .group(kGroup);
}

}  // namespace

void declare_flags(core::FlagTable& table) {
  declare_run_flags(table);
  declare_distillation_flags(table);
  declare_evaluation_flags(table);
  declare_display_flags(table);
  declare_output_flags(table);
  declare_trace_flags(table);
}

}  // namespace trainyard::train
