#include <iostream>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/softmax.h>
#include <fmt/format.h>
#include <fmt/ostream.h>

#include "trainyard/core/base/error.h"
#include "trainyard/data/pipeline/synthetic_source.h"
#include "trainyard/formats/tensors/hdf5.h"
#include "trainyard/frontends/train_ctl/ctl_input.h"
#include "trainyard/frontends/train_ctl/train_ctl.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/import/keras_import.h"

namespace trainyard::frontends {

at::Tensor predict_ctl(const TrainCtlParams& params, const CtlConsole& console) {
  params.validate_for_prediction();
  constexpr int kBatches = 3;
  const formats::Hdf5File file(params.export_path());
  const nn::KerasModel model = nn::read_keras_model(file);
  const nn::Shape images{3, *params.image_height, *params.image_width};
  if (model.graph.input_shape() != images) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the model is for other images than image_height and image_width say",
                       .where = file.path(),
                       .expected = nn::to_string(model.graph.input_shape()),
                       .actual = nn::to_string(images)});
  }
  nn::ParameterSet set;
  const auto executor =
      nn::make_executor("auto", model.graph, {.mode = nn::Mode::kInference, .frozen = true, .parameters = &set});
  set.allocate();
  nn::load_keras_weights(file, model, set);
  set.values_changed();
  data::SyntheticSource source({.batch_size = *params.batch_size,
                                .height = *params.image_height,
                                .width = *params.image_width,
                                .samples = ctl_synthetic_samples(),
                                .seed = params.seed});
  const at::NoGradGuard without_gradients;
  std::vector<at::Tensor> results;
  while (std::ssize(results) < kBatches) {
    if (console.stop.stop_requested()) {
      throw core::Error(core::ErrorCode::kCancelled, "the prediction was stopped");
    }
    const at::Tensor outputs = executor->forward(source.next()[0].images(), {});
    results.push_back(model.softmax ? at::softmax(outputs, 1) : outputs);
  }
  const at::Tensor all = at::cat(results);
  fmt::print(console.out == nullptr ? std::cout : *console.out, "The loaded model predicts {} images.\n", all.size(0));
  return all;
}

}  // namespace trainyard::frontends
