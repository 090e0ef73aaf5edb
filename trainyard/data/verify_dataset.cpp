#include "trainyard/data/verify_dataset.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "trainyard/core/parallel.h"
#include "trainyard/data/dataset_form.h"
#include "trainyard/data/record_image.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

constexpr int64_t kSamplesAtOnce = 4096;  // whose errors are kept until they can be told in order

class Verifier {
 public:
  explicit Verifier(const VerifyOptions& options) : options_(options) {}

  VerifiedSamples run() {
    std::optional<Error> missing;
    for (const Subset subset : {Subset::kTrain, Subset::kValidation}) {
      const DatasetOptions whole{.directory = options_.directory,
                                 .subset = subset,
                                 .index_directory = options_.index_directory,
                                 .files = options_.files};
      std::vector<std::string> parts = {options_.directory};  // what is not in shards is one part
      try {
        StoredImages stored = find_stored_images(whole, tfrecord_prefix(options_.name, subset));
        if (stored.form != Form::kClassFolders) parts = std::move(stored.paths);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kNotFound) throw;
      }
      for (const std::string& part : parts) {
        DatasetOptions options = whole;
        options.directory = part;
        try {
          verify_part(options, parts.front() != options_.directory);
        } catch (const Error& error) {
          if (error.code() != ErrorCode::kNotFound || parts.size() > 1) throw;
          if (!missing) missing = error;
        }
      }
    }
    if (found_.train + found_.validation + found_.bad == 0 && missing) throw Error(*missing);
    return found_;
  }

 private:
  // Null, and told, where the records cannot be found.
  std::unique_ptr<Dataset> open(const DatasetOptions& options) {
    try {
      return datasets().get(options_.name)(options);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCorruptData) throw;
      tell(error);
      return nullptr;
    }
  }

  void verify_part(DatasetOptions options, bool shard) {
    options.use_index = false;
    std::unique_ptr<Dataset> dataset = open(options);
    if (!dataset) return;
    if (shard) {
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
      const core::Result<RecordImage> image = record_image(record.value());
      if (!image.ok()) return image.error();
    } catch (const Error& error) {
      // An index of other records: every read of its shard says so.
      if (error.code() != ErrorCode::kCorruptData) throw;
      return error;
    }
    return std::nullopt;
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
