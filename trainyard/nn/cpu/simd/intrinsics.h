// The processor's intrinsics, without a warning of the compiler's about its own.
#pragma once

// gcc 12 warns of the undefined operands that its own intrinsics use on purpose (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
