#include "trainyard/frontends/model/detector.h"

#include <algorithm>

#include "trainyard/data/detection/coco_labels.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/train/evaluation/detection/detection_evaluation.h"

namespace trainyard::frontends {
namespace {

// Null where the model is not in the registry, or no detector.
const models::ModelInfo* registered_detector(const train::CheckpointIdentity& identity) {
  if (identity.dataset != models::family_name(models::DatasetFamily::kCoco)) return nullptr;
  const std::string name = identity.model.substr(identity.model.find('/') + 1);
  const std::vector<std::string> names = models::model_names(models::DatasetFamily::kCoco);
  if (std::find(names.begin(), names.end(), name) == names.end()) return nullptr;
  const models::ModelInfo& model = models::find_model(name, identity.dataset);
  return model.task == models::Task::kDetection ? &model : nullptr;
}

}  // namespace

std::optional<Detector> detector_of(const TrainedModel& trained) {
  const models::ModelInfo* const model = registered_detector(trained.identity);
  if (model == nullptr) return std::nullopt;
  const bool torchvision = model->equals.starts_with("torchvision");
  Detector detector{
      .boxes = torchvision ? data::DefaultBoxes::ssd300_vgg16() : data::DefaultBoxes::ssd300(),
      .options = torchvision ? train::DetectOptions::torchvision() : train::DetectOptions{},
      .categories = train::coco_categories_of_labels(trained.identity.num_classes),
  };
  for (const int64_t category : detector.categories) {
    const std::optional<int64_t> label = data::coco_label_of_category(category);
    detector.names.push_back(label ? data::coco_label_names()[static_cast<size_t>(*label)] : "");
  }
  return detector;
}

}  // namespace trainyard::frontends
