// Maps names to factories: one template for models, optimizers, callbacks, transforms and data sources.
//
//   using ModelRegistry = core::Registry<std::function<nn::Graph(const ModelOptions&)>>;
//   ModelRegistry& model_registry() {
//     static auto* registry = new ModelRegistry("model");  // never destroyed
//     return *registry;
//   }
//   const core::Registration kLenet(model_registry(), "lenet", build_lenet);  // in lenet.cpp, nothing else to touch
//   const auto& build = model_registry().get("lenet");
//
// An unknown name is an error that lists the known ones and the nearest.
#pragma once

#include <concepts>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::core {

// Returns the known name with the smallest edit distance to `name`, or "" when none is near enough to be meant.
[[nodiscard]] std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

// Returns a kNotFound error: "unknown KIND 'name'; did you mean 'nearest'? known: a, b, c".
[[nodiscard]] Error unknown_name(std::string_view kind, std::string_view name, const std::vector<std::string>& known);

// Writes once for each `former`, to the log, that it is now called `now`.
void note_former_name(std::string_view kind, std::string_view former, std::string_view now);

// Thread-safe. Entries live as long as the registry.
template <typename Entry>
class Registry {
 public:
  // former_names: what entries were called by earlier versions -> their names. has() and get() still know them; get()
  // notes in the log what the name is now.
  explicit Registry(std::string kind, std::map<std::string, std::string> former_names = {})
      : kind_(std::move(kind)), former_names_(std::move(former_names)) {}

  // Throws kInvalidArgument when the name is taken.
  void add(const std::string& name, Entry entry) {
    std::lock_guard lock(mutex_);
    if (!entries_.emplace(name, std::move(entry)).second) {
      throw Error(ErrorCode::kInvalidArgument, kind_ + " '" + name + "' is already registered");
    }
  }
  bool has(const std::string& name) const {
    std::lock_guard lock(mutex_);
    return entries_.contains(current(name));
  }
  // Returns the entry; the reference stays valid. Throws unknown_name() when there is none.
  const Entry& get(const std::string& name) const {
    {
      std::lock_guard lock(mutex_);
      const std::string& now = current(name);
      if (auto found = entries_.find(now); found != entries_.end()) {
        if (now != name) note_former_name(kind_, name, now);
        return found->second;
      }
    }
    throw unknown_name(kind_, name, names());
  }
  // Returns all names, sorted.
  [[nodiscard]] std::vector<std::string> names() const {
    std::lock_guard lock(mutex_);
    std::vector<std::string> result;
    for (const auto& [name, entry] : entries_) result.push_back(name);
    return result;
  }

 private:
  const std::string& current(const std::string& name) const {
    const auto former = former_names_.find(name);
    return former == former_names_.end() || entries_.contains(name) ? name : former->second;
  }

  const std::string kind_;
  const std::map<std::string, std::string> former_names_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

// Adds an entry when the program starts. Define one as a namespace-scope constant in the source that it registers.
template <typename Entry>
class Registration {
 public:
  Registration(Registry<Entry>& registry, const std::string& name, std::type_identity_t<Entry> entry) {
    registry.add(name, std::move(entry));
  }
  template <typename Wrong>
  requires(!std::convertible_to<Wrong, Entry>) Registration(Registry<Entry>&, const std::string&, Wrong&&) {
    static_assert(kRightType<Wrong>,
                  "core::Registration: the last argument is not what this registry keeps, which is the Entry named "
                  "above: a function must take and return just what it says");
  }
};

}  // namespace trainyard::core
TRAINYARD_EXPORT_END
