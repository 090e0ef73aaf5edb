// A user's torch::nn module as a node of a graph: any module with Tensor forward(Tensor), or with several tensors. The
// headers of torch::nn take ten seconds to compile; write a new layer as a CustomLayer (nn/graph/custom_layer.h)
// instead.
//
//   const auto make = [] { return std::make_shared<MyNet>(); };
//   auto x = b.foreign("body", b.input(), foreign_op(make, {10}, "MyNet"));
//   x = b.foreign("join", {x, b.input("depth", {1, 32, 32})}, foreign_op<2>(make_join, {10}, "MyJoin"));
//
// Its parameters and buffers move into the replica's ParameterSet: the module's tensors become views of the flat block,
// so that optimizers, reductions and checkpoints treat them like all others. Gradients reach the sink through a
// post-accumulate hook.
//
// LibTorch computes a module's operators, including their bugs. On a CPU a module must not train a 1x1 convolution that
// has a stride, no padding and fewer than 16 input channels, in channels_last: the gradient of its weights is written
// out of bounds. nn/execution/libtorch_convolution.h explains why, and has a replacement to call in forward().
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/nn/graph/custom_layer.h"
#include "trainyard/nn/graph/graph.h"

namespace torch::nn {
class Module;
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {

// The custom layer that runs a module.
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

// Returns the operation of such a node. `make` returns std::shared_ptr<M>, a new module each time; M::forward takes
// `inputs` tensors, one for each input of the node, and returns one.
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
