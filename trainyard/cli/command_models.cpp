#include <algorithm>
#include <optional>
#include <ostream>
#include <vector>

#include <fmt/ostream.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/files/output_path.h"
#include "trainyard/frontends/input/image_size.h"
#include "trainyard/models/flags.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/graph/graph_drawing.h"
#include "trainyard/nn/graph/layer_table.h"

namespace trainyard::cli {
namespace {

struct ListedModel {
  const models::ModelInfo* info;
  std::string dataset;
  nn::Size2d image;
  int64_t parameters = 0;
  double gflops = 0;  // an image, forward
};

ListedModel listed(const std::string& name, const std::string& dataset, const nn::Graph& graph) {
  return {&models::find_model(name, dataset), dataset, frontends::image_size_of(graph), graph.parameter_count(),
          static_cast<double>(graph.forward_flops()) * 1e-9};
}

// Detectors score the background, too.
int64_t default_classes(const std::string& dataset) {
  const models::DatasetInfo& info = models::find_dataset(dataset);
  return info.family == models::DatasetFamily::kCoco ? info.benchmark_classes : info.num_classes;
}

// The models of `dataset`, or where that is empty of every one.
std::vector<ListedModel> all_models(const std::string& dataset, std::optional<int64_t> num_classes) {
  std::vector<std::string> datasets;
  if (dataset.empty()) {
    for (const auto family : models::kDatasetFamilies) datasets.emplace_back(models::family_name(family));
  } else {
    datasets.push_back(dataset);
  }
  std::vector<ListedModel> rows;
  for (const std::string& of : datasets) {
    const int64_t classes = num_classes.value_or(default_classes(of));
    for (const std::string& name : models::model_names(models::find_dataset(of).family)) {
      rows.push_back(listed(name, of, models::build_model(name, of, {.num_classes = classes})));
    }
  }
  return rows;
}

void print_table(const std::vector<ListedModel>& rows, std::ostream& out) {
  fmt::print(out, "{:21} {:10} {:>6} {:>12} {:>9} {:>6}  {}\n", "model", "data set", "image", "parameters", "GFLOP",
             "batch", "equals");
  for (const ListedModel& row : rows) {
    fmt::print(out, "{:21} {:10} {:6} {:12} {:9.3f} {:6}  {}\n", row.info->name, row.dataset, row.image.height,
               row.parameters, row.gflops, row.info->default_batch_size, row.info->equals);
  }
  out << "\nA name that tf_cnn_benchmarks has means its network; torchvision/NAME is always torchvision's,\nkeras/NAME "
         "that of keras.applications.\n"
         "cifar10's models also run on shapes. GFLOP: one image, forward, a multiply-add counted as two.\n";
}

// "torchvision resnet18" names a network as a file would: "torchvision/resnet18".
std::string as_path(std::string equals) {
  std::replace(equals.begin(), equals.end(), ' ', '/');
  return equals;
}

void print_json(const std::vector<ListedModel>& rows, std::ostream& out) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ListedModel& row : rows) {
    // A number for squares, which all are by themselves.
    const nlohmann::ordered_json image = row.image.height == row.image.width
                                             ? nlohmann::ordered_json(row.image.height)
                                             : nlohmann::ordered_json(models::image_size_text(row.image));
    list.push_back({{"name", row.info->name},
                    {"dataset", row.dataset},
                    {"image_size", image},
                    {"parameters", row.parameters},
                    {"gflops", row.gflops},
                    {"default_batch_size", row.info->default_batch_size},
                    {"equals", as_path(row.info->equals)}});
  }
  out << list.dump(2) << "\n";
}

void write_graph(const nn::Graph& graph, const std::string& path) {
  const bool svg = path.ends_with(".svg");
  if (!svg && !path.ends_with(".dot")) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "a graph is drawn as .dot or .svg", .where = "--graph=" + path});
  }
  core::write_user_output(path, svg ? nn::graph_svg(graph) : nn::graph_dot(graph));
}

}  // namespace

int run_models(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  table
      .text("data_name", std::nullopt,
            "imagenet, cifar10, shapes or coco; unset: the first that has the model, and in a list all")
      .group("Model");
  table.integer("num_classes", std::nullopt, "size of the last layer; unset: the data set's")
      .bounds(1, models::kMostClasses)
      .group("Model");
  models::declare_image_size_flag(table, "Model", "the model's own");
  table.boolean("json", false, "a JSON list with an object a model instead of text").group("Output");
  table.text("graph", std::nullopt, "with NAME: draw its graph into this file, FILE.svg or FILE.dot").group("Output");
  const auto parsed =
      parse_command({"models", "the models by data set, or one model's layers", "[NAME]"}, table, arguments, console);
  if (!parsed) return kSuccess;
  const core::FlagValues& values = parsed->values;
  const std::string drawing = values.text("graph");
  if (!drawing.empty()) require_no_folder("graph", drawing);
  const bool json = values.boolean("json");
  if (parsed->positional.empty()) {
    if (!drawing.empty()) {
      throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "--graph draws one model",
                                                            .remedy = "name it: trainyard models NAME --graph=FILE"});
    }
    if (values.given("image_size")) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = "--image_size is of one model", .remedy = "name it: trainyard models NAME"});
    }
    const auto rows = all_models(values.text("data_name"), values.optional_integer("num_classes"));
    json ? print_json(rows, console.out) : print_table(rows, console.out);
    return kSuccess;
  }
  if (parsed->positional.size() > 1) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "trainyard models takes one name"});
  }
  const std::string& name = parsed->positional[0];
  const std::string dataset =
      values.text("data_name").empty() ? std::string(models::first_dataset_with(name)) : values.text("data_name");
  const int64_t classes = values.optional_integer("num_classes").value_or(default_classes(dataset));
  const nn::Graph graph =
      models::build_model(name, dataset, {.num_classes = classes, .image_size = models::read_image_size(values)});
  if (!drawing.empty()) write_graph(graph, drawing);
  if (json) {
    print_json({listed(name, dataset, graph)}, console.out);
  } else {
    console.out << nn::layer_table(graph);
  }
  return kSuccess;
}

}  // namespace trainyard::cli
