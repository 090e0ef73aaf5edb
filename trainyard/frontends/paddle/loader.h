// The batches of a training or an evaluation, and what is known of the data that they come from.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "trainyard/core/base/export.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/frontends/model/class_names.h"
#include "trainyard/frontends/options/device_settings.h"
#include "trainyard/frontends/paddle/arguments.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends::program {

// What a checkpoint says of its data.
struct LoadedData {
  data::TransformOptions input{};
  ClassNames classes{};
  int64_t class_count = 0;  // 0: images are synthetic
  std::string folder{};
};

class Loader {
 public:
  // Takes `steps` batches of the source as an epoch: "images" and "labels", one batch a place for a training, one in
  // all for an evaluation. A batch that cannot be read is warned of and tried once more.
  Loader(std::shared_ptr<data::BatchSource> source, int64_t steps, LoadedData data = {});

  int64_t steps() const { return steps_; }
  const std::shared_ptr<data::BatchSource>& source() const { return source_; }
  const LoadedData& data() const { return data_; }

 private:
  std::shared_ptr<data::BatchSource> source_;
  int64_t steps_;
  LoadedData data_;
};

// Returns the images of args.image_root/train or val, a folder for each class, made as the example makes them; without
// an image_root synthetic ones, as many as ImageNet has. An epoch of training has so many whole batches that every
// image is in one; the last one goes on with images of the next epoch. An evaluation takes every image once, the last
// batch is shorter. `known` are the classes of the training, which number the labels of an evaluation. Throws what
// opening the data throws.
[[nodiscard]] Loader build_dataloader(const Arguments& args, Mode mode, const train::OpenDevices& device = {},
                                      const ClassNames& known = {});

}  // namespace trainyard::frontends::program
TRAINYARD_EXPORT_END
