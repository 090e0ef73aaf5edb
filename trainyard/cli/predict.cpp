#include "trainyard/cli/predict.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <ostream>
#include <sstream>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <fmt/format.h>
#include <fmt/ostream.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/image_paths.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/files/output_path.h"
#include "trainyard/core/threads/parallel.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/datasets/class_list.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/formats/tensors/npy.h"

namespace trainyard::cli {
namespace {

constexpr uint64_t kLargestImageFile = uint64_t{256} << 20;  // bytes
constexpr int64_t kArrayBatch = 64;                          // images of an array that run at a time
constexpr size_t kImagesAtATime = 32;                        // of files

// An image that was named, and what became of it.
struct Loaded {
  std::string path;  // empty of a folder that could not be listed
  std::optional<core::Error> error;
  int64_t place = 0;  // among the images that were named, counted from 1
};

// Fills `out`, float [3, H, W], as the evaluation of the model's data set makes it.
std::optional<core::Error> load_image(const std::string& path, const data::Transform& transform, float* out) {
  try {
    data::Record record;
    const std::string content = core::local_file_system().read_file(path, kLargestImageFile);
    const auto bytes = std::as_bytes(std::span(content));
    record.bytes.assign(bytes.begin(), bytes.end());
    record.where = path;
    const core::Result<void> made = transform.apply(record, {}, out);
    if (made.ok()) return std::nullopt;
    return made.error();
  } catch (const core::Error& error) {
    if (error.code() == core::ErrorCode::kInternal || error.code() == core::ErrorCode::kNoSpace) throw;
    return error;
  }
}

// The next images of `paths`, as many as run at a time. Counts them in `named`.
std::vector<Loaded> take(ImagePaths& paths, int64_t& named) {
  std::vector<Loaded> taken;
  while (taken.size() < kImagesAtATime) {
    auto path = paths.next();
    if (!path) break;
    if (path->ok()) {
      taken.push_back({path->value(), std::nullopt, ++named});
    } else {
      taken.push_back({"", path->error()});
    }
  }
  return taken;
}

// float [images that could be read, 3, H, W]. Notes the errors of the others.
at::Tensor load(std::vector<Loaded>& images, const data::Transform& transform, const nn::Shape& shape) {
  const int64_t numbers = shape[0] * shape[1] * shape[2];
  at::Tensor batch = at::empty({static_cast<int64_t>(images.size()), shape[0], shape[1], shape[2]});
  auto* const begin = batch.mutable_data_ptr<float>();
  core::for_each_parallel(images.size(), core::available_cores(), [&](size_t i) {
    if (!images[i].error) {
      images[i].error = load_image(images[i].path, transform, begin + static_cast<int64_t>(i) * numbers);
    }
  });
  int64_t kept = 0;
  for (size_t i = 0; i < images.size(); ++i) {
    if (images[i].error) continue;
    if (kept != static_cast<int64_t>(i)) {
      std::copy_n(begin + static_cast<int64_t>(i) * numbers, numbers, begin + kept * numbers);
    }
    ++kept;
  }
  return batch.narrow(0, 0, kept);
}

void print_top(const std::string& image, const at::Tensor& logits, const frontends::TrainedModel& trained,
               const PredictOptions& options, std::ostream& out) {
  const std::vector<std::string>& names = trained.label_names;
  const at::Tensor probabilities = trained.label_sets ? logits.sigmoid() : at::softmax(logits, 0);
  const auto [values, indices] = at::topk(probabilities, std::min(options.top, probabilities.size(0)));
  const float* value = values.data_ptr<float>();
  const int64_t* index = indices.data_ptr<int64_t>();
  nlohmann::ordered_json line{{"image", image}, {"top", nlohmann::ordered_json::array()}};
  std::string text = image + ":";
  for (int64_t i = 0; i < values.size(0); ++i) {
    const auto label = static_cast<size_t>(index[i]);
    const std::string name = label < names.size() ? names[label] : "";
    line["top"].push_back({{"class", index[i]}, {"name", name}, {"probability", value[i]}});
    text += fmt::format("{} {} {}{:.4f}", i == 0 ? "" : ",", index[i],
                        name.empty() ? "" : data::printable_class(name) + " ", value[i]);
  }
  fmt::print(out, "{}\n", options.json ? line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) : text);
}

// Detects in the images of a batch that could be read.
void print_detections(const std::vector<Loaded>& images, const at::Tensor& outputs, DetectionOutput& detections,
                      const PredictOptions& options, std::ostream& out) {
  std::vector<PlacedImage> placed;
  for (const Loaded& image : images) {
    if (!image.error) placed.push_back({image.path, image.place});
  }
  if (!placed.empty()) detections.add(placed, outputs, options.top, options.json, out);
}

std::vector<std::string> paths_of(const std::vector<Loaded>& images) {
  std::vector<std::string> paths;
  for (const Loaded& image : images) {
    if (!image.path.empty()) paths.push_back(image.path);
  }
  return paths;
}

void predict_array(const PredictOptions& options, frontends::TrainedModel& trained, std::ostream& out) {
  core::FileSystem& files = core::local_file_system();
  formats::NpyArray array = formats::read_npy(*files.open_read(options.array_input));
  const nn::Shape& shape = trained.executor->graph().input_shape();
  if (array.shape.size() != shape.size() + 1 || !std::equal(shape.begin(), shape.end(), array.shape.begin() + 1)) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the array does not fit the model " + trained.identity.model,
                       .where = options.array_input,
                       .expected = fmt::format("[N, {}]", fmt::join(shape, ", ")),
                       .actual = nn::to_string(array.shape),
                       .remedy = shape.size() == 3 ? "--image_size=HxW makes the model one for other images" : ""});
  }
  const nn::Graph& graph = trained.executor->graph();
  const nn::Shape& output = graph.nodes[static_cast<size_t>(graph.outputs[0].node)].shape;  // [classes] of a classifier
  const int64_t count = array.shape[0];
  const int64_t numbers = std::accumulate(output.begin(), output.end(), int64_t{1}, std::multiplies<>());
  auto values = array.values<float>();
  const at::Tensor images = at::from_blob(const_cast<float*>(values.data()), array.shape);
  std::vector<float> logits(static_cast<size_t>(count * numbers));
  for (int64_t begin = 0; begin < count; begin += kArrayBatch) {
    const int64_t end = std::min(begin + kArrayBatch, count);
    const at::Tensor part = trained.executor->forward(images.slice(0, begin, end), {}).contiguous();
    std::copy_n(part.data_ptr<float>(), part.numel(), logits.begin() + begin * numbers);
  }
  nn::Shape output_shape{count};
  output_shape.insert(output_shape.end(), output.begin(), output.end());
  core::write_user_output(options.array_output, formats::encode_npy<float>(output_shape, logits), files);
  fmt::print(out, "wrote logits {} to {}\n", nn::to_string(output_shape), options.array_output);
}

