#include "trainyard/data/sources/folder_source.h"

#include <algorithm>
#include <utility>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/datasets/dataset_division.h"
#include "trainyard/data/datasets/folder_dataset.h"
#include "trainyard/data/pipeline/pipeline.h"
#include "trainyard/data/sources/source_options.h"

namespace trainyard::data {
namespace {

TransformOptions transform_of_folder(const FolderOptions& options) {
  TransformOptions transform = options.transform.value_or(input_presets().get("torchvision"));
  if (!options.transform) {
    transform.set_size(options.size, options.size);
    transform.exif_orientation = true;
    transform.distortions = options.augment == Augment::kColors;
    if (options.augment == Augment::kTrivialAugment) transform.auto_augment.policy = AutoAugmentPolicy::kTrivial;
    if (options.augment == Augment::kRandAugment) transform.auto_augment.policy = AutoAugmentPolicy::kRand;
  }
  transform.training = options.training && options.augment != Augment::kNone;
  transform.validate();
  return transform;
}

}  // namespace

void FolderOptions::validate() const {
  division.validate();
  require_at_least("the size of the images", 1, size);
  require_at_least("the batch size", 1, batch_size);
  require_at_least("the number of replicas", 1, replicas);
  require_at_least("the first replica", 0, first_replica);
  require_at_least("the number of worker threads", 0, worker_threads);
  if (total_replicas != 0 || first_replica != 0) {
    require_at_least("the number of all replicas", first_replica + replicas, total_replicas);
  }
}

struct FolderSource::Opened {
  std::shared_ptr<const Dataset> dataset;
  TransformOptions transform;
  std::shared_ptr<Pipeline> pipeline;
  int64_t global_batch = 0;
  bool training = true;
  std::string folder;
  FolderPart part = FolderPart::kAll;
  Division division;
};

FolderSource::Opened FolderSource::open(const std::string& path, const FolderOptions& options) {
  options.validate();
  core::FileSystem& files = core::local_file_system();
  if (!is_directory(files, path)) {
    throw core::Error(core::ErrorCode::kNotFound, {.problem = "there is no such folder of images",
                                                   .where = path.empty() ? "an empty path" : path,
                                                   .expected = "a directory with a folder for each class",
                                                   .actual = files.exists(path) ? "a file" : ""});
  }
  Opened opened{.transform = transform_of_folder(options)};
  DatasetOptions dataset;
  dataset.directory = path;
  dataset.classes.names = options.classes;
  dataset.classes.origin = "FolderOptions::classes";
  const auto whole = std::make_shared<FolderDataset>(dataset, path);
  opened.dataset = whole;
  if (options.part != FolderPart::kAll) {
    const bool trains = options.part == FolderPart::kTraining;
    opened.dataset = part_of_samples(whole, named_samples(whole), trains ? Subset::kTrain : Subset::kValidation,
                                     options.division, "", path);
  }
  opened.division = options.division;
  opened.part = options.part;
  opened.folder = core::real_path(path);
  const int total = options.total_replicas == 0 ? options.replicas : options.total_replicas;
  opened.global_batch = options.batch_size * total;
  opened.training = options.training;
  std::shared_ptr<const Transform> transform = transforms().get("imagenet")(opened.transform);
  opened.pipeline = std::make_shared<Pipeline>(
      opened.dataset, transform,
      PipelineOptions{
          .batch_size = options.batch_size,
          .local_replicas = options.replicas,
          .first_replica = options.first_replica,
          .total_replicas = total,
          .height = opened.transform.height,
          .width = opened.transform.width,
          .worker_threads = options.worker_threads > 0 ? options.worker_threads : core::available_cores(),
          .repeat = options.training,
          .seed = options.seed,
          // All of the set: class folders come one after the other, and a smaller buffer would mix neighbours alone.
          .order = {.shuffle = options.training, .shuffle_buffer = opened.dataset->size()}});
  return opened;
}

FolderSource::FolderSource(const std::string& path, const FolderOptions& options) : FolderSource(open(path, options)) {}

FolderSource::FolderSource(Opened opened)
    : SourceDecorator(opened.pipeline),
      samples_(opened.dataset->size()),
      batches_per_epoch_(std::max<int64_t>(samples_ / opened.global_batch, 1)),
      classes_(opened.dataset->label_names()),
      transform_(std::move(opened.transform)),
      training_(opened.training),
      folder_(std::move(opened.folder)),
      part_(opened.part),
      division_(opened.division) {}

bool FolderSource::shares_images_with(const FolderSource& other) const {
  const bool parts = part_ != FolderPart::kAll && other.part_ != FolderPart::kAll && part_ != other.part_ &&
                     division_ == other.division_;
  return !folder_.empty() && folder_ == other.folder_ && !parts;
}

std::shared_ptr<FolderSource> open_folder(const std::string& path, const FolderOptions& options) {
  return std::make_shared<FolderSource>(path, options);
}

}  // namespace trainyard::data
