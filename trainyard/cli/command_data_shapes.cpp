#include <ostream>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include "trainyard/cli/command_data.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/data/detection/boxed_shapes.h"

namespace trainyard::cli {

int run_data_shapes(const Arguments& arguments, Console& console) {
  const data::ShapesOptions defaults;
  const data::BoxedShapesOptions boxed_defaults;
  // A table shows one default of a flag.
  const auto with_boxes = [](const char* what, int64_t count) {
    return fmt::format("{}; {} with --boxes, unless given", what, count);
  };
  core::FlagTable table;
  table.text("output", std::nullopt, "directory to write; must not exist, or be empty").group("Output");
  table
      .integer("train_count", defaults.train_count,
               with_boxes("images in the training files", boxed_defaults.train_count))
      .bounds(1, 1 << 30)
      .group("Data set");
  table
      .integer("validation_count", defaults.validation_count,
               with_boxes("images in the validation files", boxed_defaults.validation_count))
      .bounds(1, 1 << 30)
      .group("Data set");
  table.integer("image_size", defaults.image_size, with_boxes("pixels a side", boxed_defaults.image_size))
      .bounds(16, 1024)
      .group("Data set");
  table.boolean("boxes", false, "write images of one to four shapes, with their boxes in COCO's form, for detectors")
      .group("Data set");
  table.integer("seed", static_cast<int64_t>(defaults.seed), "the same files for the same seed")
      .bounds(0)
      .group("Data set");
  const auto parsed = parse_command({"data make-shapes", "write the embedded data set as JPEGs in TFRecords", ""},
                                    table, arguments, console);
  if (!parsed) return kSuccess;
  const std::string output = required_text(parsed->values, "output", "name the directory to write: --output=DIR");
  if (parsed->values.boolean("boxes")) {
    data::BoxedShapesOptions boxed{.seed = static_cast<uint64_t>(parsed->values.integer("seed"))};
    const auto given = [&](const char* flag, int64_t otherwise) {
      return parsed->values.given(flag) ? parsed->values.integer(flag) : otherwise;
    };
    boxed.train_count = given("train_count", boxed.train_count);
    boxed.validation_count = given("validation_count", boxed.validation_count);
    boxed.image_size = static_cast<int>(given("image_size", boxed.image_size));
    data::write_boxed_shapes(boxed, output);
    fmt::print(console.out, "wrote {} training and {} validation images with boxes of {} kinds of shapes to {}\n",
               boxed.train_count, boxed.validation_count, data::shape_names().size(), output);
    return kSuccess;
  }
  data::ShapesOptions options;
  options.train_count = parsed->values.integer("train_count");
  options.validation_count = parsed->values.integer("validation_count");
  options.image_size = parsed->values.integer("image_size");
  options.seed = static_cast<uint64_t>(parsed->values.integer("seed"));
  data::write_shapes(options, output);
  fmt::print(console.out, "wrote {} training and {} validation images of {} classes to {}\n", options.train_count,
             options.validation_count, data::shape_names().size(), output);
  return kSuccess;
}

}  // namespace trainyard::cli
