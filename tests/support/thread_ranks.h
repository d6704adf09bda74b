// Ranks as threads of one process, over the loopback network: the quick way to test what uses a
// Communicator. Where processes matter, use distributed_test.h.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/collective/signature.h"
#include "runtime/comm/bystanders.h"
#include "runtime/comm/endpoint_communicator.h"
#include "transport/loopback/loopback.h"

namespace dlaunch::testing {

/// With DLAUNCH_TEST_SHARED_MEMORY=1 in the environment the threads share memory as ranks of one
/// host do, so that the same tests run over collectives in shared memory too.
inline bool share_memory() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment
  const char* value = std::getenv("DLAUNCH_TEST_SHARED_MEMORY");
  return value != nullptr && std::string_view(value) == "1";
}

struct ThreadRankOptions {
  /// Every wait of the communicators gives up after this.
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);
};

/// The loopback networks of a world of threads and of its parts: one per lane.
class ThreadWorld {
 public:
  explicit ThreadWorld(int world) : parts_(std::make_shared<Parts>()) {
    std::vector<int> all(static_cast<std::size_t>(world));
    std::iota(all.begin(), all.end(), 0);
    parts_->make("", all);
  }
  /// Once per rank; to be used by one thread per rank.
  std::unique_ptr<Communicator> communicator(int rank, const ThreadRankOptions& options = {}) {
    const auto make_lanes = [parts = parts_](const LaneRequest& request) {
      return ConnectedLanes{parts->lanes(request.name, request.members, request.my_index)};
    };
    return make_communicator(
               parts_->lanes("", {}, rank),
               {.timeout = options.timeout, .make_lanes = make_lanes, .bystanders = bystanders_})
        .value_or_throw();
  }
  /// Threads that make no calls but those of a rank's thread: the ranks' own, the test's.
  Bystanders& bystanders() { return *bystanders_; }
  /// Makes a rank look as if its process had died. Any thread.
  void kill(int rank) { parts_->kill(rank); }

 private:
  // By name; "" is the world. Shared with the communicators, which make parts later.
  class Parts {
   public:
    void make(const std::string& name, std::span<const int> members) {
      Part& part = parts_[name];
      part.members.assign(members.begin(), members.end());
      for (int lane = 0; lane < kCommunicatorLanes; ++lane) {
        part.networks.emplace_back(static_cast<int>(members.size()), describe_signature,
                                   share_memory());
      }
    }
    Lanes lanes(const std::string& name, std::span<const int> members, int my_index) {
      const std::scoped_lock lock(mutex_);
      if (!parts_.contains(name)) make(name, members);
      Lanes lanes;
      for (LoopbackNetwork& network : parts_[name].networks) {
        lanes.push_back(network.endpoint(my_index));
      }
      return lanes;
    }
    void kill(int rank) {
      const std::scoped_lock lock(mutex_);
      for (const auto step : {&LoopbackNetwork::report_death, &LoopbackNetwork::stop}) {
        for (auto& [name, part] : parts_) {
          const auto member = std::ranges::find(part.members, rank);
          if (member == part.members.end()) continue;
          const int index = static_cast<int>(member - part.members.begin());
          for (LoopbackNetwork& network : part.networks) (network.*step)(index);
        }
      }
    }

   private:
    struct Part {
      std::vector<int> members;
      std::vector<LoopbackNetwork> networks;
    };
    std::mutex mutex_;
    std::map<std::string, Part> parts_;
  };

  std::shared_ptr<Parts> parts_;
  std::shared_ptr<Bystanders> bystanders_ = std::make_shared<Bystanders>();
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
  std::latch known(world + 1);
  const auto run = [&](std::unique_ptr<Communicator> communicator) {
    known.arrive_and_wait();
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
  // No rank's thread makes another one's calls; threads that a body makes may.
  for (const pid_t thread : threads_of_process()) network.bystanders().add(thread);
  known.arrive_and_wait();
  for (std::thread& thread : threads) thread.join();
  if (first != nullptr) std::rethrow_exception(first);
}

inline void run_threads_as_ranks(int world, const std::function<void(Communicator&)>& body,
                                 const ThreadRankOptions& options = {}) {
  ThreadWorld network(world);
  run_threads_as_ranks(network, world, body, options);
}

}  // namespace dlaunch::testing
