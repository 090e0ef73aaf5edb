#include "trainyard/nn/cpu/convolution/onednn/onednn_convolution.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/cpu/convolution/grouped/blocked_groups.h"
#include "trainyard/nn/cpu/simd/isa.h"

namespace trainyard::nn::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Arguments = std::unordered_map<int, memory>;

const dnnl::engine& engine() {
  static const dnnl::engine value(dnnl::engine::kind::cpu, 0);
  return value;
}

dnnl::stream& stream() {
  static thread_local dnnl::stream value(engine());
  return value;
}

memory::data_type to_dnnl(DataType dtype) {
  return dtype == DataType::kFloat ? memory::data_type::f32 : memory::data_type::bf16;
}

memory at(const memory::desc& desc, const void* data) {
  return {desc, engine(),
          const_cast<void*>(data)};  // NOLINT(cppcoreguidelines-pro-type-const-cast): its type has no const
}

// What both versions of oneDNN's interface need: 2.x takes it through operation descriptors, 3.x directly.
struct Descs {
  memory::desc source, weights, weights_gradient, bias, output, plain_weights;
  memory::dims strides, dilation, before, after;
  dnnl::algorithm algorithm;
};

Descs describe(const ConvolutionShape& s, const BlockedGroups& groups, ConvolutionAlgorithm algorithm) {
  const memory::data_type type = to_dnnl(s.dtype), f32 = memory::data_type::f32;
  const Tag blocked = channel_block() == 16 ? Tag::nChw16c : Tag::nChw8c;
  const int64_t in = groups.count * groups.in, out = groups.count * groups.out;
  const memory::dims weights = groups.count == 1
                                   ? memory::dims{out, in, s.kernel_height, s.kernel_width}
                                   : memory::dims{groups.count, groups.out, groups.in, s.kernel_height, s.kernel_width};
  return {.source = {{s.batch, in, s.in_height, s.in_width}, type, s.plain_input ? Tag::nchw : blocked},
          .weights = {weights, type, Tag::any},
          .weights_gradient = {weights, f32, Tag::any},
          .bias = s.bias ? memory::desc({out}, f32, Tag::x) : memory::desc(),
          .output = {{s.batch, out, s.out_height, s.out_width}, type, blocked},
          .plain_weights = {weights, f32, groups.count == 1 ? Tag::oihw : Tag::goihw},
          .strides = {s.stride_height, s.stride_width},
          .dilation = {s.dilation_height - 1, s.dilation_width - 1},
          .before = {s.top, s.left},
          .after = {s.bottom, s.right},
          .algorithm = algorithm == ConvolutionAlgorithm::kWinograd ? dnnl::algorithm::convolution_winograd
                                                                    : dnnl::algorithm::convolution_direct};
}

struct Eltwise {
  dnnl::algorithm algorithm;
  float alpha, beta;
};

// Returns oneDNN's form of an activation, for those that is_fusable() allows; nothing for kNone.
std::optional<Eltwise> eltwise(UnitActivation activation) {
  switch (activation) {
    case UnitActivation::kRelu:
      return Eltwise{dnnl::algorithm::eltwise_relu, 0, 0};
    case UnitActivation::kRelu6:
      return Eltwise{dnnl::algorithm::eltwise_clip, 0, 6};
    case UnitActivation::kSilu:
      return Eltwise{dnnl::algorithm::eltwise_swish, 1, 0};
    case UnitActivation::kHardSwish:  // 2.x ignores the numbers
      return Eltwise{dnnl::algorithm::eltwise_hardswish, 1.0F / 6, 0.5F};
    default:
      return std::nullopt;
  }
}

dnnl::primitive_attr attributes(const ConvolutionKernel::Options& options) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops post;
  if (options.sum) post.append_sum(1.0F);
  if (const auto activation = eltwise(options.activation)) {
#if DNNL_VERSION_MAJOR >= 3
    post.append_eltwise(activation->algorithm, activation->alpha, activation->beta);
#else
    post.append_eltwise(1.0F, activation->algorithm, activation->alpha, activation->beta);
#endif
  }
  if (post.len() > 0) attr.set_post_ops(post);
  return attr;
}

using Forward = dnnl::convolution_forward;
using BackwardData = dnnl::convolution_backward_data;
using BackwardWeights = dnnl::convolution_backward_weights;

#if DNNL_VERSION_MAJOR >= 3

Forward::primitive_desc forward_desc(const Descs& d, dnnl::prop_kind kind, const dnnl::primitive_attr& attr) {
  return {engine(), kind,      d.algorithm, d.source, d.weights, d.bias,
          d.output, d.strides, d.dilation,  d.before, d.after,   attr};
}
BackwardData::primitive_desc backward_data_desc(const Descs& d, const Forward::primitive_desc& hint,
                                                const dnnl::primitive_attr& attr) {
  return {engine(), d.algorithm, d.source, d.weights, d.output, d.strides, d.dilation, d.before, d.after, hint, attr};
}
BackwardWeights::primitive_desc backward_weights_desc(const Descs& d, const Forward::primitive_desc& hint,
                                                      const dnnl::primitive_attr& attr) {
  return {engine(), d.algorithm, d.source, d.weights_gradient, d.bias, d.output, d.strides, d.dilation, d.before,
          d.after,  hint,        attr};
}

