#include <iostream>
#include <ostream>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/cli/predict.h"
#include "trainyard/cli/trained_model_flags.h"
#include "trainyard/frontends/options/image_options.h"
#include "trainyard/frontends/options/precision_options.h"

namespace trainyard::cli {

int run_predict(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  declare_trained_model_flags(table);
  frontends::declare_precision_flag(table, "Model");
  frontends::declare_trained_image_flags(table);
  table.integer("top", 5, "classes, or detected objects, shown for each image").bounds(1, 1000).group("Output");
  table.boolean("json", false, "one JSON object a line instead of text").group("Output");
  table
      .text("images_from", std::nullopt, "a file with the path of an image or a folder on each line; -: standard input")
      .group("Images");
  table.text("input", std::nullopt, "an .npy array [N, 3, H, W] float32, as the model takes it, instead of images")
      .group("Arrays");
  table.text("output", std::nullopt, "where the logits [N, classes] float32 of --input are written, as .npy")
      .group("Arrays");
  constexpr const char* kDetectors = "Detectors";
  table.real("min_score", std::nullopt, "detect objects of a higher score; unset: 0.05, of torchvision's models 0.01")
      .bounds(0, 1)
      .group(kDetectors);
  table.text("detections", std::nullopt, "the file to write what is detected to, as COCO's JSON of results")
      .group(kDetectors);
  table.text("drawn", std::nullopt, "the folder to write the images with boxes to, as PNG").group(kDetectors);
  const auto parsed =
      parse_command({"predict", "top classes of images, objects in them, or logits of an array", "IMAGE|FOLDER|-..."},
                    table, arguments, console);
  if (!parsed) return kSuccess;
  const core::FlagValues& values = parsed->values;
  PredictOptions options;
  options.model = read_trained_model_options(values);
  options.model.precision = frontends::read_precision(values);
  options.top = values.integer("top");
  options.json = values.boolean("json");
  options.images = parsed->positional;
  options.images_from = values.text("images_from");
  options.standard_input = &std::cin;
  options.array_input = values.text("input");
  options.array_output = values.text("output");
  options.input = frontends::read_evaluation_options(values);
  options.detection = {.min_score = values.optional_real("min_score"),
                       .json_file = values.text("detections"),
                       .drawn_folder = values.text("drawn")};
  if (!options.detection.json_file.empty()) require_no_folder("detections", options.detection.json_file);
  if (!options.array_output.empty()) require_no_folder("output", options.array_output);
  const PredictOutcome outcome = predict(options, console.out, console.stop);
  if (outcome.stopped) return kStoppedBySignal;
  return outcome.failed == 0 ? kSuccess : kFailure;
}

}  // namespace trainyard::cli
