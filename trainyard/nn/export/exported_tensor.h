// Reads the parameters of a set for the formats of export.
#pragma once

#include <span>
#include <string>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/parameter_set.h"

namespace trainyard::nn {

// Returns the parameter or buffer of that name, as a view of the set. Throws kNotFound.
at::Tensor exported_parameter(const ParameterSet& set, const std::string& name);
at::Tensor exported_buffer(const ParameterSet& set, const std::string& name);

// Returns the tensor's numbers in C order, valid as long as the set lives. Throws kInvalidArgument, naming the tensor,
// unless it is float32, contiguous and on the CPU.
std::span<const float> exported_floats(const std::string& name, const at::Tensor& tensor);

}  // namespace trainyard::nn
