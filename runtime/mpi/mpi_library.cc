#include "runtime/mpi/mpi_library.h"

#include <array>
#include <string>
#include <utility>

#include "runtime/collective/reduction.h"
#include "runtime/mpi/mpi_operation.h"

namespace dlaunch {
namespace {

// In place of MPI's own reductions where those differ: minima and maxima need not hand on a NaN,
// and Open MPI 4.1 saturates sums of bytes on CPUs with AVX.
template <ReduceOp kOp>
void reduce_here(void* operand, void* accumulator, int* count, MPI_Datatype* type) {
  const DType dtype = *type == MPI_DOUBLE   ? DType::kF64
                      : *type == MPI_FLOAT  ? DType::kF32
                      : *type == MPI_INT8_T ? DType::kI8
                                            : DType::kU8;
  accumulate(kOp, dtype, accumulator, operand, static_cast<std::size_t>(*count));
}

// MPI calls a reduction without any context but the type of its operands, so the context hangs on
// the type, as an attribute. The key is a constant of the process, as MPI itself is one of it.
int record_key() {
  static const int key = [] {
    int made = MPI_KEYVAL_INVALID;
    MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, &made, nullptr);
    return made;
  }();
  return key;
}

void reduce_records(void* operand, void* accumulator, int* count, MPI_Datatype* type) {
  void* attribute = nullptr;
  int found = 0;
  MPI_Type_get_attr(*type, record_key(), static_cast<void*>(&attribute), &found);
  const auto& reduction = *static_cast<const RecordReduction*>(attribute);
  reduction.combine(accumulator, operand, static_cast<std::size_t>(*count), reduction.context);
}

Status too_few_threads(int provided) {
  const char* const names[] = {"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED", "MPI_THREAD_SERIALIZED"};
  const bool known = provided == MPI_THREAD_SINGLE || provided == MPI_THREAD_FUNNELED ||
                     provided == MPI_THREAD_SERIALIZED;
  const char* const name = !known                            ? "less"
                           : provided == MPI_THREAD_SINGLE   ? names[0]
                           : provided == MPI_THREAD_FUNNELED ? names[1]
                                                             : names[2];
  return Status(StatusCode::kUnavailable,
                std::string("this MPI offers ") + name +
                    ", but a communicator needs MPI_THREAD_MULTIPLE: initialise MPI with it, or "
                    "use an MPI built with it");
}

}  // namespace

Status mpi_status(int code, std::string_view function) {
  if (code == MPI_SUCCESS) return Status();
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  int kind = MPI_ERR_OTHER;
  MPI_Error_string(code, text.data(), &length);
  MPI_Error_class(code, &kind);
  const StatusCode status = kind == MPI_ERR_TRUNCATE ? StatusCode::kMismatch : StatusCode::kIo;
  // MPICH appends where in itself the error was met, on lines of their own.
  std::string first_line(text.data(), static_cast<std::size_t>(length));
  first_line = first_line.substr(0, first_line.find('\n'));
  first_line = first_line.substr(0, first_line.find(", error stack:"));
  return Status(status, std::string(function) + ": " + first_line);
}

MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::kF16:
    case DType::kBF16:
      return MPI_UINT16_T;
    case DType::kF32:
      return MPI_FLOAT;
    case DType::kF64:
      return MPI_DOUBLE;
    case DType::kI32:
      return MPI_INT32_T;
    case DType::kI64:
      return MPI_INT64_T;
    case DType::kI8:
      return MPI_INT8_T;
    case DType::kU32:
      return MPI_UINT32_T;
    case DType::kU64:
      return MPI_UINT64_T;
    case DType::kU8:
      break;
  }
  return MPI_UINT8_T;
}

Result<MPI_Datatype> make_record_type(const RecordReduction& reduction) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  DLAUNCH_RETURN_IF_ERROR(
      mpi_status(MPI_Type_contiguous(static_cast<int>(reduction.bytes), MPI_BYTE, &type),
                 "MPI_Type_contiguous"));
  auto* const context = const_cast<RecordReduction*>(&reduction);  // only read
  DLAUNCH_RETURN_IF_ERROR(
      mpi_status(MPI_Type_set_attr(type, record_key(), context), "MPI_Type_set_attr"));
  DLAUNCH_RETURN_IF_ERROR(mpi_status(MPI_Type_commit(&type), "MPI_Type_commit"));
  return type;
}

Result<std::shared_ptr<MpiLibrary>> MpiLibrary::open() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    return Status(
        StatusCode::kUnavailable,
        "MPI was finalised, with the last communicator of an earlier world, and cannot be "
        "initialised again: keep the first world");
  }
  std::shared_ptr<MpiLibrary> library(new MpiLibrary());
  int initialized = 0;
  int provided = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  if (initialized != 0) {
    MPI_Query_thread(&provided);
  } else {
    const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
    DLAUNCH_RETURN_IF_ERROR(mpi_status(code, "MPI_Init_thread"));
    library->initialised_here_ = true;
    // MPICH asks these for errors of requests; a program's own MPI keeps its own handlers.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  }
  if (provided < MPI_THREAD_MULTIPLE) return too_few_threads(provided);
  const auto make = [](MPI_User_function* function, MPI_Op& op) {
    return mpi_status(MPI_Op_create(function, /*commute=*/1, &op), "MPI_Op_create");
  };
  DLAUNCH_RETURN_IF_ERROR(make(reduce_here<ReduceOp::kMin>, library->minimum_));
  DLAUNCH_RETURN_IF_ERROR(make(reduce_here<ReduceOp::kMax>, library->maximum_));
  DLAUNCH_RETURN_IF_ERROR(make(reduce_here<ReduceOp::kSum>, library->sum_of_bytes_));
  DLAUNCH_RETURN_IF_ERROR(make(reduce_here<ReduceOp::kProd>, library->product_of_bytes_));
  DLAUNCH_RETURN_IF_ERROR(make(reduce_records, library->records_));
  return library;
}

MpiLibrary::~MpiLibrary() {
  if (abandoned_) return;
  for (MPI_Op* op : {&minimum_, &maximum_, &sum_of_bytes_, &product_of_bytes_, &records_}) {
    if (*op != MPI_OP_NULL) MPI_Op_free(op);
  }
  if (initialised_here_) MPI_Finalize();
}

MPI_Op MpiLibrary::op(ReduceOp op, DType dtype) const {
  const bool bytes = size_of(dtype) == 1;
  switch (op) {
    case ReduceOp::kProd:
      return bytes ? product_of_bytes_ : MPI_PROD;
    case ReduceOp::kMin:
      return bytes || is_floating(dtype) ? minimum_ : MPI_MIN;
    case ReduceOp::kMax:
      return bytes || is_floating(dtype) ? maximum_ : MPI_MAX;
    case ReduceOp::kBand:
      return MPI_BAND;
    case ReduceOp::kBor:
      return MPI_BOR;
    case ReduceOp::kBxor:
      return MPI_BXOR;
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      break;
  }
  return bytes ? sum_of_bytes_ : MPI_SUM;
}

void MpiLibrary::abandon(std::unique_ptr<MpiOperation> operation) {
  abandoned_ = true;
  (void)operation.release();
}

}  // namespace dlaunch
