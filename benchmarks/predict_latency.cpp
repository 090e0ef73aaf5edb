// How long a prediction takes: train::load_model(FILE)->predict(...) of one image, against the same graph run frozen at
// batch 1 without anything around it, which is what --forward_only --freeze_when_forward_only measures; and how many
// more two threads predict than one. One intra-op thread each. Decoding is told apart.
//
// usage: predict_latency [MODEL=resnet50] [PREDICTIONS=100]
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <fmt/core.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/nn/execution/kernel_choices.h"
#include "trainyard/trainyard.h"

using namespace trainyard;
using Clock = std::chrono::steady_clock;

namespace {

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

// Images a second of so many threads, each with `count` predictions.
double throughput(const train::Model& model, const std::vector<std::byte>& image, int threads, int count) {
  std::vector<core::Thread> running;
  const auto begin = Clock::now();
  for (int t = 0; t < threads; ++t) {
    running.emplace_back(core::ThreadOptions{.name = "predict"}, [&] {
      for (int i = 0; i < count; ++i) model.predict(image);
    });
  }
  for (core::Thread& thread : running) thread.join();
  return threads * count / core::seconds_since(begin);
}

}  // namespace

int main(int count, char** arguments) try {
  const std::string name = count > 1 ? arguments[1] : "resnet50";
  const int predictions = count > 2 ? std::stoi(arguments[2]) : 100;
  core::apply_thread_options({.intra_op_threads = 1});
  const nn::Graph graph = models::build_model(name, "imagenet", {});
  nn::ParameterSet set;
  const auto executor = nn::make_executor("auto", graph,
                                          {.mode = nn::Mode::kInference,
                                           .frozen = true,
                                           .kernels = {.choices = std::make_shared<nn::KernelChoices>()},
                                           .parameters = &set});
  set.allocate();
  set.initialize(1);
  const std::string path = (std::filesystem::temp_directory_path() / "trainyard_predict_latency.safetensors").string();
  train::ModelDescription description{.input = data::TransformOptions{.training = false}};
  description.graph = graph;
  train::save_model(path, description, set);
  const auto model = train::load_model(path, {.contexts = 2, .intra_op_threads = 1});
  std::filesystem::remove(path);

  data::Image pixels;
  pixels.height = 375;
  pixels.width = 500;
  core::RandomStream random(1, "pixels");
  for (int i = 0; i < 375 * 500 * 3; ++i) pixels.pixels.push_back(static_cast<uint8_t>(i / 700 + random.below(16)));
  const std::vector<std::byte> image = data::encode_png(pixels);
  const at::Tensor input = model->decode(image);
  const at::NoGradGuard no_grad;
  for (int i = 0; i < 5; ++i) {
    executor->forward(input, {});
    model->predict(image);
  }
  std::vector<double> bare, predicted, decoded;
  for (int i = 0; i < predictions; ++i) {  // in turns, so that what else the machine does hits both
    const auto begin = Clock::now();
    executor->forward(input, {});
    bare.push_back(core::seconds_since(begin));
    const train::Prediction prediction = model->predict(image);
    predicted.push_back(prediction.model_seconds);
    decoded.push_back(prediction.decode_seconds);
  }
  fmt::print("{}, one thread, median of {}:\n", name, predictions);
  fmt::print("  the frozen graph alone  {:8.2f} ms\n", 1e3 * median(bare));
  fmt::print("  predict(), the model    {:8.2f} ms  {:+.1f} %\n", 1e3 * median(predicted),
             100 * (median(predicted) / median(bare) - 1));
  fmt::print("  predict(), decoding     {:8.2f} ms\n", 1e3 * median(decoded));
  throughput(*model, image, 2, 5);  // both contexts are compiled
  const double one = throughput(*model, image, 1, predictions), two = throughput(*model, image, 2, predictions);
  fmt::print("one thread {:.2f} images/s, two threads {:.2f}: {:.2f} times as many\n", one, two, two / one);
} catch (const core::Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return core::exit_code(error.code());
}
