#include <ostream>

#include <fmt/ostream.h>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/core/error.h"
#include "trainyard/core/registry.h"
#include "trainyard/data/shapes.h"

namespace trainyard::cli {
namespace {

int make_shapes(const Arguments& arguments, Console& console) {
  const data::ShapesOptions defaults;
  core::FlagTable table;
  table.text("output", std::nullopt, "directory to write; must not exist, or hold the same data set").group("Output");
  table.integer("train_count", defaults.train_count, "images in the training files").bounds(1).group("Data set");
  table.integer("validation_count", defaults.validation_count, "images in the validation files")
      .bounds(1)
      .group("Data set");
  table.integer("image_size", defaults.image_size, "pixels a side").bounds(16, 1024).group("Data set");
  table.integer("seed", static_cast<int64_t>(defaults.seed), "the same files for the same seed")
      .bounds(0)
      .group("Data set");
  const auto parsed = parse_command({"data make-shapes", "write the embedded data set as JPEGs in TFRecords", ""},
                                    table, arguments, console);
  if (!parsed) return kSuccess;
  const auto output = parsed->values.optional_text("output");
  if (!output || output->empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "--output is missing", .remedy = "name the directory to write: --output=DIR"});
  }
  data::ShapesOptions options;
  options.train_count = parsed->values.integer("train_count");
  options.validation_count = parsed->values.integer("validation_count");
  options.image_size = parsed->values.integer("image_size");
  options.seed = static_cast<uint64_t>(parsed->values.integer("seed"));
  data::write_shapes(options, *output);
  fmt::print(console.out, "wrote {} training and {} validation images of {} classes to {}\n", options.train_count,
             options.validation_count, data::shape_names().size(), *output);
  return kSuccess;
}

}  // namespace

int run_data(const Arguments& arguments, Console& console) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    console.out << "usage: trainyard data make-shapes --output=DIR [--flag=value ...]\n";
    return arguments.empty() ? kUsage : kSuccess;
  }
  if (arguments[0] == "make-shapes") return make_shapes({arguments.begin() + 1, arguments.end()}, console);
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    core::unknown_name("data command", arguments[0], {"make-shapes"}).detail());
}

}  // namespace trainyard::cli
