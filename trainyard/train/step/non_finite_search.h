// Finds the first layer of a step whose numbers are not finite. The step is run again with the search as its observer,
// so that normal steps pay nothing for it.
#pragma once

#include <optional>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/execution/value_observer.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::train {

class NonFiniteSearch : public nn::ValueObserver {
 public:
  // Both arguments must outlive it. The gradients in `parameters` are all finite when the search begins.
  NonFiniteSearch(const nn::Graph& graph, const nn::ParameterSet& parameters)
      : graph_(&graph), parameters_(&parameters) {}

  void made(const nn::NodeRun& run, std::span<const at::Tensor> values) override;

  // Returns the result: "the output of layer 'conv1' (NaN)", "what the backward of layers 'bn1' and 'relu1' gave
  // (inf)"; nullopt while nothing was found.
  const std::optional<std::string>& found() const { return found_; }

 private:
  std::string layers(std::span<const int> nodes) const;
  // Returns "NaN" or "inf", whichever the values hold, or in backward the gradients of the nodes' parameters; "" when
  // all are finite.
  std::string kind(const nn::NodeRun& run, std::span<const at::Tensor> values) const;

  const nn::Graph* graph_;
  const nn::ParameterSet* parameters_;
  std::optional<std::string> found_;
};

}  // namespace trainyard::train
