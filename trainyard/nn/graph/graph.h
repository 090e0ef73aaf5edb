// A model as data: nodes with name, operation, inputs and logical shape, in topological order. Everything that needs a
// model's structure reads it from here: executors, export, the layer table, fusion, memory planning.
//
//   GraphBuilder b({.image = {3, 32, 32}, .name = "tiny"});
//   auto x = b.convolution("conv1", b.input(), {.out_channels = 16, .kernel = 3, .padding = Padding::all(1)});
//   x = b.activation("relu1", b.batch_norm("bn1", x));
//   x = b.linear("fc", b.global_average_pool("pool", x), {.out_features = 10});
//   Graph graph = b.build(x);
//
// A graph may have several inputs and outputs. All but the main output are for training only, or for callers that
// request them by name (Executor::run):
//
//   auto depth = b.input("depth", {1, 32, 32});
//   Graph graph = b.build(x, {{"auxiliary", head.id, 0.4}});
//
// Parameter names are "<node>.weight", "<node>.bias"; buffers "<node>.running_mean", "<node>.running_var"; ops.h names
// the others.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/nn/graph/ops.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {

using Shape = std::vector<int64_t>;         // logical: without the batch
std::string to_string(const Shape& shape);  // "[3, 224, 224]"

struct ParameterSpec {
  std::string name{};  // full: "conv1.weight"
  Shape shape{};
  Initializer init{};
  bool decay = true;  // takes part in weight decay
};

struct BufferSpec {
  std::string name{};
  Shape shape{};
  Initializer init{};
};

struct Node {
  int id = 0;  // index in Graph::nodes
  std::string name{};
  Op op{};
  std::vector<int> inputs{};  // ids, all smaller than id
  Shape shape{};              // of the output
  std::vector<ParameterSpec> parameters{};
  std::vector<BufferSpec> buffers{};

  // Returns "convolution", "batch_norm", ...
  [[nodiscard]] std::string_view kind() const;
  // Returns the attributes for reports: "64 x 7x7 / 2, pad 3".
  [[nodiscard]] std::string description() const;
};

// An output of a graph.
struct GraphOutput {
  std::string name{};
  int node = 0;              // id
  double loss_weight = 1.0;  // weight of this output's loss in the cost of a training step
};

struct Graph {
  std::string name{};
  std::vector<Node> nodes{};           // nodes[0] is the first input
  std::vector<GraphOutput> outputs{};  // the main one first: the logits, shape [classes]

  // Returns the id of the main output's node.
  [[nodiscard]] int output() const { return outputs.front().node; }
  const Shape& output_shape() const { return nodes[static_cast<size_t>(output())].shape; }
  bool is_output(int node_id) const;
  // Returns the ids of the inputs, in the order of nodes.
  [[nodiscard]] std::vector<int> inputs() const;
  const Shape& input_shape() const { return nodes.front().shape; }  // of the first input
  const Node& node(std::string_view node_name) const;               // throws kNotFound with the nearest name
  // Returns the number of elements of all parameters, except those of custom layers, which only a ParameterSet knows.
  [[nodiscard]] int64_t parameter_count() const;
  // Returns the multiply-accumulates, times two, of convolutions, linear layers and attention: forward, one sample.
  [[nodiscard]] int64_t forward_flops() const;
};

// Returns the graph of the main output alone, for inference, evaluation and export: without the nodes and the inputs
// that only other outputs need. Names are kept, including those of parameters; ids are renumbered.
[[nodiscard]] Graph main_output_graph(const Graph& graph);

// Returns the multiply-accumulates, times two, of one node: forward, one sample; 0 for other operations.
[[nodiscard]] int64_t forward_flops(const Graph& graph, const Node& node);
int64_t parameter_count(const Node& node);

// Which nodes an executor may fuse with the previous one (fusion.h). Results are the same except for rounding.
struct Fusions {
  bool norm_addition = true;           // an addition with its batch norm
  bool norm_activation = true;         // an activation with its batch norm, after the addition if that is fused
  bool convolution_activation = true;  // a ReLU with its convolution
  bool sum_activation = true;          // a ReLU with its sum
  bool layer_scale = true;             // stochastic depth and an addition with their layer scale
  bool folded_norm = true;  // when variables are constant: a batch norm with its convolution, and the nodes after it
  bool inverted_residual = true;  // the same: a depthwise convolution with the 1x1 convolutions around it

