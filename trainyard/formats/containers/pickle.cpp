#include "trainyard/formats/containers/pickle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "trainyard/formats/containers/little_endian.h"

namespace trainyard::formats {
namespace {

using Kind = PickleValue::Kind;

// A published batch has about 50,000.
constexpr size_t kMaxInstructions = size_t{1} << 20;
// The most values that calls copy: one long tuple could be copied a hundred thousand times.
constexpr size_t kMaxCopied = 8;

// What pickles of NumPy arrays and of PyTorch's tensors call.
enum class Function : int64_t {
  kReconstruct,
  kNdarray,
  kDtype,
  kEncode,
  kFromBuffer,
  kOrderedDict,
  kRebuildTensor,
  kRebuildParameter,
  kStorageClass,
};

struct NamedFunction {
  std::string_view module;
  std::string_view name;  // empty: any that ends with "Storage"
  Function function;
};

constexpr std::array<NamedFunction, 7> kCifarFunctions = {{
    {"numpy.core.multiarray", "_reconstruct", Function::kReconstruct},
    {"numpy._core.multiarray", "_reconstruct", Function::kReconstruct},  // NumPy 2
    {"numpy", "ndarray", Function::kNdarray},
    {"numpy", "dtype", Function::kDtype},
    {"_codecs", "encode", Function::kEncode},                       // bytes in protocol 2 of Python 3
    {"numpy.core.numeric", "_frombuffer", Function::kFromBuffer},   // protocol 5
    {"numpy._core.numeric", "_frombuffer", Function::kFromBuffer},  // protocol 5, NumPy 2
}};

constexpr std::array<NamedFunction, 4> kTorchFunctions = {{
    {"collections", "OrderedDict", Function::kOrderedDict},
    {"torch._utils", "_rebuild_tensor_v2", Function::kRebuildTensor},
    {"torch._utils", "_rebuild_parameter", Function::kRebuildParameter},
    {"torch", "", Function::kStorageClass},
}};

struct Vocabulary {
  std::span<const NamedFunction> functions;
  // Numbers and storages, as PyTorch writes them: BINFLOAT, LONG1, BINPERSID, and a state for dictionaries.
  bool for_tensors = false;
  std::string_view reader;  // "no ... needs"
  std::string_view remedy;
};

const Vocabulary& vocabulary_of(PickleVocabulary vocabulary) {
  static constexpr Vocabulary kCifar{kCifarFunctions, false, "CIFAR-10 batch",
                                     "use a batch file of CIFAR-10 as it is published"};
  static constexpr Vocabulary kTorch{kTorchFunctions, true, "state dict",
                                     "save the state dict alone: torch.save(model.state_dict(), path)"};
  return vocabulary == PickleVocabulary::kCifarBatch ? kCifar : kTorch;
}

std::string printable(std::string_view text) {
  std::string result(text.substr(0, 60));
  std::replace_if(
      result.begin(), result.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return result;
}

}  // namespace

// Runs the instructions. The values are made in a Pickle; the stack and the memo refer to them.
class PickleMachine {
 public:
  PickleMachine(std::string_view content, const Vocabulary& vocabulary, Pickle& pickle)
      : content_(content), vocabulary_(vocabulary), pickle_(pickle) {}

  const PickleValue* run() {
    for (size_t count = 0; count < kMaxInstructions; ++count) {
      instruction_at_ = place_;
      const char opcode = take(1)[0];
      if (opcode == '.') return pop();
      execute(opcode);
    }
    throw error(fmt::format("pickle has more than {} instructions", kMaxInstructions));
  }

 private:
  core::Error error(std::string problem, std::string expected = "", std::string actual = "") const {
    return {core::ErrorCode::kCorruptData,
            {.problem = std::move(problem),
             .where = fmt::format("offset {}", instruction_at_),
             .expected = std::move(expected),
             .actual = std::move(actual),
             .remedy = std::string(vocabulary_.remedy)}};
  }

  core::Error unknown_instruction(char opcode) const {
    return error(fmt::format("pickle has an instruction that no {} needs", vocabulary_.reader), "",
                 fmt::format("opcode {:#04x} ('{}')", static_cast<unsigned char>(opcode), printable({&opcode, 1})));
  }

  // Reading the content.

  std::string_view take(uint64_t length) {
    if (length > content_.size() - place_) {
      throw error("pickle ends within an instruction", fmt::format("{} further bytes", length),
                  fmt::format("{}", content_.size() - place_));
    }
    const std::string_view taken = content_.substr(place_, length);
    place_ += length;
    return taken;
  }

  template <typename T>
  T number() {
    return load_little_endian<T>(take(sizeof(T)).data());
  }

  std::string_view line() {
    const size_t end = content_.find('\n', place_);
    if (end == std::string_view::npos) throw error("pickle ends within a name");
    const std::string_view taken = take(end - place_);
    take(1);
    return taken;
  }

