// That the pretended runtime sees what it is there for.
#include <cstring>
#include <thread>

#include "tests/pretended_cuda/pretended_cuda.h"
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

namespace {

constexpr size_t kBytes = 64;

struct Copies {
  Copies() {
    EXPECT_EQ(cudaMalloc(&device, kBytes), cudaSuccess);
    EXPECT_EQ(cudaMallocHost(reinterpret_cast<void**>(&host), kBytes), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventDefault), cudaSuccess);
    std::memset(host, 1, kBytes);
  }
  ~Copies() {
    cudaStreamDestroy(stream);
    cudaStreamDestroy(other);
    cudaEventDestroy(event);
    cudaFreeHost(host);
    cudaFree(device);
    cudaGetLastError();
  }
  void* device = nullptr;
  char* host = nullptr;
  cudaStream_t stream = nullptr, other = nullptr;
  cudaEvent_t event = nullptr;
};

TEST(Runtime, WorkIsDoneWhenSomebodyWaitsForIt) {
  Copies c;
  cudaMemsetAsync(c.device, 7, kBytes, c.stream);
  cudaMemcpyAsync(c.host, c.device, kBytes, cudaMemcpyDeviceToHost, c.stream);
  cudaEventRecord(c.event, c.stream);
  EXPECT_EQ(c.host[0], 1);
  EXPECT_EQ(cudaStreamQuery(c.stream), cudaErrorNotReady);
  EXPECT_EQ(cudaEventSynchronize(c.event), cudaSuccess);
  EXPECT_EQ(c.host[0], 7);
}

TEST(Runtime, AStreamSeesAnothersWorkOnlyBehindItsEvent) {
  Copies c;
  cudaMemsetAsync(c.device, 7, kBytes, c.stream);
  cudaEventRecord(c.event, c.stream);
  cudaMemcpyAsync(c.host, c.device, kBytes, cudaMemcpyDeviceToHost, c.other);
  cudaStreamSynchronize(c.other);
  EXPECT_NE(c.host[0], 7);
  cudaStreamWaitEvent(c.other, c.event, 0);
  cudaMemcpyAsync(c.host, c.device, kBytes, cudaMemcpyDeviceToHost, c.other);
  cudaStreamSynchronize(c.other);
  EXPECT_EQ(c.host[0], 7);
}

TEST(Runtime, MemoryIsLimitedAndFreedOnce) {
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  void* block = nullptr;
  EXPECT_EQ(cudaMalloc(&block, free + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&block, free), cudaSuccess);
  EXPECT_EQ(cudaFree(block), cudaSuccess);
  const int64_t mistakes = pretended_cuda_count("mistakes");
  EXPECT_EQ(cudaFree(block), cudaErrorInvalidValue);
  EXPECT_EQ(pretended_cuda_count("mistakes"), mistakes + 1);
  cudaGetLastError();
}

TEST(Runtime, ACaptureIsReplayedAndNotDone) {
  Copies c;
  EXPECT_EQ(cudaStreamBeginCapture(c.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  cudaMemsetAsync(c.device, 7, kBytes, c.stream);
  cudaMemcpyAsync(c.host, c.device, kBytes, cudaMemcpyDeviceToHost, c.stream);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(c.stream, &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  EXPECT_EQ(cudaGraphInstantiateWithFlags(&executable, graph, 0), cudaSuccess);
  cudaStreamSynchronize(c.stream);
  EXPECT_EQ(c.host[0], 1);
  for (int i = 0; i < 2; ++i) {
    std::memset(c.host, 1, kBytes);
    EXPECT_EQ(cudaGraphLaunch(executable, c.stream), cudaSuccess);
    cudaStreamSynchronize(c.stream);
    EXPECT_EQ(c.host[0], 7);
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

template <typename Call>
void breaks_a_capture(const char* what, cudaStreamCaptureMode mode, const Call& call) {
  SCOPED_TRACE(what);
  Copies c;
  cudaStreamBeginCapture(c.stream, mode);
  cudaStreamCaptureStatus status{};
  call(c);
  EXPECT_EQ(cudaStreamIsCapturing(c.stream, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(c.stream, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
  cudaGetLastError();
  EXPECT_EQ(cudaStreamSynchronize(c.stream), cudaSuccess);
}

TEST(Runtime, WaitingAndAllocatingBreakACapture) {
  const auto local = cudaStreamCaptureModeThreadLocal;
  breaks_a_capture("stream", local, [](Copies& c) { cudaStreamSynchronize(c.stream); });
  breaks_a_capture("query", local, [](Copies& c) { cudaStreamQuery(c.stream); });
  breaks_a_capture("device", local, [](Copies&) { cudaDeviceSynchronize(); });
  breaks_a_capture("event", local, [](Copies& c) { cudaEventQuery(c.event); });
  breaks_a_capture("copy", local, [](Copies& c) { cudaMemcpy(c.device, c.host, kBytes, cudaMemcpyHostToDevice); });
  breaks_a_capture("pageable", local, [](Copies& c) {
    const char pageable[kBytes] = {};
    cudaMemcpyAsync(c.device, pageable, kBytes, cudaMemcpyHostToDevice, c.stream);
  });
  const auto allocate = [](Copies&) {
    void* block = nullptr;
    EXPECT_EQ(cudaMalloc(&block, kBytes), cudaErrorStreamCaptureUnsupported);
  };
  breaks_a_capture("cudaMalloc", local, allocate);
  breaks_a_capture("another thread's cudaMalloc", cudaStreamCaptureModeGlobal,
                   [&](Copies& c) { std::thread(allocate, std::ref(c)).join(); });
}

TEST(Runtime, OtherThreadsMayAllocateWhileOneCaptures) {
  Copies c;
  cudaStreamBeginCapture(c.stream, cudaStreamCaptureModeThreadLocal);
  std::thread([] {
    void* block = nullptr;
    EXPECT_EQ(cudaMalloc(&block, kBytes), cudaSuccess);
    EXPECT_EQ(cudaFree(block), cudaSuccess);
  }).join();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(c.stream, &graph), cudaSuccess);
  cudaGraphDestroy(graph);
}

TEST(Runtime, AStreamThatJoinsACaptureHasToComeBack) {
  for (const bool joined : {true, false}) {
    Copies c;
    cudaStreamBeginCapture(c.stream, cudaStreamCaptureModeThreadLocal);
    cudaEventRecord(c.event, c.stream);
    EXPECT_EQ(cudaStreamWaitEvent(c.other, c.event, 0), cudaSuccess);
    cudaMemsetAsync(c.device, 7, kBytes, c.other);
    cudaEventRecord(c.event, c.other);
    if (joined) cudaStreamWaitEvent(c.stream, c.event, 0);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(c.stream, &graph), joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
}

}  // namespace
