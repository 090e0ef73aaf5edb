// A numbered set of encoded or raw images. A data set returns the bytes of sample i; the pipeline decides about order,
// randomness and batches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/export.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/data/image/image.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

enum class Subset { kTrain, kValidation };
std::string_view subset_name(Subset subset);  // "train", "validation"

// A box relative to the image: y0, x0, y1, x1 in [0, 1].
struct Box {
  float ymin = 0, xmin = 0, ymax = 1, xmax = 1;
};

enum class Encoding { kJpeg, kPng, kRawChw, kDecoded };  // kRawChw: uint8 [3, H, W] pixels; kDecoded: `image`

struct Record {
  Encoding encoding = Encoding::kJpeg;
  std::vector<std::byte> bytes{};
  std::shared_ptr<const Image> image{};  // only with kDecoded
  int height = 0, width = 0;             // only with kRawChw
  int64_t label = 0;                     // as the data set counts (ImageNet TFRecords: 1..1000, 0 is background)
  std::vector<int64_t> labels{};         // of a data set with has_label_sets(), ascending; `label` is then unused
  std::vector<Box> boxes{};
  std::vector<int64_t> box_labels{};  // of a data set of boxed objects, one a box; else empty
  std::string label_text{};           // the class's name in the record; empty: none
  std::string where{};                // "train-00000-of-00002 at offset 512", for messages
};

// A numbered set of samples. Many threads may call read() at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  // Returns the bytes of sample `index` in [0, size()). A bad record is a Result error that says where it is.
  virtual core::Result<Record> read(int64_t index) const = 0;
  // Returns the number of labels, which are in [0, label_count()).
  [[nodiscard]] virtual int64_t label_count() const = 0;
  // Returns the label of the first class: 1 when label 0 means the background.
  [[nodiscard]] virtual int64_t first_label() const { return 0; }
  // Returns the names of the labels; empty where the set has none.
  [[nodiscard]] virtual std::vector<std::string> label_names() const { return {}; }
  // Returns the label of sample `index` where it is known without reading the sample, as of class folders and tables.
  [[nodiscard]] virtual std::optional<int64_t> known_label(int64_t /*index*/) const { return std::nullopt; }
  // Returns true when a sample has any number of labels (Record::labels), also none.
  [[nodiscard]] virtual bool has_label_sets() const { return false; }
};

// What becomes of images of a class that KnownClasses does not name.
enum class OnUnknownClass { kFail, kSkip };

// The classes that a model was or will be trained on. Their order numbers the labels of all subsets: a subset that
// lacked a class would number the others differently.
struct KnownClasses {
  std::vector<std::string> names{};  // by label from 0; empty: a data set's own names number its labels
  std::string origin{};              // where the names come from, for messages: "out/run1/model.ckpt-500"
  OnUnknownClass on_unknown = OnUnknownClass::kFail;
};

// How images without a validation set are divided: which of them are for validation, by a hash of their names
// (dataset_division.h).
struct Division {
  double validation = 0.2;  // part of each class that is for validation, in (0, 1); unused with folds
  int64_t folds = 0;        // parts of each class, of which `fold` is for validation; 0: no folds, else 2 or more
  int64_t fold = 0;         // in [0, folds)
  void validate() const;    // throws kInvalidArgument
  bool operator==(const Division&) const = default;
};

// What becomes of images in the directory that a table of labels does not name.
enum class OnUnlabelledFile { kFail, kSkip };

struct DatasetOptions {
  std::string directory{};            // or shards by name: dataset_form.h
  std::vector<std::string> shards{};  // only these of the directory's shards; empty: all of the subset
  Subset subset = Subset::kTrain;
  // The folder of TFRecords' index files. Empty: DIR/idx, then DIR. Data sets of other forms throw kInvalidArgument
  // when it is set.
  std::string index_directory{};
  bool use_index = true;   // false: find the records by reading the shards
  KnownClasses classes{};  // numbers class folders, and labels that are words
  core::FileSystem* files = &core::local_file_system();
  // true: class folders without folders for training and validation are divided into both (dataset_division.h). false:
  // each subset has all images.
  bool divide = true;
  // How they are divided. Unset: a fifth is for validation. When it is set, a folder train without a folder for
  // validation images is divided, too.
  std::optional<Division> division{};
  // true: data that have validation images of their own, or no names to divide by, are an error. false: `division` has
  // no effect on them.
  bool requires_division = false;
  // A table of labels, one row a file below `directory` (labelled_files.h). Empty: folders or records say the labels.
  std::string labels_csv{};
  OnUnlabelledFile on_unlabelled_file = OnUnlabelledFile::kFail;
};

// Thrown when the data set exists, but none of its images belongs to the requested subset. The code is kNotFound, which
// other errors have, too, such as a missing file.
class NoSuchSubset : public core::Error {
 public:
  explicit NoSuchSubset(core::ErrorDetail detail) : Error(core::ErrorCode::kNotFound, std::move(detail)) {}
};

// Data sets by name: "imagenet", "cifar10", "shapes". The content of a directory decides how it is read
// (dataset_form.h).
using DatasetFactory = std::function<std::unique_ptr<Dataset>(const DatasetOptions&)>;
using DatasetRegistry = core::Registry<DatasetFactory>;
DatasetRegistry& datasets();

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
