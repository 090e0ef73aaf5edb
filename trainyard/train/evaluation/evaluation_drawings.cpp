// The pictures of evaluation_report.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/base64.h"
#include "trainyard/core/base/xml_text.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/datasets/class_list.h"
#include "trainyard/train/evaluation/evaluation_report.h"

namespace trainyard::train {
namespace {

constexpr int64_t kMostWithCounts = 30, kMostWithNames = 60;  // classes
constexpr size_t kLongestName = 24;                           // characters of a label
constexpr double kTitle = 46, kPictureSide = 720;             // pixels

constexpr const char* kStyle =
    "<style>text{font-family:sans-serif;font-size:12px;fill:#333}.title{font-size:17px;font-weight:bold}"
    ".small{font-size:10px}.axis{font-size:13px;font-weight:bold}.light{fill:#fff}"
    ".line{stroke:#999;fill:none}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";

// A class's name that an SVG file can hold: UTF-8 without control characters, escaped, the beginning of a long one.
std::string label_text(const std::string& name) {
  const nlohmann::json replaced =
      nlohmann::json::parse(nlohmann::json(name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  const auto text = data::printable_class(replaced.get<std::string>());
  size_t characters = 0, end = 0;
  for (; end < text.size(); ++end) {
    const bool begins = (static_cast<unsigned char>(text[end]) & 0xC0U) != 0x80U;
    if (begins && ++characters > kLongestName) break;
  }
  return core::xml_text(end < text.size() ? text.substr(0, end) + "..." : text);
}

// From white to blue.
std::array<uint8_t, 3> colour_of(double share) {
  constexpr std::array<double, 3> kFull = {8, 72, 150};
  std::array<uint8_t, 3> colour{};
  for (size_t c = 0; c < 3; ++c) colour[c] = static_cast<uint8_t>(std::lround(255 + (kFull[c] - 255) * share));
  return colour;
}

double share_of(const PredictionCounts& counts, int64_t label, int64_t predicted) {
  const int64_t images = counts.classes()[static_cast<size_t>(label)].images;
  if (images == 0) return 0;
  return static_cast<double>(counts.confused(label, predicted)) / static_cast<double>(images);
}

std::string svg(double width, double height, const std::string& title, const std::string& body) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 "
      "{0:.0f} "
      "{1:.0f}\">\n<title>{2}</title>\n{3}<text x=\"16\" y=\"28\" class=\"title\">{2}</text>\n{4}</svg>\n",
      width, height, core::xml_text(title), kStyle, body);
}

std::string cells_svg(const EvaluationReport& report, const std::string& title) {
  const PredictionCounts& counts = report.counts;
  const int64_t classes = counts.options().classes;
  const bool with_counts = classes <= kMostWithCounts;
  const double cell = with_counts ? 34 : 14, left = 200, top = kTitle + 170;
  std::string body;
  const auto add = std::back_inserter(body);
  fmt::format_to(add, "<text x=\"{:.0f}\" y=\"{:.0f}\" class=\"axis\">predicted</text>\n", left, kTitle + 14);
  fmt::format_to(add, "<text x=\"{:.0f}\" y=\"{:.0f}\" class=\"axis\" text-anchor=\"end\">true class</text>\n",
                 left - 10, top - 8);
  for (int64_t row = 0; row < classes; ++row) {
    const double middle = (static_cast<double>(row) + 0.5) * cell;
    const std::string name = label_text(report.name_of(row));
    fmt::format_to(add, "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", left - 10, top + middle + 4,
                   name);
    fmt::format_to(add, "<text transform=\"translate({:.1f} {:.1f}) rotate(-60)\">{}</text>\n", left + middle + 2,
                   top - 8, name);
    for (int64_t column = 0; column < classes; ++column) {
      const double share = share_of(counts, row, column), x = left + static_cast<double>(column) * cell,
                   y = top + static_cast<double>(row) * cell;
      const auto [r, g, b] = colour_of(share);
      fmt::format_to(add,
                     "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.0f}\" height=\"{:.0f}\" fill=\"#{:02x}{:02x}{:02x}\" "
                     "stroke=\"#eee\"/>\n",
                     x, y, cell, cell, r, g, b);
      const int64_t count = counts.confused(row, column);
      if (!with_counts || count == 0) continue;
      fmt::format_to(add, "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"small{}\" text-anchor=\"middle\">{}</text>\n",
                     x + cell / 2, y + cell / 2 + 4, share > 0.5 ? " light" : "", count);
    }
  }
  const double side = static_cast<double>(classes) * cell;
  return svg(std::max(left + side + 110, 420.0), top + side + 20, title, body);
}

// Too many classes for names: one pixel a cell. Small shares are lifted, as a single dark pixel among white ones is not
// seen.
std::string picture_svg(const EvaluationReport& report, const std::string& title) {
  const PredictionCounts& counts = report.counts;
  const auto classes = static_cast<int>(counts.options().classes);
  data::Image image{.height = classes, .width = classes};
  image.pixels.resize(size_t{3} * classes * classes);
  for (int row = 0; row < classes; ++row) {
    for (int column = 0; column < classes; ++column) {
      const auto colour = colour_of(std::sqrt(share_of(counts, row, column)));
      const auto place = static_cast<ptrdiff_t>(3) * (static_cast<ptrdiff_t>(row) * classes + column);
      std::copy(colour.begin(), colour.end(), image.pixels.begin() + place);
    }
  }
  const double left = 40, top = kTitle + 24;
  const std::string body = fmt::format(
      "<text x=\"{0:.0f}\" y=\"{1:.0f}\" class=\"axis\">predicted: outputs 0 to {2}, from left to right; darker: the "
      "root of the share of the class's images</text>\n"
      "<text transform=\"translate({3:.0f} {4:.0f}) rotate(-90)\" class=\"axis\" text-anchor=\"middle\">true class, "
      "from "
      "top to bottom</text>\n"
      "<image x=\"{0:.0f}\" y=\"{5:.0f}\" width=\"{6:.0f}\" height=\"{6:.0f}\" style=\"image-rendering:pixelated\" "
      "href=\"data:image/png;base64,{7}\"/>\n"
      "<rect x=\"{0:.0f}\" y=\"{5:.0f}\" width=\"{6:.0f}\" height=\"{6:.0f}\" class=\"line\"/>\n",
      left, kTitle + 12, classes - 1, left - 12, top + kPictureSide / 2, top, kPictureSide,
      core::base64_text(data::encode_png(image)));
  return svg(left + kPictureSide + 24, top + kPictureSide + 24, title, body);
}

}  // namespace

std::string confusion_svg(const EvaluationReport& report) {
  if (!report.counts.has_confusion()) return "";
  const std::string title =
      fmt::format("Confusion of {} images, {} right", report.counts.images(), report.counts.right());
  return report.counts.options().classes <= kMostWithNames ? cells_svg(report, title) : picture_svg(report, title);
}

std::string calibration_svg(const EvaluationReport& report) {
  const PredictionCounts& counts = report.counts;
  const auto& bins = counts.calibration();
  constexpr double kLeft = 70, kTop = kTitle + 10, kSide = 320, kHistogram = 90, kBetween = 34;
  const double bar = kSide / static_cast<double>(bins.size()), bottom = kTop + kSide,
               base = bottom + kBetween + kHistogram;
  int64_t most = 1;
  for (const CalibrationBin& bin : bins) most = std::max(most, bin.images);
  std::string body;
  const auto add = std::back_inserter(body);
  for (int tick = 0; tick <= 5; ++tick) {
    const double share = tick / 5.0;
    fmt::format_to(add, "<text x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\">{:.1f}</text>\n", kLeft - 8,
                   bottom - share * kSide + 4, share);
    fmt::format_to(add, "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:.1f}</text>\n", kLeft + share * kSide,
                   base + 18, share);
  }
  for (size_t i = 0; i < bins.size(); ++i) {
    const CalibrationBin& bin = bins[i];
    if (bin.images == 0) continue;
    const double x = kLeft + static_cast<double>(i) * bar, height = bin.accuracy() * kSide,
                 sure = bin.confidence() * kSide,
                 many = static_cast<double>(bin.images) / static_cast<double>(most) * kHistogram;
    fmt::format_to(add,
                   "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"#1f5fbf\"><title>{} "
                   "images, accuracy {:.4f}, confidence {:.4f}</title></rect>\n",
                   x + 0.5, bottom - height, bar - 1, height, bin.images, bin.accuracy(), bin.confidence());
    fmt::format_to(add,
                   "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"#d9650b\" "
                   "fill-opacity=\"0.35\"/>\n",
                   x + 0.5, bottom - std::max(height, sure), bar - 1, std::abs(height - sure));
    fmt::format_to(add, "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"#888\"/>\n", x + 0.5,
                   base - many, bar - 1, many);
  }
  fmt::format_to(add, "<path d=\"M{0:.0f} {1:.0f}L{2:.0f} {3:.0f}\" class=\"line\" stroke-dasharray=\"4 4\"/>\n", kLeft,
                 bottom, kLeft + kSide, kTop);
  fmt::format_to(add, "<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" class=\"line\"/>\n", kLeft,
                 kTop, kSide, kSide);
  fmt::format_to(add, "<path d=\"M{:.0f} {:.0f}h{:.0f}\" class=\"line\"/>\n", kLeft, base, kSide);
  fmt::format_to(add,
                 "<text transform=\"translate(20 {:.0f}) rotate(-90)\" class=\"axis\" text-anchor=\"middle\">accuracy "
                 "(orange: distance to confidence)</text>\n",
                 kTop + kSide / 2);
  fmt::format_to(add,
                 "<text transform=\"translate(20 {:.0f}) rotate(-90)\" class=\"axis\" text-anchor=\"middle\">images"
                 "</text>\n",
                 base - kHistogram / 2);
  fmt::format_to(add, "<text x=\"{:.0f}\" y=\"{:.0f}\" class=\"axis\" text-anchor=\"middle\">confidence</text>\n",
                 kLeft + kSide / 2, base + 38);
  return svg(kLeft + kSide + 24, base + 52,
             fmt::format("Expected calibration error {:.4f}", counts.calibration_error()), body);
}

}  // namespace trainyard::train
