#include "runtime/mpi/mpi_notices.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "runtime/base/deadline.h"

namespace dlaunch {
namespace {

constexpr int kTag = 0;

}  // namespace

MpiNotices::MpiNotices(MPI_Comm comm, int rank, int size) : comm_(comm), rank_(rank), size_(size) {
  if (size_ == 1) return;
  MPI_Irecv(&incoming_, sizeof incoming_, MPI_BYTE, MPI_ANY_SOURCE, kTag, comm_, &receive_);
}

MpiNotices::~MpiNotices() {
  if (receive_ != MPI_REQUEST_NULL) {
    MPI_Cancel(&receive_);
    // Matched or not, it ends at once: messages are short. It was begun by the constructor.
    MPI_Wait(&receive_, MPI_STATUS_IGNORE);  // NOLINT(clang-analyzer-optin.mpi.MPI-Checker)
  }
  // Short messages leave without the receiver's help, but not always at once.
  const Deadline soon = Deadline::after(std::chrono::milliseconds(100));
  int sent = sends_.empty() ? 1 : 0;
  while (sent == 0 && !soon.expired()) {
    MPI_Testall(static_cast<int>(sends_.size()), sends_.data(), &sent, MPI_STATUSES_IGNORE);
    std::this_thread::yield();
  }
  if (sent == 0) (void)outgoing_.release();  // MPI may still read it
}

void MpiNotices::send(const Status& why) {
  const std::scoped_lock lock(mutex_);
  const std::string text = why.to_string();
  outgoing_->code = static_cast<std::int32_t>(why.code());
  outgoing_->peer = why.peer().value_or(-1);
  std::copy_n(text.begin(), std::min(text.size(), outgoing_->text.size() - 1),
              outgoing_->text.begin());
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    MPI_Isend(outgoing_.get(), sizeof *outgoing_, MPI_BYTE, peer, kTag, comm_,
              &sends_.emplace_back(MPI_REQUEST_NULL));
  }
}

std::optional<Status> MpiNotices::receive() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || receive_ == MPI_REQUEST_NULL) return std::nullopt;
  int received = 0;
  MPI_Status from;
  if (MPI_Test(&receive_, &received, &from) != MPI_SUCCESS || received == 0) return std::nullopt;
  const bool known = incoming_.code > static_cast<std::int32_t>(StatusCode::kOk) &&
                     incoming_.code <= static_cast<std::int32_t>(StatusCode::kIo);
  const StatusCode code = known ? static_cast<StatusCode>(incoming_.code) : StatusCode::kProtocol;
  incoming_.text.back() = '\0';
  std::string text = std::string(incoming_.text.data()) + " (reported by rank " +
                     std::to_string(from.MPI_SOURCE) + ")";
  // The text names the peer already where there is one.
  return Status(code, std::move(text));
}

}  // namespace dlaunch
