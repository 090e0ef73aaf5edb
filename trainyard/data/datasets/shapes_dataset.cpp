// The data set `shapes` on disk: TFRecords of the ImageNet schema, written here and read back like any other.
#include <memory>

#include <fmt/core.h>

#include "trainyard/data/base/new_directory.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/formats/records/tf_example.h"
#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

constexpr int kJpegQuality = 95;

void require_option(bool holds, std::string_view name, std::string_view expected, int64_t actual) {
  if (holds) return;
  throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("shapes option {} is out of range", name),
                                            .expected = std::string(expected),
                                            .actual = fmt::format("{}", actual)});
}

std::string encode_record(const ShapesOptions& options, Subset subset, int64_t index) {
  const Image image = draw_shape(options.seed, subset, index, options.image_size);
  // At this size halved chroma would blur what tells the shapes apart.
  const std::vector<std::byte> jpeg = encode_jpeg(image, kJpegQuality, ChromaSubsampling::k444);
  const int64_t label = shape_label(index);
  formats::ExampleBuilder example;
  example.add_bytes(formats::kImageEncoded, {reinterpret_cast<const char*>(jpeg.data()), jpeg.size()});
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
  require_option(train_count > 0, "train_count", "at least 1 image", train_count);
  require_option(validation_count > 0, "validation_count", "at least 1 image", validation_count);
  require_option(image_size >= 16 && image_size <= 1024, "image_size", "16 to 1024 pixels", image_size);
  require_option(train_shards > 0 && train_shards <= 1000, "train_shards", "1 to 1000", train_shards);
  require_option(validation_shards > 0 && validation_shards <= 1000, "validation_shards", "1 to 1000",
                 validation_shards);
}

void write_shapes(const ShapesOptions& options, const std::string& directory, core::FileSystem& files) {
  options.validate();
  make_new_directory(directory, files, [&](const std::string& unfinished) {
    write_subset(options, Subset::kTrain, unfinished, files);
    write_subset(options, Subset::kValidation, unfinished, files);
  });
}

namespace {

const core::Registration<DatasetFactory> kShapes(datasets(), "shapes", [](const DatasetOptions& options) {
  return open_stored_images(options, subset_name(options.subset),
                            {.count = static_cast<int64_t>(shape_names().size()), .names = shape_names()});
});

}  // namespace
}  // namespace trainyard::data
