#include "trainyard/data/pipeline/epoch_sizes.h"

#include <charconv>
#include <limits>
#include <string>

#include <fmt/core.h>

#include "trainyard/core/base/error.h"

namespace trainyard::data {
namespace {

constexpr int kLongestEpochSide = 16'384;

[[noreturn]] void refuse_sizes(std::string_view text, const std::string& problem) {
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "sizes by epoch cannot be read: " + problem,
                     .expected = fmt::format("EPOCH:SIZE with commas between them, epochs that ascend from 0, sizes N "
                                             "or HxW of 1 to {} pixels: 0:128,20:192,35:224",
                                             kLongestEpochSide),
                     .actual = std::string(text)});
}

// Returns nothing for what is no number in [least, most].
template <typename Number>
bool read_number(std::string_view text, Number least, Number most, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= least && number <= most;
}

}  // namespace

std::vector<EpochSize> parse_epoch_sizes(std::string_view text) {
  std::vector<EpochSize> sizes;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t comma = rest.find(',');
    const std::string_view entry = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    if (comma != std::string_view::npos && rest.empty()) refuse_sizes(text, "it ends with a comma");
    const size_t colon = entry.find(':');
    EpochSize read;
    if (colon == std::string_view::npos ||
        !read_number<int64_t>(entry.substr(0, colon), 0, std::numeric_limits<int32_t>::max(), read.from_epoch)) {
      refuse_sizes(text, fmt::format("'{}' does not begin with an epoch", entry));
    }
    const std::string_view size = entry.substr(colon + 1);
    const size_t by = size.find('x');
    const std::string_view width = by == std::string_view::npos ? size : size.substr(by + 1);
    if (!read_number(size.substr(0, by), 1, kLongestEpochSide, read.size.height) ||
        !read_number(width, 1, kLongestEpochSide, read.size.width)) {
      refuse_sizes(text, fmt::format("'{}' is no size", size));
    }
    if (sizes.empty() && read.from_epoch != 0) refuse_sizes(text, "the first size is not that of epoch 0");
    if (!sizes.empty() && read.from_epoch <= sizes.back().from_epoch) refuse_sizes(text, "epochs do not ascend");
    sizes.push_back(read);
  }
  return sizes;
}

std::vector<EpochTransform> transforms_of(
    const std::vector<EpochSize>& sizes, const TransformOptions& options,
    const std::function<std::shared_ptr<const Transform>(const TransformOptions&)>& make) {
  std::vector<EpochTransform> transforms;
  for (const EpochSize& entry : sizes) {
    TransformOptions resized = options;
    resized.set_size(entry.size.height, entry.size.width);
    transforms.push_back({entry.from_epoch, make(resized)});
  }
  return transforms;
}

}  // namespace trainyard::data
