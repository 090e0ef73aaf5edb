// All that most programs need: networks, batches, optimizers, training, models that predict.
//
//   #include "trainyard/trainyard.h"
//
// One header a room has the same in parts: trainyard/data.h, models.h, nn.h, optim.h, train.h. Each front end has its
// own: trainyard/callback_loop.h, paddle.h, tensorpack.h, tf_cnn.h, train_ctl.h; program.h is the whole program.
// LibTorch's operators, beyond the methods of at::Tensor and core::new_tensor(), have headers of their own, too:
// <ATen/ops/stack.h>.
#pragma once

#include "trainyard/core/base/build_info.h"       // IWYU pragma: export
#include "trainyard/core/base/error.h"            // IWYU pragma: export
#include "trainyard/core/base/tensors.h"          // IWYU pragma: export
#include "trainyard/core/memory/cpu_allocator.h"  // IWYU pragma: export
#include "trainyard/core/random/random.h"         // IWYU pragma: export
#include "trainyard/core/threads/stop_token.h"    // IWYU pragma: export
#include "trainyard/core/threads/thread.h"        // IWYU pragma: export
#include "trainyard/data.h"                       // IWYU pragma: export
#include "trainyard/models.h"                     // IWYU pragma: export
#include "trainyard/nn.h"                         // IWYU pragma: export
#include "trainyard/optim.h"                      // IWYU pragma: export
#include "trainyard/train.h"                      // IWYU pragma: export
