#include "trainyard/nn/testing/onnx_evaluation.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv_transpose2d.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

namespace trainyard::nn {
namespace onnx_evaluation {
namespace {

using Integers = std::vector<int64_t>;
using Tensors = std::vector<at::Tensor>;

// A node with the values that it reads.
class Operator {
 public:
  Operator(const formats::OnnxNode& node, const OnnxValues& values) : node_(node), values_(values) {}

  void require(bool holds, const std::string& what) const {
    if (!holds) throw std::invalid_argument(node_.name + " (" + node_.op_type + "): " + what);
  }
  size_t input_count() const { return node_.inputs.size(); }
  size_t output_count() const { return node_.outputs.size(); }
  bool has(size_t input) const { return input < node_.inputs.size() && !node_.inputs[input].empty(); }
  const at::Tensor& in(size_t input = 0) const {
    require(has(input), "an input is missing");
    const auto found = values_.find(node_.inputs[input]);
    require(found != values_.end(), "no value '" + node_.inputs[input] + "'");
    return found->second;
  }
  at::Tensor optional(size_t input) const { return has(input) ? in(input) : at::Tensor(); }
  Tensors all() const {
    Tensors tensors;
    for (size_t i = 0; i < input_count(); ++i) tensors.push_back(in(i));
    return tensors;
  }
  // The numbers of an input of int64.
  Integers integers(size_t input) const {
    const at::Tensor values = in(input).contiguous();
    require(values.scalar_type() == at::kLong, "an input is not int64");
    const auto* const first = values.const_data_ptr<int64_t>();
    return Integers(first, first + values.numel());
  }
  // The only number of an input of float32.
  double number(size_t input) const {
    require(in(input).scalar_type() == at::kFloat && in(input).numel() == 1, "an input is no single float32");
    return static_cast<double>(in(input).item<float>());
  }
  template <typename T>
  T attribute(const std::string& name, T otherwise) const {
    for (const auto& [own, value] : node_.attributes) {
      if (own == name) return std::get<T>(value);
    }
    return otherwise;
  }
  int64_t integer(const std::string& name, int64_t otherwise) const { return attribute<int64_t>(name, otherwise); }
  double real(const std::string& name, float otherwise) const {
    return static_cast<double>(attribute<float>(name, otherwise));
  }
  Integers list(const std::string& name, Integers otherwise) const {
    return attribute<Integers>(name, std::move(otherwise));
  }

