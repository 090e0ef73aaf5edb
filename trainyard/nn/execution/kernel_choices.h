// Which of several kernels a run uses where more than one computes the same with other rounding. Part of what the run
// is: saved in its checkpoint and restored before anything is compiled, so that it goes on with the same bits on a
// machine that would choose otherwise; the first rank's hold for all.
//
//   auto choices = std::make_shared<KernelChoices>();
//   BuildContext context{.kernels = {.choices = choices}};    // executors find and add
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "trainyard/core/base/communicator.h"
#include "trainyard/core/base/stateful.h"

namespace trainyard::nn {

// Any thread, several at a time, except for save(), load() and agree(): not while an executor of the run computes.
class KernelChoices : public core::Stateful {
 public:
  // The kernel chosen for `what`. Both are one line of text without tabs: ("float 32x64x56x56 ... forward",
  // "winograd").
  std::optional<std::string> find(const std::string& what) const;
  // Returns what holds: an earlier choice stays.
  std::string add(const std::string& what, const std::string& kernel);
  std::map<std::string, std::string> all() const;

  // Grows when choices were replaced: what was compiled before then is stale.
  uint64_t version() const;

  // "choices", a text; nothing where there are none. Loading replaces all; a state without the text leaves none.
  // kCorruptData for a text that is no list of choices.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

  // Collective: on every rank, those of rank 0 replace all. Throws what a broadcast throws.
  void agree(core::Communicator& ranks);

 private:
  std::string text() const;
  void replace(const std::string& text);

  mutable std::mutex mutex_;
  std::map<std::string, std::string> choices_;
  uint64_t version_ = 0;
};

}  // namespace trainyard::nn
