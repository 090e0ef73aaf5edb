// Next to nothing to compute: for measuring everything around the model. Flatten, one unit, 4,096 units, classes.

#include "trainyard/models/registry/layer_defaults.h"

namespace trainyard::models::tf_cnn::trivial {
namespace {

nn::Graph build_trivial(const ModelOptions& options) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = "trivial"});
  auto x = b.flatten("flatten", b.input());
  x = append_linear(b, "affine0", x, 1, true);
  x = append_linear(b, "affine1", x, 4096, true);
  return b.build(append_linear(b, "affine2", x, options.num_classes, false));
}

const ModelRegistration kImagenet(benchmark_model("trivial", DatasetFamily::kImagenet, 227, build_trivial));
const ModelRegistration kCifar10(benchmark_model("trivial", DatasetFamily::kCifar10, 32, build_trivial));
const ModelRegistration kCoco(benchmark_model("trivial", DatasetFamily::kCoco, 300, build_trivial));

}  // namespace
}  // namespace trainyard::models::tf_cnn::trivial
