// SlurmCluster: a Slurm of its own on this machine, for as long as it lives: a controller and
// several nodes, each a slurmd, with a munge between them. Nothing is installed, and no other Slurm
// on the machine is touched.
//
// A node's name is an address of this machine (127.0.0.1, 127.0.0.2, ...), so that it leads where
// names of nodes lead on a real cluster. Needs root and Debian's packages slurmd, slurmctld,
// slurm-client and munge. Used by one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "tests/support/subprocess.h"

namespace dlaunch::testing {

class SlurmCluster {
 public:
  /// Returns once all nodes take jobs. kUnavailable, with the reason, where the machine does not
  /// allow it.
  static Result<std::unique_ptr<SlurmCluster>> start(int nodes);
  ~SlurmCluster();
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;

  /// For files of a test; goes with the cluster.
  const std::string& folder() const { return folder_; }
  /// A command of Slurm (srun, sbatch, ...) for this cluster.
  Command command(const std::vector<std::string>& arguments) const;

 private:
  SlurmCluster() = default;
  Status prepare(int nodes);
  void start_daemon(const std::string& command_line, const std::string& log);
  Status wait_until_idle(int nodes) const;

  std::string folder_;
  std::vector<std::unique_ptr<Subprocess>> daemons_;
};

}  // namespace dlaunch::testing
