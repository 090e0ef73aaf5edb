#include "trainyard/cli/report/evaluation_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

#include <fmt/format.h>

namespace trainyard::cli {
namespace {

using EvaluationJson = nlohmann::ordered_json;

constexpr size_t kMostClasses = 30000, kMostMatrixClasses = 1024, kMostBins = 100, kMostWrong = 200;
constexpr size_t kLongestText = 300, kLargestImage = size_t{1} << 17;  // of base64
constexpr double kMostImages = 1e12;

// Rounds to four decimals: what a page can show of a share.
EvaluationJson share_member(const EvaluationJson& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) return {};
  const double value = found->get<double>();
  return value >= 0 && value <= 1 ? EvaluationJson(std::round(value * 1e4) / 1e4) : EvaluationJson();
}

EvaluationJson count_member(const EvaluationJson& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_integer()) return {};
  const auto value = found->get<double>();
  return value >= 0 && value <= kMostImages ? EvaluationJson(found->get<int64_t>()) : EvaluationJson();
}

std::string text_member(const EvaluationJson& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>().substr(0, kLongestText) : "";
}

const EvaluationJson& list_member(const EvaluationJson& object, const char* name) {
  static const EvaluationJson kNone = EvaluationJson::array();
  const auto found = object.find(name);
  return found != object.end() && found->is_array() ? *found : kNone;
}

// Returns "data:image/png;base64,..." for base64 of a PNG or a JPEG; empty for all else.
std::string image_address(const EvaluationJson& object) {
  const auto found = object.find("image");
  if (found == object.end() || !found->is_string()) return "";
  const auto& data = found->get_ref<const std::string&>();
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
  if (data.size() > kLargestImage || data.find_first_not_of(kAlphabet) != std::string::npos) return "";
  if (data.starts_with("/9j/")) return "data:image/jpeg;base64," + data;
  if (data.starts_with("iVBORw0KGgo")) return "data:image/png;base64," + data;
  return "";
}

void take_classes(const EvaluationJson& file, EvaluationJson& taken, std::vector<std::string>& problems) {
  const EvaluationJson& classes = list_member(file, "classes");
  if (classes.size() > kMostClasses) {
    problems.push_back(
        fmt::format("evaluation.json names {} classes; a report shows at most {}", classes.size(), kMostClasses));
    return;
  }
  EvaluationJson names = EvaluationJson::array();
  for (const EvaluationJson& name : classes) {
    names.push_back(name.is_string() ? name.get<std::string>().substr(0, kLongestText) : "");
  }
  taken["names"] = names;
  const EvaluationJson& per_class = list_member(file, "per_class");
  if (per_class.size() != names.size()) {
    if (!per_class.empty()) problems.emplace_back("evaluation.json: per_class has not one entry for each class");
    return;
  }
  EvaluationJson counts = EvaluationJson::array(), precisions = counts, recalls = counts;
  for (const EvaluationJson& each : per_class) {
    const bool object = each.is_object();
    counts.push_back(object ? count_member(each, "images") : EvaluationJson());
    precisions.push_back(object ? share_member(each, "precision") : EvaluationJson());
    recalls.push_back(object ? share_member(each, "recall") : EvaluationJson());
  }
  taken["count"] = counts;
  taken["precision"] = precisions;
  taken["recall"] = recalls;
}

// Returns the cells that are not zero; nothing when the matrix is not square, or holds something else than counts.
std::optional<std::vector<std::array<int64_t, 3>>> cells_of(const EvaluationJson& matrix, size_t classes) {
  if (matrix.size() != classes || classes > kMostMatrixClasses) return std::nullopt;
  std::vector<std::array<int64_t, 3>> cells;
  for (size_t t = 0; t < classes; ++t) {
    if (!matrix[t].is_array() || matrix[t].size() != classes) return std::nullopt;
    for (size_t p = 0; p < classes; ++p) {
      const EvaluationJson& cell = matrix[t][p];
      if (!cell.is_number_integer() || cell.get<double>() < 0 || cell.get<double>() > kMostImages) return std::nullopt;
      if (cell.get<int64_t>() > 0) {
        cells.push_back({static_cast<int64_t>(t), static_cast<int64_t>(p), cell.get<int64_t>()});
      }
    }
  }
  std::stable_sort(cells.begin(), cells.end(), [](const auto& a, const auto& b) { return a[2] > b[2]; });
  return cells;
}

