// Why tests are skipped: what this machine or build lacks. ./test.sh allows a skipped test by its reason, which is
// listed in tests/allowed_skips.txt, counts them by it, and rejects all others. For tests only.
//
//   if (accelerator_count("cuda") == 0) GTEST_SKIP() << core::skip::kNeedsGpu;
#pragma once

namespace trainyard::core::skip {

inline constexpr const char* kNeedsGpu = "needs a GPU";
inline constexpr const char* kNeedsNoGpu = "needs a machine without a GPU";
inline constexpr const char* kNeedsNoNccl = "needs a build without NCCL";
inline constexpr const char* kNeedsImageFormats = "needs a build with all image formats";
inline constexpr const char* kNeedsGrpc = "needs a build with gRPC (libgrpc++-dev, protobuf-compiler-grpc)";
// The processor lacks it, or TRAINYARD_MAX_CPU_ISA hides it.
inline constexpr const char* kNeedsAvx512 = "needs a processor with AVX-512";
inline constexpr const char* kNeedsAvx512Bf16 = "needs a processor with AVX512_BF16";
inline constexpr const char* kNeedsAmx = "needs a processor with AMX";
// Other programs disturb what the program measures of its kernels.
inline constexpr const char* kNeedsIdleProcessor = "needs an idle processor";
// AddressSanitizer must see every block.
inline constexpr const char* kNeedsOwnAllocator = "needs a build without AddressSanitizer";
// ThreadSanitizer does not see libgomp's synchronisation and reports correct teams.
inline constexpr const char* kNeedsOpenMpTeams = "needs a build without ThreadSanitizer";

// core/testing/test_data.h has the reason for data from outside the tree, scripts/test_python the one for what the
// tests' own Python lacks.

}  // namespace trainyard::core::skip
