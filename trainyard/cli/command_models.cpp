#include <algorithm>
#include <ostream>

#include <fmt/ostream.h>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/core/error.h"
#include "trainyard/models/model_registry.h"
#include "trainyard/nn/layer_table.h"

namespace trainyard::cli {
namespace {

void list_models(std::ostream& out) {
  fmt::print(out, "{:21} {:10} {:>6} {:>12} {:>9} {:>6}  {}\n", "model", "data set", "image", "parameters", "GFLOP",
             "batch", "equals");
  for (const auto family : {models::DatasetFamily::kImagenet, models::DatasetFamily::kCifar10}) {
    const std::string dataset(models::family_name(family));
    for (const std::string& name : models::model_names(family)) {
      const models::ModelInfo& info = models::find_model(name, dataset);
      const nn::Graph graph =
          models::build_model(name, dataset, {.num_classes = models::find_dataset(dataset).num_classes});
      fmt::print(out, "{:21} {:10} {:6} {:12} {:9.3f} {:6}  {}\n", name, dataset, info.image_size,
                 graph.parameter_count(), static_cast<double>(graph.forward_flops()) * 1e-9, info.default_batch_size,
                 info.equals);
    }
  }
  out << "\nA name that tf_cnn_benchmarks has means its network; torchvision/NAME is always torchvision's,\nkeras/NAME "
         "that of keras.applications.\n"
         "cifar10's models also run on shapes. GFLOP: one image, forward, a multiply-add counted as two.\n";
}

}  // namespace

int run_models(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  table.text("data_name", std::nullopt, "imagenet, cifar10 or shapes; unset: the first that has the model")
      .group("Model");
  table.integer("num_classes", std::nullopt, "size of the last layer; unset: the data set's").bounds(1).group("Model");
  const auto parsed =
      parse_command({"models", "the models by data set, or one model's layers", "[NAME]"}, table, arguments, console);
  if (!parsed) return kSuccess;
  if (parsed->positional.empty()) {
    list_models(console.out);
    return kSuccess;
  }
  if (parsed->positional.size() > 1) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "trainyard models takes one name"});
  }
  const std::string& name = parsed->positional[0];
  std::string dataset = parsed->values.text("data_name");
  if (dataset.empty()) {
    const auto imagenet = models::model_names(models::DatasetFamily::kImagenet);
    const auto cifar = models::model_names(models::DatasetFamily::kCifar10);
    const bool only_cifar = std::find(cifar.begin(), cifar.end(), name) != cifar.end() &&
                            std::find(imagenet.begin(), imagenet.end(), name) == imagenet.end();
    dataset = only_cifar ? "cifar10" : "imagenet";
  }
  const int64_t classes =
      parsed->values.optional_integer("num_classes").value_or(models::find_dataset(dataset).num_classes);
  console.out << nn::layer_table(models::build_model(name, dataset, {.num_classes = classes}));
  return kSuccess;
}

}  // namespace trainyard::cli
