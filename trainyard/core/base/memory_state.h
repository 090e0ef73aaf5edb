// Keeps a saved state in memory. The entries that an object saved can be read, loaded into another object, or saved
// again.
//
//   MemoryState state;
//   trainer.save(state);
//   other.load(state);
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/core/base/stateful.h"

namespace trainyard::core {

class MemoryState : public StateWriter, public StateReader {
 public:
  // Throws kInternal when a name is saved twice: that is a defect of the object that saves.
  void tensor(const std::string& name, const at::Tensor& value) override { add(name, value.detach().cpu().clone()); }
  void integer(const std::string& name, int64_t value) override { add(name, value); }
  void real(const std::string& name, double value) override { add(name, value); }
  void text(const std::string& name, std::string_view value) override { add(name, std::string(value)); }

  bool has(const std::string& name) const override { return entries_.contains(name); }
  std::vector<std::string> names(std::string_view prefix = "") const override {
    std::vector<std::string> result;
    for (const auto& [name, entry] : entries_) {
      if (std::string_view(name).starts_with(prefix)) result.push_back(name);
    }
    return result;
  }
  void tensor(const std::string& name, at::Tensor& destination) const override {
    const auto& saved = get<at::Tensor>(name);
    if (saved.sizes() != destination.sizes() || saved.scalar_type() != destination.scalar_type()) {
      throw Error(ErrorCode::kCorruptData, {.problem = "a saved tensor has another shape or type", .where = name});
    }
    destination.copy_(saved);
  }
  at::Tensor tensor(const std::string& name) const override { return get<at::Tensor>(name).clone(); }
  int64_t integer(const std::string& name) const override { return get<int64_t>(name); }
  double real(const std::string& name) const override { return get<double>(name); }
  std::string text(const std::string& name) const override { return get<std::string>(name); }
  void copy(const std::string& name, StateWriter& writer, const std::string& as) const override {
    std::visit([&](const auto& value) { write(writer, as, value); }, entry(name));
  }

 private:
  using Entry = std::variant<at::Tensor, int64_t, double, std::string>;

  void add(const std::string& name, Entry entry) {
    if (!entries_.emplace(name, std::move(entry)).second) {
      throw Error(ErrorCode::kInternal, {.problem = "a name was saved twice", .where = name});
    }
  }
  static void write(StateWriter& writer, const std::string& name, const at::Tensor& v) { writer.tensor(name, v); }
  static void write(StateWriter& writer, const std::string& name, int64_t v) { writer.integer(name, v); }
  static void write(StateWriter& writer, const std::string& name, double v) { writer.real(name, v); }
  static void write(StateWriter& writer, const std::string& name, const std::string& v) { writer.text(name, v); }

  const Entry& entry(const std::string& name) const {
    const auto found = entries_.find(name);
    if (found != entries_.end()) return found->second;
    throw Error(ErrorCode::kCorruptData,
                {.problem = "no such entry in the saved state", .where = name, .actual = nearest_name(name, names())});
  }
  template <typename T>
  const T& get(const std::string& name) const {
    if (const T* value = std::get_if<T>(&entry(name))) return *value;
    throw Error(ErrorCode::kCorruptData, {.problem = "a saved entry is of another kind", .where = name});
  }

  std::map<std::string, Entry> entries_;
};

}  // namespace trainyard::core
