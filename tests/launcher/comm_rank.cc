// A rank of the hang report's tests that uses the communicator. Its arguments are what it does, one
// after the other:
//
//   only=K            what follows is for rank K only (only=all: for everybody again)
//   connect           connects the world
//   barrier, all_reduce=COUNT, recv=PEER
//   start=COUNT       an all_reduce in the background, not awaited
//   repeat=SECONDS    barriers, for so long
//   set=KEY           sets a key of the store
//   wait=KEY,KEY      waits for keys of the store
//   out=TEXT          writes TEXT to stdout, after the rank
//   pid               writes its process id to stdout, after the rank and "pid"
//   hold=MIB          has so much memory that goes with the last descriptor of a file
//   raise=SIGNAL      stops itself with SIGSTOP, or ends with another
//   fail-before=N     exits with 3 in the attempts before number N
//   pause             waits for a signal that ends it
//   failure=CODE      an operation that fails from now on ends it with that exit code
//
// An operation that fails ends it with exit code 4. SIGALRM ends it after two minutes.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/exit_codes.h"
#include "runtime/comm/communicator.h"
#include "runtime/rendezvous/job_store.h"
#include "tests/launcher/rank_actions.h"

namespace dlaunch {
namespace {

int variable(const char* name) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read only
  return text == nullptr ? 0 : std::atoi(text);
}

class Rank {
 public:
  void act(const std::string& action, const std::string& value) {
    const int number = std::atoi(value.c_str());
    if (action == "failure") exit_code_ = number;
    if (action == "connect") connect();
    if (action == "barrier") check(world_->barrier());
    if (action == "recv") check(world_->recv(Buffer(buffer(1), 1, DType::kF32), number));
    if (action == "all_reduce") check(world_->all_reduce(floats(number)));
    if (action == "start") work_.emplace(world_->start_all_reduce(floats(number)));
    if (action == "gather") gather(number);
    if (action == "repeat") repeat(std::chrono::seconds(number));
    if (action == "out") {
      std::printf("%d %s\n", variable("RANK"), value.c_str());
      std::fflush(stdout);
    }
    if (action == "pid") act("out", "pid " + std::to_string(getpid()));
    if (action == "set" || action == "wait") use_store(action, value);
    if (action == "hold") hold(number);
    if (action == "raise") raise(number);
    if (action == "fail-before" && variable("TORCHELASTIC_RESTART_COUNT") < number) std::_Exit(3);
    while (action == "pause") ::pause();
  }

 private:
  void check(const Status& status) const {
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", status.to_string().c_str());
    std::_Exit(exit_code_);
  }
  void connect() {
    auto world = connect_world();
    check(world.status());
    world_ = *std::move(world);
  }
  static void hold(int mib) {
    const int file = memfd_create("held", MFD_CLOEXEC);
    const std::string some(std::size_t{1} << 20, 'x');
    for (int i = 0; i < mib; ++i) {
      if (write(file, some.data(), some.size()) != static_cast<ssize_t>(some.size())) std::abort();
    }
  }
  // `key`: "KEY", or to wait for "KEY,KEY".
  void use_store(const std::string& action, const std::string& key) const {
    const Deadline deadline = Deadline::after(std::chrono::minutes(1));
    const JobEnvironment job = read_job_environment().value_or_throw();
    const auto store = connect_job_store(job, deadline).value_or_throw();
    if (action == "set") return check(store->set(key, ""));
    std::istringstream all(key);
    std::vector<std::string> keys;
    for (std::string each; std::getline(all, each, ',');) keys.push_back(each);
    check(store->get_all(keys, deadline).status());
  }
  // Asynchronously; all but the root are through with it at once.
  void gather(int root) {
    const float one = 1;
    const auto all = static_cast<std::size_t>(world_->size());
    const Buffer output(buffer(world_->size()), world_->rank() == root ? all : 0, DType::kF32);
    check(world_->start_gather({&one, 1, DType::kF32}, output, root).wait());
  }
  // Rank 0 says when to stop, so that all make the same calls.
  void repeat(std::chrono::seconds time) {
    const Deadline deadline = Deadline::after(time);
    float* stop = buffer(1);
    do {
      *stop = deadline.expired() ? 1 : 0;
      check(world_->broadcast(Buffer(stop, 1, DType::kF32), 0));
    } while (*stop == 0);
  }
  float* buffer(int count) {
    data_.resize(static_cast<std::size_t>(count));
    return data_.data();
  }
  Buffer floats(int count) { return {buffer(count), static_cast<std::size_t>(count), DType::kF32}; }

  int exit_code_ = kExitCommunication;
  std::vector<float> data_;
  std::unique_ptr<Communicator> world_;
  std::optional<Work> work_;
};

}  // namespace
}  // namespace dlaunch

int main(int argc, char** argv) {
  alarm(120);
  dlaunch::Rank rank;
  dlaunch::testing::for_each_action(
      argc, argv,
      [&](const std::string& action, const std::string& value) { rank.act(action, value); });
  return 0;
}
