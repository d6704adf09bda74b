#include "tests/launcher/slurm_cluster.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include <sys/stat.h>
#include <unistd.h>

#include "launcher/ranks/free_port.h"
#include "runtime/base/token.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;

constexpr const char* kPrograms[] = {"/usr/sbin/munged", "/usr/sbin/slurmctld", "/usr/sbin/slurmd",
                                     "/usr/bin/srun", "/usr/bin/sbatch"};

std::string own_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  const std::string full(name.data());
  return full.substr(0, full.find('.'));
}

std::string node_name(int node) {
  return "127.0.0." + std::to_string(node + 1);
}

void write_configuration(const std::string& folder, int nodes) {
  std::ofstream file(folder + "/slurm.conf");
  file << "ClusterName=test\n"
       << "SlurmctldHost=" << own_name() << "(127.0.0.1)\n"
       << "SlurmctldPort=" << *find_free_port() << "\n"
       << "SlurmUser=root\n"
       << "AuthType=auth/munge\nAuthInfo=socket=" << folder << "/munge/socket\n"
       << "CredType=cred/munge\n"
       << "StateSaveLocation=" << folder << "/state\n"
       << "SlurmdSpoolDir=" << folder << "/spool/%n\n"
       << "SlurmctldPidFile=" << folder << "/slurmctld.pid\n"
       << "SlurmdPidFile=" << folder << "/slurmd.%n.pid\n"
       << "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
       << "SwitchType=switch/none\nMpiDefault=none\n"
       << "SelectType=select/linear\nReturnToService=2\n"
       << "SlurmdParameters=config_overrides\n";
  for (int node = 0; node < nodes; ++node) {
    file << "NodeName=" << node_name(node) << " NodeHostname=" << own_name()
         << " NodeAddr=127.0.0.1 Port=" << *find_free_port() << " CPUs=1 State=UNKNOWN\n";
  }
  file << "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n";
}

}  // namespace

Result<std::unique_ptr<SlurmCluster>> SlurmCluster::start(int nodes) {
  if (geteuid() != 0) return Status(StatusCode::kUnavailable, "Slurm's daemons need root");
  for (const char* program : kPrograms) {
    if (access(program, X_OK) != 0) {
      return Status(StatusCode::kUnavailable, std::string(program) + " is not installed");
    }
  }
  std::unique_ptr<SlurmCluster> cluster(new SlurmCluster);
  DLAUNCH_RETURN_IF_ERROR(cluster->prepare(nodes));
  const std::string munge = cluster->folder_ + "/munge/";
  cluster->start_daemon("/usr/sbin/munged --force --foreground --key-file=" + munge +
                            "key --socket=" + munge + "socket --pid-file=" + munge +
                            "pid --log-file=" + munge + "log --seed-file=" + munge + "seed",
                        "munged");
  cluster->start_daemon("/usr/sbin/slurmctld -D", "slurmctld");
  for (int node = 0; node < nodes; ++node) {
    cluster->start_daemon("/usr/sbin/slurmd -D -N " + node_name(node), node_name(node));
  }
  DLAUNCH_RETURN_IF_ERROR(cluster->wait_until_idle(nodes));
  return cluster;
}

SlurmCluster::~SlurmCluster() {
  // The nodes first: they tell the controller.
  while (!daemons_.empty()) {
    daemons_.back()->send_signal(SIGTERM);
    (void)daemons_.back()->finish(Deadline::after(10s));
    daemons_.pop_back();
  }
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

Status SlurmCluster::prepare(int nodes) {
  char path[] = "/tmp/dlaunch-slurm-XXXXXX";  // short: there will be sockets in it
  if (mkdtemp(path) == nullptr) return Status::from_errno("mkdtemp", errno);
  folder_ = path;
  chmod(path, 0755);
  for (const char* name : {"/munge", "/state", "/spool"}) {
    std::filesystem::create_directory(folder_ + name);
  }
  for (int node = 0; node < nodes; ++node) {
    std::filesystem::create_directory(folder_ + "/spool/" + node_name(node));
  }
  const std::string key = folder_ + "/munge/key";
  std::ofstream(key) << token_to_hex(make_token());
  chmod(key.c_str(), 0600);
  write_configuration(folder_, nodes);
  return {};
}

void SlurmCluster::start_daemon(const std::string& command_line, const std::string& log) {
  daemons_.push_back(std::make_unique<Subprocess>(command(
      {"/bin/sh", "-c", "exec " + command_line + " > " + folder_ + "/" + log + ".log 2>&1"})));
}

// There is no event for that, so this asks again and again.
Status SlurmCluster::wait_until_idle(int nodes) const {
  const Deadline deadline = Deadline::after(60s);
  std::string states;
  while (!deadline.expired()) {
    const auto asked = run_command(command({"/usr/bin/sinfo", "-h", "-N", "-o", "%T"}));
    states = asked.out + asked.error;
    std::size_t idle = 0;
    for (std::size_t at = 0; (at = states.find("idle\n", at)) != std::string::npos; ++at) ++idle;
    if (idle == static_cast<std::size_t>(nodes)) return {};
    std::this_thread::sleep_for(50ms);
  }
  return Status(StatusCode::kUnavailable, "Slurm does not come up here: " + states);
}

Command SlurmCluster::command(const std::vector<std::string>& arguments) const {
  return {.arguments = arguments, .environment = {{"SLURM_CONF", folder_ + "/slurm.conf"}}};
}

}  // namespace dlaunch::testing
