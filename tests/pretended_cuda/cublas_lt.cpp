// Stands in for cuBLASLt: descriptions are accepted, one algorithm is found for all of them, products are launches
// without effect. Functions are declared with as many of their arguments as are looked at.
#include <cstddef>
#include <cstdint>

#include "tests/pretended_cuda/pretended_cuda.h"

namespace {

constexpr int kSuccess = 0, kExecutionFailed = 13;
constexpr int kVersion = 130000;

// As cublasLt.h has it.
struct HeuristicResult {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};

int make(void** made) {
  *made = new char;
  return kSuccess;
}
int forget(void* made) {
  delete static_cast<char*>(made);
  return kSuccess;
}

}  // namespace

extern "C" {

size_t cublasLtGetVersion() {
  return kVersion;
}
int cublasLtMatmulDescCreate(void** made) {
  return make(made);
}
int cublasLtMatmulDescDestroy(void* made) {
  return forget(made);
}
int cublasLtMatmulDescSetAttribute() {
  return kSuccess;
}
int cublasLtMatrixLayoutCreate(void** made) {
  return make(made);
}
int cublasLtMatrixLayoutDestroy(void* made) {
  return forget(made);
}
int cublasLtMatrixLayoutSetAttribute() {
  return kSuccess;
}
int cublasLtMatmulPreferenceCreate(void** made) {
  return make(made);
}
int cublasLtMatmulPreferenceDestroy(void* made) {
  return forget(made);
}
int cublasLtMatmulPreferenceSetAttribute() {
  return kSuccess;
}
// (handle, operation, a, b, c, d, preference, how many, results, found)
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, HeuristicResult* results,
                                   int* found) {
  *results = {};
  *found = 1;
  return kSuccess;
}
// (handle, operation, alpha, a, its layout, b, its layout, beta, c, its layout, d, its layout, algorithm, workspace,
// bytes, stream)
int cublasLtMatmul(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*,
                   void*, void*, const void*, void*, size_t, cudaStream_t stream) {
  return pretended_cuda_launch("cublasLtMatmul", stream) == cudaSuccess ? kSuccess : kExecutionFailed;
}
}
