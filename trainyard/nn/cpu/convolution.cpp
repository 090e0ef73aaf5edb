#include "trainyard/nn/cpu/convolution.h"

#include <cstring>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/core.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "trainyard/core/error.h"
#include "trainyard/nn/cpu/isa.h"

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

// What both versions of the interface are told: 2.x through operation descriptors, 3.x directly.
struct Descs {
  memory::desc source, weights, weights_gradient, bias, output, plain_weights;
  memory::dims strides, dilation, before, after;
  dnnl::algorithm algorithm;
};

Descs describe(const ConvolutionShape& s, ConvolutionAlgorithm algorithm) {
  const memory::data_type type = to_dnnl(s.dtype), f32 = memory::data_type::f32;
  const Tag blocked = channel_block() == 16 ? Tag::nChw16c : Tag::nChw8c;
  const memory::dims weights = s.groups == 1
                                   ? memory::dims{s.out_channels, s.in_channels, s.kernel_height, s.kernel_width}
                                   : memory::dims{s.groups, s.out_channels / s.groups, s.in_channels / s.groups,
                                                  s.kernel_height, s.kernel_width};
  return {.source = {{s.batch, s.in_channels, s.in_height, s.in_width}, type, s.plain_input ? Tag::nchw : blocked},
          .weights = {weights, type, Tag::any},
          .weights_gradient = {weights, f32, Tag::any},
          .bias = s.bias ? memory::desc({s.out_channels}, f32, Tag::x) : memory::desc(),
          .output = {{s.batch, s.out_channels, s.out_height, s.out_width}, type, blocked},
          .plain_weights = {weights, f32, s.groups == 1 ? Tag::oihw : Tag::goihw},
          .strides = {s.stride_height, s.stride_width},
          .dilation = {s.dilation_height - 1, s.dilation_width - 1},
          .before = {s.top, s.left},
          .after = {s.bottom, s.right},
          .algorithm = algorithm == ConvolutionAlgorithm::kWinograd ? dnnl::algorithm::convolution_winograd
                                                                    : dnnl::algorithm::convolution_direct};
}

dnnl::primitive_attr attributes(const ConvolutionKernel::Options& options) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops post;
  if (options.sum) post.append_sum(1.0F);
#if DNNL_VERSION_MAJOR >= 3
  if (options.activation == UnitActivation::kRelu) post.append_eltwise(dnnl::algorithm::eltwise_relu, 0, 0);
#else
  if (options.activation == UnitActivation::kRelu) post.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0, 0);
#endif
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

}  // namespace

struct ConvolutionKernel::Impl {
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

  void execute(Arguments arguments, void* scratch_data) const {
    arguments.emplace(DNNL_ARG_SCRATCHPAD, at(scratch, scratch_data));
    primitive.execute(stream(), arguments);
  }
};

ConvolutionKernel::ConvolutionKernel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ConvolutionKernel::~ConvolutionKernel() = default;

std::unique_ptr<ConvolutionKernel> ConvolutionKernel::make(const ConvolutionShape& shape, const Options& options) {
  auto impl = std::make_unique<Impl>();
  impl->descs = describe(shape, options.algorithm);
  const Descs& descs = impl->descs;
  try {
    const dnnl::primitive_attr attr = attributes(options);
    const dnnl::prop_kind kind =
        options.inference ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training;
    if (options.direction == ConvolutionDirection::kForward) {
      const auto desc = forward_desc(descs, kind, attr);
      impl->adopt(desc, desc.weights_desc());
      impl->primitive = Forward(desc);
    } else {
      // A hint: which forward this belongs to. Its own choices do not bind the backward's.
      const auto hint = forward_desc(descs, dnnl::prop_kind::forward_training, {});
      if (options.direction == ConvolutionDirection::kBackwardData) {
        const auto desc = backward_data_desc(descs, hint, attr);
        impl->adopt(desc, desc.weights_desc());
        impl->primitive = BackwardData(desc);
      } else {
        const auto desc = backward_weights_desc(descs, hint, attr);
        impl->adopt(desc, desc.diff_weights_desc());
        impl->primitive = BackwardWeights(desc);
      }
    }
    if (std::string_view(impl->implementation).starts_with("ref")) return nullptr;
    if (options.direction == ConvolutionDirection::kBackwardWeights) {
      impl->unpack =
          dnnl::reorder(dnnl::reorder::primitive_desc(engine(), impl->packed, engine(), descs.plain_weights));
    } else {
      impl->pack = dnnl::reorder(dnnl::reorder::primitive_desc(engine(), descs.plain_weights, engine(), impl->packed));
    }
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented || error.status == dnnl_invalid_arguments) return nullptr;
    throw core::Error(core::ErrorCode::kInternal,
                      {.problem = "oneDNN could not prepare a convolution", .actual = error.what()});
  }
  return std::unique_ptr<ConvolutionKernel>(new ConvolutionKernel(std::move(impl)));
}

int64_t ConvolutionKernel::weights_bytes() const {
  return static_cast<int64_t>(impl_->packed.get_size());
}

int64_t ConvolutionKernel::scratch_bytes() const {
  return static_cast<int64_t>(impl_->scratch.get_size());
}

const char* ConvolutionKernel::implementation() const {
  return impl_->implementation.c_str();
}

void ConvolutionKernel::pack(const float* plain, void* packed) const {
  memory from = at(impl_->descs.plain_weights, plain), to = at(impl_->packed, packed);
  impl_->pack.execute(stream(), from, to);
}

void ConvolutionKernel::unpack(const void* packed, float* plain) const {
  memory from = at(impl_->packed, packed), to = at(impl_->descs.plain_weights, plain);
  impl_->unpack.execute(stream(), from, to);
}

void ConvolutionKernel::forward(const void* source, const void* weights, const float* bias, void* output,
                                void* scratch) const {
  Arguments arguments{{DNNL_ARG_SRC, at(impl_->descs.source, source)},
                      {DNNL_ARG_WEIGHTS, at(impl_->packed, weights)},
                      {DNNL_ARG_DST, at(impl_->descs.output, output)}};
  if (bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, at(impl_->descs.bias, bias));
  impl_->execute(std::move(arguments), scratch);
}

void ConvolutionKernel::backward_data(const void* output_gradient, const void* weights, void* source_gradient,
                                      void* scratch) const {
  impl_->execute({{DNNL_ARG_DIFF_DST, at(impl_->descs.output, output_gradient)},
                  {DNNL_ARG_WEIGHTS, at(impl_->packed, weights)},
                  {DNNL_ARG_DIFF_SRC, at(impl_->descs.source, source_gradient)}},
                 scratch);
}

void ConvolutionKernel::backward_weights(const void* source, const void* output_gradient, void* weights_gradient,
                                         float* bias_gradient, void* scratch) const {
  Arguments arguments{{DNNL_ARG_SRC, at(impl_->descs.source, source)},
                      {DNNL_ARG_DIFF_DST, at(impl_->descs.output, output_gradient)},
                      {DNNL_ARG_DIFF_WEIGHTS, at(impl_->packed, weights_gradient)}};
  if (bias_gradient != nullptr) arguments.emplace(DNNL_ARG_DIFF_BIAS, at(impl_->descs.bias, bias_gradient));
  impl_->execute(std::move(arguments), scratch);
}

}  // namespace trainyard::nn::cpu
