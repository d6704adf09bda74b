// Backend: the seam between tensors and a device. It owns the device's memory and runs kernels on
// it: one virtual function per kernel, never per element. Pointers are device memory, images are
// NHWC, f32 unless said otherwise; `count` is a number of elements and may be 0. Activations are
// ArrayRefs: f32, bf16 or, where computes_in() says so, f16, all of a call the same unless said
// otherwise; arithmetic is in f32.
// Kernels may return before they are done (a GPU's stream keeps their order); outputs may be inputs
// only where a comment says "in place". Arguments have been checked by nn/core/ops.cc; kernels
// check nothing.
//
// Kernels of one Backend are called by one thread at a time; allocate() and deallocate() by any.
// Normalisation and optimizer kernels are behind two smaller interfaces: norm() and optimizer().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "nn/core/random.h"
#include "nn/core/shape.h"
#include "runtime/base/dtype.h"

namespace dlaunch::nn {

class NormKernels;       // nn/core/norm_kernels.h
class OptimizerKernels;  // nn/core/optimizer_kernels.h

struct AugmentedBatch;  // nn/data/augmentation.h

struct MemoryStats {
  std::size_t in_use = 0;         // bytes handed out now
  std::size_t peak = 0;           // most bytes handed out at any time since the last reset
  std::size_t reserved = 0;       // bytes held from the device, in use or cached
  std::uint64_t allocations = 0;  // requests that had to go to the device; constant in steady state
};

/// Input [n, height, width, in], weights [out, kernel_h, kernel_w, in],
/// output [n, out_height(), out_width(), out].
struct Conv2dGeometry {
  std::int64_t n, height, width, in, out;
  std::int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;

  std::int64_t out_height() const { return (height + 2 * pad_h - kernel_h) / stride_h + 1; }
  std::int64_t out_width() const { return (width + 2 * pad_w - kernel_w) / stride_w + 1; }
  Shape input() const { return {n, height, width, in}; }
  Shape output() const { return {n, out_height(), out_width(), out}; }
  friend bool operator==(const Conv2dGeometry&, const Conv2dGeometry&) = default;
};

/// Square windows; input [n, height, width, channels]. Padding counts as minus infinity.
struct PoolGeometry {
  std::int64_t n, height, width, channels;
  std::int64_t kernel, stride, pad;

  std::int64_t out_height() const { return (height + 2 * pad - kernel) / stride + 1; }
  std::int64_t out_width() const { return (width + 2 * pad - kernel) / stride + 1; }
  Shape output() const { return {n, out_height(), out_width(), channels}; }
};

/// Images that lie within others, or around them: out[n][r][c] = x[n][r + top][c + left] where x
/// has that pixel, else 0.
struct WindowGeometry {
  std::int64_t n, height, width, channels;
  std::int64_t out_height, out_width;
  std::int64_t top, left;  // may be negative

