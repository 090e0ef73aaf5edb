#include "trainyard/train/monitors/curve_svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/xml_text.h"

namespace trainyard::train {
namespace {

constexpr double kPanelWidth = 420, kPanelHeight = 260, kLeft = 56, kTop = 64, kGap = 76, kBottom = 44;
constexpr double kRowHeight = kPanelHeight + kBottom + 40;
constexpr size_t kColumns = 2;
constexpr std::array kColours = {"#1f5fbf", "#d9650b", "#2b8a3e", "#862e9c"};
constexpr int kTicks = 5;

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

// 1, 2 or 5 times a power of ten, so that about kTicks of them cover `span`.
double tick_step(double span) {
  const double raw = span / kTicks, power = std::pow(10.0, std::floor(std::log10(raw))), lead = raw / power;
  return power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10);
}

// Widened to whole powers of ten, of which `range` holds the logarithms.
Range rounded_decades(Range range) {
  const double low = std::floor(range.low + 1e-9), high = std::ceil(range.high - 1e-9);
  return {low, std::max(high, low + 1)};
}

// Widened to whole ticks, never of no width.
Range rounded(Range range) {
  if (range.high - range.low < 1e-12) range.high = range.low + std::max(1e-3, std::abs(range.low) * 0.1);
  const double step = tick_step(range.high - range.low);
  return {std::floor(range.low / step) * step, std::ceil(range.high / step) * step};
}

// Powers of ten between two ticks, so that about kTicks of them cover the range.
double decades_step(Range range) {
  return std::max(1.0, std::round((range.high - range.low) / kTicks));
}

class PanelDrawing {
 public:
  PanelDrawing(const CurvePanel& panel, double left, double top) : panel_(panel), left_(left), top_(top) {
    Range x, y;
    for (const auto& series : panel.series) {
      for_points(series, [&](double px, double py) {
        x.take(px);
        y.take(py);
      });
    }
    x_ = panel.logarithmic ? rounded_decades(x) : rounded(x);
    y_ = rounded(y);
  }

  std::string svg() const {
    std::string out = fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" class=\"panel\">{}</text>\n", left_, top_ - 12,
                                  core::xml_text(panel_.title));
    axes(out);
    for (size_t i = 0; i < panel_.series.size(); ++i) line(out, panel_.series[i], kColours[i % kColours.size()]);
    legend(out);
    return out;
  }

 private:
  template <typename Visit>
  void for_points(const CurveSeries& series, Visit visit) const {
    for (size_t i = 0; i < std::min(series.x.size(), series.y.size()); ++i) {
      const double x = panel_.logarithmic ? std::log10(series.x[i]) : series.x[i];
      if (std::isfinite(x) && std::isfinite(series.y[i])) visit(x, series.y[i]);
    }
  }
  double place_x(double x) const { return left_ + (x - x_.low) / (x_.high - x_.low) * kPanelWidth; }
  double place_y(double y) const { return top_ + kPanelHeight - (y - y_.low) / (y_.high - y_.low) * kPanelHeight; }

  void axes(std::string& out) const {
    auto each_tick = [](Range range, double step, auto visit) {
      for (int i = 0; range.low + i * step <= range.high + step / 2; ++i) visit(range.low + i * step);
    };
    auto sink = std::back_inserter(out);
    each_tick(y_, tick_step(y_.high - y_.low), [&](double v) {
      fmt::format_to(sink,
                     "<path d=\"M{:.1f} {:.1f}h{:.0f}\" class=\"grid\"/><text x=\"{:.1f}\" y=\"{:.1f}\" class=\"tick\" "
                     "text-anchor=\"end\">{:g}</text>\n",
                     left_, place_y(v), kPanelWidth, left_ - 8, place_y(v) + 4, std::abs(v) < 1e-12 ? 0.0 : v);
    });
    double below = top_ + kPanelHeight + 18;
    for (const CurveAxis& axis : panel_.x_axes) {
      const Range range{x_.low / axis.unit, x_.high / axis.unit};
      // Whole ticks within the panel, whose ends are those of the first axis.
      const double step = panel_.logarithmic ? decades_step(range) : tick_step(range.high - range.low);
      each_tick({std::ceil(range.low / step - 1e-9) * step, range.high}, step, [&](double v) {
        if (v > range.high + 1e-9 * step) return;
        fmt::format_to(sink, "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"tick\" text-anchor=\"middle\">{:.6g}</text>\n",
                       place_x(v * axis.unit), below, panel_.logarithmic ? std::pow(10.0, v) : v);
      });
      if (panel_.x_axes.size() > 1) {
        fmt::format_to(sink, "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"tick\" text-anchor=\"end\">{}</text>\n",
                       left_ - 16, below, core::xml_text(axis.name));
      }
      below += 18;
    }
    if (panel_.x_axes.size() > 1) return;
    fmt::format_to(sink, "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"tick\" text-anchor=\"middle\">{}</text>\n",
                   left_ + kPanelWidth / 2, below, core::xml_text(panel_.x_axes[0].name));
  }

