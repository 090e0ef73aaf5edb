#include <memory>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/frontends/callback_loop/callback_loop.h"
#include "trainyard/train/profile/step_recorder.h"

namespace trainyard::frontends::callback_loop {
namespace {

void require_tensors(const Tensors& tensors, size_t count, const char* what) {
  if (tensors.size() == count) return;
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = fmt::format("{} takes other tensors", what),
                                                        .expected = std::to_string(count),
                                                        .actual = std::to_string(tensors.size())});
}

// The parameters that a graph has declared, first to last, as tensors under autograd.
class SquaredWeights {
 public:
  SquaredWeights(train::TowerContext& context, int first, int last) : context_(context), first_(first), last_(last) {}

  at::Tensor sum() {
    // Only now is the set complete, so that a parameter may be asked for a second time.
    if (!bound_) bind();
    at::Tensor sum;
    for (train::TowerParameter* const weight : weights_) {
      const at::Tensor squares = weight->value().square().sum();
      sum = sum.defined() ? sum.add(squares) : squares;
    }
    return sum;
  }

 private:
  void bind() {
    for (int index = first_; index < last_; ++index) {
      const nn::ParameterSpec spec = context_.parameters().segment({index}).spec;
      if (spec.decay) weights_.push_back(&context_.parameter(spec));
    }
    bound_ = true;
  }

  train::TowerContext& context_;
  int first_, last_;
  bool bound_ = false;
  std::vector<train::TowerParameter*> weights_;
};

}  // namespace

Model graph_model(train::TowerContext& context, const nn::Graph& graph, const GraphModelOptions& options) {
  const auto first = static_cast<int>(context.parameters().size());
  nn::Executor& net = context.graph(graph, {.prefix = options.prefix, .runs_whole_batch = true});
  const auto last = static_cast<int>(context.parameters().size());
  Model model;
  model.call = [&net](const Tensors& input, const train::TowerInput& step) -> Tensors {
    require_tensors(input, 1, "the model of a graph");
    const train::RecordedPart recorded(step.record, train::StepPart::kForward);
    return {net.forward(input[0], step.random)};
  };
  if (options.l2 != 0) {
    model.regularization = [weights = std::make_shared<SquaredWeights>(context, first, last), l2 = options.l2] {
      const at::Tensor sum = weights->sum();
      return sum.defined() ? sum.mul(l2) : sum;
    };
  }
  return model;
}

Loss loss_of(std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)> function) {
  return [function = std::move(function)](const Tensors& arguments, const train::TowerInput& step) {
    require_tensors(arguments, 2, "a loss of output and target");
    const train::RecordedPart recorded(step.record, train::StepPart::kLoss);
    return function(arguments[0], arguments[1]);
  };
}

}  // namespace trainyard::frontends::callback_loop
