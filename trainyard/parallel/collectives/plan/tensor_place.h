// Where the ranks' tensors lie, for communicators whose ranks read each other's memory (Communicator::peer_views).
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/communicator.h"

namespace trainyard::parallel {

struct TensorPlace {
  int64_t address = -1;  // in whatever all ranks count from; -1: out of reach
  std::vector<int64_t> shape{};
};

// Collective: returns the place of each rank's tensor, in the order of ranks, given that of this rank's. Empty on all
// ranks when one of them is out of reach, and when dtypes or numbers of dimensions differ. At most 4 dimensions.
std::vector<TensorPlace> gather_places(core::Communicator& communicator, const at::Tensor& tensor, int64_t address);

// Collective: returns the ranks' tensors where all ranks are threads of this process, as Communicator::peer_views. They
// do not keep the memory.
std::vector<at::Tensor> views_within_process(core::Communicator& communicator, const at::Tensor& tensor);

}  // namespace trainyard::parallel
