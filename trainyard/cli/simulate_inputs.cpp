#include "trainyard/cli/simulate_inputs.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/lower_case.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/execution/node_cost.h"
#include "trainyard/parallel/variable_update/variable_update.h"

namespace trainyard::cli {
namespace {

using core::Error, core::ErrorCode;
using Document = nlohmann::json;

struct Unit {
  const char* name;
  double factor;
};

double parse_with_unit(const std::string& text, const std::vector<Unit>& units, const char* problem,
                       const char* expected) {
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit = core::lower_case(std::string(stop, text.data() + text.size()));
  const auto found = std::find_if(units.begin(), units.end(), [&](const Unit& each) { return unit == each.name; });
  // Not a number that is no longer one when it is multiplied.
  if (error == std::errc() && found != units.end() && number >= 0 && number <= 1e9) return number * found->factor;
  throw Error(ErrorCode::kInvalidArgument, {.problem = problem, .expected = expected, .actual = text});
}

Error not_of_this_kind(const std::string& path, const std::string& kind, const std::string& why) {
  return {ErrorCode::kCorruptData,
          {.problem = "the file is not " + kind, .where = path, .actual = why, .remedy = "write it anew"}};
}

// Calls `read` with the JSON that a text holds. What it lacks, or has of another type, is kCorruptData.
template <typename Read>
auto read_json(const std::string& path, const std::string& text, const std::string& kind, const Read& read) {
  try {
    return read(Document::parse(text));
  } catch (const Document::exception& error) {
    throw not_of_this_kind(path, kind, error.what());
  }
}

std::string dataset_with(const std::string& model, const std::string& asked) {
  if (!asked.empty()) return asked;
  return std::string(models::first_dataset_with(model));
}

// The parts of a step, as they were measured or are given by hand.
struct StepTimes {
  double before = 0, backward = 0, after = 0;
  int64_t batch_size = 1;
  nn::Size2d image_size = 0;               // pixels; 0: the model's own
  std::map<std::string, double> layers{};  // backward seconds by the name of each node
};

StepTimes times_of(const Document& json) {
  for (const Document& condition : json.at("conditions")) {
    if (condition.get<std::string>().starts_with("forward only")) {
      throw Error(ErrorCode::kInvalidArgument, {.problem = "the times are those of inference, without a backward",
                                                .remedy = "measure steps of training"});
    }
  }
  StepTimes times{.batch_size = json.at("batch_size").get<int64_t>()};
  if (json.contains("image_size")) {  // files of earlier versions lack it
    const auto size = json.at("image_size").get<std::array<int64_t, 2>>();
    times.image_size = {size[0], size[1]};
  }
  for (const Document& layer : json.at("layers")) {
    const double seconds = layer.at("backward").at("seconds").get<double>();
    const auto names = layer.at("nodes").get<std::vector<std::string>>();
    for (const std::string& name : names) times.layers[name] += seconds / static_cast<double>(names.size());
    times.backward += seconds;
  }
  const Document& outside = json.at("outside_seconds");
  const double step = json.at("step_seconds").get<double>(), reduce = outside.value("reduce", 0.0);
  times.after = outside.value("update", 0.0);
  times.before = std::max(0.0, step - reduce - times.backward - times.after);
  return times;
}

// Refuses another batch than that of the times, where none are given for it.
void require_batch_of_times(const StepTimes& times, const std::string& path, const GivenCompute& given) {
  const int64_t asked = given.batch_size.value_or(times.batch_size);
  if (asked == times.batch_size || (given.forward_seconds && given.backward_seconds)) return;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "the times are those of another batch",
               .where = path,
               .expected = fmt::format("{} images of a worker and step", asked),
               .actual = std::to_string(times.batch_size),
               .remedy = "measure with this batch, or pass --forward and --backward, too"});
}

// Without measured times a node's backward takes as long as its multiplications.
void divide_by_flops(const nn::Graph& graph, StepTimes& times) {
  const nn::NodeCosts costs(graph, {.batch = 1});
  for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) {
    const int64_t flops = costs.flops(std::span(&i, 1), nn::NodeRun::Phase::kBackward);
    times.layers[graph.nodes[static_cast<size_t>(i)].name] = static_cast<double>(flops);
  }
}

}  // namespace

double parse_bandwidth(const std::string& text) {
  const double bytes = parse_with_unit(text, {{"kbit", 1e3 / 8}, {"mbit", 1e6 / 8}, {"gbit", 1e9 / 8}},
                                       "--bandwidth is no bandwidth", "a number and kbit, mbit or gbit: 10gbit");
  if (bytes > 0) return bytes;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "--bandwidth carries nothing", .expected = "more than 0", .actual = text});
}

