#include "trainyard/nn/testing/naive_layers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <stdexcept>

#include "trainyard/core/random/random.h"
#include "trainyard/nn/testing/naive_call.h"

namespace trainyard::nn::naive {
namespace {

std::vector<double> numbers(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.to(at::kCPU, at::kDouble).contiguous();
  return {plain.const_data_ptr<double>(), plain.const_data_ptr<double>() + plain.numel()};
}

Values run(const Convolution& op, const Call& call) {
  const Shape& in = call.x().shape;
  const Padding pad = resolve_padding(op.padding, {in[1], in[2]}, op.kernel, op.stride, op.dilation);
  const int64_t group_in = in[0] / op.groups, group_out = op.out_channels / op.groups;
  return each_pixel(call, [&](int64_t n, int64_t o, int64_t h, int64_t w) {
    double sum = op.bias ? call.parameters[1][static_cast<size_t>(o)] : 0;
    for (int64_t i = 0; i < group_in; ++i) {
      for (int64_t kh = 0; kh < op.kernel.height; ++kh) {
        for (int64_t kw = 0; kw < op.kernel.width; ++kw) {
          const int64_t row = h * op.stride.height - pad.top + kh * op.dilation.height;
          const int64_t column = w * op.stride.width - pad.left + kw * op.dilation.width;
          if (!call.inside(row, column)) continue;
          const int64_t weight = ((o * group_in + i) * op.kernel.height + kh) * op.kernel.width + kw;
          sum += call.parameters[0][static_cast<size_t>(weight)] *
                 call.pixel(n, o / group_out * group_in + i, row, column);
        }
      }
    }
    return sum;
  });
}

Values run(const BatchNorm& op, const Call& call) {
  const Shape& in = call.x().shape;
  const int64_t per_channel = call.x().batch * in[1] * in[2];
  std::vector<double>& running_mean = call.buffers.at(call.node.name + ".running_mean");
  std::vector<double>& running_var = call.buffers.at(call.node.name + ".running_var");
  std::vector<double> mean = running_mean, variance = running_var;
  for (int64_t c = 0; c < in[0] && call.training; ++c) {
    const auto channel = static_cast<size_t>(c);
    const auto over_channel = [&](auto term) {
      double sum = 0;
      for (int64_t n = 0; n < call.x().batch; ++n) {
        for (int64_t h = 0; h < in[1]; ++h) {
          for (int64_t w = 0; w < in[2]; ++w) sum += term(call.pixel(n, c, h, w));
        }
      }
      return sum;
    };
    const double m = over_channel([](double x) { return x; }) / static_cast<double>(per_channel);
    const double squares = over_channel([m](double x) { return (x - m) * (x - m); });
    mean[channel] = m;
    variance[channel] = squares / static_cast<double>(per_channel);
    const int64_t divisor = op.biased_running_variance ? per_channel : std::max<int64_t>(per_channel - 1, 1);
    running_mean[channel] = op.decay * running_mean[channel] + (1 - op.decay) * m;
    running_var[channel] = op.decay * running_var[channel] + (1 - op.decay) * squares / static_cast<double>(divisor);
  }
  return each_pixel(call, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    const auto channel = static_cast<size_t>(c);
    const double scale = op.scale ? call.parameters[0][channel] : 1;
    const double shift = call.parameters[op.scale ? 1 : 0][channel];
    return (call.pixel(n, c, h, w) - mean[channel]) / std::sqrt(variance[channel] + op.epsilon) * scale + shift;
  });
}

double activate(Activation::Function function, double x) {
  const double hard_sigmoid = std::clamp(x / 6 + 0.5, 0.0, 1.0);
  switch (function) {
    case Activation::Function::kRelu:
      return std::max(x, 0.0);
    case Activation::Function::kRelu6:
      return std::clamp(x, 0.0, 6.0);
    case Activation::Function::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::Function::kHardSwish:
      return x * hard_sigmoid;
    case Activation::Function::kHardSigmoid:
      return hard_sigmoid;
    case Activation::Function::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::Function::kGelu:
      return x * 0.5 * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::Function::kTanh:
      return std::tanh(x);
  }
  throw std::logic_error("unknown activation");
}

Values run(const Activation& op, const Call& call) {
  return each_value(call, [&](size_t i) { return activate(op.function, call.x().data[i]); });
}

Values run(const Pool& op, const Call& call) {
  const Shape& in = call.x().shape;
  const Padding pad = resolve_padding(op.padding, {in[1], in[2]}, op.kernel, op.stride);
  return each_pixel(call, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    double sum = 0, largest = -std::numeric_limits<double>::infinity(), counted = 0;
    for (int64_t kh = 0; kh < op.kernel.height; ++kh) {
      for (int64_t kw = 0; kw < op.kernel.width; ++kw) {
        const int64_t row = h * op.stride.height - pad.top + kh, column = w * op.stride.width - pad.left + kw;
        const bool padded = row < in[1] + pad.bottom && column < in[2] + pad.right;  // or real
        if (call.inside(row, column)) {
          sum += call.pixel(n, c, row, column);
          const double value = call.pixel(n, c, row, column);
          if (value > largest || std::isnan(value)) largest = value;
          ++counted;
        } else if (op.count_padding && padded) {
          ++counted;
        }
      }
    }
    return op.kind == Pool::Kind::kMax ? largest : sum / counted;
  });
}

