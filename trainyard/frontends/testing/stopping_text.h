// A stream's buffer of which a test stops a run by what it prints.
#pragma once

#include <sstream>
#include <string>
#include <utility>

#include "trainyard/core/threads/stop_token.h"

namespace trainyard::frontends {

// What a run prints. Requests its stop, as a signal does, when these words are in it so many times.
class StoppingText : public std::stringbuf {
 public:
  StoppingText(std::string words, int times, core::StopSource& stop)
      : words_(std::move(words)), times_(times), stop_(stop) {}

 protected:
  int sync() override {
    const std::string printed = str();
    int found = 0;
    for (size_t at = printed.find(words_); !words_.empty() && at != std::string::npos;) {
      ++found;
      at = printed.find(words_, at + 1);
    }
    if (found >= times_) stop_.request_stop(core::StopReason::kSignal, "SIGTERM");
    return std::stringbuf::sync();
  }

 private:
  std::string words_;
  int times_;
  core::StopSource& stop_;
};

}  // namespace trainyard::frontends
