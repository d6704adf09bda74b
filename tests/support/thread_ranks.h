// Ranks as threads of one process, over the loopback network: the quick way to test what uses a
// Communicator. Where processes matter, use distributed_test.h.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/collective/signature.h"
#include "runtime/comm/endpoint_communicator.h"
#include "transport/loopback/loopback.h"

namespace dlaunch::testing {

struct ThreadRankOptions {
  /// Every wait of the communicators gives up after this.
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);
};

/// The loopback networks of a world of threads: one per lane.
class ThreadWorld {
 public:
  explicit ThreadWorld(int world) {
    for (int lane = 0; lane < kCommunicatorLanes; ++lane) {
      networks_.emplace_back(world, describe_signature);
    }
  }
  /// Once per rank; to be used by one thread per rank.
  std::unique_ptr<Communicator> communicator(int rank, const ThreadRankOptions& options = {}) {
    std::vector<std::unique_ptr<Endpoint>> lanes;
    for (LoopbackNetwork& network : networks_) lanes.push_back(network.endpoint(rank));
    return make_communicator(std::move(lanes), {.timeout = options.timeout}).value_or_throw();
  }
  /// Makes a rank look as if its process had died. Any thread.
  void kill(int rank) {
    for (LoopbackNetwork& network : networks_) network.kill(rank);
  }

 private:
  std::vector<LoopbackNetwork> networks_;
};

/// Runs `body` on `world` threads, each with the communicator of one rank, and waits for all. A
/// rank's communicator is closed as soon as its body ends, so that peers which still need it fail
/// instead of hanging. The first exception out of a body is thrown again when all have ended.
inline void run_threads_as_ranks(ThreadWorld& network, int world,
                                 const std::function<void(Communicator&)>& body,
                                 const ThreadRankOptions& options = {}) {
  std::vector<std::unique_ptr<Communicator>> communicators;
  communicators.reserve(static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    communicators.push_back(network.communicator(rank, options));
  }
  std::mutex mutex;
  std::exception_ptr first;
  const auto run = [&](std::unique_ptr<Communicator> communicator) {
    try {
      body(*communicator);
    } catch (...) {
      const std::scoped_lock lock(mutex);
      if (first == nullptr) first = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(communicators.size());
  for (auto& communicator : communicators) threads.emplace_back(run, std::move(communicator));
  for (std::thread& thread : threads) thread.join();
  if (first != nullptr) std::rethrow_exception(first);
}

inline void run_threads_as_ranks(int world, const std::function<void(Communicator&)>& body,
                                 const ThreadRankOptions& options = {}) {
  ThreadWorld network(world);
  run_threads_as_ranks(network, world, body, options);
}

}  // namespace dlaunch::testing