double parse_latency(const std::string& text) {
  return parse_with_unit(text, {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}}, "--latency is no time",
                         "a number and us, ms or s: 50us");
}

std::vector<int> parse_workers(const std::vector<std::string>& texts) {
  std::vector<int> workers;
  for (const std::string& text : texts) {
    int count = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (error != std::errc() || stop != text.data() + text.size() || count < 1 || count > kMostSimulatedWorkers) {
      throw Error(ErrorCode::kInvalidArgument,
                  {.problem = "--workers has an impossible number",
                   .expected = fmt::format("numbers from 1 to {}, separated by commas", kMostSimulatedWorkers),
                   .actual = text});
    }
    workers.push_back(count);
  }
  if (!workers.empty()) return workers;
  throw Error(ErrorCode::kInvalidArgument, {.problem = "--workers names no number", .expected = "such as 1,2,4"});
}

parallel::ComputeProfile read_compute(const std::string& path, const std::string& text, const GivenCompute& given) {
  StepTimes times;
  std::string model = given.model;
  if (!path.empty()) {
    times = read_json(path, text, "one of layers' times", times_of);
    const std::string measured = read_json(path, text, "one of layers' times",
                                           [](const Document& json) { return json.at("model").get<std::string>(); });
    if (!model.empty() && model != measured) {
      throw Error(
          ErrorCode::kInvalidArgument,
          {.problem = "the times are those of another model", .where = path, .expected = model, .actual = measured});
    }
    model = measured;
    require_batch_of_times(times, path, given);
  } else if (model.empty() || !given.forward_seconds || !given.backward_seconds) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {.problem = "a prediction needs to know how long a worker computes",
         .remedy = "pass --compute=FILE of trainyard bench layers --json, or --model, --forward and --backward"});
  }
  const std::string dataset = dataset_with(model, given.dataset);
  const nn::Graph graph = models::build_model(
      model, dataset, {.num_classes = models::find_dataset(dataset).benchmark_classes, .image_size = times.image_size});
  if (path.empty()) divide_by_flops(graph, times);
  times.before = given.forward_seconds.value_or(times.before);
  times.backward = given.backward_seconds.value_or(times.backward);
  times.after = given.update_seconds.value_or(times.after);

  nn::ParameterSet set({.device = at::kMeta});  // places without memory
  std::vector<parallel::LayerBackward> layers;
  for (const nn::Node& node : graph.nodes) {
    parallel::LayerBackward layer{.seconds = times.layers[node.name]};
    for (const nn::ParameterSpec& spec : node.parameters) {
      set.declare(spec);
      layer.parameters.push_back(spec.name);
    }
    layers.push_back(std::move(layer));
  }
  std::reverse(layers.begin(), layers.end());
  set.allocate();
  parallel::ComputeProfile profile{.model = model,
                                   .batch_size = given.batch_size.value_or(times.batch_size),
                                   .before_seconds = times.before,
                                   .backward_seconds = times.backward,
                                   .after_seconds = times.after};
  const int64_t bucket_bytes = parallel::VariableUpdateOptions().bucket_bytes;
  profile.buckets = parallel::profiled_buckets(set, layers, times.backward, bucket_bytes);
  profile.validate();
  return profile;
}

MeasuredLink read_measured_link(const std::string& path, const std::string& text) {
  return read_json(path, text, "of trainyard bench allreduce --json", [&](const Document& json) {
    MeasuredLink link{.ranks = json.at("ranks").get<int>()};
    const int processes = json.at("processes").get<int>();
    const auto refuse = [&](const std::string& problem, const std::string& remedy) {
      return Error(ErrorCode::kInvalidArgument, {.problem = problem, .where = path, .remedy = remedy});
    };
    if (processes < 2 || processes != link.ranks) {
      throw refuse("no link between processes of a replica each was measured",
                   "measure on two machines: trainyard launch -n 2 --hosts=... -- bench allreduce --json=FILE");
    }
    // Between two ranks every algorithm sends the same bytes.
    const Document& algorithm = json.at("algorithm");
    link.algorithm = algorithm.is_null() ? "chain" : algorithm.get<std::string>();
    if ((algorithm.is_null() && link.ranks > 2) || link.algorithm.starts_with("auto")) {
      throw refuse("the algorithm was chosen while it ran", "name one: --all_reduce_spec=ring");
    }
    for (const Document& timing : json.at("timings")) {
      if (timing.at("operation") != "all-reduce") continue;
      link.all_reduces.push_back({timing.at("bytes").get<int64_t>(), timing.at("median_seconds").get<double>()});
    }
    return link;
  });
}

}  // namespace trainyard::cli
