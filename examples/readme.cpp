// The program that README.md shows: scripts/check_docs compares the two. usage: example_readme FOLDER TRAIN_DIR IMAGE
// README: begin
#include "trainyard/trainyard.h"

using namespace trainyard;

int main(int, char** arguments) {  // a folder of class folders, where to save, an image to predict
  const std::string folder = arguments[1];
  const auto train = data::open_folder(folder, {.size = 32, .part = data::FolderPart::kTraining});
  const auto test = data::open_folder(folder, {.size = 32, .training = false, .part = data::FolderPart::kValidation});
  const auto graph = models::build_model("resnet20", "cifar10", {.num_classes = std::ssize(train->classes())});
  const auto result =
      train::fit({.graph = graph, .train = train, .validation = test, .epochs = 30, .train_dir = arguments[2]});
  const auto predicted = result.model->predict_file(arguments[3]).top.front();
  printf("accuracy %.3f; %s by %.3f\n", result.last->top_1, predicted.name.c_str(), predicted.probability);
}
// README: end
