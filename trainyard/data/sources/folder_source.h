// Images in folders, one a class, as batches: ROOT/<class>/**/*.jpg.
//
//   const auto train = data::open_folder("flowers/train", {.size = 160, .batch_size = 32});
//   const auto validation =
//       data::open_folder("flowers/validation", {.size = 160, .training = false, .classes = train->classes()});
//
// With one folder for training and validation, each takes its part:
//
//   const auto train = data::open_folder("flowers", {.size = 160, .part = data::FolderPart::kTraining});
//   const auto validation =
//       data::open_folder("flowers", {.size = 160, .training = false, .part = data::FolderPart::kValidation});
//
// Classes are numbered in the order of their names (datasets/folder_dataset.h). Batches hold "images" [N, 3, size,
// size] float and "labels" [N] int64. Threads make them ahead; their bytes do not depend on the number of threads. A
// run resumes in mid-epoch with the batches that it would have had (pipeline/pipeline.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/data/sources/described_source.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// The augmentation of training images. Each but the first takes a random window of 8 % to 100 % of the image and
// mirrors half of them (torchvision's RandomResizedCrop and RandomHorizontalFlip).
enum class Augment {
  kNone,            // the centre, as in evaluation
  kCropAndFlip,     // nothing else
  kColors,          // brightness, saturation, hue and contrast change, too
  kTrivialAugment,  // and one random operation (Mueller and Hutter, "TrivialAugment", 2021)
  kRandAugment,     // and two (Cubuk et al., "RandAugment", 2020)
};

// The images of a folder that a source reads. The two parts are disjoint and always the same: FolderOptions::division
// says, by a hash of the images' names, which of each class are for validation (datasets/dataset_division.h).
enum class FolderPart { kAll, kTraining, kValidation };

struct FolderOptions {
  int64_t size = 224;       // height and width of the images that the model gets, in pixels
  int64_t batch_size = 32;  // a replica
  // true: shuffled epochs without an end, of augmented images. false: each image once, its centre, in order; the last
  // batch is shorter.
  bool training = true;
  FolderPart part = FolderPart::kAll;       // for a folder of both training and validation images
  Division division{};                      // with `part`; else unused. A fifth of each class is for validation
  Augment augment = Augment::kCropAndFlip;  // used when `training` is true
  // The classes by label, from another folder; a folder of an unknown class is an error. Empty: the names of the
  // folders.
  std::vector<std::string> classes{};
  // How images are scaled and normalized, instead of `size` and `augment`. Nullopt: rotated as their EXIF data say, the
  // shorter side to 8/7 of `size`, bilinear with antialiasing; (pixel - mean) / deviation of ImageNet.
  std::optional<TransformOptions> transform = std::nullopt;
  uint64_t seed = 0;
  int replicas = 1;        // local replicas, whose batches next() returns
  int first_replica = 0;   // index of the first local replica among all
  int total_replicas = 0;  // replicas of all processes; 0: only the local ones
  int worker_threads = 0;  // threads that read, decode and augment; 0: the cores that this process may use
  void validate() const;   // throws kInvalidArgument
};

// Batches of a folder. One thread at a time may call next() and the Stateful methods, any thread stop().
class FolderSource : public SourceDecorator, public SizedSource, public DescribedSource {
 public:
  // Lists the folder, and reads no image. Throws kNotFound when there is no such folder, or no image in it or in the
  // part, kInvalidArgument for bad options and for folders of classes that options.classes does not have.
  FolderSource(const std::string& path, const FolderOptions& options);

  std::vector<Batch> next() override { return source()->next(); }
  int64_t batches_per_epoch() const override { return batches_per_epoch_; }

  int64_t samples() const { return samples_; }                          // images in the folder, or in its part
  const std::vector<std::string>& classes() const { return classes_; }  // by label
  // Returns how images become input, as options of the transform "imagenet": model files store it.
  const TransformOptions& transform() const { return transform_; }
  bool training() const { return training_; }  // FolderOptions::training
  // Returns true when an image may be in both: they read the same folder, and not its two different parts.
  [[nodiscard]] bool shares_images_with(const FolderSource& other) const;
  [[nodiscard]] SourceDescription description() const override {
    return {.classes = classes_, .input = transform_, .training = training_};
  }

 private:
  struct Opened;
  explicit FolderSource(Opened opened);
  static Opened open(const std::string& path, const FolderOptions& options);

  int64_t samples_, batches_per_epoch_;
  std::vector<std::string> classes_;
  TransformOptions transform_;
  bool training_;
  std::string folder_;  // its path without links
  FolderPart part_;
  Division division_;
};

std::shared_ptr<FolderSource> open_folder(const std::string& path, const FolderOptions& options = {});

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
