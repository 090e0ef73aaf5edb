// The tower of most trainings: runs a graph once on the batch, then a loss.
//
//   graph_tower({.graph = graph})                                      // softmax cross-entropy with the batch's labels
//   graph_tower({.graph = graph, .loss = loss_of(squared_error)})      // a function of output and labels
//   graph_tower({.graph = graph, .loss = [](TowerContext& context) {   // one with parameters of its own
//     TowerParameter& centers = context.parameter({"centers", {10, 64}, nn::Initializer::normal(1)});
//     return [&centers](const LossInput& in) { return center_loss(in.outputs["logits"], centers.value(), in.batch); };
//   }})
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/tensors.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/step/tower.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// The input of a loss: all outputs, by name, under autograd, the main one first, and the whole batch.
struct LossInput {
  const core::NamedTensors& outputs;
  const std::vector<double>&
      weights;  // weights of the outputs' losses in the cost (nn::GraphOutput::loss_weight); 1 for the main output
  const core::NamedTensors& batch;
  const TowerInput& step;
};
// Returns a scalar, the mean over the batch's samples.
using Loss = std::function<at::Tensor(const LossInput&)>;
// Makes a loss, once per tower. It may have graphs and parameters, which are trained and saved like the model's.
using LossModule = std::function<Loss(TowerContext&)>;

// Returns the sum of `loss` over the outputs, each with its weight.
[[nodiscard]] at::Tensor weighted_sum(const LossInput& in,
                                      const std::function<at::Tensor(const at::Tensor& output)>& loss);

// Returns the mean loss, [], of output [N, classes] fp32 and labels [N] int64.
using LossFunction = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& labels)>;
// Returns the loss that is the weighted sum of `function` over the outputs, each with the batch's "labels".
[[nodiscard]] LossModule loss_of(LossFunction function);

struct GraphTowerOptions {
  nn::Graph graph{};
  LossModule loss{};  // empty: classifier_loss()
  // The same network for images of other sizes, which training batches may have; inference takes graph's alone.
  std::vector<nn::Graph> other_sizes{};
};
// Returns a tower that computes a loss named "cost" and the graph's outputs, from a batch with a tensor for each of the
// graph's inputs: "images" [N, C, H, W] and any others. In inference it computes only the main output.
[[nodiscard]] TowerFunction graph_tower(GraphTowerOptions options);

// Returns softmax cross-entropy of each output with the batch's "labels" [N] int64, summed by the outputs' weights.
// When a batch has "labels_mixed" [N] int64 and "label_shares" [N], as mixup and CutMix make them
// (data/pipeline/pipeline.h), the target is share * label + (1 - share) * mixed label.
[[nodiscard]] LossModule classifier_loss(const nn::CrossEntropyOptions& options = {});

// Does the same with binary cross-entropy, where each class is a question of its own.
[[nodiscard]] LossModule binary_classifier_loss(const nn::BinaryCrossEntropyOptions& options = {});

// Returns sigmoid cross-entropy of each output with the batch's "labels" [N, classes] of a float type, 1 for each of a
// sample's labels and else 0, summed by the outputs' weights.
[[nodiscard]] LossModule label_set_loss();

// Returns nn::multibox_loss() of each output [N, D, 4 + classes] with the batch's "boxes" [N, D, 4] float, which are
// the offsets that it should predict, "classes" [N, D] int64 and "num_matched" [N] int64, summed by the outputs'
// weights.
[[nodiscard]] LossModule detection_loss();

// Knowledge distillation (Hinton, Vinyals, Dean, "Distilling the knowledge in a neural network", 2015): the trained
// network learns from the outputs of another one, its teacher, on the same images.
//
//   options.loss = distilled(classifier_loss(), {.graph = teacher_graph, .weights = teacher_weights},
//                            {.weight = 0.7, .temperature = 4});

struct Teacher {
  nn::Graph graph{};                            // the network, with one input; its main output is used
  std::vector<nn::Graph> other_sizes{};         // the same network for images of other sizes
  std::shared_ptr<nn::ParameterSet> weights{};  // allocated: its parameters and statistics
};

struct DistillationOptions {
  double weight = 0.5;       // weight of the teacher's part, in [0, 1]
  double temperature = 1.0;  // above 0
  void validate() const;     // throws kInvalidArgument
};

// Returns (1 - weight) * loss + weight * nn::distillation_loss(student's main output, teacher's, temperature). The
// teacher sees the batch's "images" in inference mode, so its batch norms use their statistics, and nothing of it
// changes or is saved. All towers of a device share its values. Throws kInvalidArgument for a teacher without weights;
// a step throws it when teacher and student have different numbers of outputs.
[[nodiscard]] LossModule distilled(LossModule loss, Teacher teacher, const DistillationOptions& options);

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
