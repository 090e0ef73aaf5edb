#include <ostream>
#include <string>
#include <utility>

#include <fmt/ostream.h>

#include "trainyard/cli/calibration_flags.h"
#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/cli/trained_model_flags.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/frontends/model/model_metadata.h"
#include "trainyard/frontends/model/quantize_trained.h"
#include "trainyard/train/model/model.h"

namespace trainyard::cli {
namespace {

using core::Error, core::ErrorCode;

std::string read_quantized_output(const core::FlagValues& values, const std::string& model) {
  std::string output = values.text("output");
  if (output.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "--output is missing", .remedy = "name the file to write: --output=FILE.safetensors"});
  }
  require_no_folder("output", output);
  if (output == model || is_same_file(output, model)) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "--output is the model that is quantized",
                                              .where = output,
                                              .remedy = "name another file: what rounding takes away is lost in it"});
  }
  return output;
}

}  // namespace

int run_quantize(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  declare_trained_model_flags(table);
  table
      .text("output", std::nullopt, "the file to write, as `trainyard export` writes it, with 8-bit weights and scales")
      .group("Output");
  declare_calibration_flags(table);
  const auto parsed =
      parse_command({"quantize", "makes a trained model one that computes in 8-bit integers, in a file", "[MODEL]"},
                    table, arguments, console);
  if (!parsed) return kSuccess;
  const core::FlagValues& values = parsed->values;
  if (parsed->positional.size() > 1) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "trainyard quantize takes one model",
                                              .actual = fmt::format("{} of them", parsed->positional.size())});
  }
  frontends::TrainedModelOptions model =
      read_trained_model_options(values, parsed->positional.empty() ? "" : parsed->positional[0]);
  model.precision = frontends::Precision::kAuto;
  const std::string output = read_quantized_output(values, model.path);
  const train::QuantizeModelOptions options = read_quantize_options(values);
  const frontends::OpenedModel opened = frontends::open_model(model);
  if (opened.has_scales) refuse_calibration_flags(values, "a checkpoint that holds the scales of its training");
  frontends::TrainedModel trained = frontends::load_trained_model(opened, model);
  if (opened.has_scales) {  // which the training has made weights for
    train::save_model(output, frontends::model_description_of(trained), *trained.parameters);
    fmt::print(console.out, "wrote {} in 8-bit integers, with the scales of its training, to {}, {} bytes\n",
               trained.identity.model, output, core::local_file_system().info(output).size);
    return kSuccess;
  }
  require_quantizable(trained);
  const auto images = frontends::make_calibration_source(calibration_input(values, opened, trained));
  const nn::QuantizationReport report = frontends::quantize_trained(trained, *images, options);
  images->stop();
  train::save_model(output, frontends::model_description_of(trained), *trained.parameters);
  console.out << nn::to_text(report);
  fmt::print(console.out, "wrote {} in 8-bit integers to {}, {} bytes\n", trained.identity.model, output,
             core::local_file_system().info(output).size);
  return kSuccess;
}

}  // namespace trainyard::cli
