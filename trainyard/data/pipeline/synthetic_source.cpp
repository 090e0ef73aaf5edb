#include "trainyard/data/pipeline/synthetic_source.h"

#include <algorithm>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <fmt/core.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/random/random.h"

namespace trainyard::data {

void SyntheticOptions::validate() const {
  const auto require = [](bool holds, std::string_view problem, int64_t actual) {
    if (holds) return;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = std::string(problem), .actual = fmt::format("{}", actual)});
  };
  require(batch_size > 0, "batch size must be at least 1", batch_size);
  require(local_replicas > 0, "there must be at least 1 replica", local_replicas);
  require(first_replica >= 0 && first_replica + local_replicas <= total_replicas,
          "local replicas must be among all replicas", first_replica);
  require(height > 0, "image height must be at least 1", height);
  require(width > 0, "image width must be at least 1", width);
  require(classes > 1, "there must be at least 2 classes", classes);
  require(epoch_size > 0, "an epoch must have at least 1 sample", epoch_size);
}

SyntheticSource::SyntheticSource(const SyntheticOptions& options)
    : options_(options), sequence_(options.epoch_size, {}, options.seed) {
  options_.validate();
  const int64_t image_size = 3 * options_.height * options_.width;
  for (int r = 0; r < options_.local_replicas; ++r) {
    at::Tensor images = at::empty({options_.batch_size, 3, options_.height, options_.width}, at::kFloat);
    float* const out = images.mutable_data_ptr<float>();
    at::parallel_for(0, options_.batch_size, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t place = (options_.first_replica + r) * options_.batch_size + i;
        core::RandomStream random(options_.seed, "synthetic_image", {static_cast<uint64_t>(place)});
        const SyntheticSamples& samples = options_.samples;
        float* const image = out + i * image_size;
        random.truncated_normals(image, image_size);
        for (int64_t k = 0; k < image_size; ++k) {
          const float pixel = samples.mean + samples.standard_deviation * image[k];
          image[k] = samples.clipped ? std::clamp(pixel, 0.0F, 255.0F) : pixel;
        }
      }
    });
    images_.push_back(images);
  }
}

std::vector<Batch> SyntheticSource::next() {
  const Position after = sequence_.advanced(position_, options_.batch_size * options_.total_replicas);
  std::vector<Batch> batches;
  for (int r = 0; r < options_.local_replicas; ++r) {
    const int64_t first = (options_.first_replica + r) * options_.batch_size;
    Batch batch{.tensors = {{"images", images_[r]}, {"labels", at::empty({options_.batch_size}, at::kLong)}},
                .first_sample = first,
                .after = after};
    for (int64_t i = 0; i < options_.batch_size; ++i) {
      const Position place =
          options_.samples.fixed_labels ? Position{0, first + i} : sequence_.advanced(position_, first + i);
      core::RandomStream random(options_.seed, "synthetic_label",
                                {static_cast<uint64_t>(place.epoch), static_cast<uint64_t>(place.offset)});
      batch.labels().mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(random.below(options_.classes - 1));
    }
    batches.push_back(std::move(batch));
  }
  position_ = after;
  return batches;
}

}  // namespace trainyard::data
