// The input of well-known training programs, by name, as values for TransformOptions.
#pragma once

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/data/augment/transform.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// Each preset is for images of 224 x 224; TransformOptions::set_size adapts it to other sizes. The transform "imagenet"
// accepts all of them, the other transforms "default" only. In training, all but the first three decode JPEGs at a
// smaller size where the window allows it.
//
//   default                   tf_cnn_benchmarks
//   official_models_imagenet  tensorflow/models, official/r1/resnet: no colours, 256 -> 224, minus channel means
//   resnet_n                  NVIDIA DALI's TensorFlow ResNet-N example without DALI: pixels stay in [0, 255]
//   dali                      the same example with DALI
//   paddle                    NVIDIA DALI's PaddlePaddle ResNet-50 example
//   tensorpack                Tensorpack's ImageNetModels, without its jitter of brightness, contrast and lighting
//   torchvision               torchvision's reference training of 2017, without colours
using InputPresetRegistry = core::Registry<TransformOptions>;
InputPresetRegistry& input_presets();

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