  // The stack.

  void push(const PickleValue* value) { stack_.push_back(value); }

  PickleValue& make(Kind kind) {
    PickleValue& value = pickle_.values_.emplace_back();
    value.kind = kind;
    return value;
  }

  void push_new(Kind kind, int64_t integer = 0) {
    PickleValue& value = make(kind);
    value.integer = integer;
    push(&value);
  }

  void push_string(std::string_view text) {
    PickleValue& value = make(Kind::kString);
    value.text = text;
    push(&value);
  }

  const PickleValue* pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) throw error("pickle takes a value that is not there");
    const PickleValue* value = stack_.back();
    stack_.pop_back();
    return value;
  }

  // The values since the last mark, which goes.
  std::vector<const PickleValue*> pop_to_mark() {
    if (marks_.empty()) throw error("pickle refers to a mark that is not there");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<const PickleValue*> values(begin, stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return values;
  }

  const PickleValue* pop_kind(Kind kind, std::string_view what) {
    const PickleValue* value = pop();
    if (value->kind != kind) throw error("pickle holds another value than its instruction works on", std::string(what));
    return value;
  }

  void push_tuple(std::vector<const PickleValue*> items) {
    PickleValue& tuple = make(Kind::kTuple);
    tuple.items = std::move(items);
    push(&tuple);
  }

  void push_tuple_of(size_t count) {
    std::vector<const PickleValue*> items(count);
    for (size_t i = count; i > 0; --i) items[i - 1] = pop();
    push_tuple(std::move(items));
  }

  // Adds to the list or dictionary on top of the stack.
  void extend(Kind kind, const std::vector<const PickleValue*>& items) {
    if (kind == Kind::kDictionary && items.size() % 2 != 0) throw error("pickle gives a key without a value");
    const PickleValue* top = pop_kind(kind, kind == Kind::kList ? "a list" : "a dictionary");
    push(top);
    PickleValue& container = mutable_value(top);
    container.items.insert(container.items.end(), items.begin(), items.end());
  }

  // All values are this machine's own until run() returns.
  static PickleValue& mutable_value(const PickleValue* value) { return *const_cast<PickleValue*>(value); }

  // The memo.

  void memoize(uint32_t number) {
    const PickleValue* top = pop();
    push(top);
    memo_[number] = top;
  }

  void recall(uint32_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) throw error("pickle refers to a value that it has not kept");
    push(found->second);
  }

  // Calls of functions, each one of kFunctions.

  void push_function(std::string_view module, std::string_view name) {
    for (const NamedFunction& known : vocabulary_.functions) {
      if (known.module != module || (known.name.empty() ? !name.ends_with("Storage") : known.name != name)) continue;
      push_new(Kind::kFunction, static_cast<int64_t>(known.function));
      mutable_value(stack_.back()).text = name;
      return;
    }
    throw error(fmt::format("pickle refers to code that no {} needs", vocabulary_.reader), "data alone",
                printable(fmt::format("{}.{}", module, name)));
  }

  bool is_function(const PickleValue* value, Function function) const {
    return value->kind == Kind::kFunction && value->integer == static_cast<int64_t>(function);
  }

  void reduce() {
    const std::vector<const PickleValue*>& arguments = pop_kind(Kind::kTuple, "a tuple of arguments")->items;
    const PickleValue* function = pop_kind(Kind::kFunction, "a function");
    const auto is = [&](size_t i, Kind kind) { return i < arguments.size() && arguments[i]->kind == kind; };
    switch (static_cast<Function>(function->integer)) {
      case Function::kReconstruct:  // (ndarray, (0,), b'b'): an empty array, which BUILD fills
        if (arguments.size() == 3 && is_function(arguments[0], Function::kNdarray)) return push_new(Kind::kArray);
        break;
      case Function::kDtype:  // ('u1', False, True)
        if (is(0, Kind::kString)) {
          push_new(Kind::kElementType);
          mutable_value(stack_.back()).text = arguments[0]->text;
          return;
        }
        break;
      case Function::kEncode:  // ('text', 'latin1')
        if (arguments.size() == 2 && is(0, Kind::kString) && is(1, Kind::kString) && arguments[1]->text == "latin1") {
          return push_string(decode_latin1(arguments[0]->text));
        }
        break;
      case Function::kFromBuffer:  // (bytes, dtype, shape, 'C')
        if (arguments.size() == 4 && is(3, Kind::kString) && arguments[3]->text == "C") {
          push_new(Kind::kArray);
          return fill_array(mutable_value(stack_.back()), arguments[2], arguments[1], arguments[0]);
        }
        break;
      case Function::kOrderedDict:
        if (arguments.empty()) return push_new(Kind::kDictionary);
        break;
      case Function::kRebuildTensor:  // (storage, offset, shape, strides, requires_grad, hooks, and since 2.0 metadata)
        if (arguments.size() > kMaxCopied) break;
        push_new(Kind::kTensor);
        mutable_value(stack_.back()).items = arguments;
        return;
      case Function::kRebuildParameter:  // (tensor, requires_grad, hooks)
        if (is(0, Kind::kTensor)) return push(arguments[0]);
        break;
      case Function::kNdarray:
      case Function::kStorageClass:
        break;
    }
    throw error(fmt::format("pickle calls a function as no {} does", vocabulary_.reader));
  }

