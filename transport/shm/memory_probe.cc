#include "transport/shm/memory_probe.h"

#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>

namespace dlaunch {
namespace {

constexpr std::byte kContent{0x5a};
constexpr int kTrials = 8;
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

// The quickest of several trials.
template <typename Copy>
std::chrono::nanoseconds time_of(const Copy& copy) {
  auto best = std::chrono::nanoseconds::max();
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto begin = std::chrono::steady_clock::now();
    copy();
    best = std::min<std::chrono::nanoseconds>(best, std::chrono::steady_clock::now() - begin);
  }
  return best;
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
  const auto reading =
      time_of([&] { readable = readable && read_memory(pid, address, copy.get(), kBytes); });
  const auto copying = time_of([&] {
    std::memcpy(copy.get(), own.get(), kBytes);
    // The compiler must not take it for useless.
    asm volatile("" : : "r"(copy.get()) : "memory");  // NOLINT
  });
  return readable && reading <= kWorthwhile * copying;
}

}  // namespace dlaunch
