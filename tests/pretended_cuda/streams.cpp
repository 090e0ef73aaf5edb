// Streams and events. What a stream is given is done when somebody waits for it, and not before.
#include <cstdlib>
#include <utility>

#include "tests/pretended_cuda/device.h"

namespace trainyard::pretended_cuda {

std::shared_ptr<Stream> Device::stream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread) return legacy_;
  const auto found = streams_.find(handle);
  return found == streams_.end() ? nullptr : found->second;
}

cudaStream_t Device::add_stream(bool blocking) {
  const auto stream = std::make_shared<Stream>();
  stream->number = static_cast<uint32_t>(streams_.size()) + 1;
  stream->blocking = blocking;
  const auto handle = reinterpret_cast<cudaStream_t>(stream.get());
  streams_[handle] = stream;
  return handle;
}

cudaError_t Device::remove_stream(cudaStream_t handle) {
  const auto found = streams_.find(handle);
  if (found == streams_.end()) return cudaErrorInvalidResourceHandle;
  finish(*found->second);  // CUDA lets it finish by itself
  streams_.erase(found);
  return cudaSuccess;
}

cudaError_t Device::hand_over(Stream& stream, Operation operation) {
  if (stream.capture != nullptr) {
    if (stream.capture->broken) return cudaErrorStreamCaptureInvalidated;
    stream.capture->graph->operations.push_back(std::move(operation));
    if (stream.capture->origin != &stream) stream.capture->unjoined.insert(&stream);
    return cudaSuccess;
  }
  // The default stream and the blocking ones wait for each other.
  const auto behind = [&](Stream& other) {
    if (other.done == other.handed) return;
    stream.waiting.push_back({.wait_for = {other.shared_from_this(), other.handed}});
    ++stream.handed;
  };
  if (stream.legacy) {
    for (const auto& [handle, other] : streams_) {
      if (!other->blocking) continue;
      // A blocking stream's capture does not survive work for the default stream.
      if (other->capture != nullptr) return cudaErrorStreamCaptureImplicit;
      behind(*other);
    }
  } else if (stream.blocking) {
    behind(*legacy_);
  }
  stream.waiting.push_back(std::move(operation));
  ++stream.handed;
  return cudaSuccess;
}

void Device::advance(Stream& stream, int64_t position) {
  while (stream.done < position) {
    const Operation operation = std::move(stream.waiting.front());
    stream.waiting.pop_front();
    if (operation.wait_for.stream != nullptr) advance(*operation.wait_for.stream, operation.wait_for.position);
    if (operation.run) operation.run();
    ++clock_;
    if (operation.event != nullptr) operation.event->time = clock_;
    ++stream.done;
  }
}

void Device::finish_all() {
  finish(*legacy_);
  for (const auto& [handle, stream] : streams_) finish(*stream);
}

Event* Device::event(cudaEvent_t handle) {
  const auto found = events_.find(handle);
  return found == events_.end() ? nullptr : found->second.get();
}

cudaEvent_t Device::add_event(bool timing) {
  auto event = std::make_unique<Event>();
  event->timing = timing;
  const auto handle = reinterpret_cast<cudaEvent_t>(event.get());
  events_[handle] = std::move(event);
  return handle;
}

cudaError_t Device::remove_event(cudaEvent_t handle) {
  const auto found = events_.find(handle);
  if (found == events_.end()) return cudaErrorInvalidResourceHandle;
  // What is still to pass it has its address.
  Event& event = *found->second;
  if (event.recorded.stream != nullptr && event.captured == nullptr) {
    advance(*event.recorded.stream, event.recorded.position);
  }
  events_.erase(found);
  return cudaSuccess;
}

bool Device::passed(const Event& event) const {
  return event.recorded.stream == nullptr || event.recorded.stream->done >= event.recorded.position;
}

}  // namespace trainyard::pretended_cuda

