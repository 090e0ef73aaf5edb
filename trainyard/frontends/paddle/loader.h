// The batches of a training or an evaluation, and facts about their data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "trainyard/core/base/export.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/frontends/model/class_names.h"
#include "trainyard/frontends/paddle/arguments.h"
#include "trainyard/train/devices/open_devices.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends::program {

// Facts about the data that checkpoints store.
struct LoadedData {
  data::TransformOptions input{};
  ClassNames classes{};
  int64_t class_count = 0;  // 0: images are synthetic
  std::string folder{};
};

class Loader {
 public:
  // Uses `steps` batches of the source as an epoch: "images" and "labels", one batch per place for a training, a single
  // one for an evaluation. Retries a batch that cannot be read once, with a warning.
  Loader(std::shared_ptr<data::BatchSource> source, int64_t steps, LoadedData data = {});

  int64_t steps() const { return steps_; }
  const std::shared_ptr<data::BatchSource>& source() const { return source_; }
  const LoadedData& data() const { return data_; }

 private:
  std::shared_ptr<data::BatchSource> source_;
  int64_t steps_;
  LoadedData data_;
};

// Returns the images of args.image_root/train or val, a folder for each class, made as the example makes them; or
// synthetic images, as many as in ImageNet, without an image_root. An epoch of training has as many whole batches as
// needed for every image to be in one; the last one is filled with images of the next epoch. An evaluation uses every
// image once, and its last batch is shorter. `known` are the classes of the training, which number the labels of an
// evaluation. Throws what opening the data throws.
[[nodiscard]] Loader build_dataloader(const Arguments& args, Mode mode, const train::OpenDevices& device = {},
                                      const ClassNames& known = {});

}  // namespace trainyard::frontends::program
TRAINYARD_EXPORT_END
