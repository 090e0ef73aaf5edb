#include "trainyard/frontends/train_ctl/train_ctl.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/optim/optimizers/optimizer_options.h"

namespace trainyard::frontends {

CtlModelFunction ctl_zoo_model(const std::string& name, nn::Size2d image_size) {
  const std::string full = name == "resnet50" || name == "trivial" ? "dali/" + name : name;
  return [full, image_size](int64_t num_classes, int64_t) {
    constexpr double kL2 = 1e-4;
    CtlModel model{.graph =
                       models::build_model(full, "imagenet", {.num_classes = num_classes, .image_size = image_size})};
    model.graph.name = full;
    model.regularization = optim::keras_l2(model.graph, kL2);
    return model;
  };
}

}  // namespace trainyard::frontends
