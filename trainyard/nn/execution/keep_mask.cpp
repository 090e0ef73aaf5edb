#include "trainyard/nn/execution/keep_mask.h"

#include <ATen/Parallel.h>

#include "trainyard/core/random/random.h"

namespace trainyard::nn {

void fill_keep_mask(float* mask, int64_t samples, int64_t per_sample, double drop, float kept, std::string_view layer,
                    const StepRandom& random) {
  at::parallel_for(0, samples, 1, [&](int64_t begin, int64_t end) {
    for (int64_t sample = begin; sample < end; ++sample) {
      core::RandomStream stream(random.seed, layer,
                                {static_cast<uint64_t>(random.step), static_cast<uint64_t>(random.micro_step),
                                 static_cast<uint64_t>(random.first_sample + sample)});
      float* const row = mask + sample * per_sample;
      stream.uniforms(0, 1, row, per_sample);
      for (int64_t i = 0; i < per_sample; ++i) row[i] = row[i] < drop ? 0.0F : kept;
    }
  });
}

}  // namespace trainyard::nn
