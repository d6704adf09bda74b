// What tests of failures do on a rank of a fake device.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/device/fake_ranks.h"
#include "tests/support/soon.h"

namespace dlaunch::testing {

/// Device memory full of ones.
class Ones {
 public:
  Ones(FakeRank& rank, std::size_t count)
      : memory_(rank.device->allocate(count * sizeof(float)).value_or_throw()), count_(count) {
    std::fill_n(values(), count, 1.0F);
  }
  Buffer buffer() { return {memory_.get(), count_, DType::kF32}; }
  float* values() { return static_cast<float*>(memory_.get()); }

 private:
  std::shared_ptr<void> memory_;
  std::size_t count_;
};

/// What calls return once the communicator has failed; ok if it has not soon enough.
inline Status failure_of(FakeRank& rank) {
  Communicator& comm = *rank.communicator;
  const std::vector<float> nothing;
  std::vector<float> received;
  const Deadline deadline = Deadline::after(kPromptly);
  while (!deadline.expired()) {
    // A message to oneself needs no other rank.
    Status status = comm.send(nothing, comm.rank());
    if (status.ok()) status = comm.recv(received, comm.rank());
    if (!status.ok()) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return Status();
}

inline void expect_the_streams_run_on(FakeRank& rank) {
  EXPECT_TRUE(rank.device->synchronise()) << "the compute stream still waits";
}

/// Between rank 0 and so on, which have called, and the last rank, which goes on when all have.
inline void tell_the_last_rank(Communicator& comm) {
  const int last = comm.size() - 1;
  std::vector<std::int32_t> word(1);
  if (comm.rank() != last) {
    EXPECT_TRUE(comm.send(word, last).ok());
    return;
  }
  for (int other = 0; other < last; ++other) EXPECT_TRUE(comm.recv(word, other).ok());
}

}  // namespace dlaunch::testing
