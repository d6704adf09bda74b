// Communicator: a group of ranks and what they can do together.
//
// Every collective is called by all ranks of the group, in the same order, with the same counts,
// types, reductions and roots. Ranks that disagree get kMismatch, which names what both sides
// called: all of them, though a rank that only sends in that call (the root of a broadcast or a
// scatter) not before its next collective, and after the last one nobody may notice. A rank that
// dies fails the operation everywhere with kPeerLost and its rank. After any such failure the
// communicator stays failed: every later call that communicates returns the first failure's code,
// and its text behind "the communicator failed earlier". (But for a rank that comes late and finds
// all the messages it needs: over sockets that call may still succeed, and the next one fails.) Bad
// arguments on one rank (kInvalidArgument) are found before anything is sent, also then, and fail
// nothing.
//
// Blocking collectives run on the caller's thread and are serialised among threads. start_*() calls
// return at once with a Work and run on a progress thread of the communicator; those of high
// priority have a progress thread of their own. Each of these three kinds has connections of its
// own, so none queues behind another: within a kind the order of collectives must be the same on
// all ranks, between kinds any order will do. Point-to-point messages queue behind nothing: they
// are matched by (peer, tag), blocking or not, and those of one (peer, tag) arrive in the order
// sent.
//
// A process that a rank forks has copies of its communicators that are good for nothing but being
// destroyed, which disturbs nobody (they leave their descriptors open until the process ends or
// executes another program); its calls fail with kInvalidArgument. A child that is to communicate
// connects a world of its own.
//
// What others have and this has not: bool and integers of 16 bits, a probe for messages, a timeout
// for a single call.
// For texts and objects of unknown length there is objects.h.
//
// Counts are elements. A count of zero is allowed everywhere. Results are reproducible: the same
// inputs, ranks and algorithm give the same bits, and all ranks of an all_reduce hold the same
// bits. In ReduceOrder::kRanks every algorithm and transport gives the same bits, but for the sign
// and payload of a NaN.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <span>
#include <type_traits>

#include "runtime/base/any_rank.h"
#include "runtime/base/job_environment.h"
#include "runtime/base/logging.h"
#include "runtime/base/status.h"
#include "runtime/collective/types.h"
#include "runtime/comm/buffer.h"
#include "runtime/comm/collective_call.h"
#include "runtime/comm/record_reduction_of.h"
#include "runtime/comm/shared_memory.h"
#include "runtime/comm/work.h"

namespace dlaunch {

class Communicator {
 public:
  using Counts = std::span<const std::size_t>;

  /// Orderly: peers that still need this rank get kPeerLeft. Waits for nobody, except that over TCP
  ///  - a message that is being written has up to 0.3 s per lane (four);
  ///  - messages whose sends are done are brought to the systems of their receivers. Where those
  ///    have no room for them, that takes until the receivers take messages in, which every call
  ///    for a message of this communicator does. What has not come after the timeout, or after 30 s
  ///    if the timeout is longer, may be lost.
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Runs a collective on this thread; the typed members below are the usual way to call it.
  virtual Status run(const CollectiveCall& call) = 0;
  /// The same in the background. The buffers, and what a reduction's context points to, must stay
  /// in place until the Work is done; the spans and the reduction that `call` points to need not.
  virtual Work start(const CollectiveCall& call) = 0;

  /// Point to point. The receiver's buffer has exactly the sender's count and type (else
  /// kMismatch). A message to oneself is kept until it is received; a long one to another rank may
  /// wait for its receiver. So does any message while the receiver keeps 64 MiB or more of this
  /// rank's that it has not asked for yet, until it asks for one: ranks that send more than that
  /// before they receive may wait for each other. A send that is done has let go of its buffer, and
  /// its message is on its way, also if this rank leaves then (see the destructor), but for one
  /// behind a send that this rank has started and not waited for; that it has been received, or
  /// will be although a rank fails or dies, it does not say.
  virtual Status send(ConstBuffer data, int peer, std::uint64_t tag = 0) = 0;
  virtual Work start_send(ConstBuffer data, int peer, std::uint64_t tag = 0) = 0;
  /// From `peer`, or the first message with the tag that comes, whichever rank it is from:
  /// kAnyRank. `sender`, if not null, is then the rank that sent it; it stays in place until a
  /// start_recv() is done. A message for which receives from its sender and from any rank are
  /// waiting meets the former. A receive from any rank fails with kPeerLeft when all other ranks
  /// have left.
  virtual Status recv(Buffer data, int peer, std::uint64_t tag = 0, int* sender = nullptr) = 0;
  virtual Work start_recv(Buffer data, int peer, std::uint64_t tag = 0, int* sender = nullptr) = 0;

