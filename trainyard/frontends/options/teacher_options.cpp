#include "trainyard/frontends/options/teacher_options.h"

#include "trainyard/core/base/error.h"
namespace trainyard::frontends {
namespace {

// Reads the numbers of the loss, whose defaults are those of DistillationOptions.
void read_distillation_loss(const core::FlagValues& values, TeacherOptions& options) {
  const auto weight = values.optional_real("distill_weight"), temperature = values.optional_real("distill_temperature");
  options.loss.weight = weight.value_or(options.loss.weight);
  options.loss.temperature = temperature.value_or(options.loss.temperature);
  const char* const without_use = !options.model.empty() ? "--distill_model"
                                  : weight               ? "--distill_weight"
                                  : temperature          ? "--distill_temperature"
                                                         : nullptr;
  if (options.from.empty() && without_use != nullptr) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = std::string(without_use) + " without a teacher",
                                                          .remedy = "add --distill_from, or leave it out"});
  }
  options.loss.validate();
}

}  // namespace

core::OptionFlags<TeacherOptions> teacher_flags() {
  core::OptionFlags<TeacherOptions> flags("Distillation");
  flags.add("distill_from", &TeacherOptions::from,
            "learn from a teacher, too: a file of weights (safetensors, .pth), a checkpoint, or a train_dir, whose "
            "newest checkpoint it then is; its classes must be the model's");
  flags.add("distill_model", &TeacherOptions::model, "the teacher's model; unset: what distill_from says");
  flags.table()
      .real("distill_weight", std::nullopt,
            "the teacher's part w of the loss: (1 - w) cross-entropy + w T^2 KL(teacher, model); unset: 0.5")
      .bounds(0, 1)
      .group(flags.group());
  flags.table()
      .real("distill_temperature", std::nullopt,
            "T: both outputs are divided by it before the softmax of that part; unset: 1")
      .group(flags.group());
  flags.also(read_distillation_loss);
  return flags;
}

}  // namespace trainyard::frontends
