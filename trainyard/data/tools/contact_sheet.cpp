#include "trainyard/data/tools/contact_sheet.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "trainyard/core/base/error.h"
#include "trainyard/data/datasets/record_image.h"
#include "trainyard/data/detection/drawn_boxes.h"
#include "trainyard/data/detection/ssd_transform.h"
#include "trainyard/data/image/resize.h"

namespace trainyard::data {
namespace {

constexpr int kGap = 4;  // pixels
constexpr uint8_t kBackground = 255;
constexpr int64_t kMaxSheetPixels = int64_t{100} << 20;

uint8_t to_byte(float value) {
  return static_cast<uint8_t>(std::lround(std::clamp(value, 0.0F, 255.0F)));
}

// `planes`: float [3, size.height, size.width] in [0, 255], as scale and shift give it back.
void paste(const std::vector<float>& planes, ImageSize size, const Normalization& normalization, Image& sheet, int top,
           int left) {
  const size_t plane = static_cast<size_t>(size.height) * size.width;
  for (int y = 0; y < size.height; ++y) {
    uint8_t* row = sheet.pixels.data() + 3 * (static_cast<size_t>(top + y) * sheet.width + left);
    for (int x = 0; x < size.width; ++x) {
      for (size_t c = 0; c < 3; ++c) {
        const float value = planes[c * plane + static_cast<size_t>(y) * size.width + x];
        row[3 * x + c] = to_byte((value - normalization.shift[c]) / normalization.scale[c]);
      }
    }
  }
}

// Pastes the whole image in the middle of a field of `size`. Returns where.
CropWindow paste_original(const ImageView& image, ImageSize field, Image& sheet, int top, int left) {
  const double ratio =
      std::min(static_cast<double>(field.height) / image.height, static_cast<double>(field.width) / image.width);
  const ImageSize size{std::clamp(static_cast<int>(std::lround(image.height * ratio)), 1, field.height),
                       std::clamp(static_cast<int>(std::lround(image.width * ratio)), 1, field.width)};
  std::vector<float> planes(size_t{3} * size.height * size.width);
  resize(image, size, {0, 0, size.height, size.width}, {.antialias = true, .half_pixel_centers = true}, planes.data());
  const Normalization none{.scale = {1, 1, 1}, .shift = {0, 0, 0}};
  const CropWindow pasted{top + (field.height - size.height) / 2, left + (field.width - size.width) / 2, size.height,
                          size.width};
  paste(planes, size, none, sheet, pasted.y, pasted.x);
  return pasted;
}

std::vector<DrawnBox> drawn_boxes(const Dataset& dataset, const std::vector<Box>& boxes,
                                  const std::vector<int64_t>& labels) {
  const std::vector<std::string> names = dataset.label_names();
  std::vector<DrawnBox> drawn;
  for (size_t i = 0; i < boxes.size(); ++i) {
    const int64_t number = labels[i] - dataset.first_label();
    const bool named = number >= 0 && number < std::ssize(names);
    drawn.push_back({boxes[i], labels[i], named ? names[static_cast<size_t>(number)] : fmt::format("{}", labels[i])});
  }
  return drawn;
}

}  // namespace

ContactSheet make_contact_sheet(const Dataset& dataset, const Transform& transform,
                                const ContactSheetOptions& options) {
  if (options.count < 1 || options.count > dataset.size()) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "number of samples to show is out of range",
                                                          .expected = fmt::format("1 to {}", dataset.size()),
                                                          .actual = fmt::format("{}", options.count)});
  }
  const ImageSize field{static_cast<int>(options.transform.height), static_cast<int>(options.transform.width)};
  if (transform.size() != field) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the transform makes images of another size",
                       .expected = fmt::format("{} x {}", field.height, field.width),
                       .actual = fmt::format("{} x {}", transform.size().height, transform.size().width)});
  }
  const int cell_width = 2 * field.width + 2 * kGap, cell_height = field.height + kGap;
  const auto columns = static_cast<int>(std::clamp<int64_t>(
      std::llround(std::sqrt(static_cast<double>(options.count) * cell_height / cell_width)), 1, options.count));
  const auto rows = static_cast<int>((options.count + columns - 1) / columns);
  ContactSheet sheet{.image = {.height = rows * cell_height + kGap, .width = columns * cell_width + kGap}};
  if (int64_t{sheet.image.height} * sheet.image.width > kMaxSheetPixels) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "contact sheet is too large",
                       .expected = fmt::format("at most {} pixels", kMaxSheetPixels),
                       .actual = fmt::format("{} x {}", sheet.image.width, sheet.image.height),
                       .remedy = "show fewer samples"});
  }
  sheet.image.pixels.assign(size_t{3} * sheet.image.height * sheet.image.width, kBackground);
  const std::vector<int64_t> order = epoch_order(dataset.size(), options.order, options.seed, options.epoch);
  std::vector<float> input(size_t{3} * field.height * field.width);
  for (int64_t k = 0; k < options.count; ++k) {
    const int top = kGap + static_cast<int>(k / columns) * cell_height;
    const int left = kGap + static_cast<int>(k % columns) * cell_width;
    const Record record = dataset.read(order[k]).value();
    const RecordImage original =
        record_image(record, {}, {.exif_orientation = options.transform.exif_orientation}).value();
    const CropWindow pasted = paste_original(original.pixels, field, sheet.image, top, left);
    const SampleKey key{options.seed, options.epoch, order[k], k % options.batch_size};
    transform.apply(record, key, input.data()).value();
    paste(input, field, options.transform.normalization, sheet.image, top, left + field.width);
    if (!record.box_labels.empty()) {
      draw_boxes(sheet.image, pasted, drawn_boxes(dataset, record.boxes, record.box_labels));
      const SsdDraw draw = draw_ssd(options.transform, record, key).value();
      draw_boxes(sheet.image, {top, left + field.width, field.height, field.width},
                 drawn_boxes(dataset, draw.boxes, draw.labels));
    }
    sheet.cells.push_back({.sample = order[k],
                           .label = record.label,
                           .labels = record.labels,
                           .box_labels = record.box_labels,
                           .where = record.where});
  }
  return sheet;
}

}  // namespace trainyard::data
