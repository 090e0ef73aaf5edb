// The executor of quantization_aware.h.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "trainyard/nn/reference/reference_executor.h"

namespace trainyard::nn {

class QuantizationAwareExecutor : public ReferenceExecutor {
 public:
  QuantizationAwareExecutor(const Graph& graph, const BuildContext& context);

 protected:
  void begin_run() override;
  void enter_input(const Node& input, at::Tensor& value) override;
  at::Tensor compute(const Node& node, std::span<const at::Tensor> inputs, bool reuse_input,
                     const StepRandom& random) override;

 private:
  // What is special about a node; ids are those of graph().
  struct Site {
    int norm = -1;               // of a convolution that is computed with the batch norm behind it: that one
    int convolution = -1;        // of such a batch norm: the convolution
    bool rounds_weight = false;  // a layer that multiplies integers where its input has a scale
    int scale_buffer = -1, zero_buffer = -1;  // of the set; -1: the output stays in float
    std::optional<ActivationScale> scale{};   // in this run
  };
  Site& site(int node) { return sites_[static_cast<size_t>(node)]; }
  // Finds what is computed otherwise, and declares the scales.
  void find_sites_of_graph();
  void round_output(const Node& node, at::Tensor& value);
  // Returns a layer's weight as it is multiplied.
  at::Tensor rounded(const Node& layer, const at::Tensor& weight);
  at::Tensor run_layer(const Node& node, std::span<const at::Tensor> inputs, const StepRandom& random);
  at::Tensor run_folded(const Node& convolution, const Node& norm, std::span<const at::Tensor> inputs,
                        const StepRandom& random);

  std::vector<Site> sites_;  // by node id
};

}  // namespace trainyard::nn
