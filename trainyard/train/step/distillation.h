// Knowledge distillation (Hinton, Vinyals, Dean, "Distilling the knowledge in a neural network", 2015): the trained
// network learns from the outputs of another one, its teacher, on the same images.
//
//   options.loss = distilled(classifier_loss(), {.graph = teacher_graph, .weights = teacher_weights},
//                            {.weight = 0.7, .temperature = 4});
#pragma once

#include <memory>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/step/graph_tower.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

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