#else

Forward::primitive_desc forward_desc(const Descs& d, dnnl::prop_kind kind, const dnnl::primitive_attr& attr) {
  return {{kind, d.algorithm, d.source, d.weights, d.bias, d.output, d.strides, d.dilation, d.before, d.after},
          attr,
          engine()};
}
BackwardData::primitive_desc backward_data_desc(const Descs& d, const Forward::primitive_desc& hint,
                                                const dnnl::primitive_attr& attr) {
  return {{d.algorithm, d.source, d.weights, d.output, d.strides, d.dilation, d.before, d.after}, attr, engine(), hint};
}
BackwardWeights::primitive_desc backward_weights_desc(const Descs& d, const Forward::primitive_desc& hint,
                                                      const dnnl::primitive_attr& attr) {
  return {{d.algorithm, d.source, d.weights_gradient, d.bias, d.output, d.strides, d.dilation, d.before, d.after},
          attr,
          engine(),
          hint};
}

#endif

// What it takes to run one direction.
struct Prepared {
  Descs descs;
  dnnl::primitive primitive;
  memory::desc packed, scratch;
  std::string implementation;
  dnnl::reorder pack, unpack;

  template <typename PrimitiveDesc>
  void adopt(const PrimitiveDesc& desc, const memory::desc& packed_desc) {
    packed = packed_desc;
    scratch = desc.scratchpad_desc();
    implementation = desc.impl_info_str();
  }
};

class OneDnnKernel : public ConvolutionKernel {
 public:
  OneDnnKernel(const ConvolutionShape& shape, const BlockedGroups& groups, UnitActivation activation, Prepared prepared)
      : shape_(shape),
        groups_(groups),
        activation_(activation),
        prepared_(std::move(prepared)),
        unreached_(unreached_weights(shape)) {
    expands_ = groups.count != shape.groups || groups.count * groups.in != shape.in_channels ||
               groups.count * groups.out != shape.out_channels;
    if (!expands_ || !shape.bias) return;
    bias_floats_ = groups.count * groups.out;
  }

  int64_t weights_bytes() const override { return static_cast<int64_t>(prepared_.packed.get_size()); }
  // Has room for oneDNN's scratch memory and a bias as long as the padded channels.
  int64_t scratch_bytes() const override {
    return static_cast<int64_t>(prepared_.scratch.get_size()) + bias_floats_ * int64_t{sizeof(float)};
  }
  const char* implementation() const override { return prepared_.implementation.c_str(); }
  // oneDNN's max(x, 0) and min(x, 6) give the bound where x is NaN. Its SiLU and hard swish multiply by x.
  bool hides_nan() const override {
    return activation_ == UnitActivation::kRelu || activation_ == UnitActivation::kRelu6;
  }
  bool mixes_groups() const override { return groups_.count != shape_.groups; }
  bool multiplies_pairs() const override { return shape_.dtype == DataType::kBfloat16; }

  void pack(const float* plain, void* packed) const override {
    std::vector<float> expanded;
    if (expands_) {
      expanded.resize(expanded_floats());
      each_window([&](int64_t whole, int64_t window) {
        if (window >= 0) std::copy_n(plain + window, window_pixels(), expanded.data() + whole);
      });
      plain = expanded.data();
    }
    memory from = at(prepared_.descs.plain_weights, plain), to = at(prepared_.packed, packed);
    prepared_.pack.execute(stream(), from, to);
  }

  void unpack(const void* packed, float* plain) const override {
    std::vector<float> expanded;
    if (expands_) expanded.resize(expanded_floats());
    memory from = at(prepared_.packed, packed),
           to = at(prepared_.descs.plain_weights, expands_ ? expanded.data() : plain);
    prepared_.unpack.execute(stream(), from, to);
    if (expands_) {
      each_window([&](int64_t whole, int64_t window) {
        if (window >= 0) std::copy_n(expanded.data() + whole, window_pixels(), plain + window);
      });
    }
    // oneDNN may have left them as the memory was.
    unreached_.clear(plain, shape_.out_channels * (shape_.in_channels / shape_.groups));
  }

  void forward(const void* source, const void* weights, const float* bias, void* output, void* scratch) const override {
    Arguments arguments{{DNNL_ARG_SRC, at(prepared_.descs.source, source)},
                        {DNNL_ARG_WEIGHTS, at(prepared_.packed, weights)},
                        {DNNL_ARG_DST, at(prepared_.descs.output, output)}};
    if (bias != nullptr) {
      if (bias_floats_ > 0) {
        float* const padded = padded_bias(scratch);
        std::copy_n(bias, shape_.out_channels, padded);
        std::fill(padded + shape_.out_channels, padded + bias_floats_, 0.0F);
        bias = padded;
      }
      arguments.emplace(DNNL_ARG_BIAS, at(prepared_.descs.bias, bias));
    }
    execute(std::move(arguments), scratch);
  }

