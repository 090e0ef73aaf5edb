// The data set `shapes` on disk: TFRecords of the ImageNet schema, written here and read back like any other.
#include <memory>

#include <fmt/core.h>

#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/data/datasets/shapes_files.h"
#include "trainyard/formats/records/tf_example.h"
#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::data {
namespace {

std::string encode_record(const ShapesOptions& options, Subset subset, int64_t index) {
  const Image image = draw_shape(options.seed, subset, index, options.image_size);
  const int64_t label = shape_label(index);
  formats::ExampleBuilder example;
  example.add_bytes(formats::kImageEncoded, encode_shapes(image));
  example.add_int64(formats::kImageClassLabel, label);
  example.add_bytes(formats::kImageClassText, shape_names()[label]);
  example.add_int64(formats::kImageHeight, image.height);
  example.add_int64(formats::kImageWidth, image.width);
  example.add_bytes(formats::kImageFilename, fmt::format("{}_{:06}.jpeg", subset_name(subset), index));
  return example.build();
}

void write_subset(const ShapesOptions& options, Subset subset, const std::string& directory, core::FileSystem& files) {
  const bool train = subset == Subset::kTrain;
  const int64_t count = train ? options.train_count : options.validation_count;
  const int shards = train ? options.train_shards : options.validation_shards;
  for (int shard = 0; shard < shards; ++shard) {
    const std::string name = fmt::format("{}-{:05}-of-{:05}", subset_name(subset), shard, shards);
    formats::TfRecordWriter writer(files.open_write(core::join_path(directory, name)));
    for (int64_t i = count * shard / shards; i < count * (shard + 1) / shards; ++i) {
      writer.write(encode_record(options, subset, i));
    }
    writer.sync();
    writer.close();
  }
}

}  // namespace

void ShapesOptions::validate() const {
  require_shapes_options("shapes", train_count, validation_count, image_size);
  const auto require_shards = [](const char* name, int shards) {
    require_shapes_option("shapes", shards > 0 && shards <= 1000, name, "1 to 1000", shards);
  };
  require_shards("train_shards", train_shards);
  require_shards("validation_shards", validation_shards);
}

void write_shapes(const ShapesOptions& options, const std::string& directory, core::FileSystem& files) {
  options.validate();
  write_both_subsets(directory, files, [&](Subset subset, const std::string& unfinished) {
    write_subset(options, subset, unfinished, files);
  });
}

namespace {

const core::Registration<DatasetFactory> kShapes(datasets(), "shapes", [](const DatasetOptions& options) {
  return open_stored_images(options, subset_name(options.subset),
                            {.count = static_cast<int64_t>(shape_names().size()), .names = shape_names()});
});

}  // namespace
}  // namespace trainyard::data
