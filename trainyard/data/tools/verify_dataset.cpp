#include "trainyard/data/tools/verify_dataset.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/threads/parallel.h"
#include "trainyard/data/datasets/class_list.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/datasets/folder_dataset.h"
#include "trainyard/data/datasets/record_image.h"
#include "trainyard/data/datasets/record_index_files.h"
#include "trainyard/data/detection/coco_dataset.h"
#include "trainyard/data/detection/coco_form.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

constexpr std::string_view kCoco = "coco";
constexpr int64_t kSamplesAtOnce = 4096;  // whose errors are kept until they can be told in order

class Verifier {
 public:
  explicit Verifier(const VerifyOptions& options) : options_(options) {}

  VerifiedSamples run() {
    require_index_folder(*options_.files, options_.index_directory);  // opening a shard would tell it as the shard's
    std::optional<Error> missing;
    for (const Subset subset : {Subset::kTrain, Subset::kValidation}) {
      const DatasetOptions whole{.directory = options_.directory,
                                 .subset = subset,
                                 .index_directory = options_.index_directory,
                                 .files = options_.files};
      if (subset == Subset::kValidation) compare_class_folders(whole);
      if (verify_archives(whole)) continue;
      for (const std::vector<std::string>& shards : parts_of(whole)) {
        DatasetOptions options = whole;
        options.shards = shards;
        try {
          verify_part(options);
        } catch (const NoSuchSubset& error) {
          if (!missing) missing = error;
        }
      }
    }
    if (found_.train + found_.validation + found_.bad == 0 && missing) throw Error(*missing);
    return found_;
  }

