// What a process prints that crashes.
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/crash_stack.h"
#include "tests/support/sanitized.h"

namespace dlaunch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::KilledBySignal;
using ::testing::Not;

// A function takes no more than this, as long as it does nothing else.
constexpr std::uintptr_t kMostCode = 256;

/// A value that compilers know nothing of, so that they make no function of their own for it.
template <typename T>
T hidden(T value) {
  volatile T unknown = value;
  return unknown;
}

[[gnu::noinline]] void write_to(volatile int* place) {
  *place = 1;
}

// Each call needs what it has of the stack after the next one.
[[gnu::noinline]] int use_up_stack(int depth) {
  volatile char used[4096] = {};
  used[depth % 4096] = 1;
  return depth > 1 << 30 ? 0 : use_up_stack(depth + 1) + used[(depth + 7) % 4096];
}

[[gnu::noinline]] int divide(int what, int by) {
  return what / by;
}

/// Where the first of the frames is that `text` has: "program(+0x12)[0x5512]".
std::uintptr_t first_frame(const std::string& text) {
  std::istringstream lines(text.substr(std::min(text.size(), text.find("this stack"))));
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  const auto begin = line.find('[');
  return begin == std::string::npos ? 0 : std::strtoull(line.c_str() + begin + 1, nullptr, 16);
}

template <typename Function>
auto begins_in(Function* function) {
  const auto start = reinterpret_cast<std::uintptr_t>(function);
  return ::testing::ResultOf(first_frame,
                             AllOf(::testing::Ge(start), ::testing::Lt(start + kMostCode)));
}

class CrashStack : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::kSanitized) GTEST_SKIP() << "sanitizers tell of crashes themselves";
  }
};

TEST_F(CrashStack, BeginsWhereABadAddressWasWrittenTo) {
  const auto crash = [] {
    print_stack_on_crash();
    print_stack_on_crash();
    write_to(hidden(reinterpret_cast<int*>(0x1c)));
  };
  EXPECT_EXIT(crash(), KilledBySignal(SIGSEGV),
              AllOf(HasSubstr("SIGSEGV at address 0x1c, in the thread with this stack "),
                    begins_in(write_to)));
}

TEST_F(CrashStack, NamesNoAddressThatTheProcessorDoesNotGive) {
  const auto crash = [] {
    print_stack_on_crash();
    write_to(hidden(reinterpret_cast<int*>(std::uintptr_t{1} << 62)));
  };
  EXPECT_EXIT(crash(), KilledBySignal(SIGSEGV),
              AllOf(HasSubstr("SIGSEGV, in the thread"), begins_in(write_to)));
}

TEST_F(CrashStack, IsPrintedWhenItIsUsedUp) {
  const auto crash = [] {
    print_stack_on_crash();
    std::_Exit(use_up_stack(hidden(0)));
  };
  EXPECT_EXIT(crash(), KilledBySignal(SIGSEGV),
              AllOf(HasSubstr("SIGSEGV at address 0x7f"), begins_in(use_up_stack)));
}

TEST_F(CrashStack, IsThatOfADivision) {
  const auto crash = [] {
    print_stack_on_crash();
    std::_Exit(divide(hidden(7), hidden(0)));
  };
  EXPECT_EXIT(crash(), KilledBySignal(SIGFPE), AllOf(HasSubstr("SIGFPE, in"), begins_in(divide)));
}

TEST_F(CrashStack, DoesNotKeepASignalFromEndingTheProcess) {
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) {
    const auto crash = [&] {
      print_stack_on_crash();
      raise(signal);
      std::_Exit(0);
    };
    EXPECT_EXIT(crash(), KilledBySignal(signal), HasSubstr(", sent by a process, in the thread"));
  }
}

TEST_F(CrashStack, LeavesTheProgramsHandlersAlone) {
  const auto crash = [] {
    (void)signal(SIGSEGV, [](int) { std::_Exit(7); });
    (void)signal(SIGBUS, SIG_IGN);
    print_stack_on_crash();
    raise(SIGBUS);
    raise(SIGSEGV);
  };
  EXPECT_EXIT(crash(), ::testing::ExitedWithCode(7), Not(HasSubstr("SIG")));
}

}  // namespace
}  // namespace dlaunch