 private:
  const formats::OnnxNode& node_;
  const OnnxValues& values_;
};

// ONNX's pads are those in front of all axes and then those behind them; LibTorch's go by axis, the last one first.
at::Tensor padded(const at::Tensor& x, const Integers& pads, double value = 0) {
  const size_t axes = pads.size() / 2;
  Integers by_axis;
  for (size_t axis = axes; axis-- > 0;) {
    by_axis.push_back(pads[axis]);
    by_axis.push_back(pads[axis + axes]);
  }
  return at::constant_pad_nd(x, by_axis, value);
}

at::Tensor by_channel(const at::Tensor& values, const at::Tensor& x) {
  Integers shape(static_cast<size_t>(x.dim()), 1);
  shape[1] = -1;
  return values.reshape(shape);
}

void require_kernel(const Operator& op, const at::Tensor& weight) {
  const Integers kernel{weight.size(2), weight.size(3)};
  op.require(op.list("kernel_shape", kernel) == kernel, "kernel_shape is not that of the weight");
}

at::Tensor convolution(const Operator& op) {
  require_kernel(op, op.in(1));
  const Integers strides = op.list("strides", {1, 1}), dilations = op.list("dilations", {1, 1});
  const Integers none{0, 0};
  return at::conv2d(padded(op.in(), op.list("pads", {0, 0, 0, 0})), op.in(1), op.optional(2), strides, none, dilations,
                    op.integer("group", 1));
}

at::Tensor transposed_convolution(const Operator& op) {
  require_kernel(op, op.in(1));
  const Integers strides = op.list("strides", {1, 1}), dilations = op.list("dilations", {1, 1});
  const Integers pads = op.list("pads", {0, 0, 0, 0}), added = op.list("output_padding", {0, 0});
  // ONNX Runtime takes no other.
  op.require(added[0] < strides[0] && added[1] < strides[1], "output_padding is not smaller than the stride");
  const Integers none{0, 0};
  const at::Tensor whole =
      at::conv_transpose2d(op.in(), op.in(1), {}, strides, none, none, op.integer("group", 1), dilations);
  const at::Tensor cut = padded(whole, {-pads[0], -pads[1], added[0] - pads[2], added[1] - pads[3]});
  return op.has(2) ? cut + by_channel(op.in(2), cut) : cut;
}

// [out, in]: the weights of an axis' elements in each of its elements after it was scaled. Half pixels.
at::Tensor resizing_matrix(int64_t in, double scale, bool nearest) {
  const auto out = static_cast<int64_t>(std::floor(static_cast<double>(in) * scale));
  at::Tensor matrix = at::zeros({out, in}, at::kFloat);
  const auto add = [&](int64_t row, int64_t column, double weight) {
    matrix[row][std::clamp(column, int64_t{0}, in - 1)].add_(weight);
  };
  for (int64_t row = 0; row < out; ++row) {
    const double place = (static_cast<double>(row) + 0.5) / scale - 0.5, below = std::floor(place);
    if (nearest) {
      add(row, static_cast<int64_t>(std::ceil(place - 0.5)), 1);
    } else {
      add(row, static_cast<int64_t>(below), 1 - (place - below));
      add(row, static_cast<int64_t>(below) + 1, place - below);
    }
  }
  return matrix;
}

at::Tensor resized(const Operator& op) {
  const std::string mode = op.attribute<std::string>("mode", "nearest");
  op.require(mode == "nearest" || mode == "linear", "an unknown mode");
  op.require(!op.has(1) && op.in(2).numel() == 4, "a region, or no scale of each axis");
  const at::Tensor scales = op.in(2);
  op.require(scales[0].item<float>() == 1 && scales[1].item<float>() == 1, "channels are scaled");
  const auto matrix = [&](int64_t axis) {
    return resizing_matrix(op.in().size(axis), static_cast<double>(scales[axis].item<float>()), mode == "nearest");
  };
  return at::matmul(matrix(2), at::matmul(op.in(), matrix(3).t()));
}

at::Tensor pooled(const Operator& op, bool takes_largest) {
  op.require(op.integer("ceil_mode", 0) == 0, "ceil_mode");
  const Integers kernel = op.list("kernel_shape", {}), strides = op.list("strides", {1, 1});
  const Integers pads = op.list("pads", {0, 0, 0, 0});
  if (takes_largest) {
    return at::max_pool2d(padded(op.in(), pads, -std::numeric_limits<double>::infinity()), kernel, strides);
  }
  at::Tensor mean = at::avg_pool2d(padded(op.in(), pads), kernel, strides);
  if (op.integer("count_include_pad", 0) != 0) return mean;
  return mean / at::avg_pool2d(padded(at::ones_like(op.in()), pads), kernel, strides);
}

at::Tensor normalized(const Operator& op) {
  const at::Tensor& x = op.in();
  const at::Tensor deviation = (by_channel(op.in(4), x) + op.real("epsilon", 1e-5F)).sqrt();
  return (x - by_channel(op.in(3), x)) / deviation * by_channel(op.in(1), x) + by_channel(op.in(2), x);
}

at::Tensor layer_normalized(const Operator& op) {
  op.require(op.integer("axis", -1) == -1, "not over the last axis");
  const Integers shape{op.in().size(-1)};
  return at::layer_norm(op.in(), shape, op.in(1), op.optional(2), op.real("epsilon", 1e-5F));
}

at::Tensor response_normalized(const Operator& op) {
  const int64_t size = op.integer("size", 0), before = (size - 1) / 2, channels = op.in().size(1);
  const at::Tensor squares = padded(op.in().square(), {0, before, 0, 0, 0, size - 1 - before, 0, 0});
  at::Tensor sum = squares.narrow(1, 0, channels).clone();
  for (int64_t i = 1; i < size; ++i) sum.add_(squares.narrow(1, i, channels));
  // ONNX Runtime takes no other.
  op.require(op.real("alpha", 1e-4F) > 0 && op.real("beta", 0.75F) > 0, "alpha or beta is not positive");
  const double alpha = op.real("alpha", 1e-4F) / static_cast<double>(size);
  return op.in() / (sum * alpha + op.real("bias", 1)).pow(op.real("beta", 0.75F));
}

at::Tensor product(const Operator& op) {
  const at::Tensor right = op.integer("transB", 0) != 0 ? op.in(1).t() : op.in(1);
  op.require(op.in().dim() == 2 && op.integer("transA", 0) == 0, "not a product of [N, K]");
  const at::Tensor y = at::matmul(op.in(), right);
  return op.has(2) ? y + op.in(2) : y;
}

at::Tensor reshaped(const Operator& op) {
  Integers shape = op.integers(1);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) shape[i] = op.in().size(static_cast<int64_t>(i));
  }
  return op.in().reshape(shape);
}

at::Tensor flattened(const Operator& op) {
  const int64_t axis = op.integer("axis", 1);
  int64_t rows = 1;
  for (int64_t i = 0; i < axis; ++i) rows *= op.in().size(i);
  return op.in().reshape({rows, -1});
}

at::Tensor unsqueezed(const Operator& op) {
  Integers axes = op.integers(1);
  std::sort(axes.begin(), axes.end());
  at::Tensor x = op.in();
  for (const int64_t axis : axes) x = x.unsqueeze(axis);
  return x;
}

at::Tensor squeezed(const Operator& op) {
  const Integers axes = op.integers(1);
  op.require(axes.size() == 1 && op.in().size(axes[0]) == 1, "not one axis of size 1");
  return op.in().squeeze(axes[0]);
}

at::Tensor gathered(const Operator& op) {
  const int64_t axis = op.integer("axis", 0);
  const at::Tensor &x = op.in(), &places = op.in(1);
  Integers shape = x.sizes().vec();
  const auto at_axis = shape.erase(shape.begin() + axis);
  shape.insert(at_axis, places.sizes().begin(), places.sizes().end());
  return x.index_select(axis, places.flatten()).reshape(shape);
}

at::Tensor sliced(const Operator& op) {
  const Integers begins = op.integers(1), ends = op.integers(2), axes = op.integers(3);
  at::Tensor x = op.in();
  for (size_t i = 0; i < axes.size(); ++i) x = x.slice(axes[i], begins[i], ends[i]);
  return x;
}

// Axes of size 1 of the value or of the shape take the other's size, from the last one on.
at::Tensor expanded(const Operator& op) {
  Integers shape = op.integers(1);
  const Integers own = op.in().sizes().vec();
  if (shape.size() < own.size()) shape.insert(shape.begin(), own.size() - shape.size(), 1);
  for (size_t i = 0; i < own.size(); ++i) {
    int64_t& extent = shape[shape.size() - own.size() + i];
    if (extent == 1) extent = own[i];
  }
  return op.in().expand(shape);
}

at::Tensor clipped(const Operator& op) {
  return op.in().clamp_min(op.number(1)).clamp_max(op.number(2));
}

// The first of equal elements.
Tensors largest(const Operator& op) {
  const int64_t axis = op.integer("axis", -1), count = op.integers(1).at(0);
  op.require(op.integer("largest", 1) == 1 && op.integer("sorted", 1) == 1, "not the largest ones, sorted");
  op.require(count <= op.in().size(axis), "more than there are");
  const auto [values, places] = at::sort(op.in(), std::optional<bool>(true), axis, /*descending=*/true);
  return {values.narrow(axis, 0, count), places.narrow(axis, 0, count)};
}

double overlap(const at::Tensor& a, const at::Tensor& b) {
  const auto number = [](const at::Tensor& box, int64_t i) { return static_cast<double>(box[i].item<float>()); };
  const auto area = [&](const at::Tensor& box) {
    return (number(box, 2) - number(box, 0)) * (number(box, 3) - number(box, 1));
  };
  const auto shared = [&](int64_t i) {
    return std::max(0.0, std::min(number(a, i + 2), number(b, i + 2)) - std::max(number(a, i), number(b, i)));
  };
  const double both = shared(0) * shared(1);
  return both / (area(a) + area(b) - both);
}

// [selected, 3]: image, class, box. Of equal scores the first box.
at::Tensor suppressed(const Operator& op) {
  const at::Tensor &boxes = op.in(0), &scores = op.in(1);
  const auto most = static_cast<size_t>(op.integers(2).at(0));
  const double overlap_threshold = op.number(3), least = op.number(4);
  Integers selected;
  for (int64_t image = 0; image < scores.size(0); ++image) {
    for (int64_t label = 0; label < scores.size(1); ++label) {
      const at::Tensor own = scores[image][label];
      const at::Tensor order = std::get<1>(at::sort(own, std::optional<bool>(true), 0, /*descending=*/true));
      Integers kept;
      for (int64_t i = 0; i < order.numel() && kept.size() < most; ++i) {
        const auto box = order[i].item<int64_t>();
        if (!(static_cast<double>(own[box].item<float>()) > least)) continue;
        const bool hidden = std::any_of(kept.begin(), kept.end(), [&](int64_t other) {
          return overlap(boxes[image][box], boxes[image][other]) > overlap_threshold;
        });
        if (!hidden) kept.push_back(box);
      }
      for (const int64_t box : kept) selected.insert(selected.end(), {image, label, box});
    }
  }
  return at::tensor(at::ArrayRef<int64_t>(selected), at::kLong).reshape({-1, 3});
}

at::Tensor scattered(const Operator& op) {
  at::Tensor result = op.in().clone();
  const at::Tensor &places = op.in(1), &values = op.in(2);
  op.require(places.dim() == 2 && places.size(1) == result.dim() && values.numel() == places.size(0),
             "not one value at each place");
  for (int64_t i = 0; i < places.size(0); ++i) {
    at::Tensor element = result;
    for (int64_t axis = 0; axis < places.size(1); ++axis) element = element[places[i][axis].item<int64_t>()];
    element.copy_(values[i]);
  }
  return result;
}

at::Tensor cast(const Operator& op) {
  constexpr int64_t kOnnxFloat = 1, kOnnxInt64 = 7;  // TensorProto.DataType
  const int64_t to = op.integer("to", 0);
  op.require(to == kOnnxFloat || to == kOnnxInt64, "an unknown type");
  return op.in().to(to == kOnnxFloat ? at::kFloat : at::kLong);
}

// Two or more inputs of one type, one after the other.
template <typename Combine>
Tensors combined(const Operator& op, const Combine& combine) {
  at::Tensor result = op.in();
  for (size_t i = 1; i < op.input_count(); ++i) {
    op.require(op.in(i).scalar_type() == result.scalar_type(), "inputs of several types");
    result = combine(result, op.in(i));
  }
  return {result};
}

at::Tensor quotient(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == at::kLong ? a.div(b, "trunc") : a / b;
}

using Evaluate = std::function<Tensors(const Operator&)>;

const std::map<std::string, Evaluate>& operators() {
  static const std::map<std::string, Evaluate> all{
      {"Conv", [](const Operator& op) { return Tensors{convolution(op)}; }},
      {"ConvTranspose", [](const Operator& op) { return Tensors{transposed_convolution(op)}; }},
      {"Resize", [](const Operator& op) { return Tensors{resized(op)}; }},
      {"Pad", [](const Operator& op) { return Tensors{padded(op.in(), op.integers(1))}; }},
      {"MaxPool", [](const Operator& op) { return Tensors{pooled(op, true)}; }},
      {"AveragePool", [](const Operator& op) { return Tensors{pooled(op, false)}; }},
      {"GlobalAveragePool",
       [](const Operator& op) {
         return Tensors{op.in().mean({2, 3}, /*keepdim=*/true)};
       }},
      {"BatchNormalization", [](const Operator& op) { return Tensors{normalized(op)}; }},
      {"LayerNormalization", [](const Operator& op) { return Tensors{layer_normalized(op)}; }},
      {"LRN", [](const Operator& op) { return Tensors{response_normalized(op)}; }},
      {"Gemm", [](const Operator& op) { return Tensors{product(op)}; }},
      {"MatMul", [](const Operator& op) { return Tensors{at::matmul(op.in(), op.in(1))}; }},
      {"Transpose", [](const Operator& op) { return Tensors{op.in().permute(op.list("perm", {}))}; }},
      {"Reshape", [](const Operator& op) { return Tensors{reshaped(op)}; }},
      {"Flatten", [](const Operator& op) { return Tensors{flattened(op)}; }},
      {"Unsqueeze", [](const Operator& op) { return Tensors{unsqueezed(op)}; }},
      {"Squeeze", [](const Operator& op) { return Tensors{squeezed(op)}; }},
      {"Gather", [](const Operator& op) { return Tensors{gathered(op)}; }},
      {"GatherElements", [](const Operator& op) { return Tensors{op.in().gather(op.integer("axis", 0), op.in(1))}; }},
      {"Slice", [](const Operator& op) { return Tensors{sliced(op)}; }},
      {"Concat", [](const Operator& op) { return Tensors{at::cat(op.all(), op.integer("axis", 0))}; }},
      {"Expand", [](const Operator& op) { return Tensors{expanded(op)}; }},
      {"Shape",
       [](const Operator& op) { return Tensors{at::tensor(at::ArrayRef<int64_t>(op.in().sizes()), at::kLong)}; }},
      {"Identity", [](const Operator& op) { return Tensors{op.in()}; }},
      {"Cast", [](const Operator& op) { return Tensors{cast(op)}; }},
      {"Relu", [](const Operator& op) { return Tensors{op.in().relu()}; }},
      {"Clip", [](const Operator& op) { return Tensors{clipped(op)}; }},
      {"Sigmoid", [](const Operator& op) { return Tensors{op.in().sigmoid()}; }},
      {"HardSwish",
       [](const Operator& op) { return Tensors{op.in() * (op.in() / 6 + 0.5).clamp_min(0).clamp_max(1)}; }},
      {"HardSigmoid",
       [](const Operator& op) {
         return Tensors{(op.in() * op.real("alpha", 0.2F) + op.real("beta", 0.5F)).clamp_min(0).clamp_max(1)};
       }},
      {"Erf", [](const Operator& op) { return Tensors{op.in().erf()}; }},
      {"Tanh", [](const Operator& op) { return Tensors{op.in().tanh()}; }},
      {"Exp", [](const Operator& op) { return Tensors{op.in().exp()}; }},
      {"Softmax", [](const Operator& op) { return Tensors{op.in().softmax(op.integer("axis", -1))}; }},
      {"ReduceL2",
       [](const Operator& op) {
         return Tensors{op.in().square().sum(op.list("axes", {}), op.integer("keepdims", 1) != 0).sqrt()};
       }},
      {"Add", [](const Operator& op) { return combined(op, [](const auto& a, const auto& b) { return a + b; }); }},
      {"Sum", [](const Operator& op) { return combined(op, [](const auto& a, const auto& b) { return a + b; }); }},
      {"Sub", [](const Operator& op) { return combined(op, [](const auto& a, const auto& b) { return a - b; }); }},
      {"Mul", [](const Operator& op) { return combined(op, [](const auto& a, const auto& b) { return a * b; }); }},
      {"Div",
       [](const Operator& op) { return combined(op, [](const auto& a, const auto& b) { return quotient(a, b); }); }},
      {"Max",
       [](const Operator& op) { return combined(op, [](const auto& a, const auto& b) { return at::maximum(a, b); }); }},
      {"Min",
       [](const Operator& op) { return combined(op, [](const auto& a, const auto& b) { return at::minimum(a, b); }); }},
      {"Greater", [](const Operator& op) { return combined(op, [](const auto& a, const auto& b) { return a > b; }); }},
      {"Where", [](const Operator& op) { return Tensors{at::where(op.in(), op.in(1), op.in(2))}; }},
      {"TopK", largest},
      {"NonMaxSuppression", [](const Operator& op) { return Tensors{suppressed(op)}; }},
      {"ScatterND", [](const Operator& op) { return Tensors{scattered(op)}; }},
  };
  return all;
}

at::Tensor constant(const formats::OnnxTensor& tensor) {
  return std::visit(
      [&](const auto& values) {
        using Number = std::remove_cvref_t<decltype(values[0])>;
        return at::tensor(at::ArrayRef<Number>(values.data(), values.size())).reshape(tensor.shape);
      },
      tensor.values);
}

}  // namespace
}  // namespace onnx_evaluation

OnnxValues evaluate_onnx(const formats::OnnxModel& model, const OnnxValues& inputs) {
  OnnxValues values = inputs;
  const auto add = [&](const std::string& name, const at::Tensor& value) {
    if (!values.emplace(name, value).second) throw std::invalid_argument("two values are named '" + name + "'");
  };
  for (const formats::OnnxTensor& tensor : model.graph.initializers) {
    add(tensor.name, onnx_evaluation::constant(tensor));
  }
  for (const formats::OnnxNode& node : model.graph.nodes) {
    const auto known = onnx_evaluation::operators().find(node.op_type);
    if (known == onnx_evaluation::operators().end()) throw std::invalid_argument("no operator " + node.op_type);
    const onnx_evaluation::Operator op(node, values);
    const std::vector<at::Tensor> results = known->second(op);
    op.require(results.size() == op.output_count(), "another number of outputs");
    for (size_t i = 0; i < results.size(); ++i) add(node.outputs[i], results[i]);
  }
  return values;
}

}  // namespace trainyard::nn
