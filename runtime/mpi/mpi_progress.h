// MpiProgress: the thread that tests asynchronous operations until they have ended. It exists from
// the first one on and sleeps while there are none.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/mpi/mpi_library.h"
#include "runtime/mpi/mpi_operation.h"
#include "transport/failure_state.h"

namespace dlaunch {

class MpiProgress {
 public:
  /// Called on the thread: `listen` now and then, for news of other ranks' failures; `on_failure`
  /// with the failure of an operation.
  MpiProgress(MpiLibrary& library, const FailureState& failure, std::function<void()> listen,
              std::function<void(const Status&)> on_failure)
      : library_(library),
        failure_(failure),
        listen_(std::move(listen)),
        on_failure_(std::move(on_failure)) {}
  ~MpiProgress() { stop(); }
  MpiProgress(const MpiProgress&) = delete;
  MpiProgress& operator=(const MpiProgress&) = delete;

  /// Takes over an operation that has begun. Any thread.
  Work submit(std::unique_ptr<MpiOperation> operation);
  /// Ends the thread; what is in flight ends with kAborted. Once, by the owner.
  void stop();

 private:
  void run();
  bool take_submitted(std::unique_lock<std::mutex>& lock);
  bool drive_all();
  void end(std::unique_ptr<MpiOperation> operation, Status status);

  MpiLibrary& library_;
  const FailureState& failure_;
  const std::function<void()> listen_;
  const std::function<void(const Status&)> on_failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::vector<std::unique_ptr<MpiOperation>> submitted_;
  std::vector<std::unique_ptr<MpiOperation>> in_flight_;  // the thread's own
  std::thread thread_;
};

/// How an operation that has ended, ended: carries out what is left to do.
Status result_of(MpiOperation& operation);

}  // namespace dlaunch
