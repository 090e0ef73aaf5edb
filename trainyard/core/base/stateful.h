// Saves and loads the state that a run needs to continue. Each object saves and loads its own part, under names that do
// not depend on the number of replicas or ranks. Only train/checkpoint turns the entries into files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::core {

class StateWriter {
 public:
  virtual ~StateWriter() = default;

  // Each call copies its value before it returns, so the caller may continue training.
  virtual void tensor(const std::string& name, const at::Tensor& value) = 0;
  virtual void integer(const std::string& name, int64_t value) = 0;
  virtual void real(const std::string& name, double value) = 0;
  virtual void text(const std::string& name, std::string_view value) = 0;
};

// Each getter throws kCorruptData when the name is missing or of another kind, with the nearest name.
class StateReader {
 public:
  virtual ~StateReader() = default;

  virtual bool has(const std::string& name) const = 0;
  // Returns the names of all entries that begin with `prefix`, sorted.
  [[nodiscard]] virtual std::vector<std::string> names(std::string_view prefix = "") const = 0;
  // Copies the entry into `destination`, which must have the saved shape and dtype.
  virtual void tensor(const std::string& name, at::Tensor& destination) const = 0;
  // Returns a new CPU tensor of the saved shape and dtype.
  [[nodiscard]] virtual at::Tensor tensor(const std::string& name) const = 0;
  virtual int64_t integer(const std::string& name) const = 0;
  virtual double real(const std::string& name) const = 0;
  virtual std::string text(const std::string& name) const = 0;
  // Writes the entry, whatever its kind, to `writer` under the name `as`. In this way an object can keep entries that
  // it does not understand.
  virtual void copy(const std::string& name, StateWriter& writer, const std::string& as) const = 0;
};

class Stateful {
 public:
  virtual ~Stateful() = default;
  virtual void save(StateWriter& writer) const = 0;
  // Reads back what save() wrote. After a throw the object must not be used for training.
  virtual void load(const StateReader& reader) = 0;
};

}  // namespace trainyard::core
TRAINYARD_EXPORT_END
