#include "trainyard/nn/cuda/float_precision.h"

#include <atomic>

#include <ATen/Context.h>

namespace trainyard::nn::cuda {
namespace {
std::atomic<bool> tf32{false};
}  // namespace

void allow_tf32(bool allowed) {
  tf32 = allowed;
  apply_float_precision();
}

void apply_float_precision() {
  const at::Float32Precision precision = tf32 ? at::Float32Precision::TF32 : at::Float32Precision::IEEE;
  for (const at::Float32Op op : {at::Float32Op::CONV, at::Float32Op::MATMUL}) {
    at::globalContext().setFloat32Precision(at::Float32Backend::CUDA, op, precision);
  }
}

}  // namespace trainyard::nn::cuda
