#include "trainyard/nn/export/exported_tensor.h"

#include "trainyard/core/base/error.h"

namespace trainyard::nn {
namespace {

core::Error not_in_set(const std::string& name) {
  return {core::ErrorCode::kNotFound, {.problem = "the parameter set lacks what the graph needs", .where = name}};
}

}  // namespace

at::Tensor exported_parameter(const ParameterSet& set, const std::string& name) {
  const auto id = set.find(name);
  if (!id) throw not_in_set(name);
  return set.value(*id);
}

at::Tensor exported_buffer(const ParameterSet& set, const std::string& name) {
  const auto index = set.find_buffer(name);
  if (!index) throw not_in_set(name);
  return set.buffer(*index);
}

std::span<const float> exported_floats(const std::string& name, const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kFloat || !tensor.is_cpu() || !tensor.is_contiguous()) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "a tensor cannot be exported as it is",
                                                          .where = name,
                                                          .expected = "float32 in one piece on the CPU",
                                                          .actual = tensor.toString()});
  }
  return {tensor.const_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

}  // namespace trainyard::nn