  void backward_data(const void* output_gradient, const void* weights, void* source_gradient,
                     void* scratch) const override {
    execute({{DNNL_ARG_DIFF_DST, at(prepared_.descs.output, output_gradient)},
             {DNNL_ARG_WEIGHTS, at(prepared_.packed, weights)},
             {DNNL_ARG_DIFF_SRC, at(prepared_.descs.source, source_gradient)}},
            scratch);
  }

  void backward_weights(const void* source, const void* output_gradient, void* weights_gradient, float* bias_gradient,
                        void* scratch) const override {
    Arguments arguments{{DNNL_ARG_SRC, at(prepared_.descs.source, source)},
                        {DNNL_ARG_DIFF_DST, at(prepared_.descs.output, output_gradient)},
                        {DNNL_ARG_DIFF_WEIGHTS, at(prepared_.packed, weights_gradient)}};
    const bool pads = bias_gradient != nullptr && bias_floats_ > 0;
    float* const bias = pads ? padded_bias(scratch) : bias_gradient;
    if (bias != nullptr) arguments.emplace(DNNL_ARG_DIFF_BIAS, at(prepared_.descs.bias, bias));
    execute(std::move(arguments), scratch);
    if (pads) std::copy_n(bias, shape_.out_channels, bias_gradient);
  }

 private:
  void execute(Arguments arguments, void* scratch) const {
    arguments.emplace(DNNL_ARG_SCRATCHPAD, at(prepared_.scratch, scratch));
    prepared_.primitive.execute(stream(), arguments);
  }

  float* padded_bias(void* scratch) const {
    return reinterpret_cast<float*>(static_cast<char*>(scratch) + prepared_.scratch.get_size());
  }
  int64_t window_pixels() const { return shape_.kernel_height * shape_.kernel_width; }
  size_t expanded_floats() const {
    return static_cast<size_t>(groups_.count * groups_.out * groups_.in * window_pixels());
  }
  // Calls use(place in the weights of whole groups, place in the plain ones or -1: zeros) for each window.
  template <typename Use>
  void each_window(const Use& use) const {
    int64_t whole = 0;
    for (int64_t out = 0; out < groups_.count * groups_.out; ++out) {
      const int64_t first = out / groups_.out * groups_.in;
      for (int64_t in = first; in < first + groups_.in; ++in, whole += window_pixels()) {
        const int64_t window = plain_window(shape_, out, in);
        use(whole, window < 0 ? -1 : window * window_pixels());
      }
    }
  }

  ConvolutionShape shape_;
  BlockedGroups groups_;
  UnitActivation activation_;
  Prepared prepared_;
  UnreachedWeights unreached_;
  bool expands_ = false;     // between the plain weights and those of whole groups
  int64_t bias_floats_ = 0;  // of a bias in scratch; 0: the caller's serves
};

}  // namespace

std::unique_ptr<ConvolutionKernel> make_onednn_convolution(const ConvolutionShape& shape,
                                                           const ConvolutionKernel::Options& options, bool whole) {
  BlockedGroups groups{shape.groups, shape.in_channels / shape.groups, shape.out_channels / shape.groups};
  if (whole) {
    groups = blocked_groups(shape, channel_block());
    if (shape.plain_input) groups.in = shape.in_channels;
  }
  Prepared made{.descs = describe(shape, groups, options.algorithm)};
  const Descs& descs = made.descs;
  try {
    const dnnl::primitive_attr attr = attributes(options);
    const dnnl::prop_kind kind =
        options.inference ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training;
    if (options.direction == ConvolutionDirection::kForward) {
      const auto desc = forward_desc(descs, kind, attr);
      made.adopt(desc, desc.weights_desc());
      made.primitive = Forward(desc);
    } else {
      // oneDNN takes as a hint which forward a backward belongs to. The choices of that forward do not bind it.
      const auto hint = forward_desc(descs, dnnl::prop_kind::forward_training, {});
      if (options.direction == ConvolutionDirection::kBackwardData) {
        const auto desc = backward_data_desc(descs, hint, attr);
        made.adopt(desc, desc.weights_desc());
        made.primitive = BackwardData(desc);
      } else {
        const auto desc = backward_weights_desc(descs, hint, attr);
        made.adopt(desc, desc.diff_weights_desc());
        made.primitive = BackwardWeights(desc);
      }
    }
    if (std::string_view(made.implementation).starts_with("ref")) return nullptr;
    if (options.direction == ConvolutionDirection::kBackwardWeights) {
      made.unpack = dnnl::reorder(dnnl::reorder::primitive_desc(engine(), made.packed, engine(), descs.plain_weights));
    } else {
      made.pack = dnnl::reorder(dnnl::reorder::primitive_desc(engine(), descs.plain_weights, engine(), made.packed));
    }
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented || error.status == dnnl_invalid_arguments) return nullptr;
    throw core::Error(core::ErrorCode::kInternal,
                      {.problem = "oneDNN could not prepare a convolution", .actual = error.what()});
  }
  return std::make_unique<OneDnnKernel>(shape, groups, options.activation, std::move(made));
}

}  // namespace trainyard::nn::cpu
