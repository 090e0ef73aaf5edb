// Networks: graphs and their builder, parameters, executors, losses, layers of one's own and modules of LibTorch as
// nodes.
#pragma once

#include "trainyard/nn/execution/executor.h"              // IWYU pragma: export
#include "trainyard/nn/execution/libtorch_convolution.h"  // IWYU pragma: export
#include "trainyard/nn/execution/loss.h"                  // IWYU pragma: export
#include "trainyard/nn/execution/multibox_loss.h"         // IWYU pragma: export
#include "trainyard/nn/execution/parameter_set.h"         // IWYU pragma: export
#include "trainyard/nn/execution/patch_whitening.h"       // IWYU pragma: export
#include "trainyard/nn/export/write_onnx.h"               // IWYU pragma: export
#include "trainyard/nn/graph/custom_layer.h"              // IWYU pragma: export
#include "trainyard/nn/graph/graph.h"                     // IWYU pragma: export
#include "trainyard/nn/graph/ops.h"                       // IWYU pragma: export
#include "trainyard/nn/graph/quantization.h"              // IWYU pragma: export
#include "trainyard/nn/quantization/quantized_model.h"    // IWYU pragma: export
