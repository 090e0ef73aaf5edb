#include "trainyard/train/devices/device_room.h"

#include <algorithm>

#include <c10/util/Exception.h>

namespace trainyard::train {

void run_or_explain(nn::Accelerator& accelerator, const DeviceNeeds& needs, const std::function<void()>& work) {
  try {
    work();
  } catch (const c10::OutOfMemoryError&) {
    nn::DeviceMemory memory = accelerator.memory();
    const nn::Accelerator::Refused refused = accelerator.refused();
    memory.used = refused.used;  // the work's tensors have gone with it
    const int64_t room = std::min(memory.limit, memory.held + memory.free);
    throw nn::out_of_device_memory(accelerator.name(), refused.asked, memory, needs.batch,
                                   nn::largest_batch(room, needs.fixed_bytes, needs.bytes_per_image));
  }
}

}  // namespace trainyard::train
