// What continues a run: each object that holds some of it saves and loads itself under names that do not depend on
// the number of replicas or ranks. train/checkpoint walks the list; nobody else knows files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trainyard::core {

class StateWriter {
 public:
  virtual ~StateWriter() = default;

  // Values are copied before the call returns, so the caller may go on training.
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
  // Names of all entries that begin with `prefix`, sorted.
  virtual std::vector<std::string> names(std::string_view prefix = "") const = 0;
  // Copies into `destination`; shape and dtype must be the saved ones.
  virtual void tensor(const std::string& name, at::Tensor& destination) const = 0;
  // A new CPU tensor of the saved shape and dtype.
  virtual at::Tensor tensor(const std::string& name) const = 0;
  virtual int64_t integer(const std::string& name) const = 0;
  virtual double real(const std::string& name) const = 0;
  virtual std::string text(const std::string& name) const = 0;
  // Writes the entry, whatever its kind, under the name `as`: what an object keeps for others without knowing it.
  virtual void copy(const std::string& name, StateWriter& writer, const std::string& as) const = 0;
};

class Stateful {
 public:
  virtual ~Stateful() = default;
  virtual void save(StateWriter& writer) const = 0;
  // After a throw the object must not be used for training.
  virtual void load(const StateReader& reader) = 0;
};

}  // namespace trainyard::core
