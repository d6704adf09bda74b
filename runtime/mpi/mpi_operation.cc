#include "runtime/mpi/mpi_operation.h"

#include <algorithm>
#include <cstring>

namespace dlaunch {
namespace {

bool in_hand(MPI_Request request) {
  return request != MPI_REQUEST_NULL;
}

std::string describe_message(const char* what, const char* direction, const ConstBuffer& data,
                             int peer, std::uint64_t tag) {
  return std::string(what) + " " + std::string(to_string(data.dtype)) + "[" +
         std::to_string(data.count) + "] " + direction +
         (peer == kAnyRank ? " any rank" : " rank " + std::to_string(peer)) + " tag " +
         std::to_string(tag);
}

// Calls transfer(first, count) for the pieces of a message that MPI can count; once for none.
template <typename Transfer>
Status in_pieces(std::size_t count, std::size_t largest, const Transfer& transfer) {
  std::size_t first = 0;
  do {
    const std::size_t piece = std::min(count - first, largest);
    DLAUNCH_RETURN_IF_ERROR(transfer(first, static_cast<int>(piece)));
    first += piece;
  } while (first < count);
  return Status();
}

}  // namespace

MpiOperation::~MpiOperation() {
  if (record_type != MPI_DATATYPE_NULL) MPI_Type_free(&record_type);
}

// One after the other: any look lets MPI make progress with all of them, and an error of a look at
// several would go to MPI_COMM_WORLD's error handler.
bool MpiOperation::test() {
  results.resize(requests.size());
  while (status.ok() && ended < requests.size()) {
    int done = 0;
    status = mpi_status(MPI_Test(&requests[ended], &done, &results[ended]), "MPI_Test");
    if (status.ok() && done == 0) return false;
    ++ended;
  }
  return true;
}

bool MpiOperation::late() const {
  if (!is_message) return deadline.expired();
  const auto limit = outcome->limit(timeout);
  return limit && limit->expired();
}

bool MpiOperation::withdraw() {
  if (!only_receives) return std::ranges::none_of(requests, in_hand);
  for (MPI_Request& request : requests) {
    if (in_hand(request)) MPI_Cancel(&request);
  }
  // One whose message is arriving ends with it, if that ends.
  const Deadline soon = Deadline::after(std::chrono::milliseconds(100));
  for (MPI_Request& request : requests) {
    int ended = 0;
    while (in_hand(request) && ended == 0 && !soon.expired()) {
      MPI_Test(&request, &ended, MPI_STATUS_IGNORE);
    }
  }
  return std::ranges::none_of(requests, in_hand);
}

void begin_send(const MpiContext& context, ConstBuffer data, int peer, std::uint64_t tag,
                MpiOperation& operation) {
  operation.is_message = true;
  operation.name = [=] { return describe_message("send", "to", data, peer, tag); };
  const auto* from = static_cast<const std::byte*>(data.data);
  if (peer == context.rank && data.count > 0) {
    operation.operands.assign(from, from + data.bytes());
    from = operation.operands.data();
  }
  const auto send = [&](std::size_t first, int count) {
    const void* const piece = count == 0 ? nullptr : from + first * size_of(data.dtype);
    return mpi_status(MPI_Isend(piece, count, mpi_type(data.dtype), peer, static_cast<int>(tag),
                                context.comm, &operation.requests.emplace_back(MPI_REQUEST_NULL)),
                      "MPI_Isend");
  };
  operation.status = in_pieces(data.count, context.largest_count, send);
}

void begin_recv(const MpiContext& context, Buffer data, int peer, std::uint64_t tag,
                MpiOperation& operation, int* sender) {
  operation.is_message = true;
  operation.name = [=] { return describe_message("recv", "from", data, peer, tag); };
  operation.only_receives = true;
  const auto receive = [&](std::size_t first, int count) {
    void* const piece =
        count == 0 ? nullptr : static_cast<std::byte*>(data.data) + first * size_of(data.dtype);
    return mpi_status(MPI_Irecv(piece, count, mpi_type(data.dtype),
                                peer == kAnyRank ? MPI_ANY_SOURCE : peer, static_cast<int>(tag),
                                context.comm, &operation.requests.emplace_back(MPI_REQUEST_NULL)),
                      "MPI_Irecv");
  };
  operation.status = in_pieces(data.count, context.largest_count, receive);
  operation.finish = [&operation, data, sender] {
    const int from = operation.results.front().MPI_SOURCE;
    std::size_t received = 0;
    std::size_t bytes = 0;
    bool whole = true;
    for (const MPI_Status& result : operation.results) {
      int count = 0;
      MPI_Get_count(&result, MPI_BYTE, &count);
      bytes += static_cast<std::size_t>(std::max(count, 0));
      MPI_Get_count(&result, mpi_type(data.dtype), &count);
      whole = whole && count != MPI_UNDEFINED;  // else what came is no number of elements
      received += static_cast<std::size_t>(std::max(count, 0));
    }
    if (whole && received == data.count) {
      if (sender != nullptr) *sender = from;
      return Status();
    }
    return Status::about_peer(StatusCode::kMismatch, from,
                              whole ? "sent " + std::to_string(received) + " elements"
                                    : "sent " + std::to_string(bytes) + " bytes");
  };
}

}  // namespace dlaunch
