#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/collective/signature.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/endpoint_communicator.h"
#include "runtime/comm/local_address.h"
#include "runtime/rendezvous/tcp_store.h"
#include "transport/loopback/loopback.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/mesh.h"

namespace dlaunch {
namespace {

// How long a waiting rank polls before it sleeps, where it has a core of its own.
constexpr std::chrono::microseconds kSpin{50};

Result<std::unique_ptr<Communicator>> world_of_one(const JobEnvironment& job) {
  std::vector<std::unique_ptr<Endpoint>> lanes;
  lanes.reserve(kCommunicatorLanes);
  for (int lane = 0; lane < kCommunicatorLanes; ++lane) {
    lanes.push_back(LoopbackNetwork(1, describe_signature).endpoint(0));
  }
  return make_communicator(std::move(lanes), {.timeout = job.timeout});
}

// Tells the others where this rank listens; returns where they do, by rank.
Result<std::vector<std::string>> exchange_addresses(const JobEnvironment& job, std::uint16_t port,
                                                    Deadline deadline) {
  auto store = TcpStore::connect(job.store_address, job.token, deadline);
  if (!store.ok()) return store.status().within("rendezvous store at " + job.store_address);
  std::string host = "127.0.0.1";
  if (job.nodes > 1) {
    auto reached = local_address_towards(job.store_address);
    if (!reached.ok()) return reached.status();
    host = *std::move(reached);
  }
  // A program may connect the world several times; all ranks do so in the same order.
  auto generation = (*store)->add("world/connects of rank " + std::to_string(job.rank), 1);
  if (!generation.ok()) return generation.status();
  const auto key = [&](int rank) {
    return "world/" + std::to_string(*generation) + "/address of rank " + std::to_string(rank);
  };
  DLAUNCH_RETURN_IF_ERROR((*store)->set(key(job.rank), host + ":" + std::to_string(port)));
  std::vector<std::string> keys;
  keys.reserve(static_cast<std::size_t>(job.world_size));
  for (int rank = 0; rank < job.world_size; ++rank) keys.push_back(key(rank));
  return (*store)->get_all(keys, deadline);
}

Result<std::unique_ptr<Communicator>> connect_ranks(const JobEnvironment& job,
                                                    const Logger& logger) {
  const Deadline deadline = Deadline::after(job.timeout);
  auto listener =
      TcpListener::open(job.nodes > 1 ? TcpListener::Bind::kAny : TcpListener::Bind::kLoopback);
  if (!listener.ok()) return listener.status();
  auto addresses = exchange_addresses(job, listener->port(), deadline);
  if (!addresses.ok()) return addresses.status();

  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  const bool core_each = job.local_world_size <= cores;
  auto lanes = connect_mesh(
      *std::move(listener),
      {.rank = job.rank,
       .world_size = job.world_size,
       .addresses = *std::move(addresses),
       .token = job.token,
       .job_id = job.job_id,
       .lanes = kCommunicatorLanes,
       .timeout = deadline.remaining(),
       .spin = core_each ? std::chrono::nanoseconds(kSpin) : std::chrono::nanoseconds(0),
       .describe = describe_signature,
       .logger = logger});
  if (!lanes.ok()) return lanes.status();
  auto world = make_communicator(*std::move(lanes), {.timeout = job.timeout});
  if (!world.ok()) return world.status();
  // Returns only once everybody is connected.
  DLAUNCH_RETURN_IF_ERROR((*world)->barrier());
  logger->info("rank {} of {} connected over tcp", job.rank, job.world_size);
  return world;
}

}  // namespace

Result<std::unique_ptr<Communicator>> connect_world() {
  auto job = read_job_environment();
  if (!job.ok()) return job.status();
  return connect_world(*job, make_logger("comm"));
}

Result<std::unique_ptr<Communicator>> connect_world(const JobEnvironment& job, Logger logger) {
  if (job.world_size == 1) return world_of_one(job);
  if (logger == nullptr) logger = make_null_logger();
  auto world = connect_ranks(job, logger);
  if (world.ok()) return world;
  return world.status().within("connecting rank " + std::to_string(job.rank) + " of " +
                               std::to_string(job.world_size));
}

}  // namespace dlaunch
