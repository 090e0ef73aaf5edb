// Turns a record into a model's input. A transform is a pure function of the record and of (seed, epoch, sample,
// position), so the result does not depend on the thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <c10/core/Device.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/export.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/data/augment/transform_options.h"
#include "trainyard/data/datasets/dataset.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// All that a sample's augmentation may depend on.
struct SampleKey {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t sample = 0;          // index in the data set
  int64_t batch_position = 0;  // position in the device's batch; tf_cnn_benchmarks selects some operations by it
};

// The memory format and dtype of the images that a transform writes.
struct ImageForm {
  c10::ScalarType dtype = c10::kFloat;
  c10::Device device = c10::kCPU;
  c10::MemoryFormat layout =
      c10::MemoryFormat::Contiguous;  // layout of an image: [3, height, width] or [height, width, 3]
};

// Turns records into images. Many threads call it at once.
class Transform {
 public:
  virtual ~Transform() = default;
  virtual ImageForm form() const { return {}; }
  // Returns the size of the images that it makes. apply() writes exactly this size, so the pipeline must allocate it.
  [[nodiscard]] virtual ImageSize size() const = 0;
  // Fills `out`, an image of this form. Returns an error that names the record when the image cannot be decoded.
  virtual core::Result<void> apply(const Record& record, const SampleKey& key, void* out) const = 0;
};

// Transforms by the name of the data set: "imagenet", "cifar10", "shapes".
using TransformFactory = std::function<std::unique_ptr<Transform>(const TransformOptions&)>;
using TransformRegistry = core::Registry<TransformFactory>;
TransformRegistry& transforms();

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