// Throws for a model whose input no image file can be made into: a transform writes three colours.
void require_images(const frontends::TrainedModel& trained) {
  const nn::Shape& shape = trained.executor->graph().input_shape();
  if (shape.size() == 3 && shape[0] == 3) return;
  throw core::Error(core::ErrorCode::kUnsupported, {.problem = "the model does not take images of three colours",
                                                    .where = trained.checkpoint.path,
                                                    .expected = "[3, height, width]",
                                                    .actual = nn::to_string(shape),
                                                    .remedy = "pass an array of its input with --input"});
}

}  // namespace

void PredictOptions::validate() const {
  if (array_input.empty() != array_output.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "--input and --output belong together"});
  }
  if ((images.empty() && images_from.empty()) == array_input.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "either images or --input must be given", .remedy = "see trainyard predict --help"});
  }
  const std::pair<const char*, bool> of_images[] = {
      {"top", top != PredictOptions{}.top},
      {"json", json},
      {"min_score", detection.min_score.has_value()},
      {"detections", !detection.json_file.empty()},
      {"drawn", !detection.drawn_folder.empty()},
      {"input_preprocessor", input.input_preprocessor.has_value()},
      {"scaled_decode", input.scaled_decode.has_value()},
      {"exif_orientation", input.exif_orientation.has_value()},
      {"resize_method", input.resize_method.has_value()},
      {"resize_antialias", input.resize_antialias.has_value()},
      {"resize_half_pixel_centers", input.resize_half_pixel_centers.has_value()},
      {"eval_resize_size", input.eval_resize_size.has_value()},
      {"normalization", input.normalization.has_value()},
      {"image_mean", input.image_mean.has_value()},
      {"image_std", input.image_std.has_value()}};
  for (const auto& [flag, is_set] : of_images) {
    if (array_input.empty() || !is_set) continue;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = fmt::format("--{} has no use with --input", flag),
                       .expected = "an array as the model takes it, whose logits are written",
                       .remedy = "leave it out, or name images"});
  }
  const bool lists = images_from == "-" || std::find(images.begin(), images.end(), "-") != images.end();
  if (lists && standard_input == nullptr) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "there is no standard input to read a list from"});
  }
}

