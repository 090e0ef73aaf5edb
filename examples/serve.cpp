// Predicts from two threads with one copy of the weights: the newest checkpoint of a train_dir, or a model's file.
// usage: example_serve TRAIN_DIR IMAGE...
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "trainyard/trainyard.h"

using namespace trainyard;

int main(int count, char** arguments) try {
  // Each prediction runs on the thread that asks for it, and on no other.
  const auto model = train::load_model(arguments[1], {.contexts = 2, .intra_op_threads = 1});
  const std::vector<std::string> images(arguments + 2, arguments + count);
  std::vector<std::string> answers(images.size());
  const auto serve = [&](size_t first) {
    for (size_t i = first; i < images.size(); i += 2) {
      try {
        const train::ClassProbability best = model->predict_file(images[i], 1).top.front();
        answers[i] = best.name + " " + std::to_string(best.probability);
      } catch (const core::Error& error) {  // an image that cannot be read ends nothing but its own answer
        answers[i] = error.what();
      }
    }
  };
  std::thread other(serve, 1);
  serve(0);
  other.join();
  for (size_t i = 0; i < images.size(); ++i) std::cout << images[i] << ": " << answers[i] << "\n";
} catch (const core::Error& error) {
  std::cerr << error.what() << "\n";
  return core::exit_code(error.code());
}
