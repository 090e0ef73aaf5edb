#include "trainyard/nn/execution/sized_executor.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include <fmt/core.h>

#include "trainyard/core/base/error.h"

namespace trainyard::nn {
namespace {

std::map<std::string, Shape> stored_shapes(const Graph& graph) {
  std::map<std::string, Shape> shapes;
  for (const Node& node : graph.nodes) {
    for (const ParameterSpec& parameter : node.parameters) shapes[parameter.name] = parameter.shape;
    for (const BufferSpec& buffer : node.buffers) shapes[buffer.name] = buffer.shape;
  }
  return shapes;
}

bool takes(const Graph& graph, const core::NamedTensors& inputs) {
  const std::vector<int> ids = graph.inputs();
  return std::all_of(ids.begin(), ids.end(), [&](int id) {
    const Node& node = graph.nodes[static_cast<size_t>(id)];
    const at::Tensor* const given = inputs.find(std::get<Input>(node.op).name);
    return given != nullptr && given->defined() && given->dim() == static_cast<int64_t>(node.shape.size()) + 1 &&
           given->sizes().slice(1) == at::IntArrayRef(node.shape);
  });
}

class SizedExecutor : public Executor {
 public:
  SizedExecutor(const std::string& name, const Graph& graph, std::vector<Graph> other_sizes,
                const BuildContext& context)
      : Executor(graph, context),
        name_(name),
        other_sizes_(std::move(other_sizes)),
        main_(make_executor(name, graph, context)) {}

  core::NamedTensors run(const core::NamedTensors& inputs, const StepRandom& random) override {
    Executor& executor = executor_for(inputs);
    executor.set_observer(observer());
    return executor.run(inputs, random);
  }

  std::optional<ExecutorMemory> prepare(int64_t batch) override { return main_->prepare(batch); }

 private:
  Executor& executor_for(const core::NamedTensors& inputs) {
    if (other_ != nullptr && takes(other_->graph(), inputs)) return *other_;
    other_.reset();
    if (takes(graph(), inputs)) return *main_;
    for (const Graph& resized : other_sizes_) {
      if (!takes(resized, inputs)) continue;
      other_ = make_executor(name_, resized, context());
      return *other_;
    }
    return *main_;  // whose run() says what does not fit
  }

  std::string name_;
  std::vector<Graph> other_sizes_;
  std::unique_ptr<Executor> main_;
  std::unique_ptr<Executor> other_;  // of the last batch; null: that was of the main size
};

}  // namespace

void check_same_parameters(const Graph& graph, const Graph& resized) {
  const std::map<std::string, Shape> wanted = stored_shapes(graph), shapes = stored_shapes(resized);
  const auto refuse = [&](const std::string& name, const std::string& expected, const std::string& actual) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "a network has other weights for images of another size",
                       .where = fmt::format("{} of {}, images {} and {}", name, graph.name,
                                            to_string(graph.input_shape()), to_string(resized.input_shape())),
                       .expected = expected,
                       .actual = actual});
  };
  for (const auto& [name, shape] : wanted) {
    const auto found = shapes.find(name);
    if (found == shapes.end()) refuse(name, to_string(shape), "none");
    if (found->second != shape) refuse(name, to_string(shape), to_string(found->second));
  }
  for (const auto& [name, shape] : shapes) {
    if (!wanted.contains(name)) refuse(name, "none", to_string(shape));
  }
  bool same_outputs = graph.outputs.size() == resized.outputs.size();
  for (size_t i = 0; same_outputs && i < graph.outputs.size(); ++i) {
    same_outputs = graph.outputs[i].name == resized.outputs[i].name;
  }
  if (!same_outputs) refuse("the outputs", "the same names", "others");
}

std::unique_ptr<Executor> make_sized_executor(const std::string& name, const Graph& graph,
                                              const std::vector<Graph>& other_sizes, const BuildContext& context) {
  for (const Graph& resized : other_sizes) check_same_parameters(graph, resized);
  if (other_sizes.empty()) return make_executor(name, graph, context);
  return std::make_unique<SizedExecutor>(name, graph, other_sizes, context);
}

}  // namespace trainyard::nn
