// Captures and graphs: what breaks a capture here breaks it in CUDA (programming guide, "Prohibited and Unhandled
// Operations").
#include <algorithm>
#include <utility>

#include "tests/pretended_cuda/device.h"

namespace trainyard::pretended_cuda {

cudaStreamCaptureMode& Device::thread_mode() {
  thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  return mode;
}

cudaError_t Device::unsafe_call() {
  if (thread_mode() == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  bool disturbs = false;
  for (const auto& capture : captures_) {
    const bool own = capture->thread == std::this_thread::get_id() && capture->mode != cudaStreamCaptureModeRelaxed;
    const bool any = capture->mode == cudaStreamCaptureModeGlobal && thread_mode() == cudaStreamCaptureModeGlobal;
    if (own || any) capture->broken = disturbs = true;
  }
  if (disturbs) count("calls that broke a capture");
  return disturbs ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t Device::waiting_call(const Stream* stream) {
  bool disturbs = false;
  for (const auto& capture : captures_) {
    const bool waits = stream == nullptr || capture == stream->capture ||
                       (stream->legacy && std::any_of(capture->streams.begin(), capture->streams.end(),
                                                      [](const Stream* own) { return own->blocking; }));
    if (!waits) continue;
    capture->broken = disturbs = true;
  }
  if (disturbs) count("calls that broke a capture");
  return disturbs ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

}  // namespace trainyard::pretended_cuda

using trainyard::pretended_cuda::Capture;
using trainyard::pretended_cuda::Device;
using trainyard::pretended_cuda::Graph;
using trainyard::pretended_cuda::Operation;
using trainyard::pretended_cuda::Stream;

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, Device::thread_mode());
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  static uint64_t captures = 0;
  const auto stream = device.stream(handle);
  if (stream == nullptr) return Device::result(cudaErrorInvalidResourceHandle);
  if (stream->legacy) return Device::result(cudaErrorStreamCaptureUnsupported);
  if (stream->capture != nullptr) return Device::result(cudaErrorIllegalState);
  auto capture = std::make_shared<Capture>();
  capture->id = ++captures;
  capture->mode = mode;
  capture->origin = stream.get();
  capture->thread = std::this_thread::get_id();
  capture->streams = {stream.get()};
  stream->capture = capture;
  device.captures().push_back(capture);
  device.count("captures begun");
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  *graph = nullptr;
  const auto stream = device.stream(handle);
  if (stream == nullptr) return Device::result(cudaErrorInvalidResourceHandle);
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return Device::result(cudaErrorIllegalState);
  if (capture->origin != stream.get()) return Device::result(cudaErrorStreamCaptureUnmatched);
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
    return Device::result(cudaErrorStreamCaptureWrongThread);
  }
  for (Stream* joined : capture->streams) joined->capture = nullptr;
  std::erase(device.captures(), capture);
  if (capture->broken) return Device::result(cudaErrorStreamCaptureInvalidated);
  if (!capture->unjoined.empty()) return Device::result(cudaErrorStreamCaptureUnjoined);
  device.count("captures ended");
  *graph = reinterpret_cast<cudaGraph_t>(capture->graph.get());
  device.graphs()[*graph] = std::move(capture->graph);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  const auto stream = device.stream(handle);
  if (stream == nullptr) return Device::result(cudaErrorInvalidResourceHandle);
  *status = stream->capture == nullptr ? cudaStreamCaptureStatusNone
            : stream->capture->broken  ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData**, size_t* count) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  if (const cudaError_t error = cudaStreamIsCapturing(handle, status)) return error;
  const auto stream = device.stream(handle);
  if (id != nullptr) *id = stream->capture == nullptr ? 0 : stream->capture->id;
  if (graph != nullptr && stream->capture != nullptr)
    *graph = reinterpret_cast<cudaGraph_t>(stream->capture->graph.get());
  if (dependencies != nullptr) *dependencies = nullptr;
  if (count != nullptr) *count = 0;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t handle, unsigned long long) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  const auto found = device.graphs().find(handle);
  if (found == device.graphs().end()) return Device::result(cudaErrorInvalidValue);
  auto copy = std::make_unique<Graph>(*found->second);
  const auto copied = reinterpret_cast<cudaGraph_t>(copy.get());
  device.graphs()[copied] = std::move(copy);
  *executable = reinterpret_cast<cudaGraphExec_t>(copied);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  const auto stream = device.stream(handle);
  const auto found = device.graphs().find(reinterpret_cast<cudaGraph_t>(executable));
  if (stream == nullptr || found == device.graphs().end()) return Device::result(cudaErrorInvalidResourceHandle);
  device.count("cudaGraphLaunch");
  for (const Operation& operation : found->second->operations) {
    if (const cudaError_t error = device.hand_over(*stream, operation)) return Device::result(error);
  }
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t*, size_t* count) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  const auto found = device.graphs().find(handle);
  if (found == device.graphs().end()) return Device::result(cudaErrorInvalidValue);
  *count = found->second->operations.size();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  return Device::result(device.graphs().erase(handle) == 1 ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return cudaGraphDestroy(reinterpret_cast<cudaGraph_t>(executable));
}
}
