#include "trainyard/cli/predict_detections.h"

#include <algorithm>
#include <charconv>
#include <ostream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/command_flags.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/files/output_path.h"
#include "trainyard/data/codecs/decode.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/detection/drawn_boxes.h"
#include "trainyard/train/evaluation/detection/detection_evaluation.h"

namespace trainyard::cli {
namespace {

constexpr uint64_t kLargestDrawnFile = uint64_t{256} << 20;  // bytes

std::string read_image_file(const std::string& path) {
  return core::local_file_system().read_file(path, kLargestDrawnFile);
}

data::ImageSize size_of_image(const std::string& path) {
  const std::string content = read_image_file(path);
  return data::read_image_size(std::as_bytes(std::span(content))).value();
}

std::string stem_of(const std::string& path) {
  const std::string name = core::base_name(path);
  return name.substr(0, name.rfind('.'));
}

std::string drawing_of(const std::string& path) {
  return stem_of(path) + ".png";
}

// Returns the number that the name of one of COCO's files is, else `place`.
int64_t id_of(const std::string& path, int64_t place) {
  const std::string stem = stem_of(path);
  int64_t id = 0;
  const auto [end, error] = std::from_chars(stem.data(), stem.data() + stem.size(), id);
  return error == std::errc() && end == stem.data() + stem.size() && id >= 0 ? id : place;
}

// Notes that `key` is the image's. Throws where it is another one's: the second would replace the first, or be taken
// for it.
template <typename Key>
void note(std::map<Key, std::string>& image_of, const Key& key, const std::string& image, const char* problem,
          const char* flag) {
  const auto [owner, is_new] = image_of.emplace(key, image);
  if (is_new) return;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = fmt::format("two images {} {}", problem, key),
                     .where = flag,
                     .actual = fmt::format("{} and {}", owner->second, image),
                     .remedy = "rename one of them, or predict them by two commands"});
}

std::string line_of(const std::string& image, const std::vector<data::CocoDetection>& found,
                    const std::vector<std::string>& names) {
  std::string text = image + ":";
  for (size_t i = 0; i < found.size(); ++i) {
    const data::CocoDetection& each = found[i];
    text += fmt::format("{} {} {:.4f} at {:.0f},{:.0f} {:.0f}x{:.0f}", i == 0 ? "" : ",", names[i], each.score, each.x,
                        each.y, each.width, each.height);
  }
  return found.empty() ? text + " nothing" : text;
}

std::string json_of(const std::string& image, const std::vector<data::CocoDetection>& found,
                    const std::vector<std::string>& names) {
  nlohmann::ordered_json line{{"image", image}, {"detections", nlohmann::ordered_json::array()}};
  for (size_t i = 0; i < found.size(); ++i) {
    const data::CocoDetection& each = found[i];
    line["detections"].push_back({{"category", each.category_id},
                                  {"name", names[i]},
                                  {"score", each.score},
                                  {"box", {each.x, each.y, each.width, each.height}}});
  }
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

DetectionOutput::DetectionOutput(frontends::Detector detector, DetectionOutputOptions options)
    : detector_(std::move(detector)), options_(std::move(options)) {
  if (options_.min_score) detector_.options.min_score = static_cast<float>(*options_.min_score);
  if (!options_.drawn_folder.empty()) core::local_file_system().make_directories(options_.drawn_folder);
}

void DetectionOutput::claim(const std::vector<std::string>& images) {
  for (const std::string& image : images) {
    const int64_t id = id_of(image, ++claimed_);
    if (!options_.json_file.empty()) note(image_of_id_, id, image, "have the id", "--detections");
    if (options_.drawn_folder.empty()) continue;
    const std::string name = drawing_of(image);
    note(image_of_drawing_, name, image, "would be drawn as", "--drawn");
    if (!is_same_file(core::join_path(options_.drawn_folder, name), image)) continue;
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "a drawing would replace its image",
                                                          .where = "--drawn",
                                                          .actual = image,
                                                          .remedy = "name another folder"});
  }
}

void DetectionOutput::add(const std::vector<PlacedImage>& images, const at::Tensor& outputs, int64_t most, bool json,
                          std::ostream& out) {
  const auto detected = train::detect(outputs, detector_.boxes, detector_.options);
  for (size_t i = 0; i < images.size(); ++i) {
    const auto& [path, place] = images[i];
    const data::ImageSize size = size_of_image(path);
    const data::CocoImage image{
        .id = id_of(path, place), .file_name = path, .width = size.width, .height = size.height};
    std::vector<data::CocoDetection> found = train::coco_detections(detected[i], image, detector_.categories);
    if (!options_.json_file.empty()) all_.insert(all_.end(), found.begin(), found.end());
    found.resize(std::min(found.size(), static_cast<size_t>(most)));
    std::vector<std::string> names;
    for (size_t d = 0; d < found.size(); ++d)
      names.push_back(detector_.names.at(static_cast<size_t>(detected[i][d].label)));
    fmt::print(out, "{}\n", json ? json_of(path, found, names) : line_of(path, found, names));
    if (!options_.drawn_folder.empty()) draw(path, detected[i]);
  }
}

void DetectionOutput::finish() const {
  if (!options_.json_file.empty()) core::write_user_output(options_.json_file, data::coco_detections_json(all_));
}

void DetectionOutput::draw(const std::string& image, const std::vector<train::Detection>& detections) {
  const std::string content = read_image_file(image);
  data::Image picture = data::decode_image(std::as_bytes(std::span(content))).value();
  std::vector<data::DrawnBox> boxes;
  for (const train::Detection& each : detections) {
    boxes.push_back(
        {.box = {each.ymin, each.xmin, each.ymax, each.xmax},
         .label = each.label,
         .text = fmt::format("{} {:.2f}", detector_.names.at(static_cast<size_t>(each.label)), each.score)});
  }
  std::reverse(boxes.begin(), boxes.end());  // the best one over the others
  data::draw_boxes(picture, {0, 0, picture.height, picture.width}, boxes);
  const std::vector<std::byte> png = data::encode_png(picture);
  core::write_user_output(core::join_path(options_.drawn_folder, drawing_of(image)),
                          std::string(reinterpret_cast<const char*>(png.data()), png.size()));
}

}  // namespace trainyard::cli
