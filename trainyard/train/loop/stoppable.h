// How a training loop is ended before its last step: by a call, by tokens such as that of a signal, by an agreement of
// several processes, or by an error that something outside of the loop has found.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/export.h"
#include "trainyard/core/threads/stop_token.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

class Stoppable {
 public:
  // Sets a token that ends the running train() and all later ones. More than one may be set.
  void set_stop_token(core::StopToken token);
  // Ends the running train() after this step. Any thread may call it.
  void stop(const std::string& reason);
  // Returns whether the training ends after this step, or has ended early.
  [[nodiscard]] bool stopping() const;
  // When several processes train together, none may end alone: after this call stop() and the tokens only propose the
  // end, and agree_to_stop() ends the training. An error still ends it at once. Call it before train().
  void stop_by_agreement() { by_agreement_ = true; }
  // Returns the token that has requested a stop in this process, or nullopt.
  [[nodiscard]] std::optional<core::StopToken> requested_stop() const;
  void agree_to_stop(core::StopReason why, const std::string& message);
  // Ends the running train() after this step with `error`, also where the step itself throws another one. The first
  // error is kept. Any thread may call it, such as one that watches the training.
  void fail(const core::Error& error);
  // Returns why the last train() was stopped; empty when it was not.
  const std::string& stop_reason() const { return stop_reason_; }
  // Returns whether that was a signal, of this process or of another one that trains with it.
  [[nodiscard]] bool stopped_by_signal() const { return stopped_by_signal_; }

 protected:
  Stoppable() = default;
  ~Stoppable() = default;
  // Forgets why an earlier train() ended. Called at the beginning of train().
  void begin_stoppable();
  // Keeps why the loop ends, for stop_reason() and stopped_by_signal(). Called at its end.
  void note_stop_reason();
  // Returns the first error that fail() was given in this train().
  [[nodiscard]] std::optional<core::Error> failure() const;
  bool stops_by_agreement() const { return by_agreement_; }

 private:
  core::StopSource own_stop_, agreed_stop_;
  bool by_agreement_ = false, stopped_by_signal_ = false;
  std::vector<core::StopToken> stop_tokens_;
  std::string stop_reason_;
  mutable std::mutex failure_mutex_;
  std::optional<core::Error> failure_;
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
