// A custom layer as a node of a graph: a class that declares its parameters and computes with LibTorch's operators.
//
//   class Scale : public nn::CustomLayer {
//    public:
//     explicit Scale(int64_t channels) : weight_(parameter({"weight", {channels, 1, 1}, nn::Initializer::ones()})) {}
//     nn::Shape output_shape(const std::vector<nn::Shape>& inputs) const override { return inputs.at(0); }
//     at::Tensor forward(std::span<const at::Tensor> inputs) override { return inputs[0].mul(weight_); }
//
//    private:
//     at::Tensor weight_;
//   };
//
//   auto x = b.foreign("scale", b.input(), nn::custom_layer<Scale>("Scale", 3));
//
// Autograd computes the gradients of forward(). Methods of at::Tensor need no header beyond this one. at::linear(),
// at::cat() and the like are in <ATen/ops/linear.h>, <ATen/ops/cat.h>.
//
// foreign_op() turns a torch::nn::Module into such a layer. The headers of torch::nn take ten seconds to compile, so
// write a new layer as a CustomLayer instead.
//
//   const auto make = [] { return std::make_shared<MyNet>(); };
//   auto x = b.foreign("body", b.input(), foreign_op(make, {10}, "MyNet"));
//   x = b.foreign("join", {x, b.input("depth", {1, 32, 32})}, foreign_op<2>(make_join, {10}, "MyJoin"));
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/nn/graph/graph.h"

