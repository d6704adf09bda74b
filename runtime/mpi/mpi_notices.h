// MpiNotices: tells the other ranks of a communicator that it has failed and why, and hears it from
// them. Any thread may call any member.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <mpi.h>

#include "runtime/base/status.h"

namespace dlaunch {

class MpiNotices {
 public:
  /// `comm` carries no other messages of the tag 0.
  MpiNotices(MPI_Comm comm, int rank, int size);
  ~MpiNotices();
  MpiNotices(const MpiNotices&) = delete;
  MpiNotices& operator=(const MpiNotices&) = delete;

  /// Once.
  void send(const Status& why);
  /// What another rank has told, if that is new.
  std::optional<Status> receive();

 private:
  struct Notice {
    std::int32_t code = 0;
    std::int32_t peer = -1;
    std::array<char, 1'000> text{};
  };

  MPI_Comm comm_;
  const int rank_;
  const int size_;
  std::mutex mutex_;
  Notice incoming_;
  std::unique_ptr<Notice> outgoing_ = std::make_unique<Notice>();
  MPI_Request receive_ = MPI_REQUEST_NULL;
  std::vector<MPI_Request> sends_;
};

}  // namespace dlaunch