Values run(const GlobalAveragePool&, const Call& call) {
  const int64_t pixels = call.x().shape[1] * call.x().shape[2];
  return each_value(call, [&](size_t i) {
    double sum = 0;
    for (int64_t p = 0; p < pixels; ++p) sum += call.x().data[i * static_cast<size_t>(pixels) + static_cast<size_t>(p)];
    return sum / static_cast<double>(pixels);
  });
}

Values run(const AdaptiveAveragePool& op, const Call& call) {
  const Shape& in = call.x().shape;
  return each_pixel(call, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    const int64_t bottom = ((h + 1) * in[1] + op.size.height - 1) / op.size.height;
    const int64_t right = ((w + 1) * in[2] + op.size.width - 1) / op.size.width;
    double sum = 0, counted = 0;
    for (int64_t row = h * in[1] / op.size.height; row < bottom; ++row) {
      for (int64_t column = w * in[2] / op.size.width; column < right; ++column, ++counted) {
        sum += call.pixel(n, c, row, column);
      }
    }
    return sum / counted;
  });
}

Values run(const Linear& op, const Call& call) {
  const auto in = static_cast<size_t>(call.x().shape[0]), out = static_cast<size_t>(op.out_features);
  return each_value(call, [&](size_t i) {
    double sum = op.bias ? call.parameters[1][i % out] : 0;
    for (size_t f = 0; f < in; ++f) sum += call.parameters[0][i % out * in + f] * call.x().data[i / out * in + f];
    return sum;
  });
}

Values run(const Flatten&, const Call& call) {
  return each_value(call, [&](size_t i) { return call.x().data[i]; });
}

Values run(const Add&, const Call& call) {
  return each_value(call, [&](size_t i) {
    double sum = 0;
    for (const Values* input : call.inputs) sum += input->data[i];
    return sum;
  });
}

Values run(const Multiply&, const Call& call) {
  const Values& scale = *call.inputs[1];
  const size_t share = call.x().data.size() / scale.data.size();  // pixels a scale, or 1
  return each_value(call, [&](size_t i) { return call.x().data[i] * scale.data[i / share]; });
}

Values run(const Concat&, const Call& call) {
  Values y = call.result();
  size_t place = 0;
  for (size_t n = 0; n < static_cast<size_t>(y.batch); ++n) {
    for (const Values* input : call.inputs) {
      const auto size = static_cast<size_t>(count(input->shape));
      for (size_t i = 0; i < size; ++i) y.data[place++] = input->data[n * size + i];
    }
  }
  return y;
}

Values run(const ChannelPad& op, const Call& call) {
  return each_pixel(call, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    const int64_t channel = c - op.before;
    return channel >= 0 && channel < call.x().shape[0] ? call.pixel(n, channel, h, w) : 0.0;
  });
}

Values run(const SpatialPad& op, const Call& call) {
  return each_pixel(call, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    return call.inside(h - op.top, w - op.left) ? call.pixel(n, c, h - op.top, w - op.left) : 0.0;
  });
}

Values run(const ChannelSlice& op, const Call& call) {
  return each_pixel(call,
                    [&](int64_t n, int64_t c, int64_t h, int64_t w) { return call.pixel(n, c + op.begin, h, w); });
}

Values run(const ChannelShuffle& op, const Call& call) {
  const int64_t columns = call.x().shape[0] / op.groups;
  return each_pixel(call, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    return call.pixel(n, c % op.groups * columns + c / op.groups, h, w);
  });
}

// One random number for each `share` values of a sample.
Values dropped(double drop, size_t share, const Call& call) {
  Values y = call.x();
  if (!call.training) return y;
  const size_t size = y.data.size() / static_cast<size_t>(y.batch);
  for (size_t n = 0; n < static_cast<size_t>(y.batch); ++n) {
    core::RandomStream stream(call.random.seed, call.node.name,
                              {static_cast<uint64_t>(call.random.step), static_cast<uint64_t>(call.random.micro_step),
                               static_cast<uint64_t>(call.random.first_sample) + n});
    for (size_t begin = 0; begin < size; begin += share) {
      const double factor = stream.uniform() < drop ? 0 : 1 / (1 - drop);
      for (size_t i = begin; i < begin + share; ++i) y.data[n * size + i] *= factor;
    }
  }
  return y;
}

