#include "trainyard/nn/execution/patch_whitening.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <variant>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include "trainyard/core/base/error.h"

namespace trainyard::nn {
namespace {

core::Error refused(const std::string& problem, const Graph& graph, const std::string& actual) {
  return {core::ErrorCode::kInvalidArgument,
          {.problem = problem,
           .where = graph.name,
           .expected = "a first convolution without groups and dilation, with two filters for each number of a patch, "
                       "as airbench94 has it",
           .actual = actual}};
}

const Node& first_convolution(const Graph& graph) {
  const Node* found = nullptr;
  for (const Node& node : graph.nodes) {
    if (node.inputs.empty() || node.inputs.front() != graph.inputs().front()) continue;
    if (found != nullptr || !std::holds_alternative<Convolution>(node.op)) {
      throw refused("images are not read by one convolution, which could be whitened", graph,
                    fmt::format("they are read by {} ({})", node.name, node.kind()));
    }
    found = &node;
  }
  if (found == nullptr) throw refused("nothing reads the images", graph, "");
  const auto& op = std::get<Convolution>(found->op);
  const int64_t numbers = graph.input_shape()[0] * op.kernel.height * op.kernel.width;
  if (op.groups != 1 || !(op.dilation == Size2d{1}) || op.out_channels != 2 * numbers ||
      op.form != Convolution::Form::kConvolution) {
    throw refused("the first convolution cannot be whitened", graph,
                  fmt::format("{} is {}, where patches have {} numbers", found->name, found->description(), numbers));
  }
  return *found;
}

// Turns rows and columns p and q of the symmetric `a`, [n, n], so that a[p, q] becomes 0, and the columns of `vectors`.
void rotate(std::vector<double>& a, std::vector<double>& vectors, size_t n, size_t p, size_t q) {
  const double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
  const double tangent = (theta < 0 ? -1 : 1) / (std::abs(theta) + std::hypot(theta, 1.0));
  const double cosine = 1 / std::hypot(tangent, 1.0), sine = tangent * cosine;
  const auto turn = [cosine, sine](double& first, double& second) {
    const double turned = cosine * first - sine * second;
    second = sine * first + cosine * second;
    first = turned;
  };
  for (size_t i = 0; i < n; ++i) turn(a[i * n + p], a[i * n + q]);
  for (size_t i = 0; i < n; ++i) turn(a[p * n + i], a[q * n + i]);
  for (size_t i = 0; i < n; ++i) turn(vectors[i * n + p], vectors[i * n + q]);
}

struct Eigensystem {
  std::vector<double> values;   // [n], unordered
  std::vector<double> vectors;  // [n, n]: column i belongs to value i
};

// Jacobi's method (Golub and Van Loan, "Matrix computations", 2013, section 8.5.3): a fixed order of operations in
// double, which gives the same bits with any number of threads.
Eigensystem eigensystem(std::vector<double> a, size_t n) {
  std::vector<double> vectors(n * n);
  for (size_t i = 0; i < n; ++i) vectors[i * n + i] = 1;
  const double square = std::inner_product(a.begin(), a.end(), a.begin(), 0.0);
  constexpr int kMostSweeps = 60;  // five to ten are enough
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    double off = 0;
    for (size_t p = 0; p < n; ++p) {
      for (size_t q = p + 1; q < n; ++q) off += 2 * a[p * n + q] * a[p * n + q];
    }
    if (off <= 1e-32 * square) break;
    for (size_t p = 0; p < n; ++p) {
      for (size_t q = p + 1; q < n; ++q) {
        if (a[p * n + q] != 0) rotate(a, vectors, n, p, q);
      }
    }
  }
  Eigensystem system{.values = std::vector<double>(n), .vectors = std::move(vectors)};
  for (size_t i = 0; i < n; ++i) system.values[i] = a[i * n + i];
  return system;
}

}  // namespace

PatchWhitening::PatchWhitening(const Graph& graph) {
  const ParameterSpec& weight = first_convolution(graph).parameters.front();
  weight_ = weight.name;
  shape_ = weight.shape;
  const int64_t numbers = shape_[0] / 2;
  products_ = at::zeros({numbers, numbers}, at::kDouble);
}

void PatchWhitening::add(const at::Tensor& images) {
  if (images.dim() != 4 || images.size(1) != shape_[1] || images.size(2) < shape_[2] || images.size(3) < shape_[3]) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "images have no patches of the first convolution's size",
                       .where = weight_,
                       .expected = fmt::format("[N, {}, {} or more, {} or more]", shape_[1], shape_[2], shape_[3]),
                       .actual = to_string(images.sizes().vec())});
  }
  for (const at::Tensor& image : images.unbind()) {
    // [C, H', W', kh, kw] -> [H' * W', C * kh * kw]
    const at::Tensor patches = image.unfold(1, shape_[2], 1)
                                   .unfold(2, shape_[3], 1)
                                   .permute({1, 2, 0, 3, 4})
                                   .reshape({-1, products_.size(0)})
                                   .to(at::kDouble);
    products_.add_(patches.t().matmul(patches));
    patches_ += patches.size(0);
  }
}

at::Tensor PatchWhitening::covariance() const {
  if (patches_ == 0) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "there are no images to whiten the first convolution by", .where = weight_});
  }
  return products_.div(static_cast<double>(patches_));
}

at::Tensor PatchWhitening::filters(double epsilon) const {
  const at::Tensor matrix = covariance();
  const auto n = static_cast<size_t>(matrix.size(0));
  const double* const numbers = matrix.const_data_ptr<double>();
  const Eigensystem system = eigensystem(std::vector<double>(numbers, numbers + n * n), n);
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return system.values[a] > system.values[b]; });
  at::Tensor filters = at::empty({static_cast<int64_t>(n), static_cast<int64_t>(n)}, at::kDouble);
  auto* const out = filters.mutable_data_ptr<double>();
  for (size_t row = 0; row < n; ++row) {
    double largest = 0;
    for (size_t i = 0; i < n; ++i) {
      const double number = system.vectors[i * n + order[row]];
      if (std::abs(number) > std::abs(largest)) largest = number;
    }
    // Rounding makes an eigenvalue of zero a negative one.
    const double deviation = std::sqrt(std::max(system.values[order[row]], 0.0) + epsilon);
    const double factor = (largest < 0 ? -1 : 1) / deviation;
    for (size_t i = 0; i < n; ++i) out[row * n + i] = factor * system.vectors[i * n + order[row]];
  }
  return at::cat({filters, filters.neg()}).reshape(shape_);
}

}  // namespace trainyard::nn