  /// Divides the ranks into new communicators, one per color, in which they are ordered by (key,
  /// rank). A blocking collective. nullptr for a color below 0. The new communicator has
  /// connections of its own, progresses and fails independently and may outlive this one. Its
  /// errors speak of its own ranks, and say in front which ranks of the world those are:
  /// "in part world/1/1.1, whose rank 1 is rank 3 of the world: barrier #3: peer 1: ...".
  virtual Result<std::unique_ptr<Communicator>> split(int color, int key) = 0;

  /// Memory on which collectives are fastest; its contents are indeterminate. Sends nothing. kIo if
  /// there is no room.
  virtual Result<SharedMemory> allocate(std::size_t bytes) = 0;

  /// How long a call that is made from now on may have to wait before it fails with kTimeout, and
  /// the communicator with it: a blocking call; a collective that was started; a message that was
  /// started, counted from when somebody calls its Work::wait() (one without a limit of its own),
  /// so that a receive can be ready for whatever may come. What is not above 0 counts as 0:
  /// whatever has to wait then fails at once. More than a year counts as a year.
  virtual void set_timeout(std::chrono::nanoseconds timeout) = 0;

  /// The order of operands in the reductions of the typed calls below, the same on all ranks. Not
  /// while another thread is inside one of them.
  virtual void set_reduce_order(ReduceOrder order) = 0;
  virtual ReduceOrder reduce_order() const = 0;

  /// Fails this communicator everywhere with `why`: for a rank that must give up on its own
  /// account.
  virtual void abort(Status why) = 0;

  // --- collectives, blocking; each has a start_ twin

  /// Returns when every rank has called it.
  Status barrier() { return run({}); }
  /// Copies root's buffer to everybody.
  Status broadcast(Buffer data, int root) { return run(broadcast_call(data, root)); }
  /// Rank r receives part r of root's input: input.count == size() * output.count, or sum(counts)
  /// with output.count == counts[rank()]. Only the root's input is read.
  Status scatter(ConstBuffer input, Buffer output, int root, Counts counts = {}) {
    return run(moving_call(CollectiveKind::kScatter, input, output, root, counts));
  }
  /// The inverse of scatter; only the root's output is written.
  Status gather(ConstBuffer input, Buffer output, int root, Counts counts = {}) {
    return run(moving_call(CollectiveKind::kGather, input, output, root, counts));
  }
  /// gather whose result every rank receives.
  Status all_gather(ConstBuffer input, Buffer output, Counts counts = {}) {
    return run(moving_call(CollectiveKind::kAllGather, input, output, -1, counts));
  }
  /// Part r of rank q's input becomes part q of rank r's output. Not in place.
  Status all_to_all(ConstBuffer input, Buffer output) {
    return run(all_to_all_call(input, output, {}, {}));
  }
  /// The same with unequal parts: send_counts[r] elements go to rank r, recv_counts[q] come from
  /// rank q, the number that rank q sends to this one. A call of its own: all ranks write counts,
  /// or none does.
  Status all_to_all(ConstBuffer input, Buffer output, Counts send_counts, Counts recv_counts) {
    return run(all_to_all_call(input, output, send_counts, recv_counts));
  }
  /// Elementwise reduction of all ranks' inputs into root's output.
  Status reduce(ConstBuffer input, Buffer output, ReduceOp op, int root) {
    return run(reduce_call(CollectiveKind::kReduce, input, output, op, root));
  }
  /// Rank r receives part r of the elementwise reduction: input.count == size() * output.count, or
  /// sum(counts) with output.count == counts[rank()].
  Status reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op, Counts counts = {}) {
    return run(reduce_call(CollectiveKind::kReduceScatter, input, output, op, -1, counts));
  }
  /// Elementwise reduction in place, the same result on every rank. The average of integers is
  /// computed in 64 bits and truncated toward zero; sums and products of integers wrap. Sums of f16
  /// and bf16 are computed in f32. kBand, kBor and kBxor are of integers.
  Status all_reduce(Buffer data, ReduceOp op = ReduceOp::kSum,
                    Algorithm algorithm = Algorithm::kAuto) {
    return run(all_reduce_call(data, op, algorithm));
  }
  /// all_reduce of many buffers as one operation. They have one type, any lengths, the same on all
  /// ranks, and do not overlap.
  Status all_reduce(std::span<const Buffer> pieces, ReduceOp op = ReduceOp::kSum) {
    return run(coalesced_call(pieces, op));
  }

