#include "trainyard/data/datasets/left_out_files.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/lower_case.h"
#include "trainyard/data/codecs/image_formats.h"

namespace trainyard::data {
namespace {

// Pictures that cameras and programs write, and that image_formats.h does not read.
constexpr std::array<std::string_view, 16> kOtherPictures = {"heic", "heif", "avif", "jxl", "jp2", "j2k", "cr2", "cr3",
                                                             "nef",  "arw",  "orf",  "rw2", "dng", "raf", "psd", "svg"};

constexpr std::array<std::string_view, 2> kOfFileManagers = {"thumbs.db", "desktop.ini"};

}  // namespace

void LeftOutFiles::add(std::string_view name) {
  const std::string small = core::lower_case(name);
  if (small.starts_with('.')) return;
  if (std::find(kOfFileManagers.begin(), kOfFileManagers.end(), small) != kOfFileManagers.end()) return;
  const size_t dot = small.rfind('.');
  ++counts_[dot == std::string::npos ? "" : small.substr(dot + 1)];
}

void LeftOutFiles::add(const LeftOutFiles& others) {
  for (const auto& [extension, count] : others.counts_) counts_[extension] += count;
}

std::string LeftOutFiles::text() const {
  std::vector<std::pair<std::string, int64_t>> kinds(counts_.begin(), counts_.end());
  std::stable_sort(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  constexpr size_t kShown = 5;
  std::string text;
  int64_t others = 0;
  for (size_t i = 0; i < kinds.size(); ++i) {
    const auto& [extension, count] = kinds[i];
    if (i >= kShown) {
      others += count;
      continue;
    }
    if (!text.empty()) text += ", ";
    text += extension.empty() ? fmt::format("{} without an extension", count) : fmt::format("{} .{}", count, extension);
  }
  if (others > 0) text += fmt::format(" and {} others", others);
  return text;
}

std::string LeftOutFiles::remedy() const {
  const bool pictures = std::any_of(kOtherPictures.begin(), kOtherPictures.end(), [this](std::string_view extension) {
    return counts_.contains(std::string(extension));
  });
  return pictures ? fmt::format("convert pictures to one of {}", image_format_names()) : "";
}

}  // namespace trainyard::data
