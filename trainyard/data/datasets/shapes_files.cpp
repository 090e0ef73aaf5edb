#include "trainyard/data/datasets/shapes_files.h"

#include <cstddef>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/data/base/new_directory.h"
#include "trainyard/data/codecs/jpeg.h"

namespace trainyard::data {

void require_shapes_option(std::string_view set, bool holds, std::string_view name, std::string_view expected,
                           int64_t actual) {
  if (holds) return;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = fmt::format("{} option {} is out of range", set, name),
                     .expected = std::string(expected),
                     .actual = fmt::format("{}", actual)});
}

void require_shapes_options(std::string_view set, int64_t train_count, int64_t validation_count, int64_t image_size) {
  require_shapes_option(set, train_count > 0, "train_count", "at least 1 image", train_count);
  require_shapes_option(set, validation_count > 0, "validation_count", "at least 1 image", validation_count);
  require_shapes_option(set, image_size >= 16 && image_size <= 1024, "image_size", "16 to 1024 pixels", image_size);
}

std::string encode_shapes(const Image& image) {
  constexpr int kJpegQuality = 95;
  // At the size of shapes halved chroma would blur what tells them apart.
  const std::vector<std::byte> jpeg = encode_jpeg(image, kJpegQuality, ChromaSubsampling::k444);
  return {reinterpret_cast<const char*>(jpeg.data()), jpeg.size()};
}

void write_both_subsets(const std::string& directory, core::FileSystem& files,
                        const std::function<void(Subset subset, const std::string& unfinished)>& write_subset) {
  make_new_directory(directory, files, [&](const std::string& unfinished) {
    write_subset(Subset::kTrain, unfinished);
    write_subset(Subset::kValidation, unfinished);
  });
}

}  // namespace trainyard::data
