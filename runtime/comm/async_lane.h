// AsyncLane: runs operations in the background, all that were started at the same time, and
// messages also on their caller's thread.
//
// Whoever has the seat drives the endpoint. That is the progress thread while anything is in flight
// (it is made when it is first needed, and sleeps otherwise); a caller that finds the seat free
// takes it for its own message, which is quicker by two wakings of a thread, and looks after what
// others start meanwhile. A caller that finds it taken starts its message like an asynchronous one
// and waits. So messages of several threads never wait for each other, and `send` meets
// `start_recv`. A failure of anything in flight fails the communicator, so whoever has the seat
// gives it up at once to tell it; its own message ends with that failure.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/bystanders.h"
#include "runtime/comm/lane.h"
#include "runtime/comm/work.h"
#include "transport/failure_state.h"
#include "transport/shm/shared_group.h"

namespace dlaunch {

class AsyncLane final : private Readiness {
 public:
  /// `on_failure` is called on whichever thread meets a failure, with no lock of the lane's held.
  /// The other references are to the communicator's, shared with the other lanes.
  AsyncLane(LaneKind kind, std::unique_ptr<Endpoint> endpoint, Announcements& announcements,
            Bystanders& bystanders, const FailureState& failure,
            std::shared_ptr<const Tuning> tuning, ActivityReporter reporter,
            std::function<void(const Status&)> on_failure)
      : lane_(kind, std::move(endpoint), announcements, bystanders, std::move(tuning),
              std::move(reporter)),
        bystanders_(bystanders),
        failure_(failure),
        on_failure_(std::move(on_failure)),
        own_(lane_.reusable_operation()) {}
  /// What is still in flight ends with kAborted.
  ~AsyncLane();
  AsyncLane(const AsyncLane&) = delete;
  AsyncLane& operator=(const AsyncLane&) = delete;

  /// Ends the progress thread; `on_failure` is not called any more. Before the destruction of
  /// anything that `on_failure` refers to.
  void stop();

  /// Before the destruction; see Endpoint::linger().
  void linger(std::chrono::nanoseconds longest) { lane_.endpoint().linger(longest); }

  /// Any thread.
  Work start(const CollectiveCall& call, std::chrono::nanoseconds timeout);
  /// The same for a message; if it can be sent or received at once, it has ended on return.
  Work start(const MessageCall& call, std::chrono::nanoseconds timeout);
  /// Sends or receives a message and returns when that is done. Any thread.
  Status run(const MessageCall& call, std::chrono::nanoseconds timeout);

  /// To be called after `failure` was set: ends what is in flight and tells the peers. Any thread
  /// that is not inside a member.
  void fail();

 private:
  struct Ended {
    std::shared_ptr<Outcome> outcome;
    Status status;
  };
  using Seat = std::unique_lock<std::mutex>;
  using Queue = std::deque<std::unique_ptr<Operation>>;

  Status earlier_failure() const {
    return failure_.status().within("the communicator failed earlier");
  }
  template <typename Call>
  Work submit(const Call& call, std::chrono::nanoseconds timeout);
  Status need_thread();
  std::unique_ptr<Operation> begin(const MessageCall& call, std::chrono::nanoseconds timeout);
  Status end(std::unique_ptr<Operation> operation);
  Status known_failure() const;
  void leave(Seat seat);
  void keep(std::unique_ptr<Operation> message);
  void finish(std::unique_ptr<Operation> operation);
  bool drive(std::unique_ptr<Operation>& collective, pid_t waiter);
  static pid_t waiter_of(const Queue& queue);
  template <typename Function>
  void for_driven(const Function& function) const;
  const Operation* oldest() const;
  bool idle() const;
  bool wait_for_work();
  void make_progress();
  void take_submitted();
  void drive_all();
  void finish_ended();
  void look_after_messages();
  bool ready() const override;
  int awaited_member() const override;
  Deadline next_check() const;

  Lane lane_;
  Bystanders& bystanders_;  // the progress thread is one
  const FailureState& failure_;
  const std::function<void(const Status&)> on_failure_;

  std::mutex seat_;                 // locked before mutex_; guards the endpoint and what follows
  std::unique_ptr<Operation> own_;  // of the caller that has the seat
  std::vector<std::unique_ptr<Operation>> in_flight_;  // collectives by messages
  // Collectives in shared memory, by channel: only the first of each can move, however many there
  // are.
  std::array<Queue, SharedGroup::kChannels> queues_;
  // There may be very many of them: looked at only when one has ended, or has waited for long.
  std::list<std::unique_ptr<Operation>> messages_;
  std::vector<Transfer*> ended_;  // of messages_
  Deadline next_look_ = Deadline::after(std::chrono::hours(1));
  std::vector<Ended> failed_;  // not told yet

  std::mutex mutex_;  // guards what follows, and Lane::prepare and recycle
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Operation>> submitted_;
  std::atomic<bool> any_submitted_{false};  // to be asked without the lock
  bool work_left_ = false;                  // something is in flight that nobody drives
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace dlaunch
