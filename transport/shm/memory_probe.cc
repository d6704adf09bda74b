#include "transport/shm/memory_probe.h"

#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>

#include "runtime/base/deadline.h"

namespace dlaunch {
namespace {

constexpr std::byte kContent{0x5a};
// Each takes less than 100 us where reading pays. What starts at the same time may disturb some of
// them, so more follow before it is said not to.
constexpr int kTrials = 8;
constexpr std::chrono::milliseconds kLongestTrials{5};
// The copy that it is compared with stays in the cache of one core. What reading replaces is two
// copies from core to core, which take several times as long.
constexpr int kWorthwhile = 6;

// /proc/sys/kernel/yama/ptrace_scope: 1 restricts reading to ancestors.
bool restricted_to_ancestors() {
  std::ifstream file("/proc/sys/kernel/yama/ptrace_scope");
  int scope = 0;
  return file >> scope && scope == 1;
}

bool read_memory(pid_t pid, std::uint64_t address, std::byte* into, std::size_t bytes) {
  const iovec local{into, bytes};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address in another process
  const iovec remote{reinterpret_cast<void*>(address), bytes};
  return ::process_vm_readv(pid, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

template <typename Copy>
std::chrono::nanoseconds time_of(const Copy& copy) {
  const auto begin = std::chrono::steady_clock::now();
  copy();
  return std::chrono::steady_clock::now() - begin;
}

}  // namespace

MemoryProbe::MemoryProbe(std::size_t bytes)
    : memory_(std::make_unique_for_overwrite<std::byte[]>(bytes)) {
  std::memset(memory_.get(), static_cast<int>(kContent), bytes);
#ifdef PR_SET_PTRACER
  // A process that this one's parent has started may read then: all ranks of a launcher.
  if (restricted_to_ancestors()) ::prctl(PR_SET_PTRACER, ::getppid(), 0, 0, 0);
#endif
}

bool probe_is_readable(pid_t pid, std::uint64_t address) {
  std::byte word[MemoryProbe::kWordBytes] = {};
  return read_memory(pid, address, word, sizeof word) &&
         std::all_of(std::begin(word), std::end(word), [](std::byte b) { return b == kContent; });
}

bool reading_probe_pays(pid_t pid, std::uint64_t address) {
  constexpr std::size_t kBytes = MemoryProbe::kTimedBytes;
  const auto own = std::make_unique<std::byte[]>(kBytes);
  const auto copy = std::make_unique<std::byte[]>(kBytes);
  bool readable = true;
  const auto read = [&] { readable = readable && read_memory(pid, address, copy.get(), kBytes); };
  const auto copy_own = [&] {
    std::memcpy(copy.get(), own.get(), kBytes);
    // The compiler must not take it for useless.
    asm volatile("" : : "r"(copy.get()) : "memory");  // NOLINT
  };
  auto reading = std::chrono::nanoseconds::max();
  auto copying = std::chrono::nanoseconds::max();
  const Deadline end = Deadline::after(kLongestTrials);
  for (int trial = 0;; ++trial) {
    if (trial >= kTrials && reading <= kWorthwhile * copying) return readable;
    if (trial >= kTrials && end.expired()) return false;
    reading = std::min(reading, time_of(read));
    copying = std::min(copying, time_of(copy_own));
  }
}

}  // namespace dlaunch
