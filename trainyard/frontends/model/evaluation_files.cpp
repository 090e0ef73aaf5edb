#include "trainyard/frontends/model/evaluation_files.h"

#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/base64.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/datasets/class_list.h"
#include "trainyard/data/datasets/record_image.h"
#include "trainyard/data/image/pixel_text.h"
#include "trainyard/data/tools/captioned_sheet.h"
#include "trainyard/train/evaluation/evaluation_report.h"

namespace trainyard::frontends {
namespace {

// Pixels of the longest side. Those in evaluation.json are smaller: pages that hold many runs take them from there.
constexpr int kSheetSide = 144, kPictureSide = 96;
constexpr int kPictureQuality = 80;

// The end of a long place: that is what tells files apart.
std::string caption_of(const std::string& place) {
  constexpr size_t kLetters = kSheetSide / data::kLetterWidth;
  return place.size() <= kLetters ? place : ".." + place.substr(place.size() - (kLetters - 2));
}

std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Fills the report's pictures, and returns the sheet as PNG; empty where no picture could be read.
std::string add_pictures(const ExplainedEvaluation& explained, train::EvaluationReport& report) {
  std::vector<data::CaptionedImage> sheet;
  for (const train::WrongPrediction& wrong : explained.counts.most_wrong()) {
    train::WrongPicture& picture = report.most_wrong.emplace_back();
    picture.file = fmt::format("sample {}", wrong.sample);
    if (explained.images == nullptr) continue;
    auto record = explained.images->read(wrong.sample);
    if (!record.ok()) continue;
    if (!record.value().where.empty()) picture.file = record.value().where;
    auto decoded = data::record_image(record.value(), {}, {.exif_orientation = explained.exif_orientation});
    if (!decoded.ok()) continue;
    data::Image shown = data::thumbnail(decoded.value().pixels, kSheetSide);
    picture.image = core::base64_text(data::encode_jpeg(data::thumbnail(shown, kPictureSide), kPictureQuality));
    const auto name = [&](int64_t output) { return data::printable_class(report.name_of(output)); };
    sheet.push_back(
        {std::move(shown),
         {"is " + name(wrong.label), fmt::format("{:.1f} % {}", 100 * wrong.confidence, name(wrong.predicted)),
          caption_of(picture.file)}});
  }
  return sheet.empty() ? "" : std::string(text_of(data::encode_png(data::captioned_sheet(sheet, kSheetSide))));
}

}  // namespace

std::vector<std::string> write_evaluation_files(const std::string& directory, const ExplainedEvaluation& explained) {
  train::EvaluationReport report{.counts = explained.counts,
                                 .names = explained.names,
                                 .checkpoint = explained.checkpoint,
                                 .global_step = explained.global_step,
                                 .loss = explained.evaluation.loss,
                                 .top_1 = explained.evaluation.top_1,
                                 .top_5 = explained.evaluation.top_5};
  const std::string sheet = add_pictures(explained, report);
  core::FileSystem& files = core::local_file_system();
  std::vector<std::string> written;
  for (const auto& [name, content] : {std::pair<const char*, std::string>{"evaluation.json", evaluation_json(report)},
                                      {"confusion.csv", confusion_csv(report)},
                                      {"confusion.svg", confusion_svg(report)},
                                      {"per_class.csv", per_class_csv(report)},
                                      {"calibration.svg", calibration_svg(report)},
                                      {"most_wrong.png", sheet}}) {
    const std::string path = core::join_path(directory, name);
    if (!content.empty()) {
      files.write_file_atomically(path, content);
      written.emplace_back(name);
    } else if (files.exists(path)) {
      files.remove_file(path);
    }
  }
  return written;
}

std::vector<std::string> evaluation_detail_lines(const train::PredictionCounts& counts) {
  const std::vector<int64_t>& top_k = counts.options().top_k;
  const auto values = counts.top_k_accuracies();
  std::string accuracies;
  for (size_t i = 0; i < top_k.size(); ++i) {
    accuracies += fmt::format("{}Accuracy @ {} = {:.4f}", i == 0 ? "" : " ", top_k[i], values[i].second);
  }
  std::vector<std::string> lines;
  if (!accuracies.empty()) lines.push_back(accuracies);
  lines.push_back(fmt::format("Expected calibration error: {:.4f} ({} bins)", counts.calibration_error(),
                              counts.options().calibration_bins));
  return lines;
}

}  // namespace trainyard::frontends