  // A storage: the tuple on the stack names it.
  void load_persistent() {
    const PickleValue* name = pop_kind(Kind::kTuple, "a tuple");
    if (name->items.empty() || name->items.size() > kMaxCopied || name->items[0]->kind != Kind::kString ||
        name->items[0]->text != "storage") {
      throw error("pickle refers to something beside it that is no storage");
    }
    push_new(Kind::kStorage);
    mutable_value(stack_.back()).items = name->items;
  }

  // Sets the state of an array or of an element type; an OrderedDict's, which holds versions of modules, is dropped.
  void build() {
    if (vocabulary_.for_tensors && stack_.size() >= 2 && stack_[stack_.size() - 2]->kind == Kind::kDictionary) {
      pop();
      return;
    }
    const std::vector<const PickleValue*>& state = pop_kind(Kind::kTuple, "a tuple of state")->items;
    const PickleValue* target = pop();
    push(target);
    if (target->kind == Kind::kElementType)
      return;  // byte order, which bytes do not have, and fields, which u1 has not
    // (version, shape, dtype, is_fortran, bytes)
    if (target->kind != Kind::kArray || state.size() != 5 || state[3]->integer != 0) {
      throw error("pickle gives state to a value that is no array in C order");
    }
    fill_array(mutable_value(target), state[1], state[2], state[4]);
  }

  void fill_array(PickleValue& array, const PickleValue* shape, const PickleValue* type, const PickleValue* bytes) {
    if (type->kind != Kind::kElementType || type->text != "u1") {
      throw error("pickle holds an array of another type", "uint8",
                  type->kind == Kind::kElementType ? printable(type->text) : "");
    }
    if (shape->kind != Kind::kTuple || shape->items.size() > kMaxCopied || bytes->kind != Kind::kString) {
      throw error("pickle holds a malformed array");
    }
    uint64_t count = 1;
    for (const PickleValue* size : shape->items) {
      if (size->kind != Kind::kInteger || size->integer < 0 ||
          __builtin_mul_overflow(count, static_cast<uint64_t>(size->integer), &count)) {
        throw error("pickle holds an array of an impossible shape");
      }
    }
    if (count != bytes->text.size()) {
      throw error("pickle holds an array whose shape and bytes disagree", fmt::format("{} bytes", count),
                  fmt::format("{}", bytes->text.size()));
    }
    array.items = shape->items;
    array.text = bytes->text;
  }

  // Two's complement, lowest byte first. One that int64 cannot hold, such as a checkpoint's random seed, is a real
  // number.
  void push_long(std::string_view bytes) {
    if (bytes.size() > sizeof(int64_t)) {
      push_new(Kind::kReal);
      double& real = mutable_value(stack_.back()).real = static_cast<signed char>(bytes.back());
      for (size_t i = bytes.size() - 1; i > 0; --i) real = real * 256 + static_cast<unsigned char>(bytes[i - 1]);
      return;
    }
    uint64_t value = !bytes.empty() && (bytes.back() & 0x80) != 0 ? ~uint64_t{0} : 0;
    for (size_t i = bytes.size(); i > 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i - 1]);
    push_new(Kind::kInteger, static_cast<int64_t>(value));
  }

  // UTF-8 of code points up to 255 as one byte each.
  std::string_view decode_latin1(std::string_view text) {
    decoded_bytes_ += text.size();
    if (decoded_bytes_ > content_.size()) throw error("pickle decodes more text than it holds");
    std::string& bytes = pickle_.decoded_.emplace_back();
    bytes.reserve(text.size());
    for (size_t i = 0; i < text.size(); ++i) {
      const auto first = static_cast<unsigned char>(text[i]);
      if (first < 0x80) {
        bytes += text[i];
        continue;
      }
      const auto second = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
      if ((first != 0xc2 && first != 0xc3) || (second & 0xc0) != 0x80) {
        throw error("pickle holds text that is not Latin-1");
      }
      bytes += static_cast<char>(((first & 0x03) << 6) | (second & 0x3f));
      ++i;
    }
    return bytes;
  }

  void execute(char opcode);

  const std::string_view content_;
  const Vocabulary& vocabulary_;
  Pickle& pickle_;
  size_t place_ = 0;
  size_t instruction_at_ = 0;
  size_t decoded_bytes_ = 0;
  std::vector<const PickleValue*> stack_;
  std::vector<size_t> marks_;  // heights of the stack
  std::unordered_map<uint32_t, const PickleValue*> memo_;
};

