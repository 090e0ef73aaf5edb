#include "trainyard/train/evaluation/evaluation_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace trainyard::train {
namespace {

// A field of RFC 4180.
std::string field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

nlohmann::ordered_json json_of_calibration(const PredictionCounts& counts) {
  nlohmann::ordered_json bins = nlohmann::ordered_json::array();
  for (const CalibrationBin& bin : counts.calibration()) {
    bins.push_back({{"confidence", bin.confidence()}, {"accuracy", bin.accuracy()}, {"images", bin.images}});
  }
  return {{"ece", counts.calibration_error()}, {"bins", bins}};
}

nlohmann::ordered_json json_of_most_wrong(const EvaluationReport& report) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  const std::vector<WrongPrediction> wrong = report.counts.most_wrong();
  for (size_t i = 0; i < wrong.size(); ++i) {
    const WrongPicture picture = i < report.most_wrong.size() ? report.most_wrong[i] : WrongPicture();
    list.push_back({{"file", picture.file},
                    {"true", report.name_of(wrong[i].label)},
                    {"predicted", report.name_of(wrong[i].predicted)},
                    {"confidence", wrong[i].confidence},
                    {"image", picture.image}});
  }
  return list;
}

}  // namespace

std::string EvaluationReport::name_of(int64_t output) const {
  const auto index = static_cast<size_t>(output);
  return index < names.size() && !names[index].empty() ? names[index] : std::to_string(output);
}

std::string evaluation_json(const EvaluationReport& report) {
  const PredictionCounts& counts = report.counts;
  const int64_t classes = counts.options().classes;
  nlohmann::ordered_json json{{"schema", 1},
                              {"checkpoint", report.checkpoint},
                              {"global_step", report.global_step},
                              {"images", counts.images()},
                              {"not_finite", counts.not_finite()},
                              {"loss", report.loss},
                              {"top_1", report.top_1},
                              {"top_5", report.top_5}};
  for (const auto& [name, value] : counts.top_k_accuracies()) json["top_k"][name] = value;
  nlohmann::ordered_json names = nlohmann::ordered_json::array(), confusion = names, per_class = names;
  for (int64_t label = 0; label < classes; ++label) {
    names.push_back(report.name_of(label));
    const ClassPredictions& of_class = counts.classes()[static_cast<size_t>(label)];
    per_class.push_back({{"name", report.name_of(label)},
                         {"images", of_class.images},
                         {"precision", of_class.precision()},
                         {"recall", of_class.recall()},
                         {"f1", of_class.f1()}});
    if (!counts.has_confusion()) continue;
    std::vector<int64_t> row(static_cast<size_t>(classes));
    for (int64_t predicted = 0; predicted < classes; ++predicted) {
      row[static_cast<size_t>(predicted)] = counts.confused(label, predicted);
    }
    confusion.push_back(std::move(row));
  }
  json["classes"] = std::move(names);
  json["confusion"] = std::move(confusion);
  json["per_class"] = std::move(per_class);
  json["calibration"] = json_of_calibration(counts);
  json["most_wrong"] = json_of_most_wrong(report);
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string confusion_csv(const EvaluationReport& report) {
  const PredictionCounts& counts = report.counts;
  if (!counts.has_confusion()) return "";
  const int64_t classes = counts.options().classes;
  const bool not_finite = counts.not_finite() > 0;
  std::string text = "label";
  for (int64_t predicted = 0; predicted < classes; ++predicted) text += "," + field(report.name_of(predicted));
  text += not_finite ? ",not finite\r\n" : "\r\n";
  for (int64_t label = 0; label < classes; ++label) {
    text += field(report.name_of(label));
    int64_t left = counts.classes()[static_cast<size_t>(label)].images;
    for (int64_t predicted = 0; predicted < classes; ++predicted) {
      const int64_t count = counts.confused(label, predicted);
      left -= count;
      text += "," + std::to_string(count);
    }
    if (not_finite) text += "," + std::to_string(left);
    text += "\r\n";
  }
  return text;
}

std::string per_class_csv(const EvaluationReport& report) {
  std::string text = "class,images,predicted,right,precision,recall,f1\r\n";
  for (size_t label = 0; label < report.counts.classes().size(); ++label) {
    const ClassPredictions& each = report.counts.classes()[label];
    text += fmt::format("{},{},{},{},{},{},{}\r\n", field(report.name_of(static_cast<int64_t>(label))), each.images,
                        each.predicted, each.right, each.precision(), each.recall(), each.f1());
  }
  return text;
}

}  // namespace trainyard::train