  bool operator==(const Fusions&) const = default;
  // Returns the options without any fusion.
  [[nodiscard]] static Fusions none() { return {false, false, false, false, false, false, false}; }
};

// Builds a graph. Nodes are checked as they are added: names are unique, shapes fit. Errors are kInvalidArgument and
// name the node.
class GraphBuilder {
 public:
  struct Options {
    Shape image{};  // [C, H, W]
    std::string name{};
    BatchNorm batch_norm{};        // defaults of batch_norm(name, x)
    std::string input = "images";  // the name of the first input
  };
  explicit GraphBuilder(Options options);

  // The handle of a node's output.
  struct Value {
    int id{};
  };

  // Returns the first input, whose node is called "input".
  [[nodiscard]] Value input() const { return {0}; }
  // Adds another input, and a node of its name. `shape` is [C, H, W] or any other without the batch.
  Value input(std::string name, Shape shape);
  Value convolution(std::string name, Value x, Convolution op);
  Value batch_norm(std::string name, Value x);
  Value batch_norm(std::string name, Value x, BatchNorm op);
  Value activation(std::string name, Value x, Activation::Function function = Activation::Function::kRelu);
  Value max_pool(std::string name, Value x, Pool op);
  Value average_pool(std::string name, Value x, Pool op);
  Value global_average_pool(std::string name, Value x);
  Value adaptive_average_pool(std::string name, Value x, Size2d size);
  Value linear(std::string name, Value x, Linear op);
  Value flatten(std::string name, Value x);
  Value add(std::string name, const std::vector<Value>& inputs);
  Value multiply(std::string name, Value x, Value scale);
  Value concat(std::string name, const std::vector<Value>& inputs);
  Value channel_pad(std::string name, Value x, ChannelPad op);
  Value spatial_pad(std::string name, Value x, SpatialPad op);
  Value channel_slice(std::string name, Value x, ChannelSlice op);
  Value channel_shuffle(std::string name, Value x, int64_t groups);
  Value dropout(std::string name, Value x, double drop = 0.5);
  Value stochastic_depth(std::string name, Value x, double drop);
  Value local_response_norm(std::string name, Value x, LocalResponseNorm op);
  Value layer_norm(std::string name, Value x, LayerNorm op);
  Value layer_scale(std::string name, Value x, LayerScale op);
  Value class_token(std::string name, Value x, ClassToken op);
  Value position_embedding(std::string name, Value x, PositionEmbedding op);
  Value attention(std::string name, Value x, Attention op);
  Value patch_merge(std::string name, Value x);
  Value transposed_convolution(std::string name, Value x, TransposedConvolution op);
  Value upsample(std::string name, Value x, Upsample op);
  Value l2_norm(std::string name, Value x, L2Norm op);
  Value box_rows(std::string name, const std::vector<Value>& inputs, BoxRows op);
  Value foreign(std::string name, Value x, Foreign op);
  Value foreign(std::string name, const std::vector<Value>& inputs, Foreign op);

  const Shape& shape(Value value) const;
  // Returns the graph. The main output is "logits"; `others` have names of their own. A node that no output needs is an
  // error.
  [[nodiscard]] Graph build(Value output, std::vector<GraphOutput> others = {});
  // Does the same with a name of the main output, which is the first one.
  Graph build(std::vector<GraphOutput> outputs);

 private:
  void check_name(const std::string& node) const;
  void check_outputs(const std::vector<GraphOutput>& outputs) const;
  void add_input(std::string node, std::string name, Shape shape);
  Value append(std::string name, Op op, const std::vector<Value>& inputs);
  Graph graph_;
  BatchNorm batch_norm_;
};

// Fills a node's output shape, parameters and buffers from its op and its inputs' shapes (shape_inference.cpp). Throws
// kInvalidArgument, which names the node, when they do not fit.
void infer_node(Node& node, const std::vector<Shape>& inputs);

// Returns the padding in pixels, with kSame resolved for an image of height x width.
[[nodiscard]] Padding resolve_padding(const Padding& padding, Size2d image, Size2d kernel, Size2d stride,
                                      Size2d dilation = {});

}  // namespace trainyard::nn
TRAINYARD_EXPORT_END
