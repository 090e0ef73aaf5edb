#include "trainyard/frontends/session/saved_run.h"

#include <bit>
#include <string>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/sockets/frame.h"
#include "trainyard/data/datasets/dataset_division.h"
#include "trainyard/frontends/input/image_size.h"
#include "trainyard/frontends/options/image_options.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"

namespace trainyard::frontends {

void SavedRun::save(core::StateWriter& writer) const {
  trainer_->save(writer);
  train::save_optimizer(options_.optimizer, writer);
  if (options_.batch_size > 0) train::save_found_batch(options_.batch_size, writer);
  if (options_.fine_tuning) train::save_fine_tuning(*options_.fine_tuning, writer);
  train::save_input(options_.input, options_.preprocessor, writer);
  train::save_classes(options_.classes.names, options_.classes.first_output, writer);
  if (options_.division) train::save_division(*options_.division, writer);
  if (options_.label_sets) train::save_label_sets(writer);
  if (options_.averaged_weights) train::save_weights_of(*options_.averaged_weights, writer);
}

void SavedRun::load(const core::StateReader& reader) {
  trainer_->load(reader);
  const train::CheckpointFacts facts = train::read_checkpoint_facts(reader, options_.identity, "the checkpoint");
  data::TransformOptions input = options_.input;
  if (facts.input) copy_evaluation(*facts.input, input);
  if (options_.trains && options_.tells_input && !evaluation_differences(input, options_.input).empty()) {
    core::log::warning(
        "the checkpoint was trained with another --normalization, --resize_method, --eval_resize_size, "
        "--exif_orientation or --input_preprocessor");
  }
  if (facts.image_size != nn::Size2d(0)) {
    input.height = facts.image_size.height;
    input.width = facts.image_size.width;
  }
  if (!options_.trains) {
    options_.input = input;
    if (!facts.preprocessor.empty()) options_.preprocessor = facts.preprocessor;
    options_.averaged_weights = facts.averaged_weights;
    options_.division = facts.division;
    options_.label_sets = facts.label_sets;
    options_.optimizer = facts.optimizer;
  }
  if (options_.classes.names.empty()) {
    options_.classes = {.names = facts.classes, .first_output = facts.first_output};
  }
}

namespace {

// Looks at names before load_checkpoint() compares numbers: an error says which class was added or renamed.
void check_classes(const SavedRunOptions& run, const std::string& another_run, const train::CheckpointInfo& checkpoint,
                   const train::CheckpointFacts& facts) {
  if (run.class_count == 0) return;
  const SavedClasses saved = saved_classes(facts, checkpoint);
  if (saved.identity.dataset != run.identity.dataset) return;
  // Names of CIFAR-10 and shapes are replaced by their numbers.
  if (saved.classes.names.empty() && run.identity.dataset != "imagenet") return;
  ClassNames classes = saved.classes;
  int64_t count = std::ssize(classes.names);
  if (classes.names.empty()) {  // then they are all outputs behind the background's
    classes.first_output = run.classes.first_output;
    count = saved.identity.num_classes - classes.first_output;
  }
  check_same_classes({classes, checkpoint.path, count}, {run.classes, run.data_dir, run.class_count},
                     "train on the same classes, or begin another run: " + another_run);
}

// A run that divided its images in another way would train on images by which it was measured.
void check_division(const SavedRunOptions& run, const std::string& another_run, const train::CheckpointInfo& checkpoint,
                    const train::CheckpointFacts& facts) {
  if (!run.trains) return;
  const auto flags_of = [](const std::optional<data::Division>& division) {
    return division ? data::division_flags(*division) : "no --validation_split and no --folds";
  };
  const data::Division usual;
  if (run.class_count > 0 && facts.division.value_or(usual) != run.division.value_or(usual)) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the run divides its images in another way than the checkpoint's run",
                       .where = checkpoint.path,
                       .expected = flags_of(facts.division),
                       .actual = flags_of(run.division),
                       .remedy = "divide them as it did, or begin another run: " + another_run});
  }
  if (run.class_count > 0 && facts.label_sets != run.label_sets) {
    const auto labels = [](bool sets) { return sets ? "any number of labels an image" : "one label an image"; };
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the data have another kind of labels than the checkpoint's run",
                       .where = checkpoint.path,
                       .expected = labels(facts.label_sets),
                       .actual = labels(run.label_sets),
                       .remedy = "use its data, or begin another run: " + another_run});
  }
}

