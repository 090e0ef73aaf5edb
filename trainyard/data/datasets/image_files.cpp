#include "trainyard/data/datasets/image_files.h"

#include <fmt/core.h>

#include "trainyard/core/base/lower_case.h"
#include "trainyard/data/codecs/image_formats.h"
#include "trainyard/data/datasets/folder_dataset.h"

namespace trainyard::data {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;

void list_below(core::FileSystem& files, const std::string& directory, int depth, std::vector<std::string>& images) {
  refuse_depth(directory, depth);
  std::vector<std::string> folders;
  for (const std::string& name : files.list(directory)) {
    if (name.starts_with('.')) continue;
    std::string path = core::join_path(directory, name);
    if (is_directory(files, path)) {
      folders.push_back(std::move(path));
    } else if (is_image_name(name)) {
      images.push_back(std::move(path));
    }
  }
  for (const std::string& folder : folders) list_below(files, folder, depth + 1, images);
}

}  // namespace

bool is_image_name(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return false;
  return is_image_extension(core::lower_case(name.substr(dot + 1)));
}

core::Result<std::vector<std::byte>> read_image_file(core::FileSystem& files, const std::string& path) {
  const auto file = files.open_read(path);
  if (file->size() > kMaxFileBytes) {
    return core::Error(core::ErrorCode::kCorruptData, {.problem = "image file is too large",
                                                       .where = path,
                                                       .expected = fmt::format("at most {} bytes", kMaxFileBytes),
                                                       .actual = fmt::format("{}", file->size())});
  }
  std::vector<std::byte> bytes(file->size());
  file->read_at(0, bytes);
  return bytes;
}

std::vector<std::string> images_below(core::FileSystem& files, const std::string& directory) {
  std::vector<std::string> images;
  list_below(files, directory, 0, images);
  return images;
}

}  // namespace trainyard::data
