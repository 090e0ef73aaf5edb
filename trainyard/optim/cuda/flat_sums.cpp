#include "trainyard/optim/cuda/flat_sums.h"

#include <ATen/ops/empty.h>

#include "trainyard/nn/cuda/device_tensor.h"
#include "trainyard/optim/cuda/kernels.h"

namespace trainyard::optim::cuda {

at::Tensor sum_of_decayed_squares(const at::Tensor& values, const SegmentPartTable& parts) {
  const at::TensorOptions options = values.options().dtype(at::kDouble);
  const at::Tensor sums = at::empty({parts.count}, options);
  at::Tensor total = at::empty({}, options);
  const cudaStream_t stream = nn::cuda::current_stream();
  part_squares(values.scalar_type() == at::kDouble, values.const_data_ptr(), parts.data(), parts.count,
               sums.data_ptr<double>(), stream);
  add_up(sums.const_data_ptr<double>(), parts.count, total.data_ptr<double>(), stream);
  return total;
}

}  // namespace trainyard::optim::cuda
