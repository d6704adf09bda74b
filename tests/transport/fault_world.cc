#include "tests/transport/fault_world.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "runtime/base/token.h"
#include "runtime/collective/signature.h"
#include "runtime/comm/endpoint_communicator.h"
#include "tests/transport/thread_exchange.h"
#include "transport/mesh/mesh.h"
#include "transport/tcp/listener.h"

namespace dlaunch::testing {
namespace {

std::string loopback(std::uint16_t port) {
  return "127.0.0.1:" + std::to_string(port);
}

}  // namespace

struct FaultWorld::Listeners {
  explicit Listeners(int world) : exchange(world) {}
  std::string token = make_token();
  ThreadExchange exchange;
  std::vector<TcpListener> by_rank;
};

FaultWorld::FaultWorld(const Options& options)
    : options_(options), listeners_(std::make_unique<Listeners>(options.world)) {
  for (int rank = 0; rank < options_.world; ++rank) {
    listeners_->by_rank.push_back(TcpListener::open(TcpListener::Bind::kLoopback).value_or_throw());
    std::vector<std::unique_ptr<FaultProxy>> to_lower;
    for (int lower = 0; lower < rank; ++lower) {
      const std::uint16_t port = listeners_->by_rank[static_cast<std::size_t>(lower)].port();
      to_lower.push_back(std::make_unique<FaultProxy>(port, options_.choose));
    }
    proxies_.push_back(std::move(to_lower));
  }
  communicators_.resize(static_cast<std::size_t>(options_.world));
}

FaultWorld::~FaultWorld() = default;

// What this world knows of how ranks are connected stands here only.
Result<std::unique_ptr<Communicator>> FaultWorld::connect_rank(int rank) {
  MeshOptions mesh{.rank = rank,
                   .world_size = options_.world,
                   .address = "address-" + std::to_string(rank) + ":0",
                   .exchange = {},
                   .token = listeners_->token,
                   .job_id = "faults",
                   .lanes = kCommunicatorLanes,
                   .kept_bytes = options_.kept_bytes,
                   .transport = TransportChoice::kTcp,
                   .timeout = options_.timeout,
                   .describe = describe_signature};
  // A rank connects to lower ones only, and hears their proxies' addresses instead of their own.
  mesh.exchange = [&, all = listeners_->exchange.of(rank)](
                      std::string_view round, const std::string& own,
                      Deadline deadline) -> Result<std::vector<std::string>> {
    auto texts = all(round, own, deadline);
    for (int peer = 0; texts.ok() && peer < rank; ++peer) {
      std::string& text = (*texts)[static_cast<std::size_t>(peer)];
      const std::string address = "address-" + std::to_string(peer) + ":0";
      if (const auto at = text.find(address); at != std::string::npos) {
        text.replace(at, address.size(), loopback(proxy(rank, peer).port()));
      }
    }
    return texts;
  };
  auto lanes = connect_mesh(std::move(listeners_->by_rank[static_cast<std::size_t>(rank)]), mesh);
  if (!lanes.ok()) return lanes.status();
  return make_communicator(*std::move(lanes), {.timeout = options_.timeout});
}

std::vector<Status> FaultWorld::connect() {
  std::vector<Status> outcomes(communicators_.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options_.world; ++rank) {
    threads.emplace_back([this, rank, &outcomes] {
      const auto index = static_cast<std::size_t>(rank);
      auto communicator = connect_rank(rank);
      outcomes[index] = communicator.status();
      if (communicator.ok()) communicators_[index] = *std::move(communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

void FaultWorld::run(const Body& body) {
  std::vector<std::thread> threads;
  for (auto& communicator : communicators_) {
    if (communicator == nullptr) continue;
    threads.emplace_back([&body, own = std::move(communicator)] { body(*own); });
  }
  for (std::thread& thread : threads) thread.join();
}

FaultProxy& FaultWorld::proxy(int a, int b) {
  return *proxies_[static_cast<std::size_t>(std::max(a, b))]
                  [static_cast<std::size_t>(std::min(a, b))];
}

void FaultWorld::set(int from, int to, const Faults& faults) {
  proxy(from, to).set(from > to ? Direction::kForward : Direction::kBackward, faults);
}

void FaultWorld::set_all(const Faults& faults) {
  for (auto& of_rank : proxies_) {
    for (auto& each : of_rank) {
      each->set(Direction::kForward, faults);
      each->set(Direction::kBackward, faults);
    }
  }
}

}  // namespace dlaunch::testing