PredictOutcome predict(const PredictOptions& options, std::ostream& out, const core::StopToken& stop) {
  options.validate();
  std::istringstream nothing;
  ImagePaths paths(options.images, options.images_from,
                   options.standard_input == nullptr ? nothing : *options.standard_input);
  frontends::TrainedModel trained = frontends::load_trained_model(options.model);
  if (!options.array_input.empty()) {
    predict_array(options, trained, out);
    return {};
  }
  require_images(trained);
  const nn::Shape& shape = trained.executor->graph().input_shape();
  // A run that declares no transform (FitOptions::transform) gets the one that its exported file gets.
  const std::string dataset = trained.identity.dataset.empty() ? "imagenet" : trained.identity.dataset;
  options.input.check(dataset);
  if (!trained.input_known && !options.input.input_preprocessor && !options.input.normalization) {
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        {.problem = "the model does not say how an image becomes its input: its training had tensors",
         .where = trained.checkpoint.path,
         .expected = "FitOptions::input of the training, or ModelDescription::input where it was saved",
         .actual = "none",
         .remedy = "pass --input_preprocessor or --normalization as its images were made, or an array with --input"});
  }
  const frontends::TrainedInput before{.input = trained.input, .origin = trained.input_origin};
  options.input.apply_to(trained.input);
  frontends::warn_of_differences(before, trained.input);
  const auto transform = data::transforms().get(dataset)(trained.input);
  const std::optional<frontends::Detector> detector = frontends::detector_of(trained);
  if (!detector && options.detection.any()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "--min_score, --detections and --drawn are for models that detect objects",
                       .where = trained.checkpoint.path,
                       .actual = trained.identity.model,
                       .remedy = "leave them out"});
  }
  std::optional<DetectionOutput> detections;
  if (detector) detections.emplace(*detector, options.detection);
  // Names that clash end the command before anything is written, where all names are known.
  std::optional<std::vector<std::string>> all;
  if (detections && options.detection.writes_files()) all = paths.list_ahead();
  if (all) detections->claim(*all);
  PredictOutcome outcome;
  int64_t named = 0;
  for (std::vector<Loaded> images = take(paths, named); !images.empty(); images = take(paths, named)) {
    if (detections && !all) detections->claim(paths_of(images));
    const at::Tensor batch = load(images, *transform, shape);
    at::Tensor logits;
    if (batch.size(0) > 0) logits = trained.executor->forward(batch, {});
    if (detections) print_detections(images, logits, *detections, options, out);
    int64_t row = 0;
    for (const Loaded& image : images) {
      if (image.error) {
        core::log::error("{}", image.error->what());
        ++outcome.failed;
      } else {
        if (!detections) print_top(image.path, logits[row++], trained, options, out);
        ++outcome.images;
      }
    }
    out.flush();
    outcome.stopped = stop.stop_requested();
    if (outcome.stopped) break;
  }
  if (detections) detections->finish();
  return outcome;
}

}  // namespace trainyard::cli
