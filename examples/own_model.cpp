// A network of your own in the whole program: whatever `trainyard` does with a model (train, eval, predict, export,
// bench layers, ...) this program does with --model=my_net, too.
//
//   example_own_model train --model=my_net --data_name=cifar10 --data_dir=DIR --batch_size=128 --optimizer=tf_nesterov
//   example_own_model models my_net --graph=my_net.svg
//
// Without arguments it trains for five steps on synthetic images.

#include <iostream>
#include <string>
#include <vector>

#include "trainyard/program.h"

namespace {

using namespace trainyard;
using Value = nn::GraphBuilder::Value;

// Convolution, batch norm and ReLU twice, and a shortcut around them.
Value block(nn::GraphBuilder& b, const std::string& name, Value x, int64_t channels, int64_t stride) {
  const auto convolution = [&](const std::string& part, Value from, int64_t step) {
    from = b.convolution(name + part, from,
                         {.out_channels = channels, .kernel = 3, .stride = step, .padding = nn::Padding::all(1)});
    return b.batch_norm(name + part + ".norm", from);
  };
  Value y = b.activation(name + ".relu1", convolution(".conv1", x, stride));
  y = convolution(".conv2", y, 1);
  if (stride != 1) x = b.convolution(name + ".shortcut", x, {.out_channels = channels, .kernel = 1, .stride = stride});
  return b.activation(name + ".relu2", b.add(name + ".add", {y, x}));
}

nn::Graph build(const models::ModelOptions& options) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = "my_net"});
  Value x = b.convolution("stem", b.input(), {.out_channels = 16, .kernel = 3, .padding = nn::Padding::all(1)});
  x = block(b, "one", b.activation("stem.relu", b.batch_norm("stem.norm", x)), 32, 2);
  x = block(b, "two", x, 64, 2);
  x = b.dropout("dropout", b.global_average_pool("pool", x), 0.1);
  return b.build(b.linear("head", x, {.out_features = options.num_classes}));
}

const models::ModelRegistration kMyNet(
    {.name = "my_net", .family = models::DatasetFamily::kCifar10, .image_size = 32, .build = build});

}  // namespace

int main(int argc, char** argv) {
  core::install_cpu_allocator();
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) {
    arguments = {"train",        "--model=my_net",  "--data_name=cifar10", "--synthetic",
                 "--device=cpu", "--num_batches=5", "--display_every=1"};
  }
  cli::Console console{std::cout, core::StopSource().token(), {}};
  return cli::run(arguments, console);
}
