#include <ostream>

#include <fmt/ostream.h>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/cli/trained_model_flags.h"
#include "trainyard/core/error.h"
#include "trainyard/train/weights.h"

namespace trainyard::cli {

int run_export(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  declare_trained_model_flags(table);
  table.choice("format", "safetensors", {"safetensors"}, "what is written").group("Output");
  table.text("output", std::nullopt, "the file to write").group("Output");
  const auto parsed =
      parse_command({"export", "writes a trained model's weights for other programs", ""}, table, arguments, console);
  if (!parsed) return kSuccess;
  const core::FlagValues& values = parsed->values;
  const recipes::TrainedModelOptions model = read_trained_model_options(values);
  const std::string output = values.text("output");
  if (output.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "--output is missing", .remedy = "name the file to write: --output=FILE"});
  }
  const recipes::TrainedModel trained = recipes::load_trained_model(model);
  train::save_weights(output, *trained.parameters);
  fmt::print(console.out, "wrote {} parameters and {} statistics of {} to {}\n", trained.parameters->size(),
             trained.parameters->buffer_count(), trained.identity.model, output);
  return kSuccess;
}

}  // namespace trainyard::cli
