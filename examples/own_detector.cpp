// A detector of your own in the whole program: a small network with SSD300's default boxes, which a CPU trains in
// minutes.
//
//   example_own_detector data make-shapes --boxes --output=out/boxed_shapes
//   example_own_detector train --model=small_ssd --data_dir=out/boxed_shapes
//   --config=recipes/boxed_shapes_small_ssd.yaml
//
// A detector for DatasetFamily::kCoco is a graph with one output, [8732, 4 + classes]: the offsets and the scores of
// each default box, which GraphBuilder::box_rows() makes of one pair of maps for each size of objects.
//
// Without arguments it trains for two steps on synthetic images.

#include <iostream>
#include <string>
#include <vector>

#include "trainyard/program.h"

namespace {

using namespace trainyard;
using Value = nn::GraphBuilder::Value;

nn::Graph build(const models::ModelOptions& options) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = "small_ssd"});
  int count = 0;
  const auto convolution = [&](Value x, int64_t channels, int64_t stride, nn::Padding padding) {
    const std::string name = "conv" + std::to_string(count++);
    x = b.convolution(name, x, {.out_channels = channels, .kernel = 3, .stride = stride, .padding = padding});
    return b.activation(name + ".relu", b.batch_norm(name + ".norm", x));
  };
  const nn::Padding same = nn::Padding::same(), valid = nn::Padding::valid();
  Value x = b.input();
  for (const int64_t channels : {24, 48, 96}) x = convolution(x, channels, 2, same);  // 300, 150, 75, 38 pixels a side
  x = convolution(convolution(x, 96, 1, same), 96, 1, same);
  std::vector<Value> maps{x};
  for (int i = 0; i < 3; ++i) maps.push_back(x = convolution(x, 128, 2, same));   // 19, 10, 5
  for (int i = 0; i < 2; ++i) maps.push_back(x = convolution(x, 128, 1, valid));  // 3, 1

  const std::vector<int64_t> boxes = {4, 6, 6, 6, 4, 4};  // default boxes at each pixel of a map
  std::vector<Value> heads;
  for (size_t i = 0; i < maps.size(); ++i) {
    for (const int64_t columns : {int64_t{4}, options.num_classes}) {
      const std::string name = "head" + std::to_string(heads.size());
      heads.push_back(b.convolution(name, maps[i],
                                    {.out_channels = boxes[i] * columns, .kernel = 3, .padding = same, .bias = true}));
    }
  }
  return b.build(b.box_rows("boxes", heads, {.coordinates = 4, .classes = options.num_classes}));
}

const models::ModelRegistration kSmallSsd({.name = "small_ssd",
                                           .family = models::DatasetFamily::kCoco,
                                           .task = models::Task::kDetection,
                                           .image_size = 300,
                                           .default_batch_size = 8,
                                           .schedule = {.learning_rate = 0.01},
                                           .build = build});

}  // namespace

int main(int argc, char** argv) {
  core::install_cpu_allocator();
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) {
    arguments = {"train",        "--model=small_ssd", "--data_name=coco",  "--synthetic", "--batch_size=2",
                 "--device=cpu", "--num_batches=2",   "--display_every=1", "--train_dir="};
  }
  cli::Console console{std::cout, core::StopSource().token(), {}};
  return cli::run(arguments, console);
}