  // Reductions of the caller's own over trivially copyable records, in a vector or another range;
  // `combine` is a lambda that captures nothing, [](Record& a, const Record& b) { a = ...; }, see
  // record_reduction_of.h. Every rank passes the same function.

  template <RecordRange Records, RecordCombine<RecordOf<Records>> Combine>
  Status all_reduce_records(Records&& records, Combine combine) {
    const RecordReduction reduction = record_reduction_of<RecordOf<Records>>(combine);
    const Buffer data = bytes_of(records);
    return run(record_call(CollectiveKind::kAllReduce, data, data, reduction, -1));
  }
  template <RecordRange Input, RecordRangeOf<RecordOf<Input>> Output,
            RecordCombine<RecordOf<Input>> Combine>
  Status reduce_records(Input&& input, Output&& output, Combine combine, int root) {
    const RecordReduction reduction = record_reduction_of<RecordOf<Input>>(combine);
    return run(
        record_call(CollectiveKind::kReduce, bytes_of(input), bytes_of(output), reduction, root));
  }
  template <RecordRange Input, RecordRangeOf<RecordOf<Input>> Output,
            RecordCombine<RecordOf<Input>> Combine>
  Status reduce_scatter_records(Input&& input, Output&& output, Combine combine,
                                Counts counts = {}) {
    const RecordReduction reduction = record_reduction_of<RecordOf<Input>>(combine);
    return run(record_call(CollectiveKind::kReduceScatter, bytes_of(input), bytes_of(output),
                           reduction, -1, counts));
  }

  // --- the same in the background

