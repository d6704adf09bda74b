// The functions of include/cublasLt.h.
#include <algorithm>
#include <cstring>
#include <iterator>

#include <Eigen/Core>

#include "cublasLt.h"
#include "tests/cuda_on_host/halves.h"
#include "tests/cuda_on_host/queue.h"

// NOLINTBEGIN(readability-identifier-naming): the names are cuBLAS's

struct cublasLtContext {};

namespace dlaunch::cuda_on_host {
namespace {

DType dtype_of_data(cudaDataType_t type) {
  return type == CUDA_R_16BF ? DType::kBF16 : type == CUDA_R_16F ? DType::kF16 : DType::kF32;
}

/// As it lies there.
struct Matrix {
  Matrix(const void* at, const cublasLtMatrixLayoutOpaque_t& layout)
      : data(const_cast<void*>(at)),
        dtype(dtype_of_data(layout.type)),
        rows(static_cast<std::int64_t>(layout.rows)),
        columns(static_cast<std::int64_t>(layout.columns)),
        step(layout.step) {}

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

  void* data;
  DType dtype;
  std::int64_t rows, columns, step;
};

bool is_matrix(const cublasLtMatrixLayoutOpaque_t& layout) {
  return layout.rows > 0 && layout.columns > 0 &&
         layout.step >= static_cast<std::int64_t>(layout.rows);
}

/// Whether op(A) op(B) has the shape and a type of C.
bool fits(const cublasLtMatmulDescOpaque_t& operation, const cublasLtMatrixLayoutOpaque_t& a,
          const cublasLtMatrixLayoutOpaque_t& b, const cublasLtMatrixLayoutOpaque_t& c) {
  const bool turned_a = operation.transpose_a == CUBLAS_OP_T;
  const bool turned_b = operation.transpose_b == CUBLAS_OP_T;
  const bool tf32 = operation.compute_type == CUBLAS_COMPUTE_32F_FAST_TF32;
  return is_matrix(a) && is_matrix(b) && is_matrix(c) && operation.scale_type == CUDA_R_32F &&
         (turned_a ? a.columns : a.rows) == c.rows &&
         (turned_b ? b.rows : b.columns) == c.columns &&
         (turned_a ? a.rows : a.columns) == (turned_b ? b.columns : b.rows) && a.type == b.type &&
         (c.type == CUDA_R_32F || c.type == a.type) && (!tf32 || a.type == CUDA_R_32F);
}

bool is_aligned(const void* data, std::uint32_t alignment) {
  return reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
}

template <typename Value>
cublasStatus_t take(Value& into, const void* value, std::size_t bytes) {
  if (bytes != sizeof into) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&into, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace
}  // namespace dlaunch::cuda_on_host

using dlaunch::cuda_on_host::take;

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS         ? "success"
         : status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported"
                                                 : "an invalid value";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t operation,
                                      cublasComputeType_t compute_type, cudaDataType_t scale_type) {
  *operation = {compute_type, scale_type, CUBLAS_OP_N, CUBLAS_OP_N};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  return take(
      attribute == CUBLASLT_MATMUL_DESC_TRANSA ? operation->transpose_a : operation->transpose_b,
      value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType_t type,
                                        std::uint64_t rows, std::uint64_t columns,
                                        std::int64_t step) {
  *layout = {type, rows, columns, step};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t preference) {
  *preference = {0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(preference->reduction_schemes, value, bytes);
    default:
      return take(preference->alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                  value, bytes);
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t /*handle*/,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* count) {
  *count = 0;
  if (!dlaunch::cuda_on_host::fits(*operation, *a, *b, *c) || !(*c == *d) || most < 1)
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool odd = a->step % 2 != 0 || b->step % 2 != 0;
  if (preference->reduction_schemes != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE ||
      (odd && a->type != CUDA_R_32F))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  cublasLtMatmulAlgo_t algorithm{*a, *b, *c, preference->workspace, {}};
  std::ranges::copy(preference->alignments, std::begin(algorithm.alignments));
  *results = {algorithm, algorithm.workspace, CUBLAS_STATUS_SUCCESS};
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t layout_a,
                              const void* b, cublasLtMatrixLayout_t layout_b, const void* beta,
                              const void* c, cublasLtMatrixLayout_t layout_c, void* d,
                              cublasLtMatrixLayout_t layout_d,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  using dlaunch::cuda_on_host::is_aligned;
  using dlaunch::cuda_on_host::Matrix;
  const bool chosen_for_it = algorithm->a == *layout_a && algorithm->b == *layout_b &&
                             algorithm->c == *layout_c && *layout_c == *layout_d;
  if (!dlaunch::cuda_on_host::fits(*operation, *layout_a, *layout_b, *layout_c) || !chosen_for_it ||
      c != d || workspace == nullptr || workspace_bytes < algorithm->workspace ||
      !is_aligned(a, algorithm->alignments[0]) || !is_aligned(b, algorithm->alignments[1]) ||
      !is_aligned(c, algorithm->alignments[2]) || !is_aligned(d, algorithm->alignments[3]))
    return CUBLAS_STATUS_INVALID_VALUE;
  const float factor = *static_cast<const float*>(alpha);
  const float kept = *static_cast<const float*>(beta);
  const bool turned_a = operation->transpose_a == CUBLAS_OP_T;
  const bool turned_b = operation->transpose_b == CUBLAS_OP_T;
  const Matrix left(a, *layout_a), right(b, *layout_b), result(d, *layout_d);
  dlaunch::cuda_on_host::queue().add(stream, [=] {
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
