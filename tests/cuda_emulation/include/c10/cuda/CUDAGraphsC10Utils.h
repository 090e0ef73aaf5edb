#pragma once

namespace c10::cuda {

enum class CaptureStatus { None };
inline CaptureStatus currentStreamCaptureStatusMayInitCtx() {
  return CaptureStatus::None;
}

}  // namespace c10::cuda
