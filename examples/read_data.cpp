// Reads a data set without training: counts its classes, and computes the mean and the deviation of its pixels, which a
// training may normalize with.
// usage: example_read_data FOLDER
#include <cmath>
#include <iostream>
#include <vector>

#include "trainyard/trainyard.h"

using namespace trainyard;

int main(int, char** arguments) try {
  data::TransformOptions pixels;  // scaled to 32 x 32, and otherwise as they are: from 0 to 255
  pixels.height = pixels.width = 32;
  pixels.normalization = {.scale = {1, 1, 1}, .shift = {0, 0, 0}};
  const auto folder = data::open_folder(arguments[1], {.batch_size = 16, .training = false, .transform = pixels});

  std::vector<int64_t> counts(folder->classes().size());
  double sum = 0, squares = 0, numbers = 0;
  for (auto batches = folder->next(); !batches.empty(); batches = folder->next()) {
    const data::Batch& batch = batches.front();  // of the only replica
    const at::Tensor images = batch.images().to(at::kDouble);
    sum += images.sum().item<double>();
    squares += images.square().sum().item<double>();
    numbers += static_cast<double>(images.numel());
    for (int64_t i = 0; i < batch.samples(); ++i) ++counts[static_cast<size_t>(batch.labels()[i].item<int64_t>())];
  }
  for (size_t i = 0; i < counts.size(); ++i) std::cout << folder->classes()[i] << ": " << counts[i] << " images\n";
  const double mean = sum / numbers;
  std::cout << "pixels: mean " << mean << ", deviation " << std::sqrt(squares / numbers - mean * mean) << "\n";
} catch (const core::Error& error) {
  std::cerr << error.what() << "\n";
  return core::exit_code(error.code());
}
