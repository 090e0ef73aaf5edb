// The parts of LibTorch that take 8 to 12 s a file to parse, precompiled for the sources listed under
// PRECOMPILED_TORCH.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>
