#include "trainyard/frontends/model/model_metadata.h"

#include <algorithm>

namespace trainyard::frontends {

train::ModelDescription model_description_of(const TrainedModel& trained) {
  train::ModelDescription description{.name = trained.identity.model,
                                      .transform = trained.identity.dataset,
                                      .preprocessor = trained.preprocessor,
                                      .num_classes = trained.identity.num_classes,
                                      .classes = trained.classes.names,
                                      .first_output = trained.classes.first_output,
                                      .label_sets = trained.label_sets};
  if (description.classes.empty() && !trained.label_names.empty()) {  // which the training's records have said
    const std::vector<std::string>& names = trained.label_names;
    const auto count = std::min<int64_t>(std::ssize(names), trained.identity.num_classes);
    description.classes.assign(names.begin(), names.begin() + count);
    description.first_output = 0;
    description.classes_of_records = true;
  }
  if (trained.input_known) description.input = trained.input;
  if (trained.executor != nullptr) description.graph = trained.executor->graph();
  description.quantization = trained.quantization;
  return description;
}

ModelMetadata metadata_of(const TrainedModel& trained) {
  return train::metadata_of(model_description_of(trained));
}

}  // namespace trainyard::frontends
