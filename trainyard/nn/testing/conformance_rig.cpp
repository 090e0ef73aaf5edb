#include "trainyard/nn/testing/conformance_rig.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "trainyard/core/random/random.h"

namespace trainyard::nn::conformance {
namespace {

constexpr uint64_t kSeed = 11;

void add_separated(const at::Tensor& tensor, const std::string& name) {
  tensor.add_(separated(tensor.sizes().vec(), 0.5, name).to(tensor.options()));
}

}  // namespace

Graph graph_of(const LayerCase& layer, const LayerCase::Build& build) {
  GraphBuilder b({.image = layer.image, .name = layer.name});
  const auto x = build(b, b.input());
  return b.build(b.shape(x).size() == 1 ? x : b.flatten("logits", x));
}

at::Tensor separated(const Shape& shape, double range, std::string_view name) {
  at::Tensor tensor = at::empty(shape, at::kDouble);
  const int64_t count = tensor.numel();
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  core::RandomStream stream(kSeed, name);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[stream.below(i)]);
  for (int64_t i = 0; i < count; ++i) {
    const double place = (static_cast<double>(order[static_cast<size_t>(i)]) + 0.4871) / static_cast<double>(count);
    tensor.data_ptr<double>()[i] = static_cast<float>((2 * place - 1) * range);
  }
  return tensor;
}

at::Tensor images_of(const LayerCase& layer, int64_t batch) {
  Shape shape = layer.image;
  shape.insert(shape.begin(), batch);
  return separated(shape, layer.range, "images");
}

Rig::Rig(const std::string& executor_name, const Graph& graph, Mode mode, at::ScalarType dtype, at::Device device,
         bool frozen, const KernelOptions& kernels)
    : set({.dtype = dtype == at::kDouble ? at::kDouble : at::kFloat, .device = device}), sink(set) {
  executor = make_executor(executor_name, graph,
                           {.device = device,
                            .dtype = dtype,
                            .mode = mode,
                            .frozen = frozen,
                            .kernels = kernels,
                            .parameters = &set,
                            .gradients = &sink});
  set.allocate();
  set.initialize(kSeed);
  if (dtype == at::kDouble) set.values().copy_(set.values().to(at::kFloat));  // what float sets hold
  // Away from the zeros and ones that many start with, so that a forgotten bias shows; variances stay positive.
  for (const Segment& segment : set.segments()) {
    if (segment.spec.init.kind == Initializer::Kind::kConstant) {
      add_separated(set.value(segment.id), segment.spec.name);
    }
  }
  for (int i = 0; i < static_cast<int>(set.buffer_count()); ++i) {
    add_separated(set.buffer(i), set.buffer_spec(i).name);
  }
}

Rig::Result Rig::run(const at::Tensor& images) {
  at::Tensor leaf = images.to(images.options().device(set.values().device()).dtype(executor->context().dtype));
  leaf = leaf.detach().clone().requires_grad_(true);
  sink.begin(0, 1);
  Result result{.output = executor->forward(leaf, kRandom)};
  result.output.backward(cotangent(result.output));
  sink.finish();
  result.gradients["input"] = leaf.grad();
  for (const Segment& segment : set.segments()) {
    result.gradients[segment.spec.name] = set.gradient(segment.id).clone();
  }
  return result;
}

at::Tensor Rig::cotangent(const at::Tensor& output) {
  return separated(output.sizes().vec(), 1, "cotangent").to(output.options());
}

double central_difference(const at::Tensor& variable, int64_t i, const std::function<double()>& loss) {
  constexpr double kStep = 1e-5;
  double& value = variable.data_ptr<double>()[i];
  const double kept = value;
  value = kept + kStep;
  const double above = loss();
  value = kept - kStep;
  const double below = loss();
  value = kept;
  return (above - below) / (2 * kStep);
}

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = a.detach().cpu().to(at::kDouble), right = b.detach().cpu().to(at::kDouble);
  const double floor = 1e-3 * std::sqrt(static_cast<double>(right.numel()));
  return (left - right).norm().item<double>() / std::max(right.norm().item<double>(), floor);
}

}  // namespace trainyard::nn::conformance
