#include "trainyard/cli/trained_model_flags.h"

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/frontends/options/average_options.h"
#include "trainyard/models/flags.h"

namespace trainyard::cli {

void declare_trained_model_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Model";
  table.text("model", std::nullopt, "the model; unset: that of the checkpoint or file").group(kGroup);
  table
      .text("weights", std::nullopt,
            "a checkpoint: DIR/model.ckpt-STEP; or a safetensors file, a state dict of torch.save or a checkpoint of "
            "tf_cnn_benchmarks, with --model where the file does not say it")
      .group(kGroup);
  table.text("data_name", std::nullopt, "the data set; unset: the checkpoint's, imagenet for a file of weights")
      .group(kGroup);
  table.integer("num_classes", 0, "of a file of weights; 0: what it says, else the data set's")
      .bounds(0, models::kMostClasses)
      .group(kGroup);
  models::declare_image_size_flag(table, kGroup, "that of the checkpoint or file, else the model's own");
  table.text("train_dir", std::nullopt, "the newest checkpoint in this directory, instead of --weights").group(kGroup);
  frontends::declare_weights_of_flag(table, kGroup);
  table.set_automatic("weights_of", "those that the training evaluated");
  table
      .boolean("ignore_damaged_checkpoints", false,
               "where the newest checkpoint in train_dir is damaged, take the newest intact one")
      .group(kGroup);
}

frontends::TrainedModelOptions read_trained_model_options(const core::FlagValues& values, const std::string& path) {
  const int given = (values.given("weights") ? 1 : 0) + (values.given("train_dir") ? 1 : 0) + (path.empty() ? 0 : 1);
  if (given > 1) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = path.empty() ? "--weights and --train_dir both name a model"
                                               : fmt::format("a model is named by a flag, and by '{}', too", path),
                       .remedy = "leave one of them out"});
  }
  if (given == 0) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "one of --weights and --train_dir must be given"});
  }
  return {.path = !path.empty()             ? path
                  : values.given("weights") ? values.text("weights")
                                            : values.text("train_dir"),
          .model = values.text("model"),
          .dataset = values.text("data_name"),
          .num_classes = values.integer("num_classes"),
          .image_size = models::read_image_size(values),
          .averaged_weights = frontends::read_averaged_weights(values),
          .damaged = values.boolean("ignore_damaged_checkpoints") ? train::DamagedCheckpoints::kPassOver
                                                                  : train::DamagedCheckpoints::kStop};
}

}  // namespace trainyard::cli