// The instructions, named as in Python's pickletools.
void PickleMachine::execute(char opcode) {
  constexpr std::string_view kForTensors = "G\x8aQ";
  if (!vocabulary_.for_tensors && kForTensors.find(opcode) != std::string_view::npos) {
    throw unknown_instruction(opcode);
  }
  switch (opcode) {
    case '\x80': {  // PROTO
      const int protocol = number<uint8_t>();
      if (protocol < 2 || protocol > 5)
        throw error("pickle is of another protocol", "2 to 5", fmt::format("{}", protocol));
      return;
    }
    case '\x95':  // FRAME: a hint for readers of streams
      take(8);
      return;
    case '(':  // MARK
      return marks_.push_back(stack_.size());
    case 'N':  // NONE
      return push_new(Kind::kNone);
    case '\x88':  // NEWTRUE
      return push_new(Kind::kBoolean, 1);
    case '\x89':  // NEWFALSE
      return push_new(Kind::kBoolean, 0);
    case 'K':  // BININT1
      return push_new(Kind::kInteger, number<uint8_t>());
    case 'M':  // BININT2
      return push_new(Kind::kInteger, number<uint16_t>());
    case 'J':  // BININT
      return push_new(Kind::kInteger, number<int32_t>());
    case 'G': {  // BINFLOAT: the one number in the other byte order
      push_new(Kind::kReal);
      mutable_value(stack_.back()).real = std::bit_cast<double>(__builtin_bswap64(number<uint64_t>()));
      return;
    }
    case '\x8a':  // LONG1
      return push_long(take(number<uint8_t>()));
    case 'U':     // SHORT_BINSTRING
    case 'C':     // SHORT_BINBYTES
    case '\x8c':  // SHORT_BINUNICODE
      return push_string(take(number<uint8_t>()));
    case 'T':  // BINSTRING
    case 'B':  // BINBYTES
    case 'X':  // BINUNICODE
      return push_string(take(number<uint32_t>()));
    case '\x8e':  // BINBYTES8
    case '\x96':  // BYTEARRAY8
      return push_string(take(number<uint64_t>()));
    case '}':  // EMPTY_DICT
      return push_new(Kind::kDictionary);
    case ']':  // EMPTY_LIST
      return push_new(Kind::kList);
    case ')':  // EMPTY_TUPLE
      return push_tuple({});
    case '\x85':  // TUPLE1
    case '\x86':  // TUPLE2
    case '\x87':  // TUPLE3
      return push_tuple_of(static_cast<size_t>(opcode - '\x85') + 1);
    case 't':  // TUPLE
      return push_tuple(pop_to_mark());
    case 'a':  // APPEND
      return extend(Kind::kList, {pop()});
    case 'e':  // APPENDS
      return extend(Kind::kList, pop_to_mark());
    case 's': {  // SETITEM
      const PickleValue* value = pop();
      const PickleValue* key = pop();
      return extend(Kind::kDictionary, {key, value});
    }
    case 'u':  // SETITEMS
      return extend(Kind::kDictionary, pop_to_mark());
    case 'q':  // BINPUT
      return memoize(number<uint8_t>());
    case 'r':  // LONG_BINPUT
      return memoize(number<uint32_t>());
    case '\x94':  // MEMOIZE
      return memoize(static_cast<uint32_t>(memo_.size()));
    case 'h':  // BINGET
      return recall(number<uint8_t>());
    case 'j':  // LONG_BINGET
      return recall(number<uint32_t>());
    case 'c': {  // GLOBAL
      const std::string_view module = line();
      return push_function(module, line());
    }
    case '\x93': {  // STACK_GLOBAL
      const PickleValue* name = pop_kind(Kind::kString, "a function's name");
      return push_function(pop_kind(Kind::kString, "a module's name")->text, name->text);
    }
    case 'R':  // REDUCE
      return reduce();
    case 'b':  // BUILD
      return build();
    case 'Q':  // BINPERSID
      return load_persistent();
    default:
      throw unknown_instruction(opcode);
  }
}

const PickleValue* PickleValue::find(std::string_view key) const {
  if (kind != Kind::kDictionary) return nullptr;
  for (size_t i = items.size(); i >= 2; i -= 2) {
    if (items[i - 2]->kind == Kind::kString && items[i - 2]->text == key) return items[i - 1];
  }
  return nullptr;
}

Pickle Pickle::parse(std::string_view content, PickleVocabulary vocabulary) {
  Pickle pickle;
  pickle.root_ = PickleMachine(content, vocabulary_of(vocabulary), pickle).run();
  return pickle;
}

}  // namespace trainyard::formats
