#include "trainyard/frontends/input/synthetic_boxes.h"

#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "trainyard/core/random/random.h"
#include "trainyard/data/sources/function_source.h"

namespace trainyard::frontends {
namespace {

constexpr uint64_t kMostMatched = 9;

// Fills each sample with numbers of its own, whatever the replica and process that has it.
void fill(at::Tensor& tensor, uint64_t seed, const char* stream, int64_t first_sample) {
  const int64_t each = tensor.numel() / tensor.size(0);
  float* const out = tensor.mutable_data_ptr<float>();
  at::parallel_for(0, tensor.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      core::RandomStream random(seed, stream, {static_cast<uint64_t>(first_sample + i)});
      random.uniforms(0, 1, out + i * each, each);
    }
  });
}

}  // namespace

std::shared_ptr<data::BatchSource> make_synthetic_boxes(const SyntheticBoxesOptions& options,
                                                        const ImageSourceOptions& source) {
  const int64_t batch = source.batch_size;
  std::vector<core::NamedTensors> replicas;
  for (int replica = 0; replica < source.replicas; ++replica) {
    const int64_t first = (source.first_replica + replica) * batch;
    at::Tensor images = at::empty({batch, 3, options.height, options.width}, at::kFloat);
    at::Tensor boxes = at::empty({batch, options.default_boxes, 4}, at::kFloat);
    fill(images, options.seed, "synthetic_detection_image", first);
    fill(boxes, options.seed, "synthetic_detection_boxes", first);
    replicas.push_back(
        {{"images", images}, {"boxes", boxes}, {"classes", at::zeros({batch, options.default_boxes}, at::kLong)}});
  }
  const auto make = [replicas, batch, seed = options.seed,
                     first = source.first_replica](const data::BatchPlace& place) {
    at::Tensor matched = at::empty({batch}, at::kLong);
    core::RandomStream random(seed, "synthetic_detection_matched",
                              {static_cast<uint64_t>(place.batch), static_cast<uint64_t>(first + place.replica)});
    for (int64_t i = 0; i < batch; ++i) {
      matched.mutable_data_ptr<int64_t>()[i] = 1 + static_cast<int64_t>(random.below(kMostMatched));
    }
    core::NamedTensors tensors = replicas[static_cast<size_t>(place.replica)];
    tensors.set("num_matched", matched);
    return tensors;
  };
  return std::make_shared<data::FunctionSource>(
      make, data::FunctionSourceOptions{
                .replicas = source.replicas, .total_replicas = source.total_replicas, .batch_size = batch});
}

}  // namespace trainyard::frontends
