#include "trainyard/frontends/tf_cnn/whitening.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/frontends/input/image_source.h"
#include "trainyard/nn/execution/patch_whitening.h"

namespace trainyard::frontends {
namespace {

constexpr int64_t kWhitenedAtOnce = 500;  // images of a batch

core::Error no_whitening(std::string problem, std::string remedy) {
  return {core::ErrorCode::kInvalidArgument,
          {.problem = std::move(problem), .where = "--whiten_images", .remedy = std::move(remedy)}};
}

std::shared_ptr<nn::PatchWhitening> whitening_of(const nn::Graph& graph) {
  try {
    return std::make_shared<nn::PatchWhitening>(graph);
  } catch (const core::Error& error) {
    throw error.in("--whiten_images");
  }
}

}  // namespace

std::function<void(nn::ParameterSet&)> make_whitening(const PreparedRun& run) {
  const int64_t images = run.options.whiten_images;
  if (images == 0) return {};
  const auto whitening = whitening_of(run.graph);
  if (run.train_data == nullptr) {
    throw no_whitening("there are no training images to whiten by", "pass --data_dir, or leave --whiten_images out");
  }
  if (!run.options.weights.empty() || !run.options.backbone_model_path.empty()) {
    throw no_whitening("initial weights have a first convolution of their own",
                       "leave --whiten_images out, and freeze that one by --freeze");
  }
  if (!run.device.accelerators.empty()) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "the first convolution is whitened and frozen on the CPU alone",
                       .where = "--whiten_images",
                       .remedy = "pass --device=cpu"});
  }
  if (run.saved.continues) return {};
  const ImageSourceOptions wanted{.dataset = run.train_data,
                                  .num_classes = run.num_classes,
                                  .batch_size = std::min(images, kWhitenedAtOnce),
                                  .training = false,
                                  .repeat = false,
                                  .epoch_size = run.train_examples,
                                  .label_texts = std::make_shared<data::LabelTexts>()};
  InputSettings input = run.input;
  input.epoch_sizes.clear();
  return [whitening, input, wanted, images, device = run.device](nn::ParameterSet& parameters) {
    const std::shared_ptr<data::BatchSource> source = make_image_source(input, device, wanted);
    int64_t missing = images;
    while (missing > 0) {
      const std::vector<data::Batch> batches = source->next();
      if (batches.empty() || batches.front().samples() == 0) break;
      const at::Tensor& read = batches.front().images();
      const int64_t taken = std::min(missing, read.size(0));
      whitening->add(read.narrow(0, 0, taken).to(at::kFloat));
      missing -= taken;
    }
    source->stop();
    const at::NoGradGuard no_grad;
    const nn::ParameterId weight = *parameters.find(whitening->weight());
    parameters.value(weight).copy_(whitening->filters());
    parameters.values_changed();
    core::log::info("{} whitens the patches of {} training images", whitening->weight(), images - missing);
  };
}

}  // namespace trainyard::frontends
