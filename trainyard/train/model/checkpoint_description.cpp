#include "trainyard/train/model/checkpoint_description.h"

#include <string>
#include <vector>

#include "trainyard/data/datasets/label_texts.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"

namespace trainyard::train {
namespace {

// Returns what the records called the labels of a data set without names, by output: an empty text for none.
std::vector<std::string> names_by_output(const std::string& label_texts, int64_t outputs) {
  data::LabelTexts texts;
  texts.load(label_texts, "");
  std::vector<std::string> names;
  for (const auto& [label, text] : texts.all()) {
    if (label < 0 || label >= outputs) continue;
    if (label >= std::ssize(names)) names.resize(static_cast<size_t>(label) + 1);
    names[static_cast<size_t>(label)] = text;
  }
  return names;
}

}  // namespace

ModelDescription described_by(const OpenedCheckpoint& opened) {
  if (const ModelMetadata metadata = saved_metadata(*opened.reader); !metadata.empty()) {
    return described_in(metadata, opened.info.path);
  }
  const CheckpointFacts facts = read_checkpoint_facts(*opened.reader, opened.identity, opened.info.path);
  if (facts.identity.model.empty() || facts.identity.num_classes < 1) return {};
  ModelDescription description{.name = facts.identity.model,
                               .transform = facts.identity.dataset.empty() ? "imagenet" : facts.identity.dataset,
                               .num_classes = facts.identity.num_classes,
                               .classes = facts.classes,
                               .first_output = facts.first_output,
                               .label_sets = facts.label_sets};
  // Early releases say nothing of it: their images were made as tf_cnn_benchmarks makes them.
  description.input = facts.input.value_or(data::TransformOptions{.training = false});
  description.graph = models::build_model(facts.identity.model, description.transform,
                                          {.num_classes = facts.identity.num_classes, .image_size = facts.image_size});
  if (description.classes.empty() && !facts.label_texts.empty()) {
    description.classes = names_by_output(facts.label_texts, description.num_classes);
    description.first_output = 0;
    description.classes_of_records = true;
  }
  return description;
}

}  // namespace trainyard::train
