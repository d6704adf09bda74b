// The functions of include/cublasLt.h.
#include <algorithm>
#include <cstring>
#include <functional>
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

/// Number `index` of a batch, as it lies there.
struct Matrix {
  Matrix(const void* first, const cublasLtMatrixLayoutOpaque_t& layout, std::int32_t index)
      : data(static_cast<std::byte*>(const_cast<void*>(first)) +
             static_cast<std::size_t>(index * layout.offset) * size_of(dtype_of_data(layout.type))),
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
    return data + static_cast<std::size_t>(c * step) * size_of(dtype);
  }

  std::byte* data;
  DType dtype;
  std::int64_t rows, columns, step;
};

/// Elements from the first matrix's first to the last one's last.
std::int64_t extent_of(const cublasLtMatrixLayoutOpaque_t& layout) {
  return (layout.count - 1) * layout.offset +
         static_cast<std::int64_t>(layout.columns - 1) * layout.step +
         static_cast<std::int64_t>(layout.rows);
}

/// Or several, which do not overlap.
bool is_matrix(const cublasLtMatrixLayoutOpaque_t& layout) {
  const auto rows = static_cast<std::int64_t>(layout.rows);
  const auto columns = static_cast<std::int64_t>(layout.columns);
  return rows > 0 && columns > 0 && layout.step >= rows && layout.count > 0 &&
         (layout.count == 1 || layout.offset >= (columns - 1) * layout.step + rows);
}

bool overlap(const void* a, const cublasLtMatrixLayoutOpaque_t& layout_a, const void* b,
             const cublasLtMatrixLayoutOpaque_t& layout_b) {
  const auto end = [](const void* first, const cublasLtMatrixLayoutOpaque_t& layout) {
    return static_cast<const std::byte*>(first) +
           static_cast<std::size_t>(extent_of(layout)) * size_of(dtype_of_data(layout.type));
  };
  return std::less<>()(a, end(b, layout_b)) && std::less<>()(b, end(a, layout_a));
}

/// Whether op(A) op(B) has the shape and a type of C.
bool fits(const cublasLtMatmulDescOpaque_t& operation, const cublasLtMatrixLayoutOpaque_t& a,
          const cublasLtMatrixLayoutOpaque_t& b, const cublasLtMatrixLayoutOpaque_t& c) {
  const bool turned_a = operation.transpose_a == CUBLAS_OP_T;
  const bool turned_b = operation.transpose_b == CUBLAS_OP_T;
  const bool tf32 = operation.compute_type == CUBLAS_COMPUTE_32F_FAST_TF32;
  return is_matrix(a) && is_matrix(b) && is_matrix(c) && a.count == c.count && b.count == c.count &&
         operation.scale_type == CUDA_R_32F && (turned_a ? a.columns : a.rows) == c.rows &&
         (turned_b ? b.rows : b.columns) == c.columns &&
         (turned_a ? a.rows : a.columns) == (turned_b ? b.columns : b.rows) && a.type == b.type &&
         (c.type == CUDA_R_32F || c.type == a.type) && (!tf32 || a.type == CUDA_R_32F);
}

/// All of a batch.
bool are_aligned(const void* first, const cublasLtMatrixLayoutOpaque_t& layout,
                 std::uint32_t alignment) {
  const std::size_t step =
      static_cast<std::size_t>(layout.offset) * size_of(dtype_of_data(layout.type));
  return reinterpret_cast<std::uintptr_t>(first) % alignment == 0 && step % alignment == 0;
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
  *layout = {type, rows, columns, step, 1, 0};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, std::size_t bytes) {
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return take(layout->count, value, bytes);
  return take(layout->offset, value, bytes);
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
  using dlaunch::cuda_on_host::are_aligned;
  using dlaunch::cuda_on_host::Matrix;
  using dlaunch::cuda_on_host::overlap;
  const bool chosen_for_it = algorithm->a == *layout_a && algorithm->b == *layout_b &&
                             algorithm->c == *layout_c && *layout_c == *layout_d;
  const auto meets_result = [=](const void* other, cublasLtMatrixLayout_t layout) {
    return overlap(other, *layout, d, *layout_d);
  };
  const std::uint32_t(&alignments)[4] = algorithm->alignments;
  if (!dlaunch::cuda_on_host::fits(*operation, *layout_a, *layout_b, *layout_c) || !chosen_for_it ||
      meets_result(a, layout_a) || meets_result(b, layout_b) ||
      (c != d && meets_result(c, layout_c)) || workspace == nullptr ||
      workspace_bytes < algorithm->workspace || !are_aligned(a, *layout_a, alignments[0]) ||
      !are_aligned(b, *layout_b, alignments[1]) || !are_aligned(c, *layout_c, alignments[2]) ||
      !are_aligned(d, *layout_d, alignments[3]))
    return CUBLAS_STATUS_INVALID_VALUE;
  const float factor = *static_cast<const float*>(alpha);
  const float kept = *static_cast<const float*>(beta);
  const auto multiply = [=, turned = *operation, of_a = *layout_a, of_b = *layout_b,
                         of_d = *layout_d](std::int32_t index) {
    Eigen::MatrixXf x = Matrix(a, of_a, index).read();
    Eigen::MatrixXf y = Matrix(b, of_b, index).read();
    if (turned.transpose_a == CUBLAS_OP_T) x.transposeInPlace();
    if (turned.transpose_b == CUBLAS_OP_T) y.transposeInPlace();
    Eigen::MatrixXf product = factor * (x * y);
    if (kept != 0) product += kept * Matrix(c, of_d, index).read();
    Matrix(d, of_d, index).write(product);
  };
  dlaunch::cuda_on_host::queue().add(stream, [=, count = layout_d->count] {
    for (std::int32_t index = 0; index < count; ++index) multiply(index);
  });
  return CUBLAS_STATUS_SUCCESS;
}

// NOLINTEND(readability-identifier-naming)
