// Options that do not go with what a model learns, and which task a run has.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/testing/label_sets.h"
#include "trainyard/frontends/tf_cnn/learning_task.h"
#include "trainyard/models/registry/model_registry.h"

namespace trainyard::frontends::task_options_test {
namespace {

using ::testing::HasSubstr;

using Change = std::function<void(PreparedRun&)>;

struct Refused {
  const char* flags;
  Change change;
};

const std::vector<Refused>& options_of_one_label() {
  static const std::vector<Refused> options = {
      {"--mixup_alpha or --cutmix_alpha", [](PreparedRun& run) { run.input.mix.mixup_alpha = 0.2; }},
      {"--mixup_alpha or --cutmix_alpha", [](PreparedRun& run) { run.input.mix.cutmix_alpha = 1; }},
      {"--label_smoothing", [](PreparedRun& run) { run.options.loss.label_smoothing = 0.1; }},
      {"--loss", [](PreparedRun& run) { run.options.loss.loss = "bce"; }},
      {"--print_training_accuracy", [](PreparedRun& run) { run.options.display.print_training_accuracy = true; }},
      {"--distill_from", [](PreparedRun& run) { run.options.distillation.from = "run"; }},
      {"--top_k, --calibration_bins or --most_wrong", [](PreparedRun& run) { run.options.top_k = {3}; }},
      {"--top_k, --calibration_bins or --most_wrong", [](PreparedRun& run) { run.options.most_wrong = 0; }},
      {"--tta", [](PreparedRun& run) { run.options.tta = train::TestTimeAugmentation::kFlip; }}};
  return options;
}

// Those, and what boxes have no use for either.
std::vector<Refused> options_without_boxes() {
  std::vector<Refused> options = options_of_one_label();
  options.push_back({"--class_weights", [](PreparedRun& run) { run.options.loss.class_weights = "balanced"; }});
  options.push_back({"--balanced_sampling", [](PreparedRun& run) { run.input.balanced_sampling = true; }});
  options.push_back({"--repeated_augmentation", [](PreparedRun& run) { run.input.repeated_augmentation = 2; }});
  options.push_back({"--progressive_sizes", [](PreparedRun& run) { run.input.epoch_sizes = {{0, {24, 20}}}; }});
  options.push_back({"--labels_csv", [](PreparedRun& run) { run.options.input.labels_csv = "table.csv"; }});
  options.push_back({"--validation_split or --folds", [](PreparedRun& run) { run.input.division = data::Division{}; }});
  options.push_back({"--dali_mode=GPU", [](PreparedRun& run) { run.input.decode_on_gpu = true; }});
  return options;
}

std::string problem_of(const LearningTask& task, const PreparedRun& run) {
  const auto error = core::error_of([&] { task.check_options(run); });
  if (!error) return "";
  EXPECT_EQ(error->code(), core::ErrorCode::kUnsupported);
  return error->detail().problem;
}

PreparedRun run_of(const char* model, const char* dataset) {
  PreparedRun run;
  run.model = &models::find_model(model, dataset);
  return run;
}

// The first evaluation would end the training: after an epoch, that may be hours.
TEST(DetectionTask, RefusesNumbersThatItsEvaluationsDoNotHave) {
  PreparedRun run = run_of("ssd300", "coco");
  for (const char* name : {"loss", "top_5", "top_1_accuracy", "mean_class_accuracy", "COCO/AP60", "COCO/"}) {
    run.options.saving.keep_best = name;
    const core::Error refused = core::thrown_by([&] { detection_task().check_options(run); });
    EXPECT_EQ(refused.code(), core::ErrorCode::kInvalidArgument) << name;
    EXPECT_EQ(refused.detail().where, "--keep_best") << name;
  }
  for (const char* name : {"none", "top_1", "COCO/AP", "COCO/ARl", "COCO/AP50:highest"}) {
    run.options.saving.keep_best = name;
    run.options.early_stop_metric = name;
    EXPECT_EQ(problem_of(detection_task(), run), "") << name;
  }
  run.options.early_stop_metric = "loss";
  EXPECT_EQ(core::thrown_by([&] { detection_task().check_options(run); }).detail().where, "--early_stop_metric");
}

TEST(ClassificationTask, RefusesNumbersThatItsEvaluationsDoNotHave) {
  PreparedRun run = run_of("lenet", "imagenet");
  run.options.top_k = {3};
  const auto refused_at = [&run]() -> std::string {
    const auto error = core::error_of([&] { task_of(run).check_options(run); });
    return error ? error->detail().where : "";
  };
  for (const char* name : {"none", "top_1", "top_5", "top_1_accuracy", "loss", "loss:lowest", "mean_class_accuracy",
                           "top_3_accuracy:highest"}) {
    run.options.saving.keep_best = run.options.early_stop_metric = name;
    EXPECT_EQ(refused_at(), "") << name;
  }
  for (const char* name :
       {"COCO/AP", "COCO/AP:highest", "mean_average_precision", "top_10_accuracy:highest", "top_1:highest"}) {
    run.options.mode = RunMode::kTraining;
    run.options.saving.keep_best = name;
    run.options.early_stop_metric = "";
    EXPECT_EQ(refused_at(), "--keep_best") << name;
    run.options.saving.keep_best = "top_1";
    run.options.early_stop_metric = name;
    EXPECT_EQ(refused_at(), "--early_stop_metric") << name;
    run.options.mode = RunMode::kEvaluation;
    EXPECT_EQ(refused_at(), "") << name << " compares nothing here";
  }
}

// What the views of test-time augmentation give is a number of the last evaluation alone: those before it lack it.
TEST(ClassificationTask, NamesTheNumbersThatItsEvaluationsHave) {
  PreparedRun run = run_of("lenet", "imagenet");
  run.options.top_k = {3, 10};
  run.options.saving.keep_best = "none";
  run.options.early_stop_metric = "COCO/AP";
  const auto detail = [&run] { return core::thrown_by([&run] { task_of(run).check_options(run); }).detail(); };
  EXPECT_EQ(detail().problem, "evaluations of images of one label have no number of this name to compare them by");
  EXPECT_EQ(detail().actual, "COCO/AP");
  const std::string plain =
      "loss, top_1_accuracy, top_5_accuracy, mean_class_accuracy, top_3_accuracy, top_10_accuracy";
  EXPECT_EQ(detail().expected, plain);
  run.options.tta = train::TestTimeAugmentation::kFlip;
  for (const char* name : {"tta_top_1_accuracy:highest", "tta_top_5_accuracy:highest", "tta_loss:lowest"}) {
    run.options.early_stop_metric = name;
    EXPECT_EQ(detail().actual, name);
    EXPECT_EQ(detail().expected, plain);
  }
  run.model = &models::find_model("ssd300", "coco");
  run.options.top_k.clear();
  run.options.tta = train::TestTimeAugmentation::kNone;
  run.options.early_stop_metric = "loss";
  EXPECT_EQ(detail().problem, "evaluations of a detector have no number of this name to compare them by");
  EXPECT_THAT(detail().expected, ::testing::StartsWith("COCO/AP, COCO/AP50, COCO/AP75, "));
}

TEST(DetectionTask, RefusesEachOptionOfImagesWithOneLabel) {
  EXPECT_EQ(problem_of(detection_task(), run_of("ssd300", "coco")), "");
  for (const Refused& refused : options_without_boxes()) {
    PreparedRun run = run_of("ssd300", "coco");
    refused.change(run);
    EXPECT_EQ(problem_of(detection_task(), run), std::string(refused.flags) + " is for images of one label");
    run.model = &models::find_model("trivial", "coco");
    EXPECT_EQ(problem_of(matched_boxes_task(), run), std::string(refused.flags) + " is for images of one label");
  }
}

TEST(DetectionTask, HasTheSizeAndTheOutputsOfItsModel) {
  const auto problem = [](const Change& change) {
    PreparedRun run = run_of("ssd300", "coco");
    change(run);
    return problem_of(detection_task(), run);
  };
  EXPECT_EQ(problem([](PreparedRun& run) {
              run.options.image_size = 300;
              run.options.num_classes = 81;
            }),
            "");
  EXPECT_EQ(problem([](PreparedRun& run) {
              run.options.image_size = {300, 320};
            }),
            "ssd300 is for images of 300x300, for which its default boxes are");
  EXPECT_EQ(problem([](PreparedRun& run) { run.options.num_classes = 80; }),
            "ssd300 has 81 outputs a box, of COCO's categories and the background");
  EXPECT_EQ(problem_of(detection_task(), run_of("ssd300_vgg16", "coco")),
            "ssd300_vgg16 has torchvision's default boxes, and training is for those of ssd300");
}

TEST(DetectionTask, NumbersThatComeLaterAreOfOneProcessAndEndNothing) {
  PreparedRun run = run_of("ssd300", "coco");
  run.options.device.variable_update = "horovod";
  run.options.early_stop = 2;
  EXPECT_EQ(problem_of(detection_task(), run), "");
  run.options.collect_eval_results_async = true;
  EXPECT_EQ(problem_of(detection_task(), run), "--collect_eval_results_async is for one process");
  run.options.device.variable_update = "replicated";
  EXPECT_THAT(problem_of(detection_task(), run), HasSubstr("--early_stop compares evaluations at once"));
  run.options.early_stop.reset();
  EXPECT_EQ(problem_of(detection_task(), run), "");
}

TEST(MatchedBoxesTask, HasNothingToEvaluate) {
  PreparedRun run = run_of("trivial", "coco");
  for (const RunMode mode : {RunMode::kTraining, RunMode::kForwardOnly}) {
    run.options.mode = mode;
    EXPECT_EQ(problem_of(matched_boxes_task(), run), "");
  }
  for (const RunMode mode : {RunMode::kEvaluation, RunMode::kTrainingAndEvaluation}) {
    run.options.mode = mode;
    EXPECT_EQ(problem_of(matched_boxes_task(), run), "trivial detects nothing that could be evaluated");
  }
}

TEST(LabelSetTask, RefusesEachOptionOfImagesWithOneLabel) {
  const auto run_of_sets = [] {
    PreparedRun run = run_of("lenet", "imagenet");
    run.train_data = std::make_shared<data::LabelSets>();
    return run;
  };
  PreparedRun plain = run_of_sets();
  plain.options.stop_at_top_1_accuracy = 0;
  EXPECT_EQ(problem_of(task_of(plain), plain), "");
  EXPECT_EQ(task_of(plain).best_metric(), "mean_average_precision");
  for (const char* name : {"top_1", "mean_average_precision", "loss", "none"}) {
    plain.options.saving.keep_best = name;
    EXPECT_EQ(problem_of(task_of(plain), plain), "") << name;
  }
  for (const char* name : {"top_1_accuracy", "top_5", "mean_class_accuracy", "COCO/AP"}) {
    plain.options.saving.keep_best = name;
    EXPECT_EQ(core::thrown_by([&] { task_of(plain).check_options(plain); }).detail().where, "--keep_best") << name;
  }
  std::vector<Refused> options = options_of_one_label();
  options.push_back({"--stop_at_top_1_accuracy", [](PreparedRun& run) { run.options.stop_at_top_1_accuracy = 0.5; }});
  options.push_back(
      {"--datasets_repeat_cached_sample", [](PreparedRun& run) { run.input.repeat_cached_sample = true; }});
  for (const Refused& refused : options) {
    PreparedRun run = run_of_sets();
    refused.change(run);
    EXPECT_EQ(problem_of(task_of(run), run), std::string(refused.flags) + " is for images of one label");
    // The same is nothing to refuse where each image has one label.
    run.train_data.reset();
    EXPECT_EQ(problem_of(task_of(run), run), "") << refused.flags;
  }
}

TEST(RefusedOptionOfATask, SaysWhatTheDataHaveAndWhatToDo) {
  PreparedRun run = run_of("lenet", "imagenet");
  const auto detail = [&run] {
    return core::thrown_by([&] { refuse_option(run, true, "--tta", "images of one label"); }).detail();
  };
  EXPECT_NO_THROW(refuse_option(run, false, "--tta", "images of one label"));
  EXPECT_EQ(detail().where, "lenet");
  EXPECT_EQ(detail().actual, "boxes of objects in images");
  run.validation_data = std::make_shared<data::LabelSets>();
  run.input.labels_csv = "table.csv";
  EXPECT_EQ(detail().where, "table.csv");
  EXPECT_EQ(detail().actual, "any number of labels an image");
  EXPECT_EQ(detail().remedy, "leave it out");
}

TEST(TaskOf, FollowsFromTheModelAndTheData) {
  const PreparedRun detector = run_of("ssd300", "coco"), boxes = run_of("trivial", "coco"),
                    classes = run_of("lenet", "imagenet");
  EXPECT_EQ(&task_of(detector), &detection_task());
  EXPECT_EQ(task_of(detector).best_metric(), "COCO/AP");
  EXPECT_FALSE(task_of(detector).has_step_accuracies());
  EXPECT_EQ(&task_of(boxes), &matched_boxes_task());
  EXPECT_FALSE(task_of(boxes).has_step_accuracies());
  EXPECT_EQ(task_of(classes).best_metric(), "top_1");
  EXPECT_TRUE(task_of(classes).has_step_accuracies());
}

}  // namespace
}  // namespace trainyard::frontends::task_options_test
