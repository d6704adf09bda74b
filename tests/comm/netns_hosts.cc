#include "tests/comm/netns_hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <system_error>
#include <thread>

#include "tests/support/subprocess.h"

namespace dlaunch::testing {
namespace {

Status unavailable(std::string why) {
  return Status(StatusCode::kUnavailable, std::move(why));
}

void run_on_a_thread(const std::function<void()>& task) {
  std::thread(task).join();
}

// A new network namespace, as a descriptor.
Result<int> make_namespace() {
  int made = -1;
  int error = 0;
  run_on_a_thread([&] {
    if (::unshare(CLONE_NEWNET) == 0) {
      made = ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    }
    if (made < 0) error = errno;
  });
  if (made < 0) return unavailable(Status::from_errno("new network namespace", error).to_string());
  return made;
}

std::string find_ip() {
  for (const char* path : {"/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip"}) {
    if (::access(path, X_OK) == 0) return path;
  }
  return "";
}

// Carries out lines of `ip` commands within a namespace.
Status run_ip(int where, const std::string& commands) {
  CompletedProcess done;
  int error = 0;
  run_on_a_thread([&] {
    if (::setns(where, CLONE_NEWNET) != 0) {
      error = errno;
      return;
    }
    // The command is a child of this thread, which sees its end.
    done = run_command({.arguments = {find_ip(), "-batch", "-"}, .input = commands});
  });
  if (error != 0) return Status::from_errno("setns", error);
  if (done.exit_code == 0 && !done.timed_out) return Status();
  return unavailable("ip (" + commands + "): exit code " + std::to_string(done.exit_code) + ": " +
                     done.error);
}

}  // namespace

Result<std::unique_ptr<NetworkHosts>> NetworkHosts::make(int hosts) {
  if (::geteuid() != 0) return unavailable("network namespaces need root");
  if (find_ip().empty()) return unavailable("there is no program ip (package iproute2)");
  std::unique_ptr<NetworkHosts> made(new NetworkHosts);
  DLAUNCH_RETURN_IF_ERROR(made->build(hosts));
  return made;
}

Status NetworkHosts::build(int hosts) {
  auto bridge = make_namespace();
  if (!bridge.ok()) return bridge.status();
  switch_ = *bridge;
  DLAUNCH_RETURN_IF_ERROR(run_ip(switch_, "link add bridge0 type bridge\nlink set bridge0 up\n"));
  for (int host = 0; host < hosts; ++host) {
    auto own = make_namespace();
    if (!own.ok()) return own.status();
    hosts_.push_back(*own);
    const std::string port = "port" + std::to_string(host);
    const std::string there = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(*own);
    DLAUNCH_RETURN_IF_ERROR(run_ip(switch_, "link add " + port + " type veth peer name eth0\n" +
                                                "link set eth0 netns " + there + "\n" +
                                                "link set " + port + " master bridge0\n" +
                                                "link set " + port + " up\n"));
    DLAUNCH_RETURN_IF_ERROR(run_ip(*own, "link set lo up\naddr add " + address(host) +
                                             "/24 dev eth0\naddr add " + other_address(host) +
                                             "/24 dev eth0\nlink set eth0 up\n"));
  }
  return Status();
}

NetworkHosts::~NetworkHosts() {
  for (const int host : hosts_) ::close(host);
  if (switch_ >= 0) ::close(switch_);
}

std::string NetworkHosts::address(int host) {
  return "10.83.0." + std::to_string(host + 1);
}

std::string NetworkHosts::other_address(int host) {
  return "10.84.0." + std::to_string(host + 1);
}

void NetworkHosts::enter(int host) const {
  if (::setns(hosts_.at(static_cast<std::size_t>(host)), CLONE_NEWNET) != 0) {
    throw std::system_error(errno, std::generic_category(), "setns");
  }
}

Status NetworkHosts::set_link(int host, bool up) const {
  return run_ip(switch_, "link set port" + std::to_string(host) + (up ? " up\n" : " down\n"));
}

}  // namespace dlaunch::testing
