#include <ostream>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/core/error.h"
#include "trainyard/data/image_flags.h"
#include "trainyard/recipes/image_options.h"
#include "trainyard/recipes/predict.h"

namespace trainyard::cli {

int run_predict(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  table.text("model", std::nullopt, "the model; unset: the checkpoint's").group("Model");
  table
      .text("weights", std::nullopt,
            "a checkpoint: DIR/model.ckpt-STEP; or a safetensors file or state dict of torch.save, with --model")
      .group("Model");
  table.text("data_name", std::nullopt, "the data set; unset: the checkpoint's, imagenet for a file of weights")
      .group("Model");
  table.integer("num_classes", 0, "of a file of weights; 0: the data set's").bounds(0).group("Model");
  table.text("train_dir", std::nullopt, "the newest checkpoint in this directory, instead of --weights").group("Model");
  data::declare_evaluation_image_flags(table, "as the model was trained");
  table.integer("top", 5, "classes shown for each image").bounds(1, 1000).group("Output");
  table.boolean("json", false, "one JSON object a line instead of text").group("Output");
  table.text("input", std::nullopt, "an .npy array [N, 3, H, W] float32, as the model takes it, instead of images")
      .group("Arrays");
  table.text("output", std::nullopt, "where the logits [N, classes] float32 of --input are written, as .npy")
      .group("Arrays");
  const auto parsed =
      parse_command({"predict", "top classes of images, or logits of an array", "IMAGE..."}, table, arguments, console);
  if (!parsed) return kSuccess;
  const core::FlagValues& values = parsed->values;
  recipes::PredictOptions options;
  options.model = values.text("model");
  options.dataset = values.text("data_name");
  options.num_classes = values.integer("num_classes");
  options.checkpoint = values.given("weights") ? values.text("weights") : values.text("train_dir");
  options.top = values.integer("top");
  options.json = values.boolean("json");
  options.images = parsed->positional;
  options.array_input = values.text("input");
  options.array_output = values.text("output");
  options.adjust_input = [&values](data::TransformOptions& input) { recipes::read_evaluation_options(values, input); };
  if (values.given("weights") == values.given("train_dir")) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "one of --weights and --train_dir must be given"});
  }
  recipes::predict(options, console.out);
  return kSuccess;
}

}  // namespace trainyard::cli
