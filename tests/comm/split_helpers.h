// Splitting, with the checks that every test of it makes.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"

namespace dlaunch::testing {

/// The part of `comm` that this rank is in; nullptr if in none.
inline std::unique_ptr<Communicator> split(Communicator& comm, int color, int key = 0) {
  auto part = comm.split(color, key);
  EXPECT_TRUE(part.ok()) << part.status().to_string();
  return part.ok() ? *std::move(part) : nullptr;
}

/// As many as the world has ranks, if it works.
inline std::int64_t sum_of_ones(Communicator& comm) {
  std::vector<std::int64_t> data{1};
  const Status status = comm.all_reduce(data);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return data[0];
}

}  // namespace dlaunch::testing
