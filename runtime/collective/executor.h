// PlanExecution: carries a plan out over an endpoint, as a state machine that never blocks.
//
// advance() does what can be done now and returns; between calls the owner polls the endpoint. Any
// number of executions can be in flight on one endpoint. Payloads go straight into their
// destination; where they are to be reduced with what is already there, they land in a small ring
// of staging slots and are reduced from it. Messages longer than a segment are cut, so that one
// segment is reduced while the next is on the wire.
//
// Threads: the one that drives the endpoint. The object may be started again after it has ended and
// keeps its memory, so that repeated shapes allocate nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"
#include "runtime/collective/plan.h"
#include "runtime/collective/types.h"
#include "transport/endpoint.h"

namespace dlaunch {

/// Messages are cut into segments of this many bytes.
inline constexpr std::size_t kSegmentBytes = std::size_t{256} << 10;

/// What one execution works on. `plan` and the memory stay in place until it has ended.
struct Assignment {
  const Plan* plan = nullptr;
  const std::byte* input = nullptr;  // Region::kInput; may be the same memory as the output
  std::byte* output = nullptr;       // Region::kOutput
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  MessageTag tag;  // of all its messages
  MessageSignature signature;
};

class PlanExecution {
 public:
  explicit PlanExecution(Endpoint& endpoint) : endpoint_(endpoint) {}
  PlanExecution(const PlanExecution&) = delete;
  PlanExecution& operator=(const PlanExecution&) = delete;

  /// Begins; an earlier run has ended.
  void start(const Assignment& assignment);

  /// Does what can be done without waiting. Returns true if that was anything: a message came or
  /// went.
  bool advance();

  bool done() const { return done_; }
  /// How it ended: "step 3: peer 2: connection reset".
  const Status& status() const { return status_; }

  /// Ends it early. The endpoint fails, because messages are left half-way.
  void cancel(const Status& why);

  /// The ranks whose messages, or whose taking of ours, this step waits for; in ascending order.
  std::vector<int> waiting_for() const;

 private:
  // A received slice of the current step, in segments. Segment i uses transfers_[first + i %
  // slots].
  struct Incoming {
    const PlannedRecv* planned = nullptr;
    std::size_t first = 0;
    std::size_t slots = 0;
    std::size_t segments = 0;
    std::size_t posted = 0;
    std::size_t landed = 0;
    bool staged = false;
    std::size_t staging = 0;  // offset of its slots in staging_
  };

  std::byte* address(Slice slice) const;
  std::size_t bytes(std::size_t elements) const { return elements * size_of(assignment_.dtype); }
  std::size_t segments_of(std::size_t count) const;
  Slice segment(Slice whole, std::size_t index) const;

  void begin_step();
  void lay_out_recvs(const PlanStep& step);
  bool needs_staging(const PlanStep& step, const PlannedRecv& recv) const;
  void post_sends(const PlanStep& step);
  void post_recv(Incoming& incoming);
  void prepare(Transfer& transfer, int peer, std::byte* data, std::size_t size) const;
  bool receive(Incoming& incoming);
  bool send_reads(Slice slice) const;
  void land(const Incoming& incoming, std::size_t index);
  bool retire_sends();
  void end(const Status& status);

  Endpoint& endpoint_;
  Assignment assignment_;
  std::size_t step_ = 0;
  bool done_ = true;
  Status status_;
  std::size_t segment_elements_ = 1;

  // Of the current step. Transfers are owned here and do not move while any is in flight.
  std::size_t send_count_ = 0;     // transfers_[0, send_count_) are the sends
  std::size_t sends_retired_ = 0;  // of which so many have ended, from the front
  std::vector<Transfer> transfers_;
  std::vector<Incoming> incoming_;
  std::size_t recvs_open_ = 0;
  std::vector<std::byte> scratch_;
  std::vector<std::byte> staging_;
};

}  // namespace dlaunch
