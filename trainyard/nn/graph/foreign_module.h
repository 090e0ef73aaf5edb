// A user's torch::nn module as a node of a graph: any module with Tensor forward(Tensor), or with several tensors.
//
//   const auto make = [] { return std::make_shared<MyNet>(); };
//   auto x = b.foreign("body", b.input(), foreign_op(make, {10}, "MyNet"));
//   x = b.foreign("join", {x, b.input("depth", {1, 32, 32})}, foreign_op<2>(make_join, {10}, "MyJoin"));
//
// Its parameters and buffers move into the replica's ParameterSet: the module's tensors become views of the flat block,
// so that optimizers, reductions and checkpoints see them as all others. Gradients reach the sink through a
// post-accumulate hook.
//
// LibTorch computes a module's operators, with their faults. On a CPU a module must not train a 1x1 convolution that
// has a stride, no padding and fewer than 16 input channels, in channels_last: the gradient of its weights is written
// outside of its memory. nn/execution/libtorch_convolution.h says why, and has a way around it to call in forward().
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/nn/graph/ops.h"

namespace torch::nn {
class Module;
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {

class ForeignModule {
 public:
  // Takes the values of the node's inputs, in their order.
  using Forward = std::function<at::Tensor(std::span<const at::Tensor> inputs)>;
  ForeignModule(std::shared_ptr<torch::nn::Module> module, Forward forward)
      : module_(std::move(module)), forward_(std::move(forward)) {}

  torch::nn::Module& module() const { return *module_; }
  at::Tensor forward(std::span<const at::Tensor> inputs) const { return forward_(inputs); }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  Forward forward_;
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
  return {.description = description,
          .make =
              [make] {
                auto module = make();
                return std::make_shared<ForeignModule>(module, [module](std::span<const at::Tensor> x) {
                  return [&]<size_t... index>(std::index_sequence<index...>) {
                    return module->forward(x[index]...);
                  }
                  (std::make_index_sequence<inputs>());
                });
              },
          .output_shape = output_shape,
          .input_count = inputs};
}

}  // namespace trainyard::nn
TRAINYARD_EXPORT_END