 private:
  // Validation images of a class without training images are an error of any run.
  void compare_class_folders(const DatasetOptions& validation) {
    if (options_.name == kCoco) return;
    try {
      const StoredImages stored = find_stored_images(validation, tfrecord_prefix(options_.name, validation.subset));
      if (stored.form != Form::kClassFolders) return;
      const KnownClasses known{training_class_names(options_.name, validation), "the training images"};
      if (known.names.empty()) return;
      // Throws where they differ.
      static_cast<void>(
          labels_of_classes(folders_in(*validation.files, stored.paths.front()), known, stored.paths.front()));
    } catch (const NoSuchSubset&) {
      return;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInvalidArgument) throw;
      tell(error);
    }
  }

  // The same of WebDataset shards whose labels are names. They can be opened by themselves.
  void compare_archives(const DatasetOptions& validation) {
    try {
      DatasetOptions options = validation;
      options.classes = {training_class_names(options_.name, validation), "the training images"};
      // Throws where they differ.
      if (!options.classes.names.empty()) static_cast<void>(datasets().get(options_.name)(options));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInvalidArgument) return tell(error);
      if (!is_of_the_data(error)) throw;  // else the training's archives are damaged, and were told
    }
  }

  // Opens WebDataset shards together, as a run does: the first label says for all of them whether labels are names or
  // numbers. Returns false for data of another form, and where the archives cannot all be opened: then each is verified
  // alone.
  bool verify_archives(const DatasetOptions& whole) {
    if (options_.name == kCoco) return false;
    std::unique_ptr<Dataset> dataset;
    try {
      const StoredImages stored = find_stored_images(whole, tfrecord_prefix(options_.name, whole.subset));
      if (stored.form != Form::kWebDataset) return false;
      dataset = datasets().get(options_.name)(whole);
      if (whole.subset == Subset::kValidation) compare_archives(whole);
    } catch (const Error& error) {
      if (!is_of_the_data(error)) throw;
      return false;
    }
    verify_samples(*dataset, whole.subset == Subset::kTrain ? found_.train : found_.validation);
    return true;
  }

  // Each shard alone, so that a damaged one does not hide the others; what is not in shards is one part.
  std::vector<std::vector<std::string>> parts_of(const DatasetOptions& whole) const {
    std::vector<std::vector<std::string>> parts;
    try {
      if (options_.name == kCoco) {
        for (std::string& path : find_coco(whole).shards) parts.push_back({std::move(path)});
        if (parts.empty()) parts.emplace_back();
        return parts;
      }
      StoredImages stored = find_stored_images(whole, tfrecord_prefix(options_.name, whole.subset));
      if (stored.form != Form::kClassFolders) {
        for (std::string& path : stored.paths) parts.push_back({std::move(path)});
      }
    } catch (const NoSuchSubset&) {
      // CIFAR-10's batches, or opening it says what is missing.
    }
    if (parts.empty()) parts.emplace_back();
    return parts;
  }

  // Damaged, or a file that cannot be opened or read: what is verified is whether all can be.
  static bool is_of_the_data(const Error& error) {
    return error.code() == ErrorCode::kCorruptData || error.code() == ErrorCode::kIo ||
           error.code() == ErrorCode::kNotFound;
  }

  // Null, and told, where the records cannot be found.
  std::unique_ptr<Dataset> open(const DatasetOptions& options) {
    try {
      return datasets().get(options_.name)(options);
    } catch (const NoSuchSubset&) {
      throw;
    } catch (const Error& error) {
      if (!is_of_the_data(error)) throw;
      tell(error);
      return nullptr;
    }
  }

  void verify_part(DatasetOptions options) {
    options.use_index = false;
    std::unique_ptr<Dataset> dataset = open(options);
    if (!dataset) return;
    if (!options.shards.empty()) {
      // The records as an index file has them, if there is one: then it is verified with them.
      options.use_index = true;
      if (std::unique_ptr<Dataset> indexed = open(options)) dataset = std::move(indexed);
    }
    verify_samples(*dataset, options.subset == Subset::kTrain ? found_.train : found_.validation);
  }

  void verify_samples(const Dataset& dataset, int64_t& count) {
    for (int64_t begin = 0; begin < dataset.size(); begin += kSamplesAtOnce) {
      std::vector<std::optional<Error>> errors(std::min(kSamplesAtOnce, dataset.size() - begin));
      core::for_each_parallel(errors.size(), options_.threads, [&](size_t i) {
        if (options_.stop.stop_requested()) throw Error(ErrorCode::kCancelled, "verification was stopped");
        errors[i] = check(dataset, begin + static_cast<int64_t>(i));
      });
      for (const std::optional<Error>& error : errors) {
        if (error) tell(*error);
      }
      count += static_cast<int64_t>(errors.size());
    }
  }

  static std::optional<Error> check(const Dataset& dataset, int64_t index) {
    try {
      core::Result<Record> record = dataset.read(index);
      if (!record.ok()) return record.error();
      core::Result<RecordImage> image = record_image(record.value());
      if (!image.ok()) return image.error();
      if (const auto* boxed = dynamic_cast<const CocoDataset*>(&dataset)) {
        return compare_sizes(boxed->image(index), image.value().pixels, record.value().where);
      }
    } catch (const Error& error) {
      if (!is_of_the_data(error) && error.code() != ErrorCode::kInvalidArgument) throw;  // the latter: a named pipe
      return error;
    }
    return std::nullopt;
  }

  // Boxes are parts of the size that the annotations say.
  static std::optional<Error> compare_sizes(const CocoImage& said, const ImageView& image, const std::string& where) {
    if (said.width == image.width && said.height == image.height) return std::nullopt;
    return Error(ErrorCode::kCorruptData, {.problem = "the image has another size than its annotations say",
                                           .where = where,
                                           .expected = fmt::format("{} x {}", said.width, said.height),
                                           .actual = fmt::format("{} x {}", image.width, image.height)});
  }

  void tell(const Error& error) {
    ++found_.bad;
    if (options_.on_bad) options_.on_bad(error);
  }

  const VerifyOptions& options_;
  VerifiedSamples found_;
};

}  // namespace

VerifiedSamples verify_dataset(const VerifyOptions& options) {
  return Verifier(options).run();
}

}  // namespace trainyard::data
