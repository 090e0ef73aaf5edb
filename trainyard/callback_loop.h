// The loop of callbacks: a training whose every part is a function of the caller (docs/howto/callback_loop.md).
#pragma once

#include "trainyard/frontends/callback_loop/callback_loop.h"  // IWYU pragma: export
#include "trainyard/trainyard.h"                              // IWYU pragma: export
