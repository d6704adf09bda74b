// MPI's part of what all communicators of a process share: initialisation, reductions that MPI does
// not have, types, and error texts. Any thread may call any member.
#pragma once

#include <atomic>
#include <memory>
#include <string_view>

#include <mpi.h>

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"
#include "runtime/collective/record_reduction.h"
#include "runtime/collective/types.h"

namespace dlaunch {

struct MpiOperation;

/// What an MPI function returned, as a Status that names the function.
Status mpi_status(int code, std::string_view function);

/// Halves count as 16-bit numbers: they are moved, but never added by MPI.
MPI_Datatype mpi_type(DType dtype);

/// A committed type of the records of `reduction`, for MpiLibrary::record_op(); freed with
/// MPI_Type_free. `reduction` must stay in place until then.
Result<MPI_Datatype> make_record_type(const RecordReduction& reduction);

class MpiLibrary {
 public:
  /// Initialises MPI unless the program has. kUnavailable without MPI_THREAD_MULTIPLE.
  static Result<std::shared_ptr<MpiLibrary>> open();
  ~MpiLibrary();
  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;

  /// For what reduced_in() gives; an average is a sum.
  MPI_Op op(ReduceOp op, DType dtype) const;
  MPI_Op record_op() const { return records_; }

  /// Keeps an operation that MPI can neither finish nor withdraw, until the process ends: MPI may
  /// use its memory whenever it goes on, also for a program's own calls when nothing of this
  /// library is left. MPI is not finalised then, because that might wait forever.
  void abandon(std::unique_ptr<MpiOperation> operation);
  /// MPI is not to be finalised.
  void abandon() { abandoned_ = true; }
  bool abandoned() const { return abandoned_; }

 private:
  MpiLibrary() = default;

  bool initialised_here_ = false;
  MPI_Op minimum_ = MPI_OP_NULL;
  MPI_Op maximum_ = MPI_OP_NULL;
  MPI_Op sum_of_bytes_ = MPI_OP_NULL;
  MPI_Op product_of_bytes_ = MPI_OP_NULL;
  MPI_Op records_ = MPI_OP_NULL;
  std::atomic<bool> abandoned_{false};
};

}  // namespace dlaunch
