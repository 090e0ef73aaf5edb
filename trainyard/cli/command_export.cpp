#include <ostream>

#include <fmt/ostream.h>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/core/error.h"
#include "trainyard/recipes/trained_model.h"
#include "trainyard/train/weights.h"

namespace trainyard::cli {

int run_export(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  table.text("model", std::nullopt, "the model; unset: the checkpoint's").group("Model");
  table
      .text("weights", std::nullopt,
            "a checkpoint: DIR/model.ckpt-STEP; or a safetensors file or state dict of torch.save, with --model")
      .group("Model");
  table.text("train_dir", std::nullopt, "the newest checkpoint in this directory, instead of --weights").group("Model");
  table.text("data_name", std::nullopt, "the data set; unset: the checkpoint's, imagenet for a file of weights")
      .group("Model");
  table.integer("num_classes", 0, "of a file of weights; 0: the data set's").bounds(0).group("Model");
  table.choice("format", "safetensors", {"safetensors"}, "what is written").group("Output");
  table.text("output", std::nullopt, "the file to write").group("Output");
  const auto parsed =
      parse_command({"export", "writes a trained model's weights for other programs", ""}, table, arguments, console);
  if (!parsed) return kSuccess;
  const core::FlagValues& values = parsed->values;
  if (values.given("weights") == values.given("train_dir")) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "one of --weights and --train_dir must be given"});
  }
  const std::string output = values.text("output");
  if (output.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "--output is missing", .remedy = "name the file to write: --output=FILE"});
  }
  const recipes::TrainedModel trained =
      recipes::load_trained_model({.path = values.given("weights") ? values.text("weights") : values.text("train_dir"),
                                   .model = values.text("model"),
                                   .dataset = values.text("data_name"),
                                   .num_classes = values.integer("num_classes")});
  train::save_weights(output, *trained.parameters);
  fmt::print(console.out, "wrote {} parameters and {} statistics of {} to {}\n", trained.parameters->size(),
             trained.parameters->buffer_count(), trained.identity.model, output);
  return kSuccess;
}

}  // namespace trainyard::cli
