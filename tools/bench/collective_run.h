// One collective with its buffers, ready to be repeated and checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/comm/communicator.h"
#include "tools/bench/options.h"

namespace dlaunch::bench {

class CollectiveRun {
 public:
  /// `count` elements of the greatest buffer involved. Where that is divided among the ranks it is
  /// rounded down to a multiple of their number (but at least one element for each).
  CollectiveRun(Communicator& world, const Options& options, Algorithm algorithm,
                std::size_t count);

  std::size_t count() const { return count_; }

  /// Fresh values in the input; nothing of the former result is left in the output.
  void prepare(std::uint64_t repetition);
  /// Zeros in the input, for operations back to back: sums of sums would overflow.
  void clear();
  void run();
  /// The greatest relative error of what this rank received.
  double error(std::uint64_t repetition) const;

 private:
  // Bytes from the heap or from the communicator.
  class Memory {
   public:
    void allocate(Communicator& world, std::size_t bytes, bool shared);
    std::span<std::byte> bytes();

   private:
    std::vector<std::byte> heap_;
    SharedMemory shared_;
  };

  bool receives() const;

  Communicator& world_;
  CollectiveCall call_;
  std::size_t count_;
  Memory input_;
  Memory output_;  // empty: in place
};

/// Bytes that each rank's link carries, relative to the bytes of the operation, in the best
/// algorithm: what turns algorithm bandwidth into bus bandwidth (as nccl-tests define it).
double bus_factor(CollectiveKind kind, int ranks);

}  // namespace dlaunch::bench
