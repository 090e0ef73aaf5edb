// error: ignoring returned value of type 'trainyard::nn::AcceleratorScope'.*nodiscard
#include "trainyard/nn/execution/accelerator.h"

namespace device_scope_that_is_not_kept {

void run(trainyard::nn::Accelerator& gpu) {
#ifdef MISTAKE
  gpu.use();
#else
  const auto using_it = gpu.use();
#endif
  gpu.wait();
}

}  // namespace device_scope_that_is_not_kept
