// Batches of images and labels that a test holds in memory, in their order, round and round or once.
#pragma once

#include "trainyard/data/sources/tensor_source.h"

namespace trainyard::train {

class MemorySource : public data::TensorSource {
 public:
  // images [M, C, H, W], labels [M]. Without `repeat` the last batches are shorter, possibly empty.
  MemorySource(const at::Tensor& images, const at::Tensor& labels, int64_t batch_size, int replicas = 1,
               bool repeat = true)
      : TensorSource({{"images", images}, {"labels", labels}},
                     {.batch_size = batch_size, .replicas = replicas, .repeat = repeat}) {}
};

}  // namespace trainyard::train
