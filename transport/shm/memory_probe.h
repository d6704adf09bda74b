// Whether ranks of a host may read each other's memory with process_vm_readv, and whether that
// pays. Each side offers a MemoryProbe for the other one to read.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace dlaunch {

/// A piece of this process's memory with a known content. Not for concurrent use.
class MemoryProbe {
 public:
  /// The probe that reading is timed with; others may be as short as a word.
  static constexpr std::size_t kTimedBytes = std::size_t{256} << 10;
  static constexpr std::size_t kWordBytes = 8;

  /// Where the system restricts reading to a process's ancestors (Yama), allows it to this
  /// process's siblings as well.
  explicit MemoryProbe(std::size_t bytes);

  std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(memory_.get()); }

 private:
  std::unique_ptr<std::byte[]> memory_;
};

/// True if the probe of the process `pid` can be read.
bool probe_is_readable(pid_t pid, std::uint64_t address);
/// True if reading it, kTimedBytes long, is quick enough to be better than two copies through
/// shared memory.
bool reading_probe_pays(pid_t pid, std::uint64_t address);

}  // namespace dlaunch
