// The functions of include/cublas_v2.h.
#include <Eigen/Core>

#include "cublas_v2.h"
#include "tests/cuda_on_host/halves.h"
#include "tests/cuda_on_host/queue.h"

// NOLINTBEGIN(readability-identifier-naming): the names are cuBLAS's

struct cublasContext {
  cudaStream_t stream = nullptr;
};

namespace dlaunch::cuda_on_host {
namespace {

DType dtype_of_data(cudaDataType_t type) {
  return type == CUDA_R_16BF ? DType::kBF16 : type == CUDA_R_16F ? DType::kF16 : DType::kF32;
}

// As cuBLAS's arguments have it: `rows` and `columns` of it as it lies there.
struct Matrix {
  void* data;
  DType dtype;
  std::int64_t rows, columns, step;

  bool fits() const { return step >= rows; }
  // What lies between the columns is not read.
  Eigen::MatrixXf read() const {
    Eigen::MatrixXf values(rows, columns);
    const auto height = static_cast<std::size_t>(rows);
    for (std::int64_t c = 0; c < columns; ++c)
      values.col(c) =
          Eigen::Map<const Eigen::VectorXf>(widened(column(c), dtype, height).data(), rows);
    return values;
  }
  void write(const Eigen::MatrixXf& values) const {
    for (std::int64_t c = 0; c < columns; ++c)
      narrow({values.col(c).data(), static_cast<std::size_t>(rows)}, column(c), dtype);
  }

 private:
  void* column(std::int64_t c) const {
    return static_cast<std::byte*>(data) + static_cast<std::size_t>(c * step) * size_of(dtype);
  }
};

}  // namespace
}  // namespace dlaunch::cuda_on_host

const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "an invalid value";
}

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t /*handle*/, void* /*workspace*/,
                                  std::size_t /*bytes*/) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t transpose_a,
                               cublasOperation_t transpose_b, std::int64_t m, std::int64_t n,
                               std::int64_t k, const void* alpha, const void* a,
                               cudaDataType_t type_a, std::int64_t lda, const void* b,
                               cudaDataType_t type_b, std::int64_t ldb, const void* beta, void* c,
                               cudaDataType_t type_c, std::int64_t ldc,
                               cublasComputeType_t /*compute_type*/,
                               cublasGemmAlgo_t /*algorithm*/) {
  using dlaunch::cuda_on_host::dtype_of_data;
  using dlaunch::cuda_on_host::Matrix;
  const bool turned_a = transpose_a == CUBLAS_OP_T;
  const bool turned_b = transpose_b == CUBLAS_OP_T;
  const Matrix left{const_cast<void*>(a), dtype_of_data(type_a), turned_a ? k : m, turned_a ? m : k,
                    lda};
  const Matrix right{const_cast<void*>(b), dtype_of_data(type_b), turned_b ? n : k,
                     turned_b ? k : n, ldb};
  const Matrix result{c, dtype_of_data(type_c), m, n, ldc};
  const bool types_fit = type_a == type_b && (type_c == type_a || type_c == CUDA_R_32F);
  if (m <= 0 || n <= 0 || k <= 0 || !left.fits() || !right.fits() || !result.fits() || !types_fit)
    return CUBLAS_STATUS_INVALID_VALUE;
  const float factor = *static_cast<const float*>(alpha);
  const float kept = *static_cast<const float*>(beta);
  dlaunch::cuda_on_host::queue().add(handle->stream, [=] {
    Eigen::MatrixXf x = left.read();
    Eigen::MatrixXf y = right.read();
    if (turned_a) x.transposeInPlace();
    if (turned_b) y.transposeInPlace();
    Eigen::MatrixXf product = factor * (x * y);
    if (kept != 0) product += kept * result.read();
    result.write(product);
  });
  return CUBLAS_STATUS_SUCCESS;
}

// NOLINTEND(readability-identifier-naming)