void take_confusion(const EvaluationJson& file, EvaluationJson& taken, std::vector<std::string>& problems) {
  const EvaluationJson& matrix = list_member(file, "confusion");
  if (matrix.empty()) return;
  const auto cells = cells_of(matrix, taken.contains("names") ? taken["names"].size() : 0);
  if (!cells) {
    problems.emplace_back(
        "evaluation.json: the confusion matrix is not one row and one column of counts for each class");
    return;
  }
  EvaluationJson flat = EvaluationJson::array();
  for (const auto& [truth, predicted, images] : *cells) {
    flat.push_back(truth);
    flat.push_back(predicted);
    flat.push_back(images);
  }
  taken["cells"] = flat;
}

void take_calibration(const EvaluationJson& file, EvaluationJson& taken) {
  const auto calibration = file.find("calibration");
  if (calibration == file.end() || !calibration->is_object()) return;
  taken["ece"] = share_member(*calibration, "ece");
  EvaluationJson bins = EvaluationJson::array();
  for (const EvaluationJson& bin : list_member(*calibration, "bins")) {
    if (bins.size() == kMostBins) break;
    if (bin.is_object())
      bins.push_back({share_member(bin, "confidence"), share_member(bin, "accuracy"), count_member(bin, "images")});
  }
  taken["bins"] = bins;
}

void take_wrong(const EvaluationJson& file, EvaluationJson& taken) {
  EvaluationJson wrong = EvaluationJson::array();
  for (const EvaluationJson& each : list_member(file, "most_wrong")) {
    if (wrong.size() == kMostWrong) break;
    if (!each.is_object()) continue;
    wrong.push_back({{"file", text_member(each, "file")},
                     {"true", text_member(each, "true")},
                     {"predicted", text_member(each, "predicted")},
                     {"confidence", share_member(each, "confidence")},
                     {"image", image_address(each)}});
  }
  taken["wrong"] = wrong;
}

}  // namespace

EvaluationJson checked_evaluation(const EvaluationJson& file, std::vector<std::string>& problems) {
  const auto schema = file.find("schema");
  if (schema == file.end() || *schema != 1) {
    problems.emplace_back("evaluation.json is of another version: run the evaluation again");
    return {};
  }
  EvaluationJson taken{{"images", count_member(file, "images")},
                       {"top_1", share_member(file, "top_1")},
                       {"top_5", share_member(file, "top_5")},
                       {"step", count_member(file, "global_step")}};
  take_classes(file, taken, problems);
  take_confusion(file, taken, problems);
  take_calibration(file, taken);
  take_wrong(file, taken);
  return taken;
}

void shorten_evaluation(EvaluationJson& evaluation, size_t cells, size_t image_bytes) {
  if (!evaluation.is_object()) return;
  if (const auto all = evaluation.find("cells"); all != evaluation.end() && all->size() > 3 * cells) {
    const size_t left_out = all->size() / 3 - cells;
    all->erase(all->begin() + static_cast<std::ptrdiff_t>(3 * cells), all->end());
    evaluation["cells_left_out"] = left_out;  // a new member moves the others: `all` is no longer valid
  }
  const auto wrong = evaluation.find("wrong");
  if (wrong == evaluation.end()) return;
  size_t bytes = 0, kept = 0;
  for (const EvaluationJson& each : *wrong) {
    bytes += each["image"].get_ref<const std::string&>().size() + 100;
    if (bytes > image_bytes) break;
    ++kept;
  }
  if (kept == wrong->size()) return;
  const size_t left_out = wrong->size() - kept;
  wrong->erase(wrong->begin() + static_cast<std::ptrdiff_t>(kept), wrong->end());
  evaluation["wrong_left_out"] = left_out;  // as above
}

}  // namespace trainyard::cli
