// SharedHeap: hands out pieces of this rank's part of a shared segment, first fit, in whole pages.
//
// What it knows about the pieces lies outside of the segment, where other ranks cannot spoil it.
// Pages of a freed piece are given back to the system. Any thread may call any member.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "runtime/base/process_mark.h"
#include "runtime/base/status.h"
#include "runtime/comm/shared_memory.h"

namespace dlaunch {

class SharedHeap : public std::enable_shared_from_this<SharedHeap> {
 public:
  /// `memory` begins at a page and stays mapped until close().
  static std::shared_ptr<SharedHeap> over(std::span<std::byte> memory);

  /// kIo if there is no gap of that size.
  Result<SharedMemory> allocate(std::size_t bytes);

  /// The memory is about to be unmapped: pieces freed from now on are only forgotten.
  void close();

 private:
  explicit SharedHeap(std::span<std::byte> memory);
  void release(std::size_t offset, std::size_t bytes);

  const std::span<std::byte> memory_;
  const ProcessMark process_;
  std::mutex mutex_;
  bool closed_ = false;
  std::map<std::size_t, std::size_t> gaps_;  // offset -> bytes; no two touch
};

/// Memory of this process alone, for ranks that share none. kIo if there is none.
Result<SharedMemory> allocate_plain(std::size_t bytes);

}  // namespace dlaunch
