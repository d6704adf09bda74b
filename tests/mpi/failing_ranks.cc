// A rank of a job over MPI in which something goes wrong: failing_ranks SCENARIO. Every rank that
// still can prints a line, "rank 1: " and what its call returned, before any of them ends.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <mpi.h>

#include "runtime/base/half.h"
#include "runtime/mpi/mpi_world.h"

namespace {

using namespace std::chrono_literals;
using dlaunch::Communicator;
using dlaunch::Status;
using dlaunch::StatusCode;

Status time_out(Communicator& world) {
  std::vector<float> data(5);
  if (world.rank() == 2) return world.recv(data, 0, 9);  // what nobody sends
  world.set_timeout(300ms);
  return world.rank() == 0 ? world.all_reduce(data) : world.start_all_reduce(data).wait();
}

Status abort(Communicator& world) {
  std::vector<float> data(5);
  if (world.rank() == 1) {
    world.abort(Status(StatusCode::kIo, "the disk is full"));
    return world.barrier();
  }
  return world.rank() == 0 ? world.all_reduce(data) : world.start_barrier().wait();
}

// Rank 0 is not in the part.
Status time_out_in_a_part(Communicator& world) {
  const auto part = world.split(world.rank() == 0 ? -1 : 5, 0).value_or_throw();
  std::vector<float> data(5);
  if (part == nullptr || part->rank() == 1) return Status();
  part->set_timeout(300ms);
  return part->start_recv(data, 1).wait();
}

Status die(Communicator& world) {
  if (world.rank() == 1) std::raise(SIGKILL);
  return world.barrier();
}

// From rank 0 to rank 1.
template <typename T>
Status exchange_and_meet(Communicator& world, std::vector<T>& data) {
  if (world.rank() == 1) return world.recv(data, 0);
  if (world.rank() == 0) {
    const Status sent = world.send(data, 1);
    if (!sent.ok()) return sent;
  }
  return world.barrier();
}

Status send_too_few(Communicator& world) {
  std::vector<float> data(world.rank() == 0 ? 3 : 5);
  return exchange_and_meet(world, data);
}

// Bytes that are no number of the receiver's elements.
Status send_bytes(Communicator& world) {
  std::vector<std::uint8_t> bytes(6);
  std::vector<std::int32_t> elements(4);
  return world.rank() == 0 ? exchange_and_meet(world, bytes) : exchange_and_meet(world, elements);
}

Status send_too_many(Communicator& world) {
  std::vector<float> data(world.rank() == 0 ? 5 : 3);
  return exchange_and_meet(world, data);
}

// Rank 0 has given up when the others come, which another communicator tells them.
Status split_too_late(Communicator& world) {
  const auto told = world.split(0, 0).value_or_throw();
  if (world.rank() == 0) {
    world.set_timeout(200ms);
    const Status gave_up = world.split(0, 0).status();
    const Status met = told->barrier();
    return met.ok() ? gave_up : met;
  }
  const Status met = told->barrier();
  return met.ok() ? world.split(0, 0).status() : met;
}

// MPI sends the short one at once, the long one when it is received.
Status never_receive(Communicator& world) {
  for (const std::size_t count : {std::size_t{4}, std::size_t{4'000'000}}) {
    const std::vector<float> data(count);
    if (const Status sent = world.send(data, world.rank(), 7); !sent.ok()) return sent;
  }
  return Status();
}

Status use_a_large_tag(Communicator& world) {
  std::vector<float> data(1);
  return world.start_send(data, 0, ~std::uint64_t{0}).wait();
}

// Of a size that is refused, so that nothing is ever put there.
Status receive_too_many_of_any(Communicator& world) {
  std::byte nothing{};
  return world.recv({&nothing, std::size_t{1} << 31, dlaunch::DType::kU8}, dlaunch::kAnyRank);
}

// The program has initialised MPI itself. Its communicator gives up an all_reduce in which MPI
// works on memory of the library, f32 for bf16, and is destroyed; then MPI goes on with both, for
// calls of the program's own. Nothing that the program has allocated meanwhile may change.
int outlive_the_communicator() {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  constexpr std::size_t kElements = 1 << 18;
  std::vector<dlaunch::BFloat16> data(kElements, dlaunch::BFloat16(1.0F));
  {
    const auto world = dlaunch::connect_mpi_world({.timeout = 200ms}).value_or_throw();
    if (rank > 0) MPI_Barrier(MPI_COMM_WORLD);  // rank 0 has given up
    const Status status = world->all_reduce(data);
    std::printf("rank %d: %s\n", rank, status.to_string().c_str());
  }
  const std::vector<std::vector<float>> own(8, std::vector<float>(kElements, 42.0F));
  if (rank == 0) MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < 2'000; ++i) MPI_Barrier(MPI_COMM_WORLD);
  const bool changed = std::ranges::any_of(
      own, [&](const auto& each) { return std::ranges::count(each, 42.0F) != std::ssize(each); });
  std::printf("rank %d: %s\n", rank, changed ? "its memory has changed" : "as it was");
  std::fflush(stdout);
  MPI_Barrier(MPI_COMM_WORLD);
  std::_Exit(changed ? 1 : 0);  // MPI_Finalize might wait forever
}

int run(const std::string& scenario) {
  if (scenario == "outlive_the_communicator") return outlive_the_communicator();
  if (scenario == "who_has_started_it") {
    std::puts(dlaunch::running_under_mpirun() ? "mpirun" : "dlaunch");
    return 0;
  }
  const std::map<std::string, std::function<Status(Communicator&)>> scenarios{
      {"time_out", time_out},
      {"abort", abort},
      {"time_out_in_a_part", time_out_in_a_part},
      {"die", die},
      {"send_too_few", send_too_few},
      {"send_bytes", send_bytes},
      {"send_too_many", send_too_many},
      {"split_too_late", split_too_late},
      {"never_receive", never_receive},
      {"use_a_large_tag", use_a_large_tag},
      {"receive_too_many_of_any", receive_too_many_of_any}};
  const auto world = dlaunch::connect_mpi_world({.timeout = 10s}).value_or_throw();
  const auto rest = world->split(0, 0).value_or_throw();  // fails on its own only
  const Status status = scenarios.at(scenario)(*world);
  std::printf("rank %d: %s\n", world->rank(), status.to_string().c_str());
  std::fflush(stdout);
  return rest->barrier().ok() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return argc == 2 ? run(argv[1]) : 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
