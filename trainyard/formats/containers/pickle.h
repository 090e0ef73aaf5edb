// Reads Python pickles, as far as CIFAR-10's batches and PyTorch's state dicts need them: dictionaries, lists, tuples,
// strings, numbers, NumPy arrays of bytes and descriptions of tensors, in protocols 2 to 5. A pickle is a program that
// builds its value. Only the instructions for these values are supported, all others are an error that names them, and
// nothing is ever imported or called.
//
//   const formats::Pickle pickle = formats::Pickle::parse(content);
//   const formats::PickleValue* labels = pickle.root().find("labels");
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/error.h"

namespace trainyard::formats {

struct PickleValue {
  enum class Kind : uint8_t {
    kNone,
    kBoolean,  // integer: 0 or 1
    kInteger,
    kReal,
    kString,  // bytes or text alike
    kTuple,
    kList,
    kDictionary,   // items: key, value, key, value
    kFunction,     // one of the few functions that are allowed in a call; integer: which one, text: its name
    kElementType,  // a NumPy dtype; text: "u1"
    kArray,        // a NumPy array in C order; items: the sizes, outermost first; text: the elements
    kStorage,      // PyTorch's: items: "storage", its class, the key of its bytes, device, number of elements
    kTensor,       // PyTorch's: items: storage, first element, shape, strides, and others that are ignored
  };

  Kind kind = Kind::kNone;
  int64_t integer = 0;
  double real = 0;
  std::string_view text;
  std::vector<const PickleValue*> items;

  // Returns the value of a key of a dictionary, the last one of several. Null when there is none, or when this is not a
  // dictionary.
  const PickleValue* find(std::string_view key) const;
};

// The kind of pickle, which decides the functions that it may name.
enum class PickleVocabulary : uint8_t { kCifarBatch, kTorchStateDict };

// A parsed pickle. It owns its values, but the bytes of strings stay in the content.
class Pickle {
 public:
  // Parses a pickle; `content` must outlive the result. Throws kCorruptData with the offset of the instruction that is
  // malformed or not allowed. Memory is bounded: 2^20 instructions, 8 sizes of an array, and no more decoded text than
  // the content has bytes.
  static Pickle parse(std::string_view content, PickleVocabulary vocabulary = PickleVocabulary::kCifarBatch);

  const PickleValue& root() const { return *root_; }

 private:
  friend class PickleMachine;

  std::deque<PickleValue> values_;   // never move, so that values can refer to each other, even in circles
  std::deque<std::string> decoded_;  // bytes that the content holds as Latin-1 text in UTF-8
  const PickleValue* root_ = nullptr;
};

}  // namespace trainyard::formats