  Shape output() const { return {n, out_height, out_width, channels}; }
  /// What takes gradients of the result back to gradients of x.
  constexpr WindowGeometry backward() const {
    return {n, out_height, out_width, channels, height, width, -top, -left};
  }
};

/// Activation functions that need their argument in backward.
enum class Activation : std::uint8_t {
  kGelu,  // x Phi(x), Phi being the normal distribution's (Hendrycks & Gimpel 2016)
  kSilu,  // x / (1 + exp(-x)) (Elfwing, Uchibe & Doya 2017)
};

/// Activations, or gradients of activations: f32, bf16 or f16.
struct ConstArrayRef {
  const void* data = nullptr;
  DType dtype = DType::kF32;
};
struct ArrayRef {
  void* data = nullptr;
  DType dtype = DType::kF32;
  operator ConstArrayRef() const { return {data, dtype}; }  // NOLINT: as T* becomes const T*
};

/// For kernels, which know the element type.
template <typename T>
const T* as(ConstArrayRef array) {
  return static_cast<const T*>(array.data);
}
template <typename T>
T* as(ArrayRef array) {
  return static_cast<T*>(array.data);
}

/// Something a backend derives from a tensor's values and keeps with the tensor, such as reordered
/// weights. It is destroyed with the tensor.
class DerivedData {
 public:
  virtual ~DerivedData() = default;
};

/// Weights as a kernel sees them: `version` changes whenever the values may have, `derived` is the
/// place where the backend keeps what it made of them.
struct WeightsRef {
  const float* data;
  std::uint64_t version;
  std::unique_ptr<DerivedData>* derived;
};

/// `count` products D = alpha op(A) op(B) + beta C, each matrix behind the one of the product
/// before; row-major and dense, op(A) is [m, k], op(B) is [k, n], C and D are [m, n]. A and B are
/// both f32, bf16 or f16, C and D both f32 or as they are; sums are taken in f32 and rounded once.
struct MatmulArguments {
  bool transpose_a = false, transpose_b = false;
  std::int64_t count = 1;
  std::int64_t m, n, k;
  float alpha = 1;  // not 0
  float beta = 0;   // 0: C is not read
  ConstArrayRef a, b;
  ConstArrayRef c = {};
  ArrayRef d;  // where none of the others is, or where C is
};

/// Kernels that a backend has recorded instead of running them.
class Recording {
 public:
  virtual ~Recording() = default;
  /// Runs all of them in their order, behind what was started before, and returns. Dropout takes
  /// random words that lie so many blocks of four behind those that it was recorded with.
  virtual void replay(std::uint64_t random_blocks) = 0;
};

class Backend {
 public:
  Backend() = default;
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  virtual std::string_view name() const = 0;  // "cpu"
  virtual bool host_accessible() const = 0;   // tensor memory can be read and written by plain code
  virtual void synchronize() = 0;             // returns when every kernel is done

