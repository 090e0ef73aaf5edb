// NCCL between GPUs that are one: a communicator of a single rank, which does not block. What it is asked for takes its
// place in the stream and is counted; there is nothing to exchange.
#include <cstring>
#include <mutex>

#include "tests/pretended_cuda/pretended_cuda.h"
#include <nccl.h>

struct ncclComm {
  int looks_left = 2;  // at the state of what is in progress
  bool finished = false;
};

namespace {

constexpr int kLooks = 2;

// Guards all communicators: replicas' threads and the watch use them.
std::mutex& mutex() {
  static auto* const all = new std::mutex;
  return *all;
}

// With mutex() held.
ncclResult_t begin(ncclComm_t comm) {
  comm->looks_left = kLooks;
  return ncclInProgress;
}

ncclResult_t collective(const char* name, ncclComm_t comm, cudaStream_t stream) {
  if (comm == nullptr) return ncclInvalidArgument;
  const std::lock_guard lock(mutex());
  if (comm->looks_left > 0) pretended_cuda_mistake("a collective while another call of NCCL is in progress");
  if (comm->finished) pretended_cuda_mistake("a collective after the communicator has ended");
  pretended_cuda_count_call(name);
  return pretended_cuda_launch(name, stream) == cudaSuccess ? begin(comm) : ncclUnhandledCudaError;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id->internal, 'i', sizeof(id->internal));
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  return ncclInProgress;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (size != 1 || rank != 0 || id.internal[0] != 'i' || config->blocking != 0) return ncclInvalidArgument;
  pretended_cuda_count_call("ncclCommInitRankConfig");
  *comm = new ncclComm;
  return ncclInProgress;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::lock_guard lock(mutex());
  pretended_cuda_count_call("ncclCommFinalize");
  comm->finished = true;
  return begin(comm);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  pretended_cuda_count_call("ncclCommDestroy");
  if (!comm->finished || comm->looks_left > 0) {
    pretended_cuda_mistake("ncclCommDestroy of a communicator that has not ended");
  }
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  pretended_cuda_count_call("ncclCommAbort");
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const std::lock_guard lock(mutex());
  if (comm->looks_left > 0) --comm->looks_left;
  *error = comm->looks_left > 0 ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) {
  return "an error of the pretended NCCL";
}
const char* ncclGetLastError(ncclComm_t) {
  return "";
}

ncclResult_t ncclAllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t comm,
                           cudaStream_t stream) {
  return collective("ncclAllReduce", comm, stream);
}
ncclResult_t ncclBroadcast(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclBroadcast", comm, stream);
}
ncclResult_t ncclAllGather(const void* own, void* all, size_t bytes, ncclDataType_t, ncclComm_t comm,
                           cudaStream_t stream) {
  cudaMemcpyAsync(all, own, bytes, cudaMemcpyDeviceToDevice, stream);
  return collective("ncclAllGather", comm, stream);
}
}
