#include "runtime/base/crash_stack.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <execinfo.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

namespace dlaunch {
namespace {

constexpr std::array kCrashes{SIGSEGV, SIGBUS, SIGILL, SIGFPE};

constexpr int kMostFound = 32;  // the handler's own frames among them
constexpr int kMostShown = 16;  // with the line above them no more than dlaunch's report repeats
constexpr std::size_t kAlternateStackBytes = std::size_t{64} << 10;

/// A line that is put together without allocating. Too long a one is cut.
class Line {
 public:
  Line& add(std::string_view text) {
    const std::size_t bytes = std::min(text.size(), text_.size() - used_);
    std::memcpy(text_.data() + used_, text.data(), bytes);
    used_ += bytes;
    return *this;
  }
  Line& add_address(const void* address) {
    std::array<char, 2 * sizeof(address)> digits;
    std::size_t first = digits.size();
    for (auto rest = reinterpret_cast<std::uintptr_t>(address); rest != 0 || first == digits.size();
         rest /= 16)
      digits[--first] = "0123456789abcdef"[rest % 16];
    return add("0x").add({digits.data() + first, digits.size() - first});
  }
  void print() const {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text_.data(), used_);
  }

 private:
  std::array<char, 256> text_;
  std::size_t used_ = 0;
};

/// By kill(2), raise(3) and the like: nothing is wrong with what the thread does.
bool was_sent(const siginfo_t& about) {
  return about.si_code <= 0;
}

/// What was being done when the signal came; the handler's own frames come before it.
void* interrupted_place(const void* context) {
#if defined(__x86_64__)
  return reinterpret_cast<void*>(
      static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<void*>(static_cast<const ucontext_t*>(context)->uc_mcontext.pc);
#else
  (void)context;
  return nullptr;
#endif
}

void print_stack_from(const void* context) {
  std::array<void*, kMostFound> frames;
  const int count = backtrace(frames.data(), kMostFound);
  void** const end = frames.data() + count;
  void** begin = std::find(frames.data(), end, interrupted_place(context));
  if (begin == end) begin = frames.data();
  backtrace_symbols_fd(begin, std::min(static_cast<int>(end - begin), kMostShown), STDERR_FILENO);
}

void on_crash(int number, siginfo_t* about, void* context) {
  (void)::signal(number, SIG_DFL);  // not by SA_RESETHAND: a later handler may call this one
  Line line;
  line.add("SIG").add(sigabbrev_np(number));
  // The processor gives no address for those beyond the address space.
  const bool has_address = (number == SIGSEGV || number == SIGBUS) && about->si_code != SI_KERNEL;
  if (was_sent(*about))
    line.add(", sent by a process");
  else if (has_address)
    line.add(" at address ").add_address(about->si_addr);
  line.add(", in the thread with this stack (addr2line -Cfe FILE +OFFSET tells the function):\n");
  line.print();
  print_stack_from(context);
  // What went wrong goes wrong again, now without a handler: that is what the kernel's log and a
  // core dump are of.
  if (was_sent(*about)) (void)::raise(number);
}

/// For the calling thread: the handler cannot work on a stack that is used up.
bool give_alternate_stack() {
  alignas(16) static std::array<std::byte, kAlternateStackBytes> memory;
  stack_t current{};
  if (sigaltstack(nullptr, &current) != 0 || (current.ss_flags & SS_DISABLE) == 0) return false;
  const stack_t ours{.ss_sp = memory.data(), .ss_flags = 0, .ss_size = memory.size()};
  return sigaltstack(&ours, nullptr) == 0;
}

void catch_crash(int signal) {
  struct sigaction current {};
  // With SA_SIGINFO a handler is in the other member, which is in the same place.
  if (sigaction(signal, nullptr, &current) != 0 || current.sa_handler != SIG_DFL) return;
  struct sigaction ours {};
  ours.sa_sigaction = on_crash;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  (void)sigaction(signal, &ours, nullptr);
}

}  // namespace

void print_stack_on_crash() {
  [[maybe_unused]] static const bool kGivenOnce = give_alternate_stack();
  // The first call loads a library, which a handler must not.
  std::array<void*, 1> frame;
  backtrace(frame.data(), 1);
  for (const int signal : kCrashes) catch_crash(signal);
}

}  // namespace dlaunch
