// The kernels that a run has selected, where several compute the same with different rounding. The choices are part of
// the run: they are saved in its checkpoint and restored before anything is compiled, so that it continues with the
// same bits on a machine that would choose differently. All ranks use the choices of the first rank.
//
//   auto choices = std::make_shared<KernelChoices>();
//   BuildContext context{.kernels = {.choices = choices}};    // executors find and add
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "trainyard/core/base/stateful.h"

namespace trainyard::nn {

// Any thread may call it, several at a time, except for save(), load() and agree(), which must not run while an
// executor of the run computes.
class KernelChoices : public core::Stateful {
 public:
  // Returns the kernel that was chosen for `what`. Both are one line of text without tabs, such as ("float 32x64x56x56
  // ... forward", "winograd").
  [[nodiscard]] std::optional<std::string> find(const std::string& what) const;
  // Adds a choice and returns the valid one: an earlier choice is kept.
  std::string add(const std::string& what, const std::string& kernel);
  std::map<std::string, std::string> all() const;

  // Returns a number that grows when choices are replaced: anything compiled before is stale.
  [[nodiscard]] uint64_t version() const;

  // Saves a text "choices", and nothing when there are none. Loading replaces all of them; a state without the text
  // leaves none. Throws kCorruptData for a text that is not a list of choices.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

  // Replaces the choices by those of the first rank. `from_first` is collective and returns the text of the first rank.
  void agree(const std::function<std::string(const std::string& own)>& from_first);

 private:
  std::string text() const;
  void replace(const std::string& text);

  mutable std::mutex mutex_;
  std::map<std::string, std::string> choices_;
  uint64_t version_ = 0;
};

}  // namespace trainyard::nn
