#include "tests/cluster_simulation/fiber.h"

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <cxxabi.h>
#include <sys/mman.h>

namespace trainyard::cluster_simulation {
namespace {

constexpr size_t kStackBytes = size_t{1} << 20, kGuardBytes = 4096;  // mapped, and taken page by page

// The public header declares the type and leaves its members out; they are those of the Itanium C++ ABI, 2.2.2.
struct ExceptionGlobals {
  void* caught;
  unsigned int uncaught;
};

}  // namespace

// Keeps the registers that a called function must keep, SSE's rounding and denormals among them, on the stack that is
// left, and takes them from the one that is entered.
extern "C" void trainyard_switch_stack(void** from, void* to);
#if defined(__x86_64__)
asm(R"(
.text
.globl trainyard_switch_stack
.hidden trainyard_switch_stack
.type trainyard_switch_stack, @function
trainyard_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $8, %rsp
  stmxcsr (%rsp)
  fnstcw 4(%rsp)
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  ldmxcsr (%rsp)
  fldcw 4(%rsp)
  addq $8, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size trainyard_switch_stack, .-trainyard_switch_stack
.globl trainyard_begin_fiber
.hidden trainyard_begin_fiber
.type trainyard_begin_fiber, @function
trainyard_begin_fiber:
  movq %rbx, %rdi
  callq *%r12
  ud2
.size trainyard_begin_fiber, .-trainyard_begin_fiber
)");
extern "C" void trainyard_begin_fiber();
#else
#error "the simulation's switch of stacks is written for x86-64"
#endif

Fiber::Fiber(Process& process_of_it, int number_of_it, std::function<void()> body)
    : process(process_of_it), number(number_of_it), body_(std::move(body)) {
  void* const memory = ::mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED || ::mprotect(memory, kGuardBytes, PROT_NONE) != 0) std::abort();
  stack_ = static_cast<std::byte*>(memory);
  // The frame that trainyard_switch_stack() takes: SSE's and x87's control words, r15 to r12, rbx, rbp, and where to
  // go.
  auto* top = reinterpret_cast<uint64_t*>(stack_ + kStackBytes + kGuardBytes - 16);
  *--top = 0;  // the caller of the first function: none; two words, as a stack is aligned before a call
  *--top = 0;
  *--top = reinterpret_cast<uint64_t>(&trainyard_begin_fiber);
  *--top = 0;                                              // rbp
  *--top = reinterpret_cast<uint64_t>(this);               // rbx
  *--top = reinterpret_cast<uint64_t>(&begin);             // r12
  for (int i = 0; i < 3; ++i) *--top = 0;                  // r13 to r15
  constexpr uint64_t kControlWords = 0x0000037f'00001f80;  // the system's for a new thread
  *--top = kControlWords;
  own_place_ = top;
}

Fiber::~Fiber() {
  ::munmap(stack_, kStackBytes + kGuardBytes);
}

void Fiber::begin(Fiber* fiber) {
  fiber->body_();
  std::abort();
}

void Fiber::exchange_state(ThreadState& other) {
  auto* const globals = reinterpret_cast<ExceptionGlobals*>(abi::__cxa_get_globals());
  std::swap(globals->caught, other.caught);
  std::swap(globals->uncaught, other.uncaught);
  std::swap(errno, other.error_number);
}

void Fiber::enter() {
  do {
    exchange_state(own_state_);
    trainyard_switch_stack(&callers_place_, own_place_);
    exchange_state(own_state_);
  } while (serve_fork());
}

void Fiber::leave() {
  trainyard_switch_stack(&own_place_, callers_place_);
}

bool Fiber::begin_fork() {
  in_child_ = true;
  fork_step_ = ForkStep::kKeep;
  leave();
  return in_child_;
}

void Fiber::end_fork() {
  in_child_ = false;
  fork_step_ = ForkStep::kRestore;
  leave();
  std::abort();
}

bool Fiber::serve_fork() {
  switch (std::exchange(fork_step_, ForkStep::kNone)) {
    case ForkStep::kNone:
      return false;
    case ForkStep::kKeep:
      kept_stack_.assign(static_cast<std::byte*>(own_place_), stack_ + kStackBytes + kGuardBytes);
      kept_place_ = own_place_;
      kept_state_ = own_state_;
      return true;
    case ForkStep::kRestore:
      std::memcpy(kept_place_, kept_stack_.data(), kept_stack_.size());
      own_place_ = kept_place_;
      own_state_ = kept_state_;
      return true;
  }
  return false;
}

}  // namespace trainyard::cluster_simulation
