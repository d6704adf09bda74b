#include "nn/cpu/matmul.h"

#include <bit>
#include <cstring>
#include <string>

#include "nn/core/error.h"
#include "nn/core/widened.h"
#include "nn/cpu/kernels.h"

namespace dlaunch::nn::cpu {
namespace {

// More shapes than any network has; reached only by programs that go through many.
constexpr std::size_t kMostPlans = 512;

}  // namespace

Products::Products(CachingAllocator& allocator)
    : allocator_(allocator), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

std::size_t Products::Hash::operator()(const ProductDescriptor& p) const {
  std::size_t hash = (static_cast<std::size_t>(p.factors) << 8) +
                     (static_cast<std::size_t>(p.sums) << 4) + (p.transposed_a ? 4 : 0) +
                     (p.transposed_b ? 2 : 0);
  for (const std::int64_t value :
       {p.count, p.m, p.n, p.k, std::int64_t{std::bit_cast<std::int32_t>(p.alpha)},
        std::int64_t{std::bit_cast<std::int32_t>(p.beta)}})
    hash = hash * 0x9E3779B97F4A7C15U + static_cast<std::size_t>(value);
  return hash ^ (hash >> 29);
}

const Prepared<dnnl::matmul>& Products::plan(const ProductDescriptor& product) {
  if (const auto known = plans_.find(product); known != plans_.end()) return known->second;
  if (plans_.size() >= kMostPlans) plans_.clear();
  return plans_.emplace(product, describe_products(engine_, product)).first->second;
}

void Products::run(const MatmulArguments& arg) {
  const std::int64_t results = arg.count * arg.m * arg.n;
  if (results == 0) return;
  if (arg.k == 0 && arg.beta == 0) {
    std::memset(arg.d.data, 0, static_cast<std::size_t>(results) * size_of(arg.d.dtype));
    return;
  }
  if (arg.k == 0) return scale(results, arg.beta, arg.c, arg.d);
  if (!computes_in(arg.a.dtype))
    return matmul_widened(allocator_, convert, arg,
                          [this](const MatmulArguments& widened) { run(widened); });
  // oneDNN adds to what is there.
  if (arg.beta != 0 && arg.c.data != arg.d.data) convert(results, arg.c, arg.d);
  try {
    const auto& product = plan({.count = arg.count,
                                .m = arg.m,
                                .n = arg.n,
                                .k = arg.k,
                                .transposed_a = arg.transpose_a,
                                .transposed_b = arg.transpose_b,
                                .alpha = arg.alpha,
                                .beta = arg.beta,
                                .factors = arg.a.dtype,
                                .sums = arg.d.dtype});
    const auto& description = product.description;
    const auto over = [&](const dnnl::memory::desc& layout, const void* data) {
      return memory_over(engine_, layout, data);
    };
    product.execute({engine_, stream_, allocator_},
                    {{DNNL_ARG_SRC, over(description.src_desc(), arg.a.data)},
                     {DNNL_ARG_WEIGHTS, over(description.weights_desc(), arg.b.data)},
                     {DNNL_ARG_DST, over(description.dst_desc(), arg.d.data)}});
    stream_.wait();
  } catch (const dnnl::error& error) {
    throw Error("matmul of " + std::to_string(arg.count) + " [" + std::to_string(arg.m) + ", " +
                std::to_string(arg.k) + "] x [" + std::to_string(arg.k) + ", " +
                std::to_string(arg.n) + "]: oneDNN: " + error.what());
  }
}

}  // namespace dlaunch::nn::cpu
