#include "trainyard/frontends/model/teacher.h"

#include <utility>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/frontends/model/other_sizes.h"
#include "trainyard/frontends/model/trained_model.h"

namespace trainyard::frontends {
namespace {

void check_teacher(const OpenedModel& opened, const std::string& path, const std::string& model,
                   const Student& student) {
  if (opened.identity.model.empty() && model.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "a file of weights does not say which model the teacher is",
                       .where = path,
                       .remedy = "pass --distill_model, one of `trainyard models`"});
  }
  if (opened.classes.names.empty() || student.class_count == 0) return;
  check_same_classes({opened.classes, path, std::ssize(opened.classes.names)},
                     {student.classes, "the training images", student.class_count},
                     "take a teacher that was trained on the same classes");
}

train::Teacher load_teacher(const std::string& path, const std::string& model, const Student& student) {
  TrainedModelOptions options{.path = path,
                              .model = model,
                              .dataset = student.dataset,
                              .num_classes = student.num_classes,
                              .image_size = student.image_size,
                              .tells_input = false};  // it is given the student's images
  const OpenedModel opened = open_model(options);
  check_teacher(opened, path, model, student);
  TrainedModel trained = load_trained_model(opened, options);
  train::Teacher teacher{.graph = trained.executor->graph()};
  teacher.other_sizes = graphs_of_other_sizes(teacher.graph, student.epoch_sizes, [&](nn::Size2d size) {
    return models::build_model(trained.identity.model, trained.identity.dataset,
                               {.num_classes = trained.identity.num_classes, .image_size = size});
  });
  trained.executor.reset();  // each tower makes one of its own
  teacher.weights = std::move(trained.parameters);
  if (!trained.input_origin.empty() && trained.input.normalization != student.normalization) {
    core::log::warning("the teacher {} was trained with another --normalization than this run's", path);
  }
  core::log::info("teacher: {} from {}, {} parameters", trained.identity.model, trained.checkpoint.path,
                  teacher.graph.parameter_count());
  return teacher;
}

}  // namespace

// What is wrong with the teacher must not be taken for something of the model that is trained.
train::Teacher open_teacher(const std::string& path, const std::string& model, const Student& student) try {
  return load_teacher(path, model, student);
} catch (const core::Error& error) {
  core::ErrorDetail detail = error.detail();
  detail.problem = "the teacher of --distill_from cannot be used: " + detail.problem;
  throw core::Error(error.code(), detail);
}

}  // namespace trainyard::frontends