  Work start_barrier(Priority priority = Priority::kNormal) {
    return start({.priority = priority});
  }
  Work start_broadcast(Buffer data, int root, Priority priority = Priority::kNormal) {
    return start(with(priority, broadcast_call(data, root)));
  }
  Work start_scatter(ConstBuffer input, Buffer output, int root, Counts counts = {},
                     Priority priority = Priority::kNormal) {
    return start(
        with(priority, moving_call(CollectiveKind::kScatter, input, output, root, counts)));
  }
  Work start_gather(ConstBuffer input, Buffer output, int root, Counts counts = {},
                    Priority priority = Priority::kNormal) {
    return start(with(priority, moving_call(CollectiveKind::kGather, input, output, root, counts)));
  }
  Work start_all_gather(ConstBuffer input, Buffer output, Counts counts = {},
                        Priority priority = Priority::kNormal) {
    return start(
        with(priority, moving_call(CollectiveKind::kAllGather, input, output, -1, counts)));
  }
  Work start_all_to_all(ConstBuffer input, Buffer output, Priority priority = Priority::kNormal) {
    return start(with(priority, all_to_all_call(input, output, {}, {})));
  }
  Work start_all_to_all(ConstBuffer input, Buffer output, Counts send_counts, Counts recv_counts,
                        Priority priority = Priority::kNormal) {
    return start(with(priority, all_to_all_call(input, output, send_counts, recv_counts)));
  }
  Work start_reduce(ConstBuffer input, Buffer output, ReduceOp op, int root,
                    Priority priority = Priority::kNormal) {
    return start(with(priority, reduce_call(CollectiveKind::kReduce, input, output, op, root)));
  }
  Work start_reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op, Counts counts = {},
                            Priority priority = Priority::kNormal) {
    return start(
        with(priority, reduce_call(CollectiveKind::kReduceScatter, input, output, op, -1, counts)));
  }
  Work start_all_reduce(Buffer data, ReduceOp op = ReduceOp::kSum,
                        Algorithm algorithm = Algorithm::kAuto,
                        Priority priority = Priority::kNormal) {
    return start(with(priority, all_reduce_call(data, op, algorithm)));
  }
  Work start_all_reduce(Buffer data, ReduceOp op, Priority priority) {
    return start_all_reduce(data, op, Algorithm::kAuto, priority);
  }
  Work start_all_reduce(std::span<const Buffer> pieces, ReduceOp op = ReduceOp::kSum,
                        Priority priority = Priority::kNormal) {
    return start(with(priority, coalesced_call(pieces, op)));
  }
  template <RecordRange Records, RecordCombine<RecordOf<Records>> Combine>
  Work start_all_reduce_records(Records&& records, Combine combine,
                                Priority priority = Priority::kNormal) {
    const RecordReduction reduction = record_reduction_of<RecordOf<Records>>(combine);
    const Buffer data = bytes_of(records);
    return start(
        with(priority, record_call(CollectiveKind::kAllReduce, data, data, reduction, -1)));
  }
  template <RecordRange Input, RecordRangeOf<RecordOf<Input>> Output,
            RecordCombine<RecordOf<Input>> Combine>
  Work start_reduce_records(Input&& input, Output&& output, Combine combine, int root,
                            Priority priority = Priority::kNormal) {
    const RecordReduction reduction = record_reduction_of<RecordOf<Input>>(combine);
    return start(with(priority, record_call(CollectiveKind::kReduce, bytes_of(input),
                                            bytes_of(output), reduction, root)));
  }
  template <RecordRange Input, RecordRangeOf<RecordOf<Input>> Output,
            RecordCombine<RecordOf<Input>> Combine>
  Work start_reduce_scatter_records(Input&& input, Output&& output, Combine combine,
                                    Counts counts = {}, Priority priority = Priority::kNormal) {
    const RecordReduction reduction = record_reduction_of<RecordOf<Input>>(combine);
    return start(with(priority, record_call(CollectiveKind::kReduceScatter, bytes_of(input),
                                            bytes_of(output), reduction, -1, counts)));
  }

 private:
  static CollectiveCall with(Priority priority, CollectiveCall call) {
    call.priority = priority;
    return call;
  }
  template <RecordRange Records>
  static auto bytes_of(Records&& records) {
    using Element = std::remove_reference_t<std::ranges::range_reference_t<Records>>;
    using Bytes = std::conditional_t<std::is_const_v<Element>, ConstBuffer, Buffer>;
    return Bytes(std::ranges::data(records), std::ranges::size(records) * sizeof(Element),
                 DType::kU8);
  }
  static CollectiveCall broadcast_call(Buffer data, int root) {
    return {.kind = CollectiveKind::kBroadcast, .input = data, .output = data, .root = root};
  }
  static CollectiveCall moving_call(CollectiveKind kind, ConstBuffer input, Buffer output, int root,
                                    Counts counts) {
    return {.kind = kind, .input = input, .output = output, .counts = counts, .root = root};
  }
  static CollectiveCall all_to_all_call(ConstBuffer input, Buffer output, Counts send_counts,
                                        Counts recv_counts) {
    return {.kind = CollectiveKind::kAllToAll,
            .input = input,
            .output = output,
            .counts = send_counts,
            .recv_counts = recv_counts};
  }
  CollectiveCall reduce_call(CollectiveKind kind, ConstBuffer input, Buffer output, ReduceOp op,
                             int root, Counts counts = {}) const {
    return {.kind = kind,
            .input = input,
            .output = output,
            .counts = counts,
            .op = op,
            .root = root,
            .order = reduce_order()};
  }
  CollectiveCall all_reduce_call(Buffer data, ReduceOp op, Algorithm algorithm) const {
    return {.kind = CollectiveKind::kAllReduce,
            .input = data,
            .output = data,
            .op = op,
            .algorithm = algorithm,
            .order = reduce_order()};
  }
  CollectiveCall coalesced_call(std::span<const Buffer> pieces, ReduceOp op) const {
    return {
        .kind = CollectiveKind::kAllReduce, .pieces = pieces, .op = op, .order = reduce_order()};
  }
  CollectiveCall record_call(CollectiveKind kind, ConstBuffer input, Buffer output,
                             const RecordReduction& reduction, int root, Counts counts = {}) const {
    return {.kind = kind,
            .input = input,
            .output = output,
            .counts = counts,
            .record = &reduction,
            .root = root,
            .order = reduce_order()};
  }
};

/// The communicator of all ranks of the job: reads the environment that dlaunch made, meets the
/// other ranks through the store and connects to them. Without dlaunch it is a world of one. Blocks
/// until all ranks have come or the job's timeout has passed (kTimeout names the ranks that are
/// missing). Each call makes a world of its own, with that of the same number on the other ranks:
/// libraries that each connect one do so in the same order everywhere, on one thread, or share one
/// by split().
Result<std::unique_ptr<Communicator>> connect_world();

/// When a rank of a job is ready: dlaunch restarts only a job all of whose ranks have been.
enum class ReadyWhen {
  kConnected,
  kAnnounced,  // when it calls Activity::set_ready(): for a program whose start-up is longer
};

/// The same for an environment already read, with a logger.
Result<std::unique_ptr<Communicator>> connect_world(const JobEnvironment& job, Logger logger,
                                                    ReadyWhen ready = ReadyWhen::kConnected);

}  // namespace dlaunch
