// Tests that need a GPU skip themselves where there is none.
#pragma once

#include <gtest/gtest.h>

#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/nn/execution/accelerator.h"

#define TRAINYARD_NEEDS_GPU() \
  if (::trainyard::nn::accelerator_count("cuda") == 0) GTEST_SKIP() << ::trainyard::core::skip::kNeedsGpu
