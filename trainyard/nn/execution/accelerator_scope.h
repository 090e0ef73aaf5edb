// The devices to which a thread's work goes.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {

// Directs the calling thread's work to devices as long as it lives. It must end on the thread on which it began, and
// restores what was current before. A default-constructed one means the CPU and changes nothing.
class [[nodiscard]] AcceleratorScope {
 public:
  AcceleratorScope() = default;
  ~AcceleratorScope() { end(); }
  AcceleratorScope(AcceleratorScope&& other) noexcept : guards_(std::move(other.guards_)) {}
  AcceleratorScope& operator=(AcceleratorScope&& other) noexcept {
    if (this != &other) {
      end();
      guards_ = std::move(other.guards_);
    }
    return *this;
  }
  AcceleratorScope(const AcceleratorScope&) = delete;
  AcceleratorScope& operator=(const AcceleratorScope&) = delete;

  // Makes a Guard from `arguments`, whose destructor ends the use. For implementations of Accelerator.
  template <typename Guard, typename... Arguments>
  static AcceleratorScope by(Arguments&&... arguments) {
    AcceleratorScope use;
    use.guards_.push_back(std::make_unique<HeldGuard<Guard>>(std::forward<Arguments>(arguments)...));
    return use;
  }
  // Adds another use, which ends before the existing ones.
  void add(AcceleratorScope other) {
    for (auto& guard : other.guards_) guards_.push_back(std::move(guard));
    other.guards_.clear();
  }
  // Returns whether the thread's work goes to a device.
  [[nodiscard]] bool active() const { return !guards_.empty(); }

 private:
  struct Held {
    virtual ~Held() = default;
  };
  template <typename Guard>
  struct HeldGuard : Held {
    template <typename... Arguments>
    explicit HeldGuard(Arguments&&... arguments) : guard(std::forward<Arguments>(arguments)...) {}
    Guard guard{};
  };
  void end() {
    while (!guards_.empty()) guards_.pop_back();
  }
  std::vector<std::unique_ptr<Held>> guards_;
};

}  // namespace trainyard::nn
TRAINYARD_EXPORT_END