namespace torch::nn {
class Module;
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {

// A layer that a program defines. Each executor makes one, so that each replica has its own, and runs it on one thread
// at a time. Its parameters ("<node>.<name>") and buffers are in the executor's ParameterSet, so that optimizers,
// replicas, averages and checkpoints treat them like those of other layers.
class CustomLayer {
 public:
  // A tensor that the layer has declared.
  struct Variable {
    ParameterSpec spec{};    // the name without the node's
    at::Tensor tensor{};     // the tensor for forward(): a view of the ParameterSet once an executor runs the layer
    bool is_buffer = false;  // not changed by optimizers
  };

  CustomLayer() = default;
  CustomLayer(const CustomLayer&) = delete;
  CustomLayer& operator=(const CustomLayer&) = delete;
  virtual ~CustomLayer();

  // Returns the number of inputs of the node. nullopt: output_shape() checks it.
  [[nodiscard]] virtual std::optional<size_t> input_count() const { return 1; }
  // Returns the shape of one sample's result from those of the inputs, all without the batch. Throws when these do not
  // fit the layer. Called when the node is added to a graph.
  [[nodiscard]] virtual Shape output_shape(const std::vector<Shape>& inputs) const = 0;
  // Returns the layer's result, [N, output_shape...]. inputs: [N, ...], contiguous, of the ParameterSet's dtype, on its
  // device, which it must not change. Draws random numbers from LibTorch's default generator, whose state the trainer
  // saves.
  [[nodiscard]] virtual at::Tensor forward(std::span<const at::Tensor> inputs) = 0;

  // Returns whether the executor trains. Do not call it in a constructor.
  [[nodiscard]] bool training() const { return training_; }

  // Called by executors, once, before forward().
  virtual void set_training(bool training) { training_ = training; }
  virtual std::vector<Variable> variables() { return variables_; }

 protected:
  // Declares a parameter, which training changes. Returns the tensor to compute with, of the spec's shape: keep it in a
  // member. Its values are those of the ParameterSet once forward() is called, and zeros before. Call it in
  // constructors only. Throws kInvalidArgument for a name that is empty or was declared before.
  at::Tensor parameter(ParameterSpec spec);
  // Declares a tensor that is saved with the parameters, and that only the layer itself changes, in place and under
  // at::NoGradGuard: a running mean, a table.
  at::Tensor buffer(BufferSpec spec);
  // Does the same for a buffer of any dtype that starts as a copy of `start`: at::kLong for a counter.
  at::Tensor buffer(std::string name, const at::Tensor& start);

 private:
  at::Tensor declare(Variable variable);

  std::vector<Variable> variables_;
  bool training_ = false;
};

// Returns the operation of a node that runs a Layer, which is made by Layer(arguments...) for each executor, and once
// to learn the shape of its result. `description` is for reports.
template <typename Layer, typename... Arguments>
[[nodiscard]] Foreign custom_layer(const std::string& description, Arguments... arguments) {
  // Not std::derived_from, for which the compiler's error would quote the standard library.
  constexpr bool kIsLayer = std::is_convertible_v<Layer*, CustomLayer*>;
  static_assert(kIsLayer, "custom_layer<Layer>() makes a class that derives publicly from nn::CustomLayer");
  if constexpr (kIsLayer) {
    static_assert(
        std::is_constructible_v<Layer, const Arguments&...>,
        "custom_layer<Layer>(description, arguments...) takes the arguments of a public constructor of Layer; "
        "Layer overrides output_shape() and forward()");
    return {.description = description,
            .make = [arguments...]() -> std::shared_ptr<CustomLayer> { return std::make_shared<Layer>(arguments...); }};
  } else {
    return {};
  }
}

// The custom layer that runs a torch::nn::Module. Its parameters and buffers move into the replica's ParameterSet: the
// module's tensors become views of the flat block, so that optimizers, reductions and checkpoints treat them like all
// others. Gradients reach the sink through a post-accumulate hook.
//
// LibTorch computes a module's operators, including their bugs. On a CPU a module must not train a 1x1 convolution that
// has a stride, no padding and fewer than 16 input channels, in channels_last: the gradient of its weights is written
// out of bounds. nn/execution/libtorch_convolution.h explains why, and has a replacement to call in forward().
class ForeignModule : public CustomLayer {
 public:
  // Computes the result from the values of the node's inputs, in order.
  using Forward = std::function<at::Tensor(std::span<const at::Tensor> inputs)>;
  struct Instance {
    std::shared_ptr<torch::nn::Module> module{};
    Forward forward{};
  };
  // `make` is called once, by variables().
  ForeignModule(std::function<Instance()> make, Shape output_shape, size_t input_count)
      : make_(std::move(make)), output_shape_(std::move(output_shape)), input_count_(input_count) {}

  std::optional<size_t> input_count() const override { return std::nullopt; }
  // Throws kInvalidArgument for another number of inputs.
  Shape output_shape(const std::vector<Shape>& inputs) const override;
  // Returns the module's parameters and buffers. A tied one is listed under its first name; a parameter that requires
  // no gradient is a buffer; those of one dimension have no weight decay.
  [[nodiscard]] std::vector<Variable> variables() override;
  void set_training(bool training) override;
  at::Tensor forward(std::span<const at::Tensor> inputs) override { return instance().forward(inputs); }

 private:
  const Instance& instance();

  std::function<Instance()> make_;
  Shape output_shape_;
  size_t input_count_;
  Instance instance_;
};

// Returns the operation of a node that runs a module: any with Tensor forward(Tensor), or with several tensors. `make`
// returns std::shared_ptr<M>, a new module each time; M::forward takes `inputs` tensors, one for each input of the
// node, and returns one.
template <size_t inputs = 1, typename Make>
Foreign foreign_op(Make make, const std::vector<int64_t>& output_shape, const std::string& description) {
  using Module = decltype(make());
  static_assert(std::convertible_to<Module, std::shared_ptr<torch::nn::Module>>,
                "foreign_op() takes a function that returns a std::shared_ptr to a class that derives publicly from "
                "torch::nn::Module");
  static_assert(
      []<size_t... index>(std::index_sequence<index...>) {
        return requires(Module module, std::span<const at::Tensor> x) {
          { module->forward(x[index]...) } -> std::convertible_to<at::Tensor>;
        };
      }(std::make_index_sequence<inputs>()),
      "foreign_op<inputs>(): the module's forward() is public, takes that many tensors and returns one; inputs is 1 "
      "unless it is given");
  const auto instance = [make]() -> ForeignModule::Instance {
    const auto module = make();
    return {.module = module, .forward = [module](std::span<const at::Tensor> x) {
              return [&]<size_t... index>(std::index_sequence<index...>) {
                return module->forward(x[index]...);
              }
              (std::make_index_sequence<inputs>());
            }};
  };
  return {.description = description, .make = [instance, output_shape]() -> std::shared_ptr<CustomLayer> {
            return std::make_shared<ForeignModule>(instance, output_shape, inputs);
          }};
}

}  // namespace trainyard::nn
TRAINYARD_EXPORT_END
