// The names and layouts that tf_cnn_benchmarks gives the variables of its networks, for reading its checkpoints.
//
//   for (const BenchmarkVariable& variable : benchmark_variables(graph)) {
//     // {"layer1.0.conv1.weight", "resnet_v1.50/conv2/conv2d/kernel", VariableLayout::kKernel}
//   }
#pragma once

#include <string>
#include <vector>

#include "trainyard/nn/graph/graph.h"

namespace trainyard::models {

enum class VariableLayout {
  kSame,    // vectors
  kKernel,  // [height, width, in, out] there, [out, in, height, width] here
  kMatrix,  // [in, out] there, [out, in] here
};

struct BenchmarkVariable {
  std::string parameter{};  // of the graph: a parameter or a buffer
  std::string variable{};   // behind the outer scope: "v/cg/", "v0/cg/"
  VariableLayout layout = VariableLayout::kSame;
};

// Returns the variables of a graph whose layers are those of tf_cnn_benchmarks' layer builder: convolutions, batch
// norms and affine layers, each kind numbered in the order in which the network there is built, where a shortcut's
// convolution comes before those of its block. Convolutions are in the scope of their block (ResNets for ImageNet) or
// module (Inception, GoogLeNet). Throws kUnsupported, naming the layer, for other layers with parameters: MobileNet,
// NASNet.
[[nodiscard]] std::vector<BenchmarkVariable> benchmark_variables(const nn::Graph& graph);

// Returns the variables of ssd300's ResNet-34, whose nodes' names begin with "resnet34_backbone.", as a checkpoint of
// TensorFlow's official ResNet-34 has them: "conv2d/kernel", "conv2d_1/kernel", ..., "batch_normalization_28/gamma".
// Returns none for a graph without such nodes.
[[nodiscard]] std::vector<BenchmarkVariable> official_backbone_variables(const nn::Graph& graph);

// Returns the graph with what tf_cnn_benchmarks' network of the same variables computes otherwise: the first pooling of
// ResNets is padded at the bottom and right alone. For weights that were trained there. Shapes are the same.
[[nodiscard]] nn::Graph as_in_tf_cnn_benchmarks(nn::Graph graph);

// Returns the layers that read a flattened image of more than one pixel. Their weights are in the order of the
// checkpoint's --data_format, which it does not say; here it is that of NCHW.
[[nodiscard]] std::vector<std::string> layers_of_flattened_images(const nn::Graph& graph);

}  // namespace trainyard::models