Values run(const Dropout& op, const Call& call) {
  return dropped(op.drop, 1, call);
}
Values run(const StochasticDepth& op, const Call& call) {
  return dropped(op.drop, static_cast<size_t>(count(call.x().shape)), call);
}

Values run(const LocalResponseNorm& op, const Call& call) {
  return each_pixel(call, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    double squares = 0;
    for (int64_t k = std::max<int64_t>(c - op.radius, 0); k <= std::min(c + op.radius, call.x().shape[0] - 1); ++k) {
      squares += call.pixel(n, k, h, w) * call.pixel(n, k, h, w);
    }
    return call.pixel(n, c, h, w) / std::pow(op.bias + op.alpha * squares, op.beta);
  });
}

Values run(const TransposedConvolution& op, const Call& call) {
  const Shape& in = call.x().shape;
  const int64_t group_in = in[0] / op.groups, group_out = op.out_channels / op.groups;
  Values y = each_pixel(call, [&](int64_t, int64_t o, int64_t, int64_t) {
    return op.bias ? call.parameters[1][static_cast<size_t>(o)] : 0;
  });
  const int64_t positions = in[1] * in[2], taps = op.kernel.height * op.kernel.width;
  for (int64_t n = 0; n < y.batch; ++n) {
    for (int64_t i = 0; i < in[0]; ++i) {
      for (int64_t o = 0; o < group_out; ++o) {
        for (int64_t at = 0; at < positions * taps; ++at) {
          const int64_t h = at / taps / in[2], w = at / taps % in[2];
          const int64_t kh = at % taps / op.kernel.width, kw = at % taps % op.kernel.width;
          const int64_t row = h * op.stride.height + kh * op.dilation.height - op.padding.height;
          const int64_t column = w * op.stride.width + kw * op.dilation.width - op.padding.width;
          if (row < 0 || row >= y.shape[1] || column < 0 || column >= y.shape[2]) continue;
          const int64_t channel = i / group_in * group_out + o;
          const int64_t target = ((n * y.shape[0] + channel) * y.shape[1] + row) * y.shape[2] + column;
          const int64_t weight = (i * group_out + o) * taps + kh * op.kernel.width + kw;
          y.data[static_cast<size_t>(target)] +=
              call.parameters[0][static_cast<size_t>(weight)] * call.pixel(n, i, h, w);
        }
      }
    }
  }
  return y;
}

Values run(const Upsample& op, const Call& call) {
  const auto f = static_cast<double>(op.factor);
  if (op.kind == Upsample::Kind::kNearest) {
    return each_pixel(call, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
      return call.pixel(n, c, h / op.factor, w / op.factor);
    });
  }
  const auto source = [&](int64_t place) { return std::max((static_cast<double>(place) + 0.5) / f - 0.5, 0.0); };
  return each_pixel(call, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    const double row = source(h), column = source(w);
    const auto r = static_cast<int64_t>(row), q = static_cast<int64_t>(column);
    const int64_t below = std::min(r + 1, call.x().shape[1] - 1), right = std::min(q + 1, call.x().shape[2] - 1);
    const double down = row - static_cast<double>(r), across = column - static_cast<double>(q);
    return (1 - down) * ((1 - across) * call.pixel(n, c, r, q) + across * call.pixel(n, c, r, right)) +
           down * ((1 - across) * call.pixel(n, c, below, q) + across * call.pixel(n, c, below, right));
  });
}

Values run(const Input&, const Call&) {
  throw std::logic_error("an input is not run");
}
Values run(const Foreign&, const Call&) {
  throw std::logic_error("a custom layer has no definition here");
}

}  // namespace

Values forward(const Graph& graph, const ParameterSet& set, const at::Tensor& images, Mode mode,
               const StepRandom& random, Buffers& buffers) {
  std::vector<Values> values{{images.size(0), graph.input_shape(), numbers(images)}};
  for (size_t id = 1; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    std::vector<const Values*> inputs;
    for (int input : node.inputs) inputs.push_back(&values[static_cast<size_t>(input)]);
    Call call{node, inputs, {}, mode == Mode::kTraining, random, buffers};
    for (const ParameterSpec& spec : node.parameters) {
      call.parameters.push_back(numbers(set.value(set.find(spec.name).value())));
    }
    values.push_back(std::visit([&](const auto& op) { return run(op, call); }, node.op));
  }
  return values[static_cast<size_t>(graph.output())];
}

Buffers buffers_of(const ParameterSet& set) {
  Buffers buffers;
  for (int index = 0; index < static_cast<int>(set.buffer_count()); ++index) {
    buffers[set.buffer_spec(index).name] = numbers(set.buffer(index));
  }
  return buffers;
}

}  // namespace trainyard::nn::naive