// Looks at the size of the images before load_checkpoint() compares shapes. An optimizer's state cannot be
// interpolated.
void check_images(const SavedRunOptions& run, const nn::Graph& graph, const std::string& another_run,
                  const train::CheckpointInfo& checkpoint, const train::CheckpointFacts& facts) {
  const train::CheckpointIdentity& identity = facts.identity;
  if (identity.model != run.identity.model || identity.dataset != run.identity.dataset) return;
  const nn::Size2d before = check_image_size({.identity = identity,
                                              .saved = facts.image_size,
                                              .graph = graph,
                                              .where = checkpoint.path,
                                              .interpolates_positions = false,
                                              .remedy = "or begin another run of that size: " + another_run});
  if (const nn::Size2d now = image_size_of(graph); run.tells_input && now != before) {
    core::log::info("{} was trained on images of {}; this run takes {}", checkpoint.path,
                    models::image_size_text(before), models::image_size_text(now));
  }
}

}  // namespace

train::ResumeOptions resume_options(const SavedRun& state, const nn::Graph& graph, const std::string& another_run) {
  train::ResumeOptions options;
  if (!another_run.empty()) options.another_run = another_run;
  if (state.options().trains) options.optimizer = state.options().optimizer;
  options.check = [&state, &graph, another = options.another_run](const train::CheckpointInfo& checkpoint,
                                                                  const train::CheckpointFacts& facts) {
    check_classes(state.options(), another, checkpoint, facts);
    check_division(state.options(), another, checkpoint, facts);
    check_images(state.options(), graph, another, checkpoint, facts);
  };
  return options;
}

namespace {

int64_t bits_of(float number) {
  return std::bit_cast<int32_t>(number);
}

float number_of(int64_t bits) {
  return std::bit_cast<float>(static_cast<int32_t>(bits));
}

}  // namespace

std::string encode_trained_input(const TrainedInput& trained) {
  core::BodyWriter body;
  const data::TransformOptions& input = trained.input;
  body.text(trained.preprocessor).number(input.height).number(input.width).text(input.resize_method);
  body.number(input.resize_antialias).number(input.resize_half_pixel_centers).number(input.eval_resize_size);
  body.number(bits_of(input.eval_central_part)).number(input.eval_scaled_decode).number(input.exif_orientation);
  body.number(static_cast<int64_t>(input.resize_convention));
  for (size_t c = 0; c < input.normalization.scale.size(); ++c) {
    body.number(bits_of(input.normalization.scale[c])).number(bits_of(input.normalization.shift[c]));
  }
  return body.take();
}

TrainedInput decode_trained_input(std::string_view text) {
  core::BodyReader body(text);
  TrainedInput trained{.preprocessor = body.text()};
  data::TransformOptions& input = trained.input;
  input.training = false;
  input.height = body.number();
  input.width = body.number();
  input.resize_method = body.text();
  input.resize_antialias = body.number() != 0;
  input.resize_half_pixel_centers = body.number() != 0;
  input.eval_resize_size = body.number();
  input.eval_central_part = number_of(body.number());
  input.eval_scaled_decode = body.number() != 0;
  input.exif_orientation = body.number() != 0;
  input.resize_convention = static_cast<data::ResizeConvention>(body.number());
  for (size_t c = 0; c < input.normalization.scale.size(); ++c) {
    input.normalization.scale[c] = number_of(body.number());
    input.normalization.shift[c] = number_of(body.number());
  }
  return trained;
}

}  // namespace trainyard::frontends