  // --- memory: cached, so that a training step that repeats does not reach the system ---
  /// At least `bytes`, aligned to 64; uninitialised. nullptr for 0. Throws Error when there is
  /// none.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* memory, std::size_t bytes) noexcept = 0;
  virtual MemoryStats memory() const = 0;
  virtual void reset_peak() = 0;
  virtual void copy_from_host(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy_to_host(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual void clear(void* memory, std::size_t bytes) = 0;  // sets every byte to 0

  /// Calls `work` and records the kernels that it starts, and the collectives on this backend's
  /// memory, instead of running them; null if the backend cannot, and nothing has happened. What
  /// kernels read besides memory is recorded as it is now. In `work` nothing may wait for the
  /// device or copy from or to the host (Error). If that or a kernel that cannot be recorded makes
  /// it fail, nothing has been done, and the backend relies on nothing that would have been. The
  /// backend must outlive the recording, as must all memory that `work` uses but does not allocate
  /// itself.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& /*work*/) {
    return nullptr;
  }

  /// Whether activations of this type are worth using: f32 always, bf16 where the device multiplies
  /// in it, f16 where there are kernels for it at all.
  virtual bool computes_in(DType dtype) const = 0;

  // --- elementwise ---
  virtual void fill(std::int64_t count, float value, float* y) = 0;
  virtual void convert(std::int64_t count, ConstArrayRef from, ArrayRef to) = 0;  // of any types
  virtual void add(std::int64_t count, ConstArrayRef a, ConstArrayRef b,
                   ArrayRef y) = 0;                                                  // in place
  virtual void axpy(std::int64_t count, float alpha, const float* x, float* y) = 0;  // y += alpha x
  /// y = factor * *scale * x; `scale` is device memory, null for 1. In place.
  virtual void scale(std::int64_t count, float factor, const float* scale_or_null, const float* x,
                     float* y) = 0;
  virtual void relu(std::int64_t count, ConstArrayRef x, ArrayRef y) = 0;  // in place
  /// dx = y > 0 ? dy : 0, with y the output of relu. In place (dx == dy).
  virtual void relu_backward(std::int64_t count, ConstArrayRef y, ConstArrayRef dy,
                             ArrayRef dx) = 0;
  /// y[i] = word(i) >= probability * 2^32 ? x[i] / (1 - probability) : 0, with the words of the
  /// random sequence from `random` on (a multiple of four). It is its own backward. In place.
  virtual void dropout(std::int64_t count, double probability, const RandomState& random,
                       ConstArrayRef x, ArrayRef y) = 0;

  // --- matrices [rows, columns] ---
  virtual void matmul(const MatmulArguments& arguments) = 0;
  virtual void broadcast_rows(std::int64_t rows, std::int64_t columns, const float* row,
                              float* y) = 0;
  /// sums[c] += sum over the rows of x[r][c].
  virtual void accumulate_column_sums(std::int64_t rows, std::int64_t columns, const float* x,
                                      float* sums) = 0;

  // --- images ---
  virtual void conv2d(const Conv2dGeometry& geometry, ConstArrayRef x, const WeightsRef& weights,
                      const float* bias_or_null, ArrayRef y) = 0;
  virtual void conv2d_backward_data(const Conv2dGeometry& geometry, ConstArrayRef dy,
                                    const WeightsRef& weights, ArrayRef dx) = 0;
  /// dw += ..., db += ... (db may be null).
  virtual void conv2d_backward_weights(const Conv2dGeometry& geometry, ConstArrayRef x,
                                       ConstArrayRef dy, float* dw, float* db_or_null) = 0;
  /// `argmax` (null: not wanted) holds for each output which element of its window won, row by row.
  virtual void max_pool2d(const PoolGeometry& geometry, ConstArrayRef x, ArrayRef y,
                          std::uint8_t* argmax) = 0;
  virtual void max_pool2d_backward(const PoolGeometry& geometry, ConstArrayRef dy,
                                   const std::uint8_t* argmax, ArrayRef dx) = 0;
  /// y[n][c] = mean over the pixels of x[n][p][c].
  virtual void global_avg_pool(std::int64_t n, std::int64_t pixels, std::int64_t channels,
                               ConstArrayRef x, float* y) = 0;
  virtual void global_avg_pool_backward(std::int64_t n, std::int64_t pixels, std::int64_t channels,
                                        const float* dy, ArrayRef dx) = 0;

  /// y [n, out_height, out_width, channels] as the formulas of nn/data/augmentation.h have it.
  virtual void augment(const AugmentedBatch& batch, ArrayRef y) = 0;
  virtual void window(const WindowGeometry& geometry, ConstArrayRef x, ArrayRef y) = 0;

  // --- loss ---
  /// loss[0] = the sum of the n rows' losses, -sum_k target_k log softmax(logits)_k, where target
  /// is (1 - smoothing) * one_hot(label) + smoothing / classes; gradient (null: not wanted) is that
  /// of loss[0]. Throws Error for a label out of range if labels can be read (host_accessible()).
  virtual void cross_entropy(std::int64_t n, std::int64_t classes, const float* logits,
                             const std::int32_t* labels, float smoothing, float* loss,
                             float* gradient) = 0;

  // --- GELU, SiLU ---
  virtual void activate(Activation activation, std::int64_t count, ConstArrayRef x,
                        ArrayRef y) = 0;  // in place
  /// dx = dy times the slope at x. In place (dx == dy, or dx == x).
  virtual void activate_backward(Activation activation, std::int64_t count, ConstArrayRef x,
                                 ConstArrayRef dy, ArrayRef dx) = 0;

  // --- CELU (Barron 2017): y = x > 0 ? x : alpha (exp(x / alpha) - 1) ---
  virtual void celu(std::int64_t count, float alpha, ConstArrayRef x, ArrayRef y) = 0;  // in place
  /// dx = dy times the slope at x. In place (dx == dy, or dx == x).
  virtual void celu_backward(std::int64_t count, float alpha, ConstArrayRef x, ConstArrayRef dy,
                             ArrayRef dx) = 0;

  // --- kernel groups in headers of their own ---
  virtual NormKernels& norm() = 0;
  virtual OptimizerKernels& optimizer() = 0;
};

}  // namespace dlaunch::nn
