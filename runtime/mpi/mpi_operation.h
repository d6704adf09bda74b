// MpiOperation: one call in MPI's hands. Its requests are tested until all are done, then the
// result is put where the caller wants it.
//
// Made and begun by the caller's thread, then used by the thread that waits for it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <mpi.h>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "runtime/collective/record_reduction.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/outcome.h"
#include "runtime/comm/working_copy.h"
#include "runtime/mpi/mpi_library.h"

namespace dlaunch {

/// Where an operation takes place.
struct MpiContext {
  const MpiLibrary* library = nullptr;
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  std::size_t largest_count = 0;
  int tag_bound = 0;  // MPI_TAG_UB; the tag itself belongs to collectives
};

struct MpiOperation {
  MpiOperation() = default;
  ~MpiOperation();
  MpiOperation(const MpiOperation&) = delete;
  MpiOperation& operator=(const MpiOperation&) = delete;

  /// True once every request has ended well, or one has not (`status`).
  bool test();
  /// True if an asynchronous one has taken too long: for a message from when somebody waits for it.
  bool late() const;
  /// Takes back what MPI lets go of: receives whose message has not come. True if nothing is left
  /// in MPI's hands.
  bool withdraw();

  Status status;
  std::function<std::string()> name;
  std::vector<MPI_Request> requests;
  std::vector<MPI_Status> results;  // of the requests, once they have ended
  std::size_t ended = 0;            // how many have
  bool only_receives = false;
  std::function<Status()> finish;  // after all requests have ended well

  // What MPI uses in the meantime.
  std::vector<int> send_counts;
  std::vector<int> send_offsets;
  std::vector<int> recv_counts;
  std::vector<int> recv_offsets;
  WorkingCopy copy;
  std::vector<std::byte> operands;  // of all ranks, or a message to oneself
  RecordReduction record;
  MPI_Datatype record_type = MPI_DATATYPE_NULL;

  // Of an asynchronous call.
  bool is_message = false;
  std::chrono::nanoseconds timeout{};
  Deadline deadline = Deadline::after({});  // of a collective
  std::shared_ptr<Outcome> outcome;
};

/// Begins a valid call. What went wrong is in `operation.status`; nothing is in flight then unless
/// there are requests.
void begin_collective(const MpiContext& context, const CollectiveCall& call,
                      MpiOperation& operation);

/// The same for the ends of a message. A message to oneself is copied first.
void begin_send(const MpiContext& context, ConstBuffer data, int peer, std::uint64_t tag,
                MpiOperation& operation);
/// `sender`, if not null, is who sent it, once that has ended well.
void begin_recv(const MpiContext& context, Buffer data, int peer, std::uint64_t tag,
                MpiOperation& operation, int* sender = nullptr);

}  // namespace dlaunch
