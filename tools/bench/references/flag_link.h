// What shared memory can do at best: up to 56 bytes and a counter on one cache line, polled.
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/comm/communicator.h"
#include "tools/bench/measure/point_to_point.h"

namespace dlaunch::bench {

class FlagLink : public Link {
 public:
  static constexpr std::size_t kMostBytes = 56;

  /// Rank 0 makes a memory file, which rank 1 opens through /proc. Called by ranks 0 and 1 of
  /// `world`. Throws std::system_error.
  explicit FlagLink(Communicator& world);
  ~FlagLink() override;
  FlagLink(const FlagLink&) = delete;
  FlagLink& operator=(const FlagLink&) = delete;

  void send(const std::byte* data, std::size_t bytes) override;
  void receive(std::byte* data, std::size_t bytes) override;

 private:
  struct alignas(128) Cell {
    std::atomic<std::uint64_t> number;
    std::byte payload[kMostBytes];
  };

  Cell* cells_;  // one in each direction
  int own_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

}  // namespace dlaunch::bench
