#include "trainyard/recipes/predict.h"

#include <algorithm>
#include <ostream>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <fmt/format.h>
#include <fmt/ostream.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/error.h"
#include "trainyard/core/file_system.h"
#include "trainyard/data/dataset.h"
#include "trainyard/data/transform.h"
#include "trainyard/formats/npy.h"

namespace trainyard::recipes {
namespace {

constexpr uint64_t kLargestImageFile = uint64_t{256} << 20;  // bytes
constexpr int64_t kArrayBatch = 64;                          // images of an array that run at a time

// float [1, 3, H, W] as the evaluation of the model's data set makes it.
at::Tensor load_image(const std::string& path, const data::Transform& transform, const nn::Shape& shape) {
  data::Record record;
  const std::string content = core::local_file_system().read_file(path, kLargestImageFile);
  const auto bytes = std::as_bytes(std::span(content));
  record.bytes.assign(bytes.begin(), bytes.end());
  record.where = path;
  at::Tensor image = at::empty({1, shape[0], shape[1], shape[2]});
  transform.apply(record, {}, image.data_ptr<float>()).value();
  return image;
}

void print_top(const std::string& image, const at::Tensor& logits, const std::vector<std::string>& names,
               const PredictOptions& options, std::ostream& out) {
  const at::Tensor probabilities = at::softmax(logits[0], 0);
  const auto [values, indices] = at::topk(probabilities, std::min(options.top, probabilities.size(0)));
  const float* value = values.data_ptr<float>();
  const int64_t* index = indices.data_ptr<int64_t>();
  nlohmann::ordered_json line{{"image", image}, {"top", nlohmann::ordered_json::array()}};
  std::string text = image + ":";
  for (int64_t i = 0; i < values.size(0); ++i) {
    const auto label = static_cast<size_t>(index[i]);
    const std::string name = label < names.size() ? names[label] : "";
    line["top"].push_back({{"class", index[i]}, {"name", name}, {"probability", value[i]}});
    text += fmt::format("{} {} {}{:.4f}", i == 0 ? "" : ",", index[i], name.empty() ? "" : name + " ", value[i]);
  }
  fmt::print(out, "{}\n", options.json ? line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) : text);
}

void predict_array(const PredictOptions& options, TrainedModel& trained, std::ostream& out) {
  core::FileSystem& files = core::local_file_system();
  formats::NpyArray array = formats::read_npy(*files.open_read(options.array_input));
  const nn::Shape& shape = trained.executor->graph().input_shape();
  if (array.shape.size() != 4 || !std::equal(shape.begin(), shape.end(), array.shape.begin() + 1)) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the array does not fit the model " + trained.identity.model,
                       .where = options.array_input,
                       .expected = fmt::format("[N, {}, {}, {}]", shape[0], shape[1], shape[2]),
                       .actual = nn::to_string(array.shape)});
  }
  const int64_t count = array.shape[0], classes = trained.identity.num_classes;
  auto values = array.values<float>();
  const at::Tensor images = at::from_blob(const_cast<float*>(values.data()), array.shape);
  std::vector<float> logits(static_cast<size_t>(count * classes));
  for (int64_t begin = 0; begin < count; begin += kArrayBatch) {
    const int64_t end = std::min(begin + kArrayBatch, count);
    const at::Tensor part = trained.executor->forward(images.slice(0, begin, end), {}).contiguous();
    std::copy_n(part.data_ptr<float>(), part.numel(), logits.begin() + begin * classes);
  }
  const std::array<int64_t, 2> output_shape{count, classes};
  files.write_file_atomically(options.array_output, formats::encode_npy<float>(output_shape, logits));
  fmt::print(out, "wrote logits [{}, {}] to {}\n", count, classes, options.array_output);
}

}  // namespace

void PredictOptions::validate() const {
  if (array_input.empty() != array_output.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "--input and --output belong together"});
  }
  if (images.empty() == array_input.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "either images or --input must be given", .remedy = "see trainyard predict --help"});
  }
}

void predict(const PredictOptions& options, std::ostream& out) {
  options.validate();
  TrainedModel trained = load_trained_model(options.model);
  if (!options.array_input.empty()) {
    predict_array(options, trained, out);
    return;
  }
  const nn::Shape& shape = trained.executor->graph().input_shape();
  if (options.adjust_input) options.adjust_input(trained.input);
  const auto transform = data::transforms().get(trained.identity.dataset)(trained.input);
  for (const std::string& image : options.images) {
    const at::Tensor logits = trained.executor->forward(load_image(image, *transform, shape), {});
    print_top(image, logits, trained.label_names, options, out);
  }
}

}  // namespace trainyard::recipes
