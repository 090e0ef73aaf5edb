// Towers: what one device computes in a step. A trainer calls the user's tower function once per device, and once more
// for inference when it is needed. The function makes what the tower needs - graphs, modules, parameters of its own -
// and returns the step: a batch goes in, named losses and outputs come out.
//
//   train::TowerFunction tower = [](train::TowerContext& context) -> train::TowerStep {
//     nn::Executor& net = context.graph(models::build_model("resnet20", "cifar10", {}));
//     return [&net](const train::TowerInput& in) -> train::TowerOutput {
//       const at::Tensor logits = net.forward(in.batch["images"], in.random);
//       return {.losses = {{"cost", nn::softmax_cross_entropy(logits, in.batch["labels"])}},
//               .outputs = {{"logits", logits}}};
//     };
//   };
//
// graph_tower.h has the one that most trainings use: a graph with a loss.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/tensors.h"
#include "trainyard/core/random/random.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/optim/hyperparameters.h"

namespace trainyard::train {
struct ThreadRecord;
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

struct TowerInput {
  const core::NamedTensors& batch;
  nn::StepRandom random{};  // random state of this micro-step: a tower's random numbers should depend on it alone
  std::string_view cost{};  // the trainer's cost that is needed; empty when there is only one
  ThreadRecord* record = nullptr;  // for RecordedPart, when the step is recorded

  // Returns a stream of numbers that depend on `random` and `name` alone, so that a resumed run draws the same.
  [[nodiscard]] core::RandomStream stream(std::string_view name) const;
  // Returns `sizes` normal numbers from stream(name): float, on the CPU.
  [[nodiscard]] at::Tensor normals(at::IntArrayRef sizes, std::string_view name) const;
};

struct TowerOutput {
  core::NamedTensors losses{};   // scalars. The first, or the one that TowerInput::cost names, is differentiated.
  core::NamedTensors outputs{};  // outputs for callbacks, the main one first; none is kept after the step
};

using TowerStep = std::function<TowerOutput(const TowerInput&)>;

// A parameter that belongs to the tower itself rather than to a graph in it.
class TowerParameter {
 public:
  // Returns the value as a leaf of autograd, whose gradients go to the trainer. The set must be allocated, as it is in
  // a step. It requires no gradient in inference and while it is frozen.
  const at::Tensor& value();
  nn::ParameterId id() const { return id_; }

 private:
  friend class TowerContext;
  TowerParameter(const nn::BuildContext& context, const nn::ParameterSpec& spec);

  nn::BuildContext context_;
  nn::ParameterId id_;
  at::Tensor leaf_;
};

struct TowerGraphOptions {
  std::string prefix{};  // prefix of all names: "generator/"
  // Says that each step runs the graph once, on all samples of the batch. The trainer then compiles it before the
  // first step, and ranks agree on its kernels.
  bool runs_whole_batch = false;
  // The same network for images of other sizes: each batch runs on the graph for its size
  // (nn/execution/sized_executor.h).
  std::vector<nn::Graph> other_sizes{};
};

// What a tower function gets: facts about its device, and functions that make its parts. It lives as long as the tower.
// Throws kInvalidArgument when two parts of a tower have a parameter of the same name: give one of them a prefix.
class TowerContext {
 public:
  struct Place {
    int index = 0, count = 1;  // index of this tower, and number of the trainer's towers in this process
    std::string executor = "auto";
    nn::BuildContext build{};  // device, dtype, mode, kernels, parameters, gradients
    const optim::Hyperparameters* hyperparameters = nullptr;
  };
  explicit TowerContext(Place place);
  ~TowerContext();
  TowerContext(const TowerContext&) = delete;
  TowerContext& operator=(const TowerContext&) = delete;

  int index() const { return place_.index; }
  int count() const { return place_.count; }
  bool first() const { return place_.index == 0; }
  bool training() const { return place_.build.mode == nn::Mode::kTraining; }
  at::Device device() const { return place_.build.device; }
  at::ScalarType dtype() const { return place_.build.dtype; }  // of activations
  // Returns the prefix of this tower's own names (summaries, files): "" for the first one in training, "tower1/" for
  // the next, "inference/" for the one that is made for inference. Parameters have the same names in all towers.
  [[nodiscard]] std::string name_prefix() const;
  // Returns the trainer's named numbers, to read in a step.
  const optim::Hyperparameters& hyperparameters() const { return *place_.hyperparameters; }
  nn::ParameterSet& parameters() const { return *place_.build.parameters; }

  // Makes an executor for a graph, which lives as long as this. A step may run it any number of times.
  nn::Executor& graph(const nn::Graph& graph, const TowerGraphOptions& options = {});
  // Makes an executor that runs forward only, with constant weights that are not the trainer's, such as a teacher's.
  // They are neither trained nor saved. `weights` is an allocated set with the graph's parameters, which must outlive
  // this. Towers on its device share its values; others copy them to their device.
  nn::Executor& frozen_graph(const nn::Graph& graph, nn::ParameterSet& weights, const TowerGraphOptions& options = {});
  // Makes a parameter. Throws as ParameterSet::declare() does.
  TowerParameter& parameter(const nn::ParameterSpec& spec);

  // For trainers.
  struct Graph {
    std::unique_ptr<nn::Executor> executor{};
    bool runs_whole_batch = false;
  };
  const std::vector<Graph>& graphs() const { return graphs_; }
  struct FrozenGraph {
    std::unique_ptr<nn::ParameterSet> weights{};
    bool shares_values = false;  // values are shared with another tower
    Graph graph{};
  };
  const std::vector<FrozenGraph>& frozen_graphs() const { return frozen_graphs_; }

 private:
  Place place_;
  std::vector<Graph> graphs_;
  std::vector<FrozenGraph> frozen_graphs_;
  std::vector<std::unique_ptr<TowerParameter>> own_parameters_;
};

using TowerFunction = std::function<TowerStep(TowerContext&)>;

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