  void line(std::string& out, const CurveSeries& series, const char* colour) const {
    std::string points;
    size_t count = 0;
    for_points(series, [&](double x, double y) {
      fmt::format_to(std::back_inserter(points), "{:.1f},{:.1f} ", place_x(x), place_y(y));
      ++count;
    });
    if (count == 0) return;
    points.pop_back();
    auto sink = std::back_inserter(out);
    if (series.joined) {
      fmt::format_to(sink, "<polyline points=\"{}\" stroke=\"{}\" class=\"line\"/>\n", points, colour);
      if (count > 40) return;  // few enough to show that they are single measurements
    }
    for_points(series, [&](double x, double y) {
      fmt::format_to(sink, "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", place_x(x), place_y(y),
                     colour);
    });
  }

  void legend(std::string& out) const {
    double x = left_ + kPanelWidth;
    for (size_t i = panel_.series.size(); i-- > 0;) {
      fmt::format_to(std::back_inserter(out),
                     "<text x=\"{:.1f}\" y=\"{:.0f}\" class=\"name\" text-anchor=\"end\" style=\"fill:{}\">{}</text>\n",
                     x, top_ - 12, kColours[i % kColours.size()], core::xml_text(panel_.series[i].name));
      x -= 9.0 * static_cast<double>(panel_.series[i].name.size()) + 12;
    }
  }

  const CurvePanel& panel_;
  double left_, top_;
  Range x_, y_;
};

bool has_points(const CurvePanel& panel) {
  return std::any_of(panel.series.begin(), panel.series.end(), [&panel](const CurveSeries& series) {
    for (size_t i = 0; i < std::min(series.x.size(), series.y.size()); ++i) {
      const bool placed = std::isfinite(series.x[i]) && (!panel.logarithmic || series.x[i] > 0);
      if (placed && std::isfinite(series.y[i])) return true;
    }
    return false;
  });
}

}  // namespace

std::string curve_svg(const std::string& title, const std::vector<CurvePanel>& panels) {
  std::string body;
  size_t count = 0;
  for (const CurvePanel& panel : panels) {
    if (!has_points(panel)) continue;
    const size_t column = count % kColumns, row = count / kColumns;
    body += PanelDrawing(panel, kLeft + static_cast<double>(column) * (kPanelWidth + kGap),
                         kTop + static_cast<double>(row) * kRowHeight)
                .svg();
    ++count;
  }
  if (count == 0) return "";
  const auto columns = static_cast<double>(std::min(count, kColumns));
  const double width = kLeft + columns * (kPanelWidth + kGap) - kGap + 24;
  const size_t rows_above = (count - 1) / kColumns;
  const double height = kTop + static_cast<double>(rows_above) * kRowHeight + kPanelHeight + kBottom;
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\">\n"
      "<style>text{{font-family:sans-serif;fill:#333}}.title{{font-size:17px;font-weight:bold}}"
      ".panel{{font-size:14px}}.tick{{font-size:12px;fill:#666}}.name{{font-size:14px;font-weight:bold}}"
      ".grid{{stroke:#e4e4e4;fill:none}}.line{{fill:none;stroke-width:2;stroke-linejoin:round}}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{2:.0f}\" y=\"26\" class=\"title\">{3}</text>\n{4}</svg>\n",
      width, height, kLeft, core::xml_text(title), body);
}

std::vector<CurvePanel> curve_panels(const std::string& metrics_jsonl) {
  CurvePanel loss{"loss", {{"train", {}, {}}, {"validation", {}, {}}}};
  CurvePanel accuracy{"top-1 accuracy", {{"train", {}, {}}, {"validation", {}, {}}}};
  CurvePanel rate{"learning rate", {{"", {}, {}}}}, speed{"images/s", {{"", {}, {}}}};
  CurvePanel precision{"average precision", {{"AP", {}, {}}, {"AP50", {}, {}}}};  // of a detector
  std::istringstream lines(metrics_jsonl);
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains("global_step") || !row["global_step"].is_number()) continue;
    const size_t phase = row.value("phase", "") == "eval" ? 1 : 0;
    const auto take_as = [&row](CurvePanel& panel, size_t series, const char* name) {
      if (!row.contains(name) || !row[name].is_number()) return;
      panel.series[series].x.push_back(row["global_step"].get<double>());
      panel.series[series].y.push_back(row[name].get<double>());
    };
    const auto take = [&](CurvePanel& panel, const char* name) {
      take_as(panel, std::min(phase, panel.series.size() - 1), name);
    };
    for (const char* name : {"total_loss", "base_loss", "loss"}) take(loss, name);
    take(accuracy, "top_1_accuracy");
    take(rate, "learning_rate");
    take(speed, "images_per_second");
    take_as(precision, 0, "COCO/AP");
    take_as(precision, 1, "COCO/AP50");
  }
  return {loss, accuracy, rate, speed, precision};
}

}  // namespace trainyard::train
