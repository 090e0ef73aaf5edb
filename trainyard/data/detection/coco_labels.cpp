#include "trainyard/data/detection/coco_labels.h"

#include <algorithm>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::data {
namespace {

struct Category {
  int64_t id = 0;
  const char* name = nullptr;
};

constexpr std::array<Category, kCocoLabels> kCategories = {{
    {0, "background"},
    {1, "person"},
    {2, "bicycle"},
    {3, "car"},
    {4, "motorcycle"},
    {5, "airplane"},
    {6, "bus"},
    {7, "train"},
    {8, "truck"},
    {9, "boat"},
    {10, "traffic light"},
    {11, "fire hydrant"},
    {13, "stop sign"},
    {14, "parking meter"},
    {15, "bench"},
    {16, "bird"},
    {17, "cat"},
    {18, "dog"},
    {19, "horse"},
    {20, "sheep"},
    {21, "cow"},
    {22, "elephant"},
    {23, "bear"},
    {24, "zebra"},
    {25, "giraffe"},
    {27, "backpack"},
    {28, "umbrella"},
    {31, "handbag"},
    {32, "tie"},
    {33, "suitcase"},
    {34, "frisbee"},
    {35, "skis"},
    {36, "snowboard"},
    {37, "sports ball"},
    {38, "kite"},
    {39, "baseball bat"},
    {40, "baseball glove"},
    {41, "skateboard"},
    {42, "surfboard"},
    {43, "tennis racket"},
    {44, "bottle"},
    {46, "wine glass"},
    {47, "cup"},
    {48, "fork"},
    {49, "knife"},
    {50, "spoon"},
    {51, "bowl"},
    {52, "banana"},
    {53, "apple"},
    {54, "sandwich"},
    {55, "orange"},
    {56, "broccoli"},
    {57, "carrot"},
    {58, "hot dog"},
    {59, "pizza"},
    {60, "donut"},
    {61, "cake"},
    {62, "chair"},
    {63, "couch"},
    {64, "potted plant"},
    {65, "bed"},
    {67, "dining table"},
    {70, "toilet"},
    {72, "tv"},
    {73, "laptop"},
    {74, "mouse"},
    {75, "remote"},
    {76, "keyboard"},
    {77, "cell phone"},
    {78, "microwave"},
    {79, "oven"},
    {80, "toaster"},
    {81, "sink"},
    {82, "refrigerator"},
    {84, "book"},
    {85, "clock"},
    {86, "vase"},
    {87, "scissors"},
    {88, "teddy bear"},
    {89, "hair drier"},
    {90, "toothbrush"},
}};

}  // namespace

int64_t coco_category_of_label(int64_t label) {
  if (label >= 0 && label < kCocoLabels) return kCategories[static_cast<size_t>(label)].id;
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "there is no such label of COCO",
                                                        .expected = fmt::format("0 to {}", kCocoLabels - 1),
                                                        .actual = fmt::format("{}", label)});
}

std::optional<int64_t> coco_label_of_category(int64_t category_id) {
  const auto* const found = std::lower_bound(kCategories.begin() + 1, kCategories.end(), category_id,
                                             [](const Category& each, int64_t id) { return each.id < id; });
  if (found == kCategories.end() || found->id != category_id) return std::nullopt;
  return found - kCategories.begin();
}

const std::vector<std::string>& coco_label_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Category& category : kCategories) all.emplace_back(category.name);
    return all;
  }();
  return names;
}

}  // namespace trainyard::data