using trainyard::pretended_cuda::Device;
using trainyard::pretended_cuda::Event;
using trainyard::pretended_cuda::Place;
using trainyard::pretended_cuda::Stream;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  *stream = device.add_stream(flags != cudaStreamNonBlocking);
  return Device::result(cudaSuccess);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  return Device::result(device.remove_stream(stream));
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  device.count("cudaStreamSynchronize");
  const auto stream = device.stream(handle);
  if (stream == nullptr) return Device::result(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = device.waiting_call(stream.get())) return Device::result(error);
  device.finish(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  const auto stream = device.stream(handle);
  if (stream == nullptr) return Device::result(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = device.waiting_call(stream.get())) return Device::result(error);
  if (stream->done == stream->handed) return cudaSuccess;
  device.advance(*stream, stream->done + 1);  // who asks again and again gets an end
  return Device::result(cudaErrorNotReady);
}
cudaError_t cudaDeviceSynchronize() {
  Device& device = Device::instance();
  const auto lock = device.lock();
  device.count("cudaDeviceSynchronize");
  if (const cudaError_t error = device.waiting_call(nullptr)) return Device::result(error);
  device.finish_all();
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  *event = device.add_event((flags & cudaEventDisableTiming) == 0);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  return Device::result(device.remove_event(event));
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  const auto stream = device.stream(stream_handle);
  Event* const event = device.event(handle);
  if (stream == nullptr || event == nullptr) return Device::result(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) {
    if (stream->capture->broken) return Device::result(cudaErrorStreamCaptureInvalidated);
    event->captured = stream->capture;
    event->captured_stream = stream.get();
    event->recorded = {};
    return cudaSuccess;
  }
  const cudaError_t error = device.hand_over(*stream, {.event = event});
  if (error == cudaSuccess) {
    event->captured = nullptr;
    event->recorded = {stream, stream->handed};
  }
  return Device::result(error);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int) {
  return cudaEventRecord(event, stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned int) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  const auto stream = device.stream(handle);
  const Event* const event = device.event(event_handle);
  if (stream == nullptr || event == nullptr) return Device::result(cudaErrorInvalidResourceHandle);
  if (event->captured != nullptr) {  // joins that capture, or has to be in it
    if (event->captured->broken) return Device::result(cudaErrorStreamCaptureInvalidated);
    if (stream->capture == nullptr) {
      stream->capture = event->captured;
      stream->capture->streams.push_back(stream.get());
    }
    if (stream->capture != event->captured) return Device::result(cudaErrorStreamCaptureMerge);
    stream->capture->unjoined.erase(event->captured_stream);
    if (stream->capture->origin != stream.get()) stream->capture->unjoined.insert(stream.get());
    return cudaSuccess;
  }
  if (stream->capture != nullptr) {  // on work outside of the capture, it cannot wait
    stream->capture->broken = true;
    return Device::result(cudaErrorStreamCaptureIsolation);
  }
  if (event->recorded.stream == nullptr) {
    device.count("waits for an event that was never recorded");
    return cudaSuccess;
  }
  return Device::result(device.hand_over(*stream, {.wait_for = event->recorded}));
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  Event* const event = device.event(handle);
  if (event == nullptr) return Device::result(cudaErrorInvalidResourceHandle);
  if (event->captured != nullptr) return Device::result(cudaErrorCapturedEvent);
  if (const cudaError_t error = device.unsafe_call()) return Device::result(error);
  if (device.passed(*event)) return cudaSuccess;
  device.advance(*event->recorded.stream, event->recorded.stream->done + 1);
  return Device::result(cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  device.count("cudaEventSynchronize");
  Event* const event = device.event(handle);
  if (event == nullptr) return Device::result(cudaErrorInvalidResourceHandle);
  if (event->captured != nullptr) return Device::result(cudaErrorCapturedEvent);
  if (const cudaError_t error = device.unsafe_call()) return Device::result(error);
  if (event->recorded.stream != nullptr) device.advance(*event->recorded.stream, event->recorded.position);
  return cudaSuccess;
}
// A thousandth of a millisecond an operation.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin_handle, cudaEvent_t end_handle) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  const Event* const begin = device.event(begin_handle);
  const Event* const end = device.event(end_handle);
  const auto timed = [](const Event* event) { return event != nullptr && event->timing && event->recorded.stream; };
  if (!timed(begin) || !timed(end)) return Device::result(cudaErrorInvalidResourceHandle);
  if (!device.passed(*begin) || !device.passed(*end)) return Device::result(cudaErrorNotReady);
  *milliseconds = static_cast<float>(end->time - begin->time) * 1e-3F;
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  const auto stream = device.stream(handle);
  if (stream == nullptr) return Device::result(cudaErrorInvalidResourceHandle);
  return Device::result(device.hand_over(*stream, {.run = [=] { function(data); }}));
}
cudaError_t cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t function, void* data, unsigned int) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  const auto stream = device.stream(handle);
  if (stream == nullptr) return Device::result(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) return Device::result(cudaErrorStreamCaptureUnsupported);
  return Device::result(device.hand_over(*stream, {.run = [=] { function(handle, cudaSuccess, data); }}));
}
}
